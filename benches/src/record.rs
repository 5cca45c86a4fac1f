//! What a bench measured, as lines of JSON, so that `cargo xtask bench-compare OLD NEW` can say what moved.
//!
//! Plain std and one file, because benches of crates without Burn take it in by its path.
#![allow(
    unreachable_pub,
    reason = "public here, but not in the benches that take it in by its path"
)]

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;

/// The figures of one bench: `target/bench/NAME.jsonl`, or the folder that `SALAMANDER_BENCH` names.
#[derive(Clone, Debug)]
pub struct Record {
    path: PathBuf,
}

impl Record {
    /// Begins anew. Each figure is written when it is known, so that a bench that is cut off leaves what it had.
    pub fn begin(bench: &str) -> Self {
        let folder = std::env::var_os("SALAMANDER_BENCH").map_or_else(beside_target, PathBuf::from);
        let record = Self { path: folder.join(format!("{bench}.jsonl")) };
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let begun = fs::create_dir_all(&folder).and_then(|()| fs::write(&record.path, ""));
        record.say(begun);
        record.line(&format!("{{\"bench\": {}, \"cores\": {cores}}}", quoted(bench)));
        eprintln!("figures go to {}", record.path.display());
        record
    }

    /// Notes a figure. `better` is `more` or `less`; `peer` is what it is compared with in the same run, if there is
    /// something.
    pub fn figure(&self, name: &str, (unit, better): (&str, &str), value: f64, peer: Option<f64>) {
        self.line(&format!(
            "{{\"name\": {}, \"unit\": {}, \"better\": {}, \"value\": {}, \"peer\": {}}}",
            quoted(name),
            quoted(unit),
            quoted(better),
            number(value),
            number(peer.unwrap_or(f64::NAN))
        ));
    }

    fn line(&self, text: &str) {
        let file = OpenOptions::new().append(true).open(&self.path);
        self.say(file.and_then(|mut file| writeln!(file, "{text}")));
    }

    /// A bench goes on without its file: what it prints is what people look at.
    fn say(&self, done: std::io::Result<()>) {
        if let Err(error) = done {
            eprintln!("{}: {error}", self.path.display());
        }
    }
}

/// `target/bench`: a bench runs as `target/release/deps/NAME`.
fn beside_target() -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    program.ancestors().nth(3).map_or_else(|| PathBuf::from("bench"), |target| target.join("bench"))
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// JSON has no NaN and no infinity.
fn number(value: f64) -> String {
    if value.is_finite() { value.to_string() } else { "null".to_string() }
}
