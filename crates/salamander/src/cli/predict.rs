//! `salamander predict`: a trained model's outputs for every record, as Parquet, CSV or JSON lines.

use std::borrow::Cow;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use salamander_data::sink::{self, Sink};
use salamander_data::{Format, Row, Value};
use salamander_train::evaluate::{Over, batches};
use salamander_train::model::{Instance, Models};
use salamander_train::predict::Predictions;
use serde_json::json;

use super::tasks::{self, Job, Launch, Outcome, Work};
use super::trained::{self, Files, find_trained};

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
    /// Share the work among so many processes; the file is the same [default: this one alone]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    workers: Option<u32>,
}

pub(super) fn run(args: Args, models: &Models) -> Result<ExitCode> {
    let found = find_trained(&args.trained)?;
    let model = models.find(found.experiment.model())?;
    let experiment = &found.experiment;
    let files = Files::given(&args.data, experiment);
    let dataset = files.open(experiment)?;
    let over = Over::new(experiment, false);
    let batches = batches(&dataset, over.batch);
    let mut output = Output::create(&args.out)?;
    let predicted = match args.workers {
        Some(workers) => {
            let job = &Job::new(Work::Predict, &found, files, &dataset);
            let launch = Launch { job, experiment, batches, workers };
            tasks::run(&launch, &mut |part| output.append(part))
        }
        None => {
            let mut write = |batch: Predictions| output.write(&batch);
            let predict =
                |model: Box<dyn Instance>| model.predict(&dataset, over, 0..batches, &mut write);
            let skipped = model.load(found.trained()).and_then(predict);
            skipped.map(|skipped| Outcome::Completed { skipped }).map_err(Into::into)
        }
    };
    let skipped = match predicted {
        Ok(Outcome::Completed { skipped }) => skipped,
        Ok(Outcome::Interrupted(code)) => {
            output.discard();
            return Ok(code);
        }
        Err(error) => {
            output.discard();
            return Err(error);
        }
    };
    output.finish()?;
    println!("{} predictions in {}", dataset.len() - skipped, args.out.display());
    if skipped > 0 {
        println!("{skipped} records could not be decoded and were skipped");
    }
    Ok(ExitCode::SUCCESS)
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

    /// Writes what a task has predicted, batch by batch.
    fn append(&mut self, part: &Path) -> Result<()> {
        let named = || part.display().to_string();
        for line in BufReader::new(File::open(part).with_context(named)?).lines() {
            let batch = serde_json::from_str(&line.with_context(named)?).with_context(named)?;
            self.write(&batch)?;
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
