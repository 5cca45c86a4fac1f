//! CSV and TSV files as shards: every 1,024th record's place is kept, so that a range far into a file is
//! found without reading all before it.

use std::fs::File;
use std::io::SeekFrom;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use csv::{ByteRecord, Position, ReaderBuilder};

use crate::reader::check_range;
use crate::stamp::Stamp;
use crate::{Error, Reader, Row, Shard, Value};

/// Records between two places that are kept.
const STRIDE: u64 = 1024;

/// An indexed file with a header row, whose values are text. A file without bytes has no records.
#[derive(Debug)]
pub(crate) struct Delimited {
    stamp: Stamp,
    delimiter: u8,
    names: Vec<String>,
    /// Where records 0, 1,024, 2,048 and so on begin.
    marks: Vec<Position>,
    records: u64,
}

impl Delimited {
    /// Opens and indexes a file; `.tsv` and `.tab` have tabs between fields, all others commas.
    pub(crate) fn open(path: &Path) -> Result<Delimited, Error> {
        let extension = path.extension().and_then(|extension| extension.to_str());
        let tabs =
            extension.is_some_and(|e| ["tsv", "tab"].iter().any(|t| t.eq_ignore_ascii_case(e)));
        let delimiter = if tabs { b'\t' } else { b',' };
        let (file, stamp) = Stamp::open(path)?;
        let mut source = source(file, delimiter);
        let headers = source.byte_headers().map_err(|error| failed(path, error))?;
        let names = column_names(path, headers)?;
        let (mut marks, mut records) = (Vec::new(), 0);
        let mut record = ByteRecord::new();
        loop {
            let position = source.position().clone();
            if !source.read_byte_record(&mut record).map_err(|error| failed(path, error))? {
                break;
            }
            if records % STRIDE == 0 {
                marks.push(position);
            }
            records += 1;
        }
        Ok(Delimited { stamp, delimiter, names, marks, records })
    }

    /// A source that gives the record `start` next.
    fn source_at(&self, start: u64, record: &mut ByteRecord) -> Result<csv::Reader<File>, Error> {
        let path = self.stamp.path();
        let mut source = source(self.stamp.reopen()?, self.delimiter);
        if let Some(mark) = self.marks.get((start / STRIDE) as usize) {
            source
                .seek_raw(SeekFrom::Start(mark.byte()), mark.clone())
                .map_err(|error| failed(path, error))?;
        }
        for _ in 0..start % STRIDE {
            source.read_byte_record(record).map_err(|error| failed(path, error))?;
        }
        Ok(source)
    }

    fn row<'a>(&'a self, fields: &'a ByteRecord, record: u64) -> Result<Row<'a>, Error> {
        let path = self.stamp.path();
        if fields.len() != self.names.len() {
            let (found, wanted) = (fields.len(), self.names.len());
            let line = self.line(fields);
            let reason = format!("line {line}: {found} fields, but the header has {wanted}");
            return Err(Error::Rejected(reason).at(path, None, record));
        }
        let mut columns = Vec::with_capacity(fields.len());
        for (name, field) in self.names.iter().zip(fields) {
            let text = std::str::from_utf8(field).map_err(|error| {
                let reason = format!("line {}: {error}", self.line(fields));
                Error::Column { column: name.clone(), reason }.at(path, None, record)
            })?;
            columns.push((name.as_str().into(), Value::Text(text)));
        }
        Ok(Row::new(columns))
    }

    /// The line a record begins in, for messages. The csv crate's position is where the record before
    /// ended, so the rest of a line end and blank lines are counted here.
    fn line(&self, fields: &ByteRecord) -> u64 {
        let Some(position) = fields.position() else { return 0 };
        let mut start = [0; 4096];
        let read = self.stamp.reopen().map(|file| file.read_at(&mut start, position.byte()));
        let start = &start[..read.ok().and_then(Result::ok).unwrap_or(0)];
        let skipped = start.iter().take_while(|byte| matches!(byte, b'\r' | b'\n'));
        position.line() + skipped.filter(|&&byte| byte == b'\n').count() as u64
    }
}

impl Reader for Delimited {
    fn shards(&self) -> Result<Vec<Shard>, Error> {
        let name = self.stamp.path().display().to_string();
        Ok(vec![Shard { name, records: self.records }])
    }

    fn read(
        &self,
        shard: usize,
        records: Range<u64>,
        each: &mut dyn FnMut(u64, Row<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let path = self.stamp.path();
        if shard != 0 {
            return Err(Error::NoShard { shard, shards: 1 });
        }
        check_range(path, &records, self.records)?;
        if records.is_empty() {
            return Ok(());
        }
        let mut fields = ByteRecord::new();
        let mut source = self.source_at(records.start, &mut fields)?;
        for record in records {
            if !source.read_byte_record(&mut fields).map_err(|error| failed(path, error))? {
                return Err(Error::Changed { path: path.to_owned() });
            }
            let row = self.row(&fields, record)?;
            each(record, row).map_err(|error| error.at(path, None, record))?;
        }
        Ok(())
    }
}

/// Field counts are compared here and not by the csv crate, which would compare with the first record
/// after a seek instead of the header.
fn source(file: File, delimiter: u8) -> csv::Reader<File> {
    ReaderBuilder::new().delimiter(delimiter).flexible(true).from_reader(file)
}

fn column_names(path: &Path, headers: &ByteRecord) -> Result<Vec<String>, Error> {
    let wrong = |reason: String| Error::Form { path: path.to_owned(), reason };
    let mut names = Vec::with_capacity(headers.len());
    for (column, name) in headers.iter().enumerate() {
        let name = std::str::from_utf8(name)
            .map_err(|error| wrong(format!("header row: column {column}: {error}")))?;
        if names.iter().any(|earlier| earlier == name) {
            return Err(wrong(format!("header row: column {name:?} occurs twice")));
        }
        names.push(name.to_owned());
    }
    Ok(names)
}

fn failed(path: &Path, error: csv::Error) -> Error {
    match error.into_kind() {
        csv::ErrorKind::Io(source) => Error::Io { path: path.to_owned(), source },
        other => Error::Form { path: path.to_owned(), reason: format!("{other:?}") },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All rows as "column=value|column=value", or the error.
    fn rows(
        name: &str,
        content: &[u8],
        records: Option<Range<u64>>,
    ) -> Result<Vec<String>, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        let strip = |error: Error| error.to_string().replace(&format!("{}", path.display()), name);
        let file = Delimited::open(&path).map_err(strip)?;
        let records = records.unwrap_or(0..file.records);
        let mut rows = Vec::new();
        file.read(0, records, &mut |_, row| {
            let cells =
                row.columns().map(|(name, _)| format!("{name}={}", row.text(name).unwrap()));
            rows.push(cells.collect::<Vec<_>>().join("|"));
            Ok(())
        })
        .map_err(strip)?;
        Ok(rows)
    }

    #[test]
    fn quotes_newlines_and_tabs_are_understood() {
        let check = |name: &str, content: &str, expected: &[&str]| {
            assert_eq!(rows(name, content.as_bytes(), None).unwrap(), expected);
        };
        check("a.csv", "x,y\n1,2\n3,4\n", &["x=1|y=2", "x=3|y=4"]);
        check("a.csv", "x,y\r\n1,2\r\n3,4", &["x=1|y=2", "x=3|y=4"]);
        check("a.csv", "x,y\n\"a\nb\",\"c,\"\"d\"\"\"\n", &["x=a\nb|y=c,\"d\""]);
        check("a.csv", "x,y\n,\n", &["x=|y="]);
        check("a.csv", "\u{feff}x,y\n1,2\n", &["x=1|y=2"]);
        check("a.tsv", "x\ty\n1,5\t2\n", &["x=1,5|y=2"]);
        check("a.csv", "x,y\n", &[]);
        check("a.csv", "", &[]);
    }

    #[test]
    fn bad_files_are_named_with_line_and_record() {
        let check = |content: &[u8], expected: &str| {
            assert_eq!(rows("a.csv", content, None).unwrap_err(), expected);
        };
        check(b"x,y\n1,2\n3\n", "a.csv: record 1: line 3: 1 fields, but the header has 2");
        check(b"x,y\r\n1,2\r\n3\r\n", "a.csv: record 1: line 3: 1 fields, but the header has 2");
        check(b"x,y\n1,2\n\n\n3\n", "a.csv: record 1: line 5: 1 fields, but the header has 2");
        check(
            b"x,y\n\"1\n1\",2\n3,4,5\n",
            "a.csv: record 1: line 4: 3 fields, but the header has 2",
        );
        check(
            b"x,y\n1,\xff\n",
            "a.csv: record 0: column \"y\": line 2: invalid utf-8 sequence of 1 bytes from index 0",
        );
        check(b"x,x\n1,2\n", "a.csv: header row: column \"x\" occurs twice");
    }

    #[test]
    fn ranges_start_anywhere() {
        for end_of_line in ["\n", "\r\n"] {
            let mut content = format!("x,y{end_of_line}");
            for record in 0..5000 {
                content += &format!("{record},\"a{end_of_line},\"{end_of_line}");
            }
            let all = rows("a.csv", content.as_bytes(), None).unwrap();
            assert_eq!(all.len(), 5000);
            let check = |records: Range<u64>| {
                let found = rows("a.csv", content.as_bytes(), Some(records.clone())).unwrap();
                assert_eq!(found, all[records.start as usize..records.end as usize]);
            };
            check(0..1);
            check(1023..1025);
            check(1024..1024);
            check(1025..3000);
            check(4096..5000);
            check(4999..5000);
        }
    }

    #[test]
    fn lines_are_right_after_a_jump() {
        let mut content = "x,y\r\n".to_owned();
        content += &"1,2\r\n".repeat(3000);
        content += "3\r\n";
        let found = rows("a.csv", content.as_bytes(), Some(2900..3001)).unwrap_err();
        assert_eq!(found, "a.csv: record 3000: line 3002: 1 fields, but the header has 2");
    }
}
