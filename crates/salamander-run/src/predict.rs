//! Where predictions go: tables through the sinks of `data convert`, or JSON lines. A file is there completely or not
//! at all.

use std::borrow::Cow;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;

use salamander_data::sink::{self, Sink};
use salamander_data::{Format, Row, Value};
use salamander_files::{Durability, PendingFile};
use salamander_train::predict::Predictions;
use serde_json::json;

use crate::Error;

pub(crate) enum Output {
    Table(Box<dyn Sink>),
    JsonLines(PendingFile),
}

impl Output {
    pub(crate) fn create(path: &Path) -> Result<Self, Error> {
        let format = match path.extension().and_then(|extension| extension.to_str()) {
            Some("csv") => Format::Csv,
            Some("parquet") => Format::Parquet,
            Some("jsonl") => {
                let file = PendingFile::create(path, Durability::Synced);
                return Ok(Self::JsonLines(file.map_err(Error::io(path))?));
            }
            _ => {
                let path = path.display();
                let advice = "name a file that ends in .parquet, .csv or .jsonl";
                return Err(Error::Invalid(format!("{path}: {advice}")));
            }
        };
        Ok(Self::Table(sink::create(path, format)?))
    }

    pub(crate) fn write(&mut self, predictions: &Predictions) -> Result<(), Error> {
        for (record, row) in predictions.rows() {
            match self {
                Self::Table(sink) => sink.write(&table_row(record, row, predictions.classes))?,
                Self::JsonLines(file) => {
                    let mut object = json!({"record": record});
                    if predictions.classes {
                        object["prediction"] = prediction(row);
                    }
                    object["scores"] = json!(row);
                    let written = writeln!(file, "{object}");
                    written.map_err(Error::io(file.beside()))?;
                }
            }
        }
        Ok(())
    }

    /// Writes what a task has predicted, batch by batch.
    pub(crate) fn append(&mut self, part: &Path) -> Result<(), Error> {
        for line in BufReader::new(File::open(part).map_err(Error::io(part))?).lines() {
            let line = line.map_err(Error::io(part))?;
            self.write(&serde_json::from_str(&line).map_err(Error::broken(part))?)?;
        }
        Ok(())
    }

    pub(crate) fn finish(self) -> Result<(), Error> {
        match self {
            Self::Table(sink) => Ok(sink.finish()?),
            Self::JsonLines(file) => {
                let beside = file.beside().to_path_buf();
                file.commit().map_err(Error::io(&beside))
            }
        }
    }
}

fn table_row(record: u64, scores: &[f32], classes: bool) -> Row<'static> {
    let number = |value: f32| Value::Floats(Cow::Owned(vec![value]));
    let record = Value::Ints(Cow::Owned(vec![record as i64]));
    let mut columns = vec![(Cow::Borrowed("record"), record)];
    if classes {
        let prediction = match scores {
            [value] => number(*value),
            row => Value::Ints(Cow::Owned(vec![class(row) as i64])),
        };
        columns.push((Cow::Borrowed("prediction"), prediction));
    }
    for (i, score) in scores.iter().enumerate() {
        columns.push((Cow::Owned(format!("score_{i}")), number(*score)));
    }
    Row::new(columns)
}

/// The class with the greatest score; the value itself where there is only one.
fn prediction(row: &[f32]) -> serde_json::Value {
    match row {
        [value] => json!(value),
        row => json!(class(row)),
    }
}

fn class(row: &[f32]) -> usize {
    let best = row.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
    best.map_or(0, |(class, _)| class)
}
