//! The membership protocol in seeded worlds where everything goes wrong: the machines that ship, not a model of them.
//!
//! A failure names its seed. One run is shown, step by step, by
//! `SALAMANDER_SEED=n cargo test -p salamander-core --test elastic replays -- --nocapture`,
//! and with one fence taken out by `SALAMANDER_WITHOUT=promise` in addition. `SALAMANDER_SEEDS=n` runs more of them.
//!
//! # Layout
//! - `simulation`: what simulations share
//! - `world`, `event`: time and the loop; `mood`, `faults`: what goes wrong
//! - `master`, `worker`, `state`: the processes around the machines; `network`, `exchange`: what is between them
//! - `truth`: what really happened, and the invariants; `stats`: what a seed went through

#[path = "elastic/event.rs"]
mod event;
#[path = "elastic/exchange.rs"]
mod exchange;
#[path = "elastic/faults.rs"]
mod faults;
#[path = "elastic/master.rs"]
mod master;
#[path = "elastic/mood.rs"]
mod mood;
#[path = "elastic/network.rs"]
mod network;
mod simulation;
#[path = "elastic/state.rs"]
mod state;
#[path = "elastic/stats.rs"]
mod stats;
#[path = "elastic/truth.rs"]
mod truth;
#[path = "elastic/worker.rs"]
mod worker;
#[path = "elastic/world.rs"]
mod world;

use salamander_core::elastic::Fences;
use simulation::{Counts, Simulation, Violation};
use world::{Guards, World};

fn simulation() -> Simulation<Guards> {
    Simulation { run, without: guards(), seeds: 20_000, enough: 3_000 }
}

fn run(seed: u64, guards: Guards, trace: bool) -> (Counts, Option<Violation>) {
    let (stats, violation) = World::new(seed, guards, trace).run();
    (stats.rows(), violation)
}

/// The guards, each with a way to take it out alone.
fn guards() -> Vec<(&'static str, Guards)> {
    let all = Fences::default();
    let fences = [
        ("promise", Fences { promise: false, ..all }),
        ("term", Fences { term: false, ..all }),
        ("lineage", Fences { lineage: false, ..all }),
        ("adopted", Fences { adopted: false, ..all }),
        ("all_hold", Fences { all_hold: false, ..all }),
        ("checkpoint", Fences { checkpoint: false, ..all }),
        ("journal", Fences { journal: false, ..all }),
    ];
    let without = fences.map(|(name, fences)| (name, Guards { fences, owner: true }));
    let owner = ("owner", Guards { fences: all, owner: false });
    without.into_iter().chain([owner]).collect()
}

#[test]
fn ten_thousand_seeds_keep_every_invariant() {
    simulation().keeps_every_invariant();
}

#[test]
fn each_fence_is_needed() {
    simulation().needs_every_guard();
}

#[test]
fn replays() {
    simulation().replays();
}
