//! Statistics, vocabularies and classes from the training data, for examples whose files are not there yet.

use std::collections::{BTreeMap, HashMap};

use salamander_data::stats::Stats;
use salamander_data::{Dataset, Row};

use super::{AssetKind, AssetSpec, DecodeError, buckets};
use crate::Error;

/// Records read at a time.
const BLOCK: u64 = 4096;

/// More classes than this are doubted where most of them occur once.
const MANY: u64 = 1000;

/// The content of each file that the specs name, from all records of the data.
pub fn fit(
    specs: &[AssetSpec],
    dataset: &Dataset,
) -> Result<BTreeMap<&'static str, Vec<u8>>, Error> {
    let mut made = BTreeMap::new();
    if let Some(spec) = specs.iter().find(|spec| matches!(spec.kind, AssetKind::Statistics)) {
        let stats = Stats::of(dataset, |_| {})?;
        let text = serde_json::to_vec_pretty(&stats)
            .map_err(|error| Error::Invalid(format!("{}: {error}", spec.file)))?;
        let measured = specs.iter().filter(|spec| matches!(spec.kind, AssetKind::Statistics));
        made.extend(measured.map(|spec| (spec.file, text.clone())));
    }
    let mut words: BTreeMap<&'static str, WordCounts> = BTreeMap::new();
    let is_list =
        |kind: AssetKind| matches!(kind, AssetKind::Vocabulary { .. } | AssetKind::Classes);
    let listed: Vec<&AssetSpec> = specs.iter().filter(|spec| is_list(spec.kind)).collect();
    if !listed.is_empty() {
        for start in (0..dataset.len()).step_by(BLOCK as usize) {
            let block: Vec<u64> = (start..dataset.len().min(start + BLOCK)).collect();
            dataset.read(&block, &mut |_, row| {
                for spec in &listed {
                    let counts = words.entry(spec.file).or_default();
                    counts.observe(spec, &row).map_err(|DecodeError { column, reason }| {
                        salamander_data::Error::Column { column, reason }
                    })?;
                }
                Ok(())
            })?;
        }
    }
    for spec in listed {
        let Some(counts) = words.remove(spec.file) else { continue };
        let lines = match spec.kind {
            AssetKind::Classes => counts.to_classes(spec, dataset.len())?,
            _ => counts.to_lines(),
        };
        made.insert(spec.file, lines.into_bytes());
    }
    Ok(made)
}

/// Words and how often each occurs.
#[derive(Default)]
struct WordCounts(HashMap<String, u64>);

impl WordCounts {
    fn observe(&mut self, spec: &AssetSpec, row: &Row<'_>) -> Result<(), DecodeError> {
        let (list, missing) = match spec.kind {
            AssetKind::Vocabulary { list, missing, .. } => (list, missing),
            _ => (None, None),
        };
        let text = buckets::text(row, spec.columns, missing.or(Some("")))?;
        let words = match list {
            Some(list) => list.words(&text),
            None => vec![text.as_str()],
        };
        // What is only space cannot be a line of the file.
        for word in words.into_iter().filter(|word| !word.trim().is_empty()) {
            if word.contains(['\n', '\r']) {
                let reason = format!("{word:?} has a line end: a vocabulary has one word per line");
                return Err(DecodeError::new(spec.columns.join(", "), reason));
            }
            if let Some(count) = self.0.get_mut(word) {
                *count += 1;
            } else {
                self.0.insert(word.to_owned(), 1);
            }
        }
        Ok(())
    }

    /// In alphabetic order, or by their values where all of them are numbers.
    fn to_classes(&self, spec: &AssetSpec, records: u64) -> Result<String, Error> {
        let mut classes: Vec<&String> = self.0.keys().collect();
        let (count, column) = (classes.len() as u64, spec.columns.join(", "));
        let wrong = |reason: String| Err(Error::Invalid(format!("column {column:?}: {reason}")));
        if count == 0 {
            return wrong("no record of the training data has a label".to_string());
        }
        if count > MANY && 2 * count > records {
            return wrong(format!(
                "it has {count} different texts in {records} records, which are no classes: is it the label?"
            ));
        }
        classes.sort_unstable();
        if classes.iter().all(|class| class.parse::<f64>().is_ok()) {
            let value = |class: &&String| class.parse::<f64>().unwrap_or(f64::NAN);
            classes.sort_by(|a, b| value(a).total_cmp(&value(b)));
        }
        Ok(classes.iter().map(|class| format!("{class}\n")).collect())
    }

    /// The most frequent first, in alphabetic order where they are equal.
    fn to_lines(&self) -> String {
        let mut words: Vec<(&String, &u64)> = self.0.iter().collect();
        words.sort_by(|(a, few), (b, many)| many.cmp(few).then(a.cmp(b)));
        words.iter().map(|(word, _)| format!("{word}\n")).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::example::{AssetFiles, Assets, WordList};

    /// The classes of the column `label` of a CSV file, or what is wrong with them.
    fn classes_of(text: &str) -> String {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x.csv");
        std::fs::write(&path, text).expect("written");
        let reader = salamander_data::open(&[path], None).expect("opens");
        let dataset = Dataset::new(Arc::from(reader)).expect("records");
        let (file, field) = ("classes.txt", "label");
        let specs = [AssetSpec { file, field, columns: &["label"], kind: AssetKind::Classes }];
        match fit(&specs, &dataset) {
            Ok(made) => String::from_utf8(made["classes.txt"].clone()).expect("text"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn classes_are_in_an_order_that_does_not_depend_on_how_often_they_occur() {
        assert_eq!(classes_of("label\npositive\nnegative\npositive\n"), "negative\npositive\n");
        assert_eq!(classes_of("label\n10\n9\n10\n-1\n"), "-1\n9\n10\n");
        assert_eq!(classes_of("label,x\n,1\na b,1\n"), "a b\n");
        let error = classes_of("label,x\n,1\n");
        assert_eq!(error, "column \"label\": no record of the training data has a label");
        let texts: String = (0..=MANY).map(|at| format!("text {at}\n")).collect();
        let error = classes_of(&format!("label\n{texts}"));
        assert!(error.contains("1001 different texts in 1001 records"), "{error}");
    }

    #[test]
    fn what_was_fitted_is_what_examples_are_read_with() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("people.csv");
        std::fs::write(&path, "age,tags\n30,b|a\n50,a\n40,\n").expect("written");
        let reader = salamander_data::open(&[path], None).expect("opens");
        let dataset = Dataset::new(Arc::from(reader)).expect("records");
        let list = Some(WordList { separator: "|", ignored: None });
        let vocabulary = AssetKind::Vocabulary { oov: 0, list, missing: Some("none") };
        let specs = [
            AssetSpec {
                file: "stats.json",
                field: "age",
                columns: &["age"],
                kind: AssetKind::Statistics,
            },
            AssetSpec { file: "tags.txt", field: "tags", columns: &["tags"], kind: vocabulary },
        ];
        let made = fit(&specs, &dataset).expect("fitted");
        assert_eq!(made["tags.txt"], b"a\nb\nnone\n");
        let files = AssetFiles::default().with(made);
        let assets = Assets::load(&specs, files).expect("loaded");
        let (mean, std) = assets.statistics(0, "age").expect("there")[0];
        assert_eq!(mean, 40.0);
        assert!((std - (200.0f32 / 3.0).sqrt()).abs() < 1e-4, "{std}");
        assert_eq!(assets.number(1, "tags", "none"), Ok(2));
    }
}
