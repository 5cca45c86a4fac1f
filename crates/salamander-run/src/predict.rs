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

pub(crate) struct Output {
    file: OutputFile,
    /// Names of the classes, where labels are text.
    names: Vec<String>,
}

enum OutputFile {
    Table(Box<dyn Sink>),
    JsonLines(PendingFile),
}

impl Output {
    pub(crate) fn create(path: &Path, names: Vec<String>) -> Result<Self, Error> {
        Ok(Self { file: OutputFile::create(path)?, names })
    }

    pub(crate) fn write(&mut self, predictions: &Predictions) -> Result<(), Error> {
        for (record, row) in predictions.rows() {
            let prediction = predictions.classes.then(|| Prediction::of(row, &self.names));
            match &mut self.file {
                OutputFile::Table(sink) => sink.write(&table_row(record, row, prediction))?,
                OutputFile::JsonLines(file) => {
                    let mut object = json!({"record": record});
                    if let Some(prediction) = prediction {
                        object["prediction"] = prediction.to_json();
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
        match self.file {
            OutputFile::Table(sink) => Ok(sink.finish()?),
            OutputFile::JsonLines(file) => {
                let beside = file.beside().to_path_buf();
                file.commit().map_err(Error::io(&beside))
            }
        }
    }
}

impl OutputFile {
    fn create(path: &Path) -> Result<Self, Error> {
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
}

fn table_row<'a>(record: u64, scores: &[f32], prediction: Option<Prediction<'a>>) -> Row<'a> {
    let number = |value: f32| Value::Floats(Cow::Owned(vec![value]));
    let record = Value::Ints(Cow::Owned(vec![record as i64]));
    let mut columns = vec![(Cow::Borrowed("record"), record)];
    if let Some(prediction) = prediction {
        let prediction = match prediction {
            Prediction::Value(value) => number(value),
            Prediction::Class(class) => Value::Ints(Cow::Owned(vec![class as i64])),
            Prediction::Name(name) => Value::Text(name),
        };
        columns.push((Cow::Borrowed("prediction"), prediction));
    }
    for (i, score) in scores.iter().enumerate() {
        columns.push((Cow::Owned(format!("score_{i}")), number(*score)));
    }
    Row::new(columns)
}

/// What the scores of a record say.
#[derive(Clone, Copy)]
pub(crate) enum Prediction<'a> {
    /// The only one there is.
    Value(f32),
    /// The class with the greatest score.
    Class(usize),
    /// The name of that class.
    Name(&'a str),
}

impl<'a> Prediction<'a> {
    pub(crate) fn of(row: &[f32], names: &'a [String]) -> Self {
        match row {
            [value] => Self::Value(*value),
            row => {
                let class = class(row);
                names.get(class).map_or(Self::Class(class), |name| Self::Name(name))
            }
        }
    }

    fn to_json(self) -> serde_json::Value {
        match self {
            Self::Value(value) => json!(value),
            Self::Class(class) => json!(class),
            Self::Name(name) => json!(name),
        }
    }
}

pub(crate) fn class(row: &[f32]) -> usize {
    let best = row.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
    best.map_or(0, |(class, _)| class)
}
