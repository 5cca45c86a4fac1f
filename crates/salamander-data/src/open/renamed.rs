//! Columns under the names that a model has for them, so that files of other people need not be written again.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

use crate::reader::Each;
use crate::{ColumnInfo, Error, Reader, Row, Shard};

/// A reader whose columns have other names.
pub(super) struct Renamed {
    reader: Box<dyn Reader>,
    /// Names of columns in the files, by the names that they get.
    columns: BTreeMap<String, String>,
}

/// What becomes of a column.
enum ColumnFate<'a> {
    Stays,
    /// Another one gets its name.
    Goes,
    IsCalled(&'a str),
}

impl Renamed {
    /// The same reader where nothing is renamed.
    pub(super) fn over(
        reader: Box<dyn Reader>,
        columns: &BTreeMap<String, String>,
    ) -> Box<dyn Reader> {
        match columns.is_empty() {
            true => reader,
            false => Box::new(Self { reader, columns: columns.clone() }),
        }
    }

    /// What becomes of each of these columns. A column that is not there gives its name to nobody: who predicts may
    /// have files that were written for the model.
    fn fates<'a>(&'a self, found: &[&str]) -> Vec<ColumnFate<'a>> {
        let is_there = |(_, from): &(&String, &String)| found.contains(&from.as_str());
        let used: Vec<_> = self.columns.iter().filter(is_there).collect();
        let fate = |name: &&str| match used.iter().find(|(_, from)| from == name) {
            Some((to, _)) => ColumnFate::IsCalled(to),
            None if used.iter().any(|(to, _)| to == name) => ColumnFate::Goes,
            None => ColumnFate::Stays,
        };
        found.iter().map(fate).collect()
    }

    fn row<'a>(&'a self, row: Row<'a>) -> Row<'a> {
        let fates = self.fates(&row.columns().map(|(name, _)| name).collect::<Vec<_>>());
        let renamed = row.into_columns().into_iter().zip(fates);
        let renamed = renamed.filter_map(|((name, value), fate)| match fate {
            ColumnFate::Stays => Some((name, value)),
            ColumnFate::Goes => None,
            ColumnFate::IsCalled(name) => Some((Cow::Borrowed(name), value)),
        });
        Row::new(renamed.collect())
    }

    fn infos(&self, columns: Vec<ColumnInfo>) -> Vec<ColumnInfo> {
        let fates = self.fates(&columns.iter().map(|info| info.name.as_str()).collect::<Vec<_>>());
        let renamed = columns.into_iter().zip(fates);
        let renamed = renamed.filter_map(|(info, fate)| match fate {
            ColumnFate::Stays => Some(info),
            ColumnFate::Goes => None,
            ColumnFate::IsCalled(name) => Some(ColumnInfo { name: name.to_owned(), ..info }),
        });
        renamed.collect()
    }
}

impl Reader for Renamed {
    fn shards(&self) -> Result<Vec<Shard>, Error> {
        self.reader.shards()
    }

    fn columns(&self) -> Option<Vec<ColumnInfo>> {
        self.reader.columns().map(|columns| self.infos(columns))
    }

    fn columns_of(&self, shard: usize) -> Option<Vec<ColumnInfo>> {
        self.reader.columns_of(shard).map(|columns| self.infos(columns))
    }

    /// Read under other names, records are decoded to something else.
    fn fingerprint(&self) -> Option<String> {
        self.reader.fingerprint().map(|text| format!("{text}\n{:?}", self.columns))
    }

    fn read(&self, shard: usize, records: Range<u64>, each: &mut Each<'_>) -> Result<(), Error> {
        self.reader.read(shard, records, &mut |record, row| each(record, self.row(row)))
    }
}

#[cfg(test)]
mod tests {
    use crate::{OpenOptions, open_indexed};

    /// The only row of a CSV file, its columns as they are read by these names.
    fn check(text: &str, columns: &[(&str, &str)], expected: &[(&str, &str)]) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x.csv");
        std::fs::write(&path, text).expect("written");
        let named = columns.iter().map(|(to, from)| (to.to_string(), from.to_string()));
        let options = OpenOptions { columns: named.collect(), ..OpenOptions::default() };
        let reader = open_indexed(&[path], None, &options).expect("opens");
        let mut found = Vec::new();
        let mut each = |_, row: crate::Row<'_>| {
            for (name, _) in row.columns() {
                found.push((name.to_owned(), row.text(name)?.to_owned()));
            }
            Ok(())
        };
        reader.read(0, 0..1, &mut each).expect("read");
        let expected: Vec<(String, String)> =
            expected.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        assert_eq!(found, expected, "{columns:?}");
        let known = reader.columns_of(0).expect("a header");
        let known: Vec<&str> = known.iter().map(|info| info.name.as_str()).collect();
        assert_eq!(known, expected.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>());
    }

    #[test]
    fn columns_get_the_names_that_a_model_has_for_them() {
        let text = "id,review,sentiment\n7,fine,good\n";
        check(text, &[], &[("id", "7"), ("review", "fine"), ("sentiment", "good")]);
        let both = [("text", "review"), ("label", "sentiment")];
        check(text, &both, &[("id", "7"), ("text", "fine"), ("label", "good")]);
        // A column that has the name already makes room for it, and two can change places.
        check(text, &[("id", "review")], &[("id", "fine"), ("sentiment", "good")]);
        let turned = [("review", "sentiment"), ("sentiment", "review")];
        check(text, &turned, &[("id", "7"), ("sentiment", "fine"), ("review", "good")]);
        // What is not there leaves others as they are.
        check("text,label\na,b\n", &both, &[("text", "a"), ("label", "b")]);
    }

    #[test]
    fn other_names_are_other_records_to_a_cache() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x.csv");
        std::fs::write(&path, "a,b\n1,2\n").expect("written");
        let fingerprint = |columns: &[(&str, &str)]| {
            let columns = columns.iter().map(|(to, from)| (to.to_string(), from.to_string()));
            let options = OpenOptions { columns: columns.collect(), ..OpenOptions::default() };
            let reader = open_indexed(std::slice::from_ref(&path), None, &options).expect("opens");
            reader.fingerprint().expect("CSV is slow to decode")
        };
        assert_ne!(fingerprint(&[("x", "a")]), fingerprint(&[]));
        assert_ne!(fingerprint(&[("x", "a")]), fingerprint(&[("x", "b")]));
        assert_eq!(fingerprint(&[("x", "a")]), fingerprint(&[("x", "a")]));
    }
}
