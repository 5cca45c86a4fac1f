//! `salamander export`: weights for elsewhere.

use std::path::PathBuf;

use anyhow::Result;
use salamander_run::Program;

use crate::args::TrainedArgs;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    trained: TrainedArgs,
    /// The folder to write: model.safetensors (names are module paths) and experiment.yaml
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

pub(crate) fn run(args: &Args, program: &Program) -> Result<()> {
    let model = args.trained.load(program)?;
    let weights = model.export(&args.out)?;
    outln!("{} ({})", weights.display(), model.checkpoint())?;
    Ok(())
}
