//! Where predictions go: tables through the sinks of `data convert`, or JSON lines. A file is there completely or not
//! at all.

use std::borrow::Cow;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;

use salamander_data::{Row, Value};
use salamander_train::predict::Predictions;
use serde_json::json;

use crate::Error;
use crate::output_file::{OutputFile, RECORD_FORMATS, format_of};

pub(crate) struct PredictionOutput {
    file: OutputFile,
    names: ClassNames,
    /// What `forward` gives for classes, which the first record shows.
    forward_gives: Option<ClassScores>,
}

/// Names of the classes.
#[derive(Default)]
pub(crate) struct ClassNames {
    /// Where labels are text: predictions are such.
    pub(crate) labels: Vec<String>,
    /// For people; empty where classes have numbers only.
    pub(crate) classes: Vec<String>,
}

/// What the values of classes are, that a model gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClassScores {
    /// Any numbers, of which a softmax makes probabilities.
    Logits,
    /// Shares of one.
    Probabilities,
}

impl ClassScores {
    /// Probabilities are never called logits.
    fn of(row: &[f32]) -> Self {
        let sum: f32 = row.iter().sum();
        let shares = row.iter().all(|value| (0.0..=1.0).contains(value));
        if shares && (sum - 1.0).abs() < 1e-4 { Self::Probabilities } else { Self::Logits }
    }
}

/// What is written of a record.
struct PredictionLine<'a> {
    record: u64,
    prediction: Option<Prediction<'a>>,
    label: Option<&'a str>,
    scores: &'a [f32],
    probabilities: Option<Vec<f32>>,
    logits: Option<&'a [f32]>,
}

impl PredictionOutput {
    pub(crate) fn create(path: &Path, names: ClassNames) -> Result<Self, Error> {
        let file = OutputFile::create(path, format_of(path, &RECORD_FORMATS)?)?;
        Ok(Self { file, names, forward_gives: None })
    }

    pub(crate) fn write(&mut self, predictions: &Predictions) -> Result<(), Error> {
        let mut raw = predictions.raw.chunks(predictions.width.max(1));
        for (record, scores) in predictions.rows() {
            let raw = raw.next();
            let gives = raw.map(|row| *self.forward_gives.get_or_insert(ClassScores::of(row)));
            let named = predictions.classes && predictions.width > 1;
            let line = PredictionLine {
                record,
                prediction: predictions.classes.then(|| Prediction::of(scores, &self.names.labels)),
                label: if named { self.names.label(scores) } else { None },
                scores,
                probabilities: raw.zip(gives).map(|(row, gives)| match gives {
                    ClassScores::Logits => softmax(row).collect(),
                    ClassScores::Probabilities => row.to_vec(),
                }),
                logits: raw.filter(|_| gives == Some(ClassScores::Logits)),
            };
            match &mut self.file {
                OutputFile::Table(sink) => sink.write(&line.row())?,
                OutputFile::JsonLines(file) => {
                    let written = writeln!(file, "{}", line.to_json());
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

impl ClassNames {
    fn label(&self, scores: &[f32]) -> Option<&str> {
        self.classes.get(class(scores)).map(String::as_str)
    }
}

impl PredictionLine<'_> {
    /// A column for each value.
    fn row(&self) -> Row<'_> {
        let number = |value: f32| Value::Floats(Cow::Owned(vec![value]));
        let record = Value::Ints(Cow::Owned(vec![self.record as i64]));
        let mut columns = vec![(Cow::Borrowed("record"), record)];
        if let Some(prediction) = self.prediction {
            let prediction = match prediction {
                Prediction::Value(value) => number(value),
                Prediction::Class(class) => Value::Ints(Cow::Owned(vec![class as i64])),
                Prediction::Name(name) => Value::Text(name),
            };
            columns.push((Cow::Borrowed("prediction"), prediction));
        }
        columns.extend(self.label.map(|label| (Cow::Borrowed("label"), Value::Text(label))));
        let mut several = |name: &str, values: &[f32]| {
            let values = values.iter().enumerate();
            columns.extend(values.map(|(i, v)| (Cow::Owned(format!("{name}_{i}")), number(*v))));
        };
        several("score", self.scores);
        several("probability", self.probabilities.as_deref().unwrap_or_default());
        several("logit", self.logits.unwrap_or_default());
        Row::new(columns)
    }

    fn to_json(&self) -> serde_json::Value {
        let mut object = json!({"record": self.record});
        if let Some(prediction) = self.prediction {
            object["prediction"] = prediction.to_json();
        }
        if let Some(label) = self.label {
            object["label"] = json!(label);
        }
        object["scores"] = json!(self.scores);
        if let Some(probabilities) = &self.probabilities {
            object["probabilities"] = json!(probabilities);
        }
        if let Some(logits) = self.logits {
            object["logits"] = json!(logits);
        }
        object
    }
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

/// Probabilities of logits.
pub(crate) fn softmax(logits: &[f32]) -> impl Iterator<Item = f32> {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f32 = logits.iter().map(|logit| (logit - most).exp()).sum();
    logits.iter().map(move |logit| (logit - most).exp() / sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(raw: &[f32], names: &[&str]) -> String {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("p.jsonl");
        let classes = names.iter().map(ToString::to_string).collect();
        let names = ClassNames { labels: Vec::new(), classes };
        let mut output = PredictionOutput::create(&path, names).expect("created");
        let (values, raw) = (vec![0.25, 0.75], raw.to_vec());
        let predictions = Predictions { records: vec![3], width: 2, classes: true, values, raw };
        output.write(&predictions).expect("written");
        output.finish().expect("finished");
        std::fs::read_to_string(&path).expect("read").trim().to_string()
    }

    #[test]
    fn classifiers_have_labels_probabilities_and_logits_and_shares_are_no_logits() {
        let logits = written(&[1.0, 1.0], &["no", "yes"]);
        let expected = r#"{"label": "yes", "logits": [1.0, 1.0], "prediction": 1, "probabilities": [0.5, 0.5],
            "record": 3, "scores": [0.25, 0.75]}"#;
        let parse = |text: &str| serde_json::from_str::<serde_json::Value>(text).expect("JSON");
        assert_eq!(parse(&logits), parse(expected));
        let shares = written(&[0.25, 0.75], &[]);
        let expected =
            r#"{"prediction":1,"probabilities":[0.25,0.75],"record":3,"scores":[0.25,0.75]}"#;
        assert_eq!(parse(&shares), parse(expected));
        let unknown = written(&[], &[]);
        assert_eq!(parse(&unknown), parse(r#"{"prediction":1,"record":3,"scores":[0.25,0.75]}"#));
    }
}
