//! `salamander ui`: the dashboard of a folder of runs.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use salamander_hub::ui;

use crate::signals::Signals;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The folder that runs live in
    #[arg(default_value = "runs")]
    runs: PathBuf,
    /// Where to listen, on this machine; port 0 is any that is free
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8420")]
    listen: SocketAddr,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    if !args.runs.is_dir() {
        bail!("{} is no folder of runs: name one, or train first", args.runs.display());
    }
    let signals = Signals::install()?;
    let tell = |address: SocketAddr| {
        // A reader that has gone away is no reason not to serve.
        let _ = outln!("the runs of {} are at http://{address}", args.runs.display());
    };
    ui::run(&args.runs, args.listen, tell, &signals.stop)?;
    Ok(ExitCode::SUCCESS)
}
