//! A trained model to use: a run's checkpoint or an exported folder.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use burn::tensor::Device;
use salamander_core::experiment::Experiment;
use salamander_train::checkpoint::{self, Checkpoint, Store};
use salamander_train::device;
use salamander_train::model::{Trained, Weights};

use super::RunsFolder;
use crate::run::find;

/// The arguments that say which trained model is meant.
#[derive(clap::Args)]
pub(super) struct Which {
    /// The run, by its folder or id, or a folder made by `export`
    run: String,
    /// Which checkpoint of the run: best, latest, or its id
    #[arg(long, default_value = "best", value_name = "best|latest|ID")]
    checkpoint: checkpoint::Which,
    /// Where to compute: auto, cpu, wgpu[:i] or cuda[:i]
    #[arg(long, default_value = "auto")]
    device: String,
    #[command(flatten)]
    folder: RunsFolder,
}

/// What was found, with the experiment that it was trained by.
pub(super) struct Found {
    pub(super) experiment: Experiment,
    pub(super) label: String,
    source: Source,
    device: Device,
}

enum Source {
    Checkpoint(Box<Checkpoint>),
    File(PathBuf),
}

impl Found {
    pub(super) fn trained(&self) -> Trained<'_> {
        let weights = match &self.source {
            Source::Checkpoint(checkpoint) => Weights::Checkpoint(checkpoint),
            Source::File(path) => Weights::File(path),
        };
        Trained { experiment: &self.experiment, weights, device: &self.device }
    }
}

pub(super) fn find_trained(args: &Which) -> Result<Found> {
    let folder = find(&args.run, &args.folder.runs)?;
    let device = device::select(&args.device)?;
    let checkpoints = folder.join("checkpoints");
    if checkpoints.is_dir() {
        let checkpoint = Store::find(&checkpoints, &args.checkpoint)?;
        let experiment = Experiment::parse(&checkpoint.experiment, &[])
            .map_err(|error| anyhow!("{}: {error}", checkpoint.path.display()))?;
        let label = checkpoint.manifest.id.clone();
        let source = Source::Checkpoint(Box::new(checkpoint));
        return Ok(Found { experiment, label, source, device });
    }
    exported(&folder, device)
}

fn exported(folder: &Path, device: Device) -> Result<Found> {
    let weights = folder.join("model.safetensors");
    if !weights.is_file() {
        bail!("{}: neither a run nor an exported model", folder.display());
    }
    let file = folder.join("experiment.yaml");
    let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let experiment = Experiment::parse(&text, &[])
        .map_err(|error| anyhow!("experiment {}: {error}", file.display()))?;
    Ok(Found { experiment, label: "exported".to_string(), source: Source::File(weights), device })
}
