//! `salamander predict`: a trained model's outputs for every record, as CSV or JSON lines.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use salamander_core::experiment::Data;
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
    /// The file to write: .csv or .jsonl
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

pub(super) fn run(args: Args, models: &Models) -> Result<()> {
    let found = find_trained(&args.trained)?;
    let model = models.find(found.experiment.model())?;
    let experiment = &found.experiment;
    let data = Data { format: None, ..experiment.data.clone() };
    let dataset = open_data("--data", &args.data, &data)?;
    let on_bad_record = experiment.data.on_bad_record;
    let over = Over { batch: experiment.global_batch, on_bad_record, labels: false };
    let beside = args.out.with_extension("tmp");
    let mut writer = Output::create(&args.out, &beside)?;
    let written = model.predict(found.trained(), &dataset, over, &mut |predictions| {
        writer.write(&predictions).map_err(salamander_train::Error::io(&beside))
    });
    let finished = written.map_err(anyhow::Error::from).and_then(|skipped| {
        writer.finish().with_context(|| beside.display().to_string())?;
        Ok(skipped)
    });
    if finished.is_err() {
        // A file that ends in the middle would look complete.
        let _ = std::fs::remove_file(&beside);
    }
    let skipped = finished?;
    std::fs::rename(&beside, &args.out).with_context(|| args.out.display().to_string())?;
    println!("{} predictions in {}", dataset.len() - skipped, args.out.display());
    if skipped > 0 {
        println!("{skipped} records could not be decoded and were skipped");
    }
    Ok(())
}

enum Kind {
    Csv,
    JsonLines,
}

struct Output {
    kind: Kind,
    file: BufWriter<File>,
    header: bool,
}

impl Output {
    fn create(named: &Path, path: &Path) -> Result<Self> {
        let kind = match named.extension().and_then(|extension| extension.to_str()) {
            Some("csv") => Kind::Csv,
            Some("jsonl") => Kind::JsonLines,
            _ => bail!("{}: name a file that ends in .csv or .jsonl", named.display()),
        };
        let file = File::create(path).with_context(|| path.display().to_string())?;
        Ok(Self { kind, file: BufWriter::new(file), header: false })
    }

    fn write(&mut self, predictions: &Predictions) -> std::io::Result<()> {
        if matches!(self.kind, Kind::Csv) && !self.header {
            let scores: Vec<String> =
                (0..predictions.width).map(|i| format!("score_{i}")).collect();
            writeln!(self.file, "record,prediction,{}", scores.join(","))?;
            self.header = true;
        }
        for (record, row) in predictions.rows() {
            let prediction = prediction(row);
            match self.kind {
                Kind::Csv => {
                    write!(self.file, "{record},{prediction}")?;
                    for score in row {
                        write!(self.file, ",{score}")?;
                    }
                    writeln!(self.file)?;
                }
                Kind::JsonLines => {
                    let object = json!({"record": record, "prediction": prediction, "scores": row});
                    writeln!(self.file, "{object}")?;
                }
            }
        }
        Ok(())
    }

    fn finish(mut self) -> std::io::Result<()> {
        self.file.flush()?;
        self.file.get_ref().sync_all()
    }
}

/// The class with the greatest score; the value itself where there is only one.
fn prediction(row: &[f32]) -> serde_json::Value {
    match row {
        [value] => json!(value),
        row => {
            let best = row.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
            json!(best.map_or(0, |(class, _)| class))
        }
    }
}
