//! A trained model to use, a run's checkpoint or an exported folder, and the data to use it on.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use burn::tensor::Device;
use salamander_core::experiment::{Data, Experiment};
use salamander_data::{Dataset, Format};
use salamander_train::checkpoint::{self, Checkpoint, Store};
use salamander_train::device;
use salamander_train::model::{Trained, Weights};
use salamander_train::trainer::open_data;
use serde::{Deserialize, Serialize};

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
    /// The run's folder, or the exported one.
    pub(super) folder: PathBuf,
    /// As it was asked for.
    pub(super) device_name: String,
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

/// The files that a trained model is used on.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Files {
    /// Names them in messages.
    pub(super) what: String,
    pub(super) paths: Vec<String>,
    pub(super) format: Option<String>,
}

impl Files {
    /// Those of `--data`, which need not have the format of the experiment's; but that is taken for files that do not
    /// tell theirs.
    pub(super) fn given(paths: &[String], experiment: &Experiment) -> Self {
        let tells = |path: &String| {
            let path = Path::new(path);
            path.is_dir() || Format::guess(path).is_ok()
        };
        let format = experiment.data.format.clone().filter(|_| !paths.iter().all(tells));
        Self { what: "--data".to_string(), paths: paths.to_vec(), format }
    }

    pub(super) fn open(&self, experiment: &Experiment) -> Result<Arc<Dataset>> {
        let data = Data { format: self.format.clone(), ..experiment.data.clone() };
        Ok(open_data(&self.what, &self.paths, &data)?)
    }
}

pub(super) fn find_trained(args: &Which) -> Result<Found> {
    let folder = find(&args.run, &args.folder.runs)?;
    open_trained(&folder, &args.checkpoint, (&args.device, 0))
}

/// Opens the run or the exported model of a folder, on the device of this name for this worker.
pub(super) fn open_trained(
    folder: &Path,
    which: &checkpoint::Which,
    (device_name, worker): (&str, u32),
) -> Result<Found> {
    let device = device::select_for(device_name, worker as usize)?;
    let checkpoints = folder.join("checkpoints");
    let (experiment, label, source) = if checkpoints.is_dir() {
        let checkpoint = Store::find(&checkpoints, which)?;
        let experiment = Experiment::parse(&checkpoint.experiment, &[])
            .map_err(|error| anyhow!("{}: {error}", checkpoint.path.display()))?;
        let label = checkpoint.manifest.id.clone();
        (experiment, label, Source::Checkpoint(Box::new(checkpoint)))
    } else {
        let (experiment, weights) = exported(folder)?;
        (experiment, "exported".to_string(), Source::File(weights))
    };
    let (folder, device_name) = (folder.to_path_buf(), device_name.to_string());
    Ok(Found { experiment, label, folder, device_name, source, device })
}

fn exported(folder: &Path) -> Result<(Experiment, PathBuf)> {
    let weights = folder.join("model.safetensors");
    if !weights.is_file() {
        bail!("{}: neither a run nor an exported model", folder.display());
    }
    let file = folder.join("experiment.yaml");
    let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let experiment = Experiment::parse(&text, &[])
        .map_err(|error| anyhow!("experiment {}: {error}", file.display()))?;
    Ok((experiment, weights))
}
