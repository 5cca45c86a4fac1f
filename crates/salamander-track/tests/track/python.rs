//! A Python with the tools.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

/// Python with a module; says so and returns nothing when it is not there. With SALAMANDER_NO_SKIPS, as in CI, that is
/// a failure.
pub(crate) fn with(module: &str) -> Option<PathBuf> {
    let python = std::env::var("SALAMANDER_PYTHON").unwrap_or_else(|_| "python3".to_string());
    let check = Command::new(&python).arg("-c").arg(format!("import {module}")).output();
    if check.is_ok_and(|output| output.status.success()) {
        return Some(PathBuf::from(python));
    }
    let reason = format!("{python} cannot import {module} (pip install {module})");
    assert!(std::env::var_os("SALAMANDER_NO_SKIPS").is_none(), "{reason}");
    println!("SKIPPED: {reason}");
    None
}

/// Runs a script that prints one JSON value.
pub(crate) fn json(python: &PathBuf, script: &str, args: &[&str]) -> Value {
    let output = Command::new(python).arg("-c").arg(script).args(args).output().expect("python");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "python: {errors}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}
