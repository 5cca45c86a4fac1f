//! The program in a folder, as people type its commands.

use std::path::Path;
use std::process::Command;

/// Runs the program in a folder: what it printed, or what it said when it failed. It never panics.
pub(crate) fn salamander(folder: &Path, args: &[&str]) -> Result<String, String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_salamander"));
    let ended = command.args(args).current_dir(folder).output().expect("the program starts");
    let told = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(!told.contains("panicked"), "{args:?}: {told}");
    match ended.status.success() {
        true => Ok(String::from_utf8_lossy(&ended.stdout).into_owned()),
        false => Err(told),
    }
}

/// The summary in the last line of `train --json`.
pub(crate) fn summary(printed: &str) -> serde_json::Value {
    serde_json::from_str(printed.lines().last().expect("a summary")).expect("JSON")
}
