//! All trials of a search in rows, to print and to put into files.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::Path;

use salamander_data::{ColumnInfo, ColumnKind, Format, Row, Value, sink};
use salamander_search::Trial;
use serde_json::Value as Json;

use super::SearchEnd;
use crate::Error;

/// All trials with what they were and what they measured, in the order in which they were made.
pub struct SearchTable {
    /// Names of the columns: `trial`, `state`, `length`, the metric, `best` of it, the hyperparameters by path,
    /// `reason` and `dir`.
    pub columns: Vec<String>,
    /// A value for each column; null where there is none.
    pub rows: Vec<Vec<Json>>,
}

impl SearchTable {
    /// The table of a search.
    pub fn new(end: &SearchEnd) -> Self {
        let trials = end.search().trials();
        let method = end.search().method();
        let mut paths: BTreeSet<String> = BTreeSet::new();
        for trial in trials {
            leaves("", &trial.hparams(), &mut |path| paths.extend([path.to_string()]));
        }
        let fixed = ["trial", "state", "length"].map(str::to_string);
        let columns: Vec<String> = fixed
            .into_iter()
            .chain([method.metric.clone(), format!("best_{}", method.metric)])
            .chain(paths.iter().map(|path| format!("hparams.{path}")))
            .chain(["reason", "dir"].map(str::to_string))
            .collect();
        let row = |trial: &Trial| {
            let best = trial.best(method.smaller_is_better);
            let hparams = trial.hparams();
            let mut row = vec![
                Json::from(trial.id.0),
                Json::from(trial.state.as_str()),
                Json::from(trial.length()),
                trial.metric().map_or(Json::Null, Json::from),
                best.map_or(Json::Null, Json::from),
            ];
            row.extend(paths.iter().map(|path| {
                let pointer = format!("/{}", path.replace('.', "/"));
                hparams.pointer(&pointer).cloned().unwrap_or(Json::Null)
            }));
            row.push(Json::from(trial.reason.clone()));
            row.push(Json::from(end.trial_folder(trial.id).display().to_string()));
            row
        };
        let rows = trials.iter().map(row).collect();
        Self { columns, rows }
    }

    /// Writes it to a file of Parquet or CSV, which is there completely or not at all.
    pub(super) fn write(&self, path: &Path, format: Format) -> Result<(), Error> {
        let mut sink = sink::create(path, format)?;
        let kinds: Vec<ColumnKind> = (0..self.columns.len())
            // Text keeps every digit, and numbers of a Parquet file have 32 bits.
            .map(|index| if format == Format::Csv { ColumnKind::Text } else { self.kind(index) })
            .collect();
        let column = |(name, kind): (&String, &ColumnKind)| ColumnInfo {
            name: name.clone(),
            kind: *kind,
            list: false,
        };
        sink.expect(&self.columns.iter().zip(&kinds).map(column).collect::<Vec<_>>())?;
        for row in &self.rows {
            let texts: Vec<String> = row.iter().map(shown).collect();
            let mut cells = Vec::new();
            for (index, name) in self.columns.iter().enumerate() {
                let value = match kinds[index] {
                    ColumnKind::Ints => row[index].as_i64().map(|n| Value::Ints(vec![n].into())),
                    ColumnKind::Floats => {
                        row[index].as_f64().map(|n| Value::Floats(vec![n as f32].into()))
                    }
                    _ => (!row[index].is_null()).then(|| Value::Text(&texts[index])),
                };
                cells.extend(value.map(|value| (Cow::Borrowed(name.as_str()), value)));
            }
            sink.write(&Row::new(cells))?;
        }
        Ok(sink.finish()?)
    }

    /// What all values of a column are.
    fn kind(&self, column: usize) -> ColumnKind {
        let values = || self.rows.iter().map(|row| &row[column]).filter(|value| !value.is_null());
        match () {
            () if values().all(Json::is_i64) => ColumnKind::Ints,
            () if values().all(Json::is_number) => ColumnKind::Floats,
            () => ColumnKind::Text,
        }
    }
}

/// A value as people read it.
fn shown(value: &Json) -> String {
    match value {
        Json::String(text) => text.clone(),
        Json::Null => String::new(),
        other => other.to_string(),
    }
}

/// Calls `found` with the dotted path of every hyperparameter.
fn leaves(path: &str, value: &Json, found: &mut dyn FnMut(&str)) {
    match value {
        Json::Object(map) if !map.is_empty() => {
            for (name, below) in map {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                leaves(&path, below, found);
            }
        }
        _ => found(path),
    }
}

#[cfg(test)]
mod tests {
    use salamander_core::layout::RunLayout;
    use salamander_search::{SearchEvent, SearchFile, TrialId};

    use super::*;

    #[test]
    fn every_trial_has_a_row_and_every_hyperparameter_a_column() {
        let text = "searcher: {name: random, metric: loss, max_trials: 2, max_length: {batches: 4}}\n\
                    hyperparameters:\n  net: {units: {randint: [1, 9]}}\n  kind: {choice: [a, b]}\n";
        let file = SearchFile::parse(text, &[]).expect("valid");
        let mut search = file.search(1).expect("a search");
        search.begin();
        search.arrive(SearchEvent::Report { trial: TrialId(1), length: 4, metric: 0.1 });
        let end =
            SearchEnd { layout: RunLayout::new("runs/x"), interrupted: true, seconds: 0.0, search };
        let table = SearchTable::new(&end);
        assert_eq!(
            table.columns.join(" "),
            "trial state length loss best_loss hparams.kind hparams.net.units reason dir"
        );
        let row = |index: usize| serde_json::json!(table.rows[index][..5]);
        assert_eq!(row(0), serde_json::json!([1, "completed", 4, 0.1, 0.1]));
        assert_eq!(row(1), serde_json::json!([2, "running", 0, null, null]));
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("trials.csv");
        table.write(&path, Format::Csv).expect("written");
        let written = std::fs::read_to_string(&path).expect("read");
        assert_eq!(written.lines().count(), 3);
        assert!(written.contains("1,completed,4,0.1,0.1,"), "{written}");
        let other = folder.path().join("trials.txt");
        let error = end.write_trials(&other).expect_err("no format");
        assert!(error.to_string().contains(".parquet, .csv or .sqlite"), "{error}");
    }
}
