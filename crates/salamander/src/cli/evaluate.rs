//! `salamander evaluate`: a trained model on other data.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use salamander_core::experiment::Experiment;
use salamander_train::evaluate::{Evaluation, Over, Part, batches};
use salamander_train::model::Models;
use serde_json::json;

use super::tasks::{self, Job, Launch, Outcome, Work};
use super::trained::{self, Files, find_trained};
use crate::report::ClassReport;
use crate::ui::confusion;

#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    trained: trained::Which,
    /// Files or folders; the experiment's validation data by default
    #[arg(long, value_name = "DATA")]
    data: Vec<String>,
    /// Share the work among so many processes; the result is the same [default: this one alone]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    workers: Option<u32>,
    /// Print one JSON object instead
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: Args, models: &Models) -> Result<ExitCode> {
    let found = find_trained(&args.trained)?;
    let model = models.find(found.experiment.model())?;
    let experiment = &found.experiment;
    let files = files(&args.data, experiment)?;
    let dataset = files.open(experiment)?;
    let over = Over::new(experiment, true);
    let batches = batches(&dataset, over.batch);
    let mut whole = Part::default();
    if let Some(workers) = args.workers {
        let job = &Job::new(Work::Evaluate, &found, files, &dataset);
        let launch = Launch { job, experiment, batches, workers };
        let outcome = tasks::run(&launch, &mut |part| add(&mut whole, part))?;
        if let Outcome::Interrupted(code) = outcome {
            return Ok(code);
        }
    } else {
        let model = model.load(found.trained())?;
        whole = model.evaluate(&dataset, over, 0..batches, &mut || Ok(()))?;
    }
    show(&whole.finish(), &found.label, &model.class_names(), args.json);
    Ok(ExitCode::SUCCESS)
}

/// Adds what a task has found.
fn add(whole: &mut Part, part: &Path) -> Result<()> {
    let named = || part.display().to_string();
    let text = fs::read_to_string(part).with_context(named)?;
    whole.merge(&serde_json::from_str(&text).with_context(named)?);
    Ok(())
}

fn show(evaluation: &Evaluation, checkpoint: &str, class_names: &[String], json: bool) {
    let values = evaluation.metrics.values();
    let named = confusion(&evaluation.metrics, class_names);
    let report = named.map(|(names, counts)| ClassReport::from_confusion(&names, counts));
    if json {
        let object = json!({
            "checkpoint": checkpoint, "records": evaluation.records,
            "skipped": evaluation.skipped, "metrics": values, "report": report,
        });
        println!("{object}");
        return;
    }
    println!("{} records, checkpoint {checkpoint}", evaluation.records);
    if evaluation.skipped > 0 {
        println!("{} records could not be decoded and were skipped", evaluation.skipped);
    }
    for (name, value) in &values {
        println!("{name:<12} {value:.6}");
    }
    if let Some(report) = report {
        println!("\n{report}");
    }
}

fn files(given: &[String], experiment: &Experiment) -> Result<Files> {
    let data = &experiment.data;
    match (given, data.validation.0.as_slice()) {
        ([], []) => bail!("the experiment has no validation data: name files with --data"),
        ([], validation) => Ok(Files {
            what: "data.validation".to_string(),
            paths: validation.to_vec(),
            format: data.format.clone(),
        }),
        (given, _) => Ok(Files::given(given, experiment)),
    }
}
