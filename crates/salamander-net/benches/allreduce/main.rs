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
//! - `table`: what is printed; `record`: the same as JSON

use std::time::Duration;

mod member;
mod process;
#[path = "../../../../benches/src/record.rs"]
mod record;
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
    note(&speeds, &recoveries);
}

fn note(speeds: &[speed::Speed], recoveries: &[recovery::Recovery]) {
    let record = record::Record::begin("allreduce");
    for speed in speeds {
        let gloo = speed.way("gloo");
        for way in &speed.ways {
            let what = format!("{} members, {} KB, {}", speed.members, speed.bytes >> 10, way.name);
            record.figure(&what, ("ms", "less"), way.milliseconds, gloo.map(|g| g.milliseconds));
            let cpu = format!("{what}, processor");
            record.figure(&cpu, ("s/GB", "less"), way.cpu_per_gb, gloo.map(|g| g.cpu_per_gb));
        }
    }
    let gloo = recoveries.iter().find(|recovery| recovery.name == "gloo");
    for recovery in recoveries {
        let what = format!("recovery, {}", recovery.name);
        record.figure(&what, ("ms", "less"), recovery.milliseconds, gloo.map(|g| g.milliseconds));
    }
}

/// The middle value.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Longer than anything that is measured.
const PATIENCE: Duration = Duration::from_secs(30);
