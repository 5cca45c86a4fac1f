//! `salamander evaluate`: a trained model on other data.

use std::sync::Arc;

use anyhow::{Result, bail};
use salamander_data::Dataset;
use salamander_train::evaluate::Over;
use salamander_train::model::Models;
use salamander_train::trainer::open_data;
use serde_json::json;

use super::trained::{self, Found, find_trained};
use crate::report::ClassReport;
use crate::ui::confusion;

#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    trained: trained::Which,
    /// Files or folders; the experiment's validation data by default
    #[arg(long, value_name = "DATA")]
    data: Vec<String>,
    /// Print one JSON object instead
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: Args, models: &Models) -> Result<()> {
    let found = find_trained(&args.trained)?;
    let model = models.find(found.experiment.model())?;
    let dataset = data(&args.data, &found)?;
    let experiment = &found.experiment;
    let over = Over::new(experiment, true);
    let evaluation = model.evaluate(found.trained(), &dataset, over, &mut || {})?;
    let values = evaluation.metrics.values();
    let named = confusion(&evaluation.metrics, &model.class_names());
    let report = named.map(|(names, counts)| ClassReport::from_confusion(&names, counts));
    if args.json {
        let object = json!({
            "checkpoint": found.label, "records": evaluation.records,
            "skipped": evaluation.skipped, "metrics": values, "report": report,
        });
        println!("{object}");
        return Ok(());
    }
    println!("{} records, checkpoint {}", evaluation.records, found.label);
    if evaluation.skipped > 0 {
        println!("{} records could not be decoded and were skipped", evaluation.skipped);
    }
    for (name, value) in &values {
        println!("{name:<12} {value:.6}");
    }
    if let Some(report) = report {
        println!("\n{report}");
    }
    Ok(())
}

fn data(paths: &[String], found: &Found) -> Result<Arc<Dataset>> {
    let data = &found.experiment.data;
    let (what, paths) = match paths {
        [] => ("data.validation", data.validation.0.as_slice()),
        given => ("--data", given),
    };
    if paths.is_empty() {
        bail!("the experiment has no validation data: name files with --data");
    }
    let format = if what == "--data" { None } else { data.format.clone() };
    let data = salamander_core::experiment::Data { format, ..data.clone() };
    Ok(open_data(what, paths, &data)?)
}
