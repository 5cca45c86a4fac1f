//! `salamander ui`: the dashboard of a folder of runs.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use salamander_core::layout::RunLayout;
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
    if RunLayout::new(&args.runs).lock().is_file() {
        bail!("{} is a run itself: name the folder that it is in", args.runs.display());
    }
    let signals = Signals::install()?;
    let tell = |address: SocketAddr| {
        // A reader that has gone away is no reason not to serve.
        let _ = outln!("the page of {} is at http://{address}", args.runs.display());
    };
    ui::run(&args.runs, args.listen, tell, &signals.stop)?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_folder_of_runs_is_told_and_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        let refused = |runs: PathBuf| run(&Args { runs, listen }).expect_err("no page").to_string();
        assert!(refused(folder.path().join("none")).contains("is no folder of runs"));
        let layout = RunLayout::new(folder.path());
        std::fs::write(layout.lock(), "1").expect("written");
        let told = refused(folder.path().to_path_buf());
        assert!(told.contains("is a run itself"), "{told}");
        assert_eq!(folder.path().read_dir().expect("there").count(), 1, "nothing was made in it");
    }
}
