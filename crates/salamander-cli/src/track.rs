//! `salamander track`: tells the tools that people have of a run that is over.

use std::process::ExitCode;

use anyhow::{Result, bail};
use salamander_core::experiment::{Experiment, Tracking};
use salamander_run::track;

use crate::args::RunArg;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    run: RunArg,
    /// Write event files for TensorBoard, whatever the experiment says
    #[arg(long)]
    tensorboard: bool,
    /// The address of an MLflow server, where the experiment names none or another one: http://host:5000
    #[arg(long, value_name = "URI")]
    mlflow: Option<String>,
    /// The address of a hub, where the experiment names none or another one: http://host:7070; the token comes from
    /// SALAMANDER_HUB_TOKEN
    #[arg(long, value_name = "URL")]
    hub: Option<String>,
    /// The experiment's name there, where the experiment file says nothing [default: the run's name]
    #[arg(long, value_name = "NAME", requires = "mlflow")]
    experiment: Option<String>,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let layout = args.run.find()?;
    let also = tracking(args)?;
    let notes = track(&layout, &also)?;
    if notes.is_empty() {
        outln!("everything is told of {}", layout.folder().display())?;
        return Ok(ExitCode::SUCCESS);
    }
    bail!("{}", notes.join("\n"))
}

/// What is asked for, checked as in an experiment file.
fn tracking(args: &Args) -> Result<Tracking> {
    let mut sets = Vec::new();
    sets.extend(args.tensorboard.then(|| "tracking.tensorboard=true".to_string()));
    sets.extend(args.mlflow.iter().map(|uri| format!("tracking.mlflow.uri={uri}")));
    let hub = |url: &String| format!("tracking.hub={}", serde_json::Value::from(url.as_str()));
    sets.extend(args.hub.iter().map(hub));
    let name = |name| format!("tracking.mlflow.experiment={}", serde_json::Value::from(name));
    sets.extend(args.experiment.clone().map(name));
    Ok(Experiment::parse("", &sets)?.tracking.clone())
}
