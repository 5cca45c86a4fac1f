//! What the benches share: medians, peers in Python, and a table with ratios.
//!
//! # Layout
//! - [`median_rate`], [`rates`]: how fast something runs, by the clock and by the processor's time
//! - [`training_step`]: what the trainer does with a batch
//! - [`as_program`], [`steps_per_second`]: whole runs
//! - [`Record`]: the figures as JSON
//! - [`PythonPeer`]: a Python program that measures the same thing, if its packages are there

mod processor;
mod program;
mod record;
mod training;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

pub use processor::{Rates, rates};
pub use program::{as_program, as_program_of, steps_per_second};
pub use record::Record;
pub use training::{MINILM, REVIEW_LENGTHS, training_step};

/// Runs `step` for about `time` after a warm-up and returns the median rate per second over slices
/// of it, `items` being done each time.
pub fn median_rate(items: f64, time: Duration, mut step: impl FnMut()) -> f64 {
    for _ in 0..3 {
        step();
    }
    let mut rates = Vec::new();
    let start = Instant::now();
    while rates.len() < 5 || start.elapsed() < time {
        let begun = Instant::now();
        step();
        rates.push(items / begun.elapsed().as_secs_f64());
    }
    median(&mut rates)
}

/// The middle value.
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Settings of glibc's allocator: nothing is mapped apart and nothing is given back.
const KEEP_MEMORY: [(&str, &str); 2] =
    [("MALLOC_MMAP_THRESHOLD_", "4294967296"), ("MALLOC_TRIM_THRESHOLD_", "4294967296")];

/// A Python program of `benches/peers`.
pub struct PythonPeer {
    python: String,
    script: String,
}

impl PythonPeer {
    /// The peer, if Python can import its packages; `SALAMANDER_PEERS` names another Python.
    pub fn find(script: &str, modules: &str) -> Option<Self> {
        let python = std::env::var("SALAMANDER_PEERS").unwrap_or_else(|_| "python3".to_string());
        let check = Command::new(&python).arg("-c").arg(format!("import {modules}")).output();
        if !check.is_ok_and(|output| output.status.success()) {
            println!("{python} cannot import {modules}: no ratio (set SALAMANDER_PEERS)");
            return None;
        }
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers");
        Some(Self { python, script: folder.join(script).display().to_string() })
    }

    /// Runs it with what it prints in sight; whether it ended well.
    pub fn run(&self, args: impl IntoIterator<Item = String>) -> bool {
        let ended = Command::new(&self.python).arg(&self.script).args(args).status();
        ended.is_ok_and(|status| status.success())
    }

    /// Runs it and returns the number that it prints last. It runs with an allocator that keeps memory instead of
    /// giving it back after every step, as ours does.
    pub fn measure(&self, args: &[&str]) -> Option<f64> {
        let text = String::from_utf8_lossy(&self.output(args)?).into_owned();
        text.split_whitespace().last()?.parse().ok()
    }

    /// The same for one that prints both rates.
    pub fn rates(&self, args: &[&str]) -> Option<Rates> {
        Rates::parse(&self.output(args)?)
    }

    fn output(&self, args: &[&str]) -> Option<Vec<u8>> {
        let command = Command::new(&self.python)
            .arg(&self.script)
            .args(args)
            .envs(KEEP_MEMORY)
            .output()
            .ok()?;
        Some(command.stdout)
    }
}
