//! `salamander doctor`: what on this machine, or in an experiment, would stop a run.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use salamander_core::words::count;
use salamander_train::device;
use salamander_train::model::Models;
use salamander_train::trainer::open_data;

use salamander_run::experiment::{in_file, load};
use salamander_run::{find_assets, settle};

/// Checkpoints of a small model fit into this; less would stop almost any run.
const LITTLE_ROOM: u64 = 1 << 30;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// An experiment to check too: its fields, device and data, and its model on two records
    experiment: Option<PathBuf>,
    #[command(flatten)]
    folder: crate::args::RunsFolder,
}

pub(crate) fn run(args: &Args, models: &Models) -> Result<ExitCode> {
    let mut checks = vec![
        ("processor", Ok(processor())),
        ("memory", memory()),
        ("runs folder", writable(&args.folder.runs)),
        ("free disk", room(&args.folder.runs)),
        ("devices", Ok(format!("compiled in: {}", device::compiled().join(", ")))),
    ];
    if let Some(path) = &args.experiment {
        checks.push(("experiment", experiment(path, models)));
    }
    let mut healthy = true;
    for (what, result) in checks {
        match result {
            Ok(found) => outln!("ok    {what:<12} {found}")?,
            Err(error) => {
                healthy = false;
                outln!("FAIL  {what:<12} {error:#}")?;
            }
        }
    }
    Ok(if healthy { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn processor() -> String {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    #[cfg(target_arch = "x86_64")]
    let simd =
        match (std::is_x86_feature_detected!("avx512f"), std::is_x86_feature_detected!("fma")) {
            (true, _) => "AVX-512",
            (false, true) => "AVX2",
            _ => "SSE only: training will be slow",
        };
    #[cfg(not(target_arch = "x86_64"))]
    let simd = std::env::consts::ARCH;
    format!("{}, {simd}", count(cores as u64, "core"))
}

fn memory() -> Result<String> {
    let text = std::fs::read_to_string("/proc/meminfo").context("cannot be read")?;
    let line = text.lines().find(|line| line.starts_with("MemAvailable"));
    let kilobytes: u64 = line
        .and_then(|line| line.split_whitespace().nth(1)?.parse().ok())
        .context("MemAvailable is not in /proc/meminfo")?;
    anyhow::ensure!(kilobytes > 512 << 10, "only {} MiB free", kilobytes >> 10);
    Ok(format!("{:.1} GiB free", kilobytes as f64 / f64::from(1 << 20)))
}

/// The nearest folder that exists: nothing is made by looking.
fn existing(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    absolute.ancestors().find(|path| path.is_dir()).unwrap_or(Path::new("/")).to_path_buf()
}

fn writable(runs: &Path) -> Result<String> {
    let folder = existing(runs);
    let stat = rustix::fs::access(&folder, rustix::fs::Access::WRITE_OK);
    stat.with_context(|| format!("{} cannot be written to", folder.display()))?;
    Ok(format!("{} can be written to", folder.display()))
}

fn room(runs: &Path) -> Result<String> {
    let folder = existing(runs);
    let stat = rustix::fs::statvfs(&folder).with_context(|| folder.display().to_string())?;
    let free = stat.f_bavail * stat.f_frsize;
    anyhow::ensure!(free > LITTLE_ROOM, "only {} MiB in {}", free >> 20, folder.display());
    Ok(format!("{} GiB in {}", free >> 30, folder.display()))
}

fn experiment(path: &Path, models: &Models) -> Result<String> {
    let mut experiment = load(path, &[])?;
    let model = models.find(experiment.model()).map_err(|error| in_file(path, error))?;
    // As for a run: the data may be named by a hyperparameter.
    settle(model, &mut experiment, path).map_err(|error| in_file(path, error))?;
    model.hparams_in_force(&experiment).map_err(|error| in_file(path, error))?;
    device::select(&experiment.device.0)?;
    let data = &experiment.data;
    let training = open_data("data.training", &data.training.0, data)?.len();
    let validation = match data.validation.0.as_slice() {
        [] => 0,
        paths => open_data("data.validation", paths, data)?.len(),
    };
    let assets = find_assets(model, &experiment, path).map_err(|error| in_file(path, error))?;
    let tried = model.preflight(&experiment, &assets, None);
    let warnings = tried.map_err(|error| in_file(path, error))?;
    let training = count(training, "record");
    let found = format!("{}: {training} to train on, {validation} to validate", model.name());
    Ok(std::iter::once(found).chain(warnings).collect::<Vec<_>>().join("\n      "))
}
