//! A search through the program, and the processor time that it and its trials took.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::Value;

/// A run of the program that has ended.
pub(crate) struct TimedProgram {
    /// What `--json` prints.
    pub(crate) end: Value,
    /// Seconds by the clock.
    pub(crate) seconds: f64,
    /// Seconds of processors, of the program and of all processes that it started.
    pub(crate) processor: f64,
}

/// The zoo's digits: an experiment that trains on 8,000 and is measured on 2,000.
pub(crate) fn digits(model: &str, rest: &str) -> String {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../model_zoo/mnist/data");
    let data = data.canonicalize().expect("the zoo's data");
    let file = |name: &str| data.join(name).display().to_string();
    let (train, valid) = (file("mnist-train.recordio"), file("mnist-valid.recordio"));
    format!("entrypoint: {model}\ndata: {{training: \"{train}\", validation: \"{valid}\"}}\n{rest}")
}

/// Trains a file below a folder, with one thread for each process.
pub(crate) fn train(folder: &Path, file: &Path, arguments: &[&str]) -> TimedProgram {
    let program = std::env::var_os("SALAMANDER_PROGRAM").map(PathBuf::from);
    let program = program.unwrap_or_else(|| std::env::current_exe().expect("this program"));
    let (begun, before) = (Instant::now(), processor_seconds());
    let output = Command::new(program)
        .arg("train")
        .arg(file)
        .arg("--out")
        .arg(folder.join("runs"))
        .arg("--json")
        .args(arguments)
        .env("RAYON_NUM_THREADS", "1")
        .stdin(Stdio::null())
        .output()
        .expect("the program starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    let end = serde_json::from_str(out.lines().last().unwrap_or_default()).expect("JSON");
    let processor = processor_seconds() - before;
    TimedProgram { end, seconds: begun.elapsed().as_secs_f64(), processor }
}

/// What all processes took that this one, or one of them, has waited for: fields 16 and 17 of `/proc/self/stat`, in
/// hundredths of a second.
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks: u64 = fields.skip(13).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    ticks as f64 / 100.0
}
