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
    /// Write the layout of another program instead, one of those that the model has: huggingface, torchvision, onnx
    #[arg(long, value_name = "NAME", default_value = "salamander")]
    format: String,
}

pub(crate) fn run(args: &Args, program: &Program) -> Result<()> {
    let model = args.trained.load(program)?;
    if args.format != "salamander" {
        model.export_as(&args.format, &args.out)?;
        outln!("{} ({})", args.out.display(), model.checkpoint())?;
        return Ok(());
    }
    let weights = model.export(&args.out)?;
    outln!("{} ({})", weights.display(), model.checkpoint())?;
    Ok(())
}
