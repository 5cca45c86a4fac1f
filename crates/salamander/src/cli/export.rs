//! `salamander export`: weights for elsewhere.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use salamander_train::checkpoint::write_atomic;
use salamander_train::model::Models;

use super::trained::{self, find_trained};

#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    trained: trained::Which,
    /// The folder to write: model.safetensors (names are module paths) and experiment.yaml
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

pub(super) fn run(args: Args, models: &Models) -> Result<()> {
    let found = find_trained(&args.trained)?;
    let model = models.find(found.experiment.model())?;
    let weights = args.out.join("model.safetensors");
    fs::create_dir_all(&args.out).with_context(|| args.out.display().to_string())?;
    model.load(found.trained())?.export(&weights)?;
    let hparams = model.hparams_in_force(&found.experiment)?;
    let experiment = found.experiment.to_yaml(&hparams);
    write_atomic(&args.out.join("experiment.yaml"), experiment.as_bytes())?;
    println!("{} ({})", weights.display(), found.label);
    Ok(())
}
