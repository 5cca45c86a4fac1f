//! `salamander demo chaos`: a run that is shot at by its own parent.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Subcommand;
use salamander_core::ledger::LedgerLine;
use salamander_core::words::{count, count_was};
use salamander_run::{Overrides, Program, Run};
use serde_json::Value;

use crate::out::Out;
use crate::signals::Signals;
use crate::ui::RunDisplay;
use crate::{ledger, scaffold, train};

/// The rows of the curve.
const ROWS: usize = 12;
const COLUMNS: usize = 72;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Train while workers are killed, and show that no record was lost or repeated
    Chaos(ChaosArgs),
}

#[derive(clap::Args)]
pub(crate) struct ChaosArgs {
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

pub(crate) fn run(command: Command, program: &Program) -> Result<ExitCode> {
    let Command::Chaos(args) = command;
    if !args.every.is_finite() || args.every <= 0.0 {
        bail!("--every: write seconds above 0");
    }
    let file = prepare(&args.out.join("demo-data"), args.workers)?;
    let draft = program.experiment(&file, &Overrides::default(), &args.out);
    let draft = draft.context("the demonstration trains a model of the program `salamander`")?;
    let signals = Signals::install()?;
    let run = draft.start()?;
    let every = Duration::from_secs_f64(args.every);
    let mut kills = Kills { every, last: Instant::now(), count: 0 };
    train::follow(&run, &mut RunDisplay::new(Out::Stdout), &signals, &mut |begun| {
        kills.maybe(&run, begun);
    });
    let finished = run.wait()?;
    let (outcome, facts) = (&finished.outcome, finished.facts);
    outln!("\n{}", curve(&finished.run.metrics())?)?;
    let lines = outcome.progress.ledger.lines();
    ledger::print(&lines)?;
    let clean = |line: &LedgerLine| line.intact && line.duplicated == 0 && line.missing == 0;
    outln!(
        "\n{} killed, {}, every record {}",
        count_was(facts.worker_restarts, "worker"),
        count(facts.generations, "generation"),
        if lines.iter().all(clean) {
            "applied exactly once per epoch"
        } else {
            "NOT accounted for"
        },
    )?;
    Ok(if lines.iter().all(clean) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The demonstration's kills, each worker in its turn.
struct Kills {
    every: Duration,
    last: Instant,
    count: usize,
}

impl Kills {
    fn maybe(&mut self, run: &Run, begun: bool) {
        if !begun || self.last.elapsed() < self.every {
            return;
        }
        self.last = Instant::now();
        let workers = run.workers();
        let Some(worker) = workers.get(self.count % workers.len().max(1)) else { return };
        errln!("killing worker process {}", worker.pid);
        // One that has just ended needs no killing.
        let _ = worker.kill();
        self.count += 1;
    }
}

/// Writes what the demonstration trains on; returns the experiment file.
fn prepare(folder: &Path, workers: u32) -> Result<PathBuf> {
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    fs::write(folder.join("train.csv"), scaffold::rings(40_000, 1))?;
    fs::write(folder.join("valid.csv"), scaffold::rings(2_000, 2))?;
    let experiment = folder.join("experiment.yaml");
    let text = format!(
        "name: demo chaos\n\
         reproducibility: {{experiment_seed: 1}}\n\
         entrypoint: rings_mlp\n\
         data: {{training: train.csv, validation: valid.csv}}\n\
         strategy: allreduce\n\
         workers: {workers}\n\
         micro_batches: 8\n\
         hyperparameters: {{global_batch_size: 64, learning_rate: 0.0005, hidden: 32}}\n\
         searcher: {{metric: accuracy, smaller_is_better: false, max_length: {{epochs: 6}}}}\n\
         min_checkpoint_period: {{batches: 200}}\n\
         elastic: {{silence: 2}}\n"
    );
    fs::write(&experiment, text)?;
    Ok(experiment)
}

/// The loss over all steps, as a picture of text.
fn curve(metrics: &Path) -> Result<String> {
    let text = fs::read_to_string(metrics).with_context(|| metrics.display().to_string())?;
    let losses: Vec<f64> = text
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|value| value["kind"] == "step")
        .filter_map(|value| value["loss"].as_f64())
        .collect();
    let width = losses.len().div_ceil(COLUMNS).max(1);
    let means: Vec<f64> =
        losses.chunks(width).map(|part| part.iter().sum::<f64>() / part.len() as f64).collect();
    let highest = means.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    let mut picture = String::new();
    for row in (0..ROWS).rev() {
        let line: String = means
            .iter()
            .map(|mean| if mean / highest * ROWS as f64 > row as f64 { '█' } else { ' ' })
            .collect();
        let label = highest * (row + 1) as f64 / ROWS as f64;
        picture.push_str(&format!("{label:8.4} |{}\n", line.trim_end()));
    }
    picture.push_str(&format!("{:8} +{}\n", "loss", "-".repeat(means.len())));
    picture.push_str(&format!("{:8}  0 .. {} steps\n", "", losses.len()));
    Ok(picture)
}
