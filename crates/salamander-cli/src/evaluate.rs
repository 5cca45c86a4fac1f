//! `salamander evaluate`: a trained model on other data.

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::Result;
use salamander_core::words::count;
use salamander_run::report::ClassReport;
use salamander_run::{Evaluation, Program, TrainedModel, confusion, use_int8};
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
    /// Evaluate also with linear layers in eight bits, as `serve --int8` computes, and show what that costs
    #[arg(long, conflicts_with = "workers")]
    int8: bool,
    #[command(flatten)]
    sharing: SharingArgs,
    /// Print one JSON object instead
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, program: &Program) -> Result<ExitCode> {
    let model = args.trained.load(program)?;
    if args.int8 {
        return compare(args, &model).map(|()| ExitCode::SUCCESS);
    }
    let evaluated = args.sharing.with("evaluating", |by| model.evaluate(&args.data, by))?;
    Ok(match evaluated {
        Ok(evaluation) => {
            show(&evaluation, model.checkpoint(), &model.class_names()?, args.json)?;
            ExitCode::SUCCESS
        }
        Err(stopped) => stopped,
    })
}

/// The model as it is, and in eight bits.
fn compare(args: &Args, model: &TrainedModel) -> Result<()> {
    let exact = model.evaluate(&args.data, None)?;
    use_int8(true);
    let rounded = model.evaluate(&args.data, None);
    use_int8(false);
    let rounded = rounded?;
    let (exact, rounded, records) =
        (exact.metrics.values(), rounded.metrics.values(), exact.records);
    if args.json {
        let differences: BTreeMap<_, _> = exact
            .iter()
            .filter_map(|(name, value)| Some((name.clone(), rounded.get(name)? - value)))
            .collect();
        outln!(
            "{}",
            json!({
                "checkpoint": model.checkpoint(), "records": records, "f32": exact, "int8": rounded,
                "difference": differences,
            })
        )?;
        return Ok(());
    }
    outln!("{}, checkpoint {}", count(records, "record"), model.checkpoint())?;
    outln!("{:<12} {:>12} {:>12} {:>12}", "", "f32", "int8", "difference")?;
    for (name, value) in &exact {
        let other = rounded.get(name).copied().unwrap_or(f64::NAN);
        outln!("{name:<12} {value:>12.6} {other:>12.6} {:>+12.6}", other - value)?;
    }
    Ok(())
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
