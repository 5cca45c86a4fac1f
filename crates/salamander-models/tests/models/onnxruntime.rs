//! A network in ONNX as onnxruntime runs it, which is Python's.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

/// What `run_onnx.py` says of a file for these inputs; nothing where there is no onnxruntime, which must not be in CI.
pub(crate) fn outputs(script: &Path, model: &Path, inputs: &Value) -> Option<Value> {
    let python = std::env::var("SALAMANDER_PYTHON").unwrap_or_else(|_| "python3".to_string());
    let has = Command::new(&python).args(["-c", "import onnxruntime"]).output();
    if !has.is_ok_and(|has| has.status.success()) {
        let reason = format!("{python} has no onnxruntime (SALAMANDER_PYTHON names another one)");
        assert!(std::env::var_os("SALAMANDER_NO_SKIPS").is_none(), "{reason}");
        println!("SKIPPED: {reason}");
        return None;
    }
    let mut command = Command::new(&python);
    command.arg(script).arg(model).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::piped()).spawn().expect("Python starts");
    let mut stdin = child.stdin.take().expect("its input");
    stdin.write_all(inputs.to_string().as_bytes()).expect("sent");
    drop(stdin);
    let ended = child.wait_with_output().expect("ends");
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    Some(serde_json::from_slice(&ended.stdout).expect("JSON"))
}
