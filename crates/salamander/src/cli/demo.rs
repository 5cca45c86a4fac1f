//! `salamander demo chaos`: a run that is shot at by its own parent.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Subcommand;
use salamander_core::ledger::Line;

use super::distributed::{self, Launch};
use super::experiment::load;
use super::ledger;
use super::signals::Signals;
use crate::demo;
use crate::run::RunFolder;
use crate::ui::Out;

#[derive(Subcommand)]
pub(super) enum Command {
    /// Train while workers are killed, and show that no record was lost or repeated
    Chaos(ChaosArgs),
}

#[derive(clap::Args)]
pub(super) struct ChaosArgs {
    /// How many workers
    #[arg(long, default_value_t = 4)]
    workers: u32,
    /// Seconds between kills
    #[arg(long, default_value_t = 2.0)]
    every: f64,
    /// The folder that runs live in
    #[arg(long, value_name = "DIR", default_value = "runs")]
    out: PathBuf,
}

pub(super) fn run(command: Command) -> Result<ExitCode> {
    let Command::Chaos(args) = command;
    if !args.every.is_finite() || args.every <= 0.0 {
        bail!("--every: write seconds above 0");
    }
    let data = args.out.join("demo-data");
    let file = demo::prepare(&data, args.workers)?;
    let mut experiment = load(&file, &[])?;
    experiment.settings_mut().reproducibility.experiment_seed = Some(1);
    let models = demo::models();
    let model = models.find(experiment.model())?;
    let hparams = model.hparams_in_force(&experiment)?;
    let folder = RunFolder::create(&args.out, "demo-chaos", &experiment.to_yaml(&hparams))?;
    let signals = Signals::install()?;
    let launch = Launch {
        folder: &folder,
        experiment: &experiment,
        resume: None,
        signals: &signals,
        out: Out::Stdout,
        demo: Some(Duration::from_secs_f64(args.every)),
    };
    let (outcome, facts) = distributed::train(&launch)?;
    println!("\n{}", demo::curve(&folder.path().join("metrics.jsonl"))?);
    let lines = outcome.progress.ledger.lines();
    ledger::print(&lines);
    let clean = |line: &Line| line.intact && line.duplicated == 0 && line.missing == 0;
    println!(
        "\n{} workers were killed, {} generations, every record {}",
        facts.worker_restarts,
        facts.generations,
        if lines.iter().all(clean) {
            "applied exactly once per epoch"
        } else {
            "NOT accounted for"
        },
    );
    Ok(if lines.iter().all(clean) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
