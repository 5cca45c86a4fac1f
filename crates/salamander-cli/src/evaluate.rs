//! `salamander evaluate`: a trained model on other data.

use std::process::ExitCode;

use anyhow::Result;
use salamander_core::words::count;
use salamander_run::report::ClassReport;
use salamander_run::{Evaluation, Program, confusion};
use serde_json::json;

use crate::args::TrainedArgs;
use crate::out;
use crate::sharing::SharingArgs;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    trained: TrainedArgs,
    /// Files or folders; the experiment's validation data by default
    #[arg(long, value_name = "DATA")]
    data: Vec<String>,
    #[command(flatten)]
    sharing: SharingArgs,
    /// Print one JSON object instead
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, program: &Program) -> Result<ExitCode> {
    let model = args.trained.load(program)?;
    let evaluated = args.sharing.with("evaluating", |by| model.evaluate(&args.data, by))?;
    Ok(match evaluated {
        Ok(evaluation) => {
            show(&evaluation, model.checkpoint(), &model.class_names()?, args.json)?;
            ExitCode::SUCCESS
        }
        Err(stopped) => stopped,
    })
}

fn show(
    evaluation: &Evaluation,
    checkpoint: &str,
    class_names: &[String],
    json: bool,
) -> Result<(), out::Error> {
    let values = evaluation.metrics.values();
    let named = confusion(&evaluation.metrics, class_names);
    let report = named.map(|(names, counts)| ClassReport::from_confusion(&names, counts));
    if json {
        let object = json!({
            "checkpoint": checkpoint, "records": evaluation.records,
            "skipped": evaluation.skipped, "metrics": values, "report": report,
        });
        return outln!("{object}");
    }
    outln!("{}, checkpoint {checkpoint}", count(evaluation.records, "record"))?;
    if evaluation.skipped > 0 {
        let skipped = count(evaluation.skipped, "record");
        outln!("{skipped} could not be decoded: left out")?;
    }
    for (name, value) in &values {
        outln!("{name:<12} {value:.6}")?;
    }
    if let Some(report) = report {
        outln!("\n{}", report.to_string().trim_end())?;
    }
    Ok(())
}
