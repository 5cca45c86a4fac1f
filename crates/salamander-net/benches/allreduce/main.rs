//! How fast members on one host sum, beside Gloo in the same run, and how fast they go on after
//! one of them was killed.
//!
//! Members are processes that this one starts: copies of itself, and Python for Gloo. They take
//! turns in short batches, so that a change of the machine's speed hits all alike; the table has
//! medians over the batches. `SALAMANDER_PEERS` names a Python that has torch.
//!
//! # Layout
//! - `member`: what a copy of this program does
//! - `process`: starting members and talking to them
//! - `speed`, `recovery`: the two measurements
//! - `table`: what is printed

use std::time::Duration;

mod member;
mod process;
mod recovery;
mod speed;
mod table;

fn main() {
    if std::env::var_os(process::MEMBER).is_some() {
        return member::run();
    }
    // `cargo test --all-targets` starts benches as well, which only has to show that they build.
    if !std::env::args().any(|arg| arg == "--bench") {
        return;
    }
    let gloo = process::Gloo::find();
    let speeds = speed::measure(gloo.as_ref());
    let recoveries = recovery::measure(gloo.as_ref());
    table::print(&speeds, &recoveries);
    let path = concat!(env!("CARGO_TARGET_TMPDIR"), "/allreduce.json");
    let json = serde_json::json!({
        "speed": speeds.iter().map(speed::Speed::to_json).collect::<Vec<_>>(),
        "recovery": recoveries.iter().map(recovery::Recovery::to_json).collect::<Vec<_>>(),
    });
    match std::fs::write(path, format!("{json:#}\n")) {
        Ok(()) => println!("\nwritten to {path}"),
        Err(error) => println!("\ncannot write {path}: {error}"),
    }
}

/// The middle value.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Longer than anything that is measured.
const PATIENCE: Duration = Duration::from_secs(30);
