//! `salamander predict`: a trained model's outputs for every record, as Parquet, CSV or JSON lines.

use std::borrow::Cow;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use salamander_core::experiment::Data;
use salamander_data::sink::{self, Sink};
use salamander_data::{Format, Row, Value};
use salamander_train::evaluate::Over;
use salamander_train::model::Models;
use salamander_train::predict::Predictions;
use salamander_train::trainer::open_data;
use serde_json::json;

use super::trained::{self, find_trained};

#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    trained: trained::Which,
    /// Files or folders of records; labels may be absent
    #[arg(long, required = true, value_name = "DATA")]
    data: Vec<String>,
    /// The file to write: .parquet, .csv or .jsonl
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

pub(super) fn run(args: Args, models: &Models) -> Result<()> {
    let found = find_trained(&args.trained)?;
    let model = models.find(found.experiment.model())?;
    let experiment = &found.experiment;
    let data = Data { format: None, ..experiment.data.clone() };
    let dataset = open_data("--data", &args.data, &data)?;
    let over = Over::new(experiment, false);
    let mut output = Output::create(&args.out)?;
    let predicted =
        model.predict(found.trained(), &dataset, over, &mut |batch| output.write(&batch));
    let skipped = match predicted {
        Ok(skipped) => skipped,
        Err(error) => {
            output.discard();
            return Err(error.into());
        }
    };
    output.finish()?;
    println!("{} predictions in {}", dataset.len() - skipped, args.out.display());
    if skipped > 0 {
        println!("{skipped} records could not be decoded and were skipped");
    }
    Ok(())
}

/// Where predictions go: tables through the sinks of `data convert`, or JSON lines.
enum Output {
    Table(Box<dyn Sink>),
    JsonLines { file: BufWriter<File>, beside: PathBuf, path: PathBuf },
}

impl Output {
    fn create(path: &Path) -> Result<Self> {
        let format = match path.extension().and_then(|extension| extension.to_str()) {
            Some("csv") => Format::Csv,
            Some("parquet") => Format::Parquet,
            Some("jsonl") => {
                let beside = path.with_extension("jsonl.tmp");
                let file = File::create(&beside).with_context(|| beside.display().to_string())?;
                let file = BufWriter::new(file);
                return Ok(Self::JsonLines { file, beside, path: path.to_path_buf() });
            }
            _ => bail!("{}: name a file that ends in .parquet, .csv or .jsonl", path.display()),
        };
        Ok(Self::Table(sink::create(path, format)?))
    }

    fn write(&mut self, predictions: &Predictions) -> Result<(), salamander_train::Error> {
        for (record, row) in predictions.rows() {
            match self {
                Self::Table(sink) => sink.write(&table_row(record, row))?,
                Self::JsonLines { file, beside, .. } => {
                    let prediction = prediction(row);
                    let object = json!({"record": record, "prediction": prediction, "scores": row});
                    writeln!(file, "{object}").map_err(salamander_train::Error::io(beside))?;
                }
            }
        }
        Ok(())
    }

    fn finish(self) -> Result<()> {
        match self {
            Self::Table(sink) => Ok(sink.finish()?),
            Self::JsonLines { mut file, beside, path } => {
                let written = file.flush().and_then(|()| file.get_ref().sync_all());
                written
                    .and_then(|()| std::fs::rename(&beside, &path))
                    .with_context(|| path.display().to_string())
            }
        }
    }

    /// A file that ends in the middle would look complete; tables remove theirs by themselves.
    fn discard(self) {
        if let Self::JsonLines { beside, .. } = self {
            let _ = std::fs::remove_file(beside);
        }
    }
}

fn table_row(record: u64, scores: &[f32]) -> Row<'static> {
    let number = |value: f32| Value::Floats(Cow::Owned(vec![value]));
    let prediction = match scores {
        [value] => number(*value),
        row => Value::Ints(Cow::Owned(vec![class(row) as i64])),
    };
    let mut columns = vec![
        (Cow::Borrowed("record"), Value::Ints(Cow::Owned(vec![record as i64]))),
        (Cow::Borrowed("prediction"), prediction),
    ];
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
