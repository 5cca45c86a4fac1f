//! `salamander predict`: a trained model's outputs for every record, as Parquet, CSV or JSON lines.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use salamander_core::words::count;
use salamander_run::Program;

use crate::args::TrainedArgs;
use crate::sharing::SharingArgs;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    trained: TrainedArgs,
    /// Files or folders of records; labels may be absent
    #[arg(long, required = true, value_name = "DATA")]
    data: Vec<String>,
    /// The file to write: .parquet, .csv or .jsonl
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    #[command(flatten)]
    sharing: SharingArgs,
}

pub(crate) fn run(args: &Args, program: &Program) -> Result<ExitCode> {
    let model = args.trained.load(program)?;
    let (data, out) = (&args.data, &args.out);
    let predicted = args.sharing.with("predicting", |by| model.predict_to(data, out, by))?;
    let predicted = match predicted {
        Ok(predicted) => predicted,
        Err(stopped) => return Ok(stopped),
    };
    outln!("{} in {}", count(predicted.records, "prediction"), args.out.display())?;
    if predicted.skipped > 0 {
        let skipped = count(predicted.skipped, "record");
        outln!("{skipped} could not be decoded: left out")?;
    }
    Ok(ExitCode::SUCCESS)
}
