//! The push protocol in seeded worlds where everything goes wrong: the machines that ship, not a model of them.
//!
//! A failure names its seed. One run is shown, step by step, by
//! `SALAMANDER_SEED=n cargo test -p salamander-core --test push replays -- --nocapture`,
//! and with one fence taken out by `SALAMANDER_WITHOUT=acks` in addition. `SALAMANDER_SEEDS=n` runs more of them.
//!
//! # Layout
//! - `simulation`: what simulations share
//! - `world`, `event`: time, the loop and the network; `mood`, `faults`: what goes wrong
//! - `master`, `server`, `worker`: the processes around the machines
//! - `truth`: what really happened to each partition, and the invariants; `stats`: what a seed went through

#[path = "push/event.rs"]
mod event;
#[path = "push/faults.rs"]
mod faults;
#[path = "push/master.rs"]
mod master;
#[path = "push/mood.rs"]
mod mood;
#[path = "push/server.rs"]
mod server;
mod simulation;
#[path = "push/stats.rs"]
mod stats;
#[path = "push/truth.rs"]
mod truth;
#[path = "push/worker.rs"]
mod worker;
#[path = "push/world.rs"]
mod world;

use salamander_core::push::Fences;
use simulation::{Counts, Simulation, Violation};
use world::{Guards, World};

fn simulation() -> Simulation<Guards> {
    Simulation { run, without: guards(), seeds: 12_000, enough: 500 }
}

fn run(seed: u64, guards: Guards, trace: bool) -> (Counts, Option<Violation>) {
    let (stats, violation) = World::new(seed, guards, trace).run();
    (stats.rows(), violation)
}

/// The guards, each with a way to take it out alone.
fn guards() -> Vec<(&'static str, Guards)> {
    let all = Fences::default();
    let fences = [
        ("acks", Fences { acks: false, ..all }),
        ("orders", Fences { orders: false, ..all }),
        ("master", Fences { master: false, ..all }),
        ("map", Fences { map: false, ..all }),
        ("replies", Fences { replies: false, ..all }),
        ("reports", Fences { reports: false, ..all }),
        ("restored", Fences { restored: false, ..all }),
        ("round", Fences { round: false, ..all }),
    ];
    let without = fences.map(|(name, fences)| (name, Guards { fences, ..Guards::default() }));
    let owner = ("owner", Guards { owner: false, ..Guards::default() });
    let once = ("once", Guards { once: false, ..Guards::default() });
    without.into_iter().chain([owner, once]).collect()
}

#[test]
fn ten_thousand_seeds_keep_every_invariant() {
    simulation().keeps_every_invariant();
}

#[test]
fn each_fence_is_needed() {
    simulation().needs_every_guard();
}

/// They say which lease a report is for, and nothing else: a report that closes the lease of another only makes work.
#[test]
fn exactly_once_does_not_rest_on_the_numbers_of_leases() {
    let fences = Fences { lease: false, ..Fences::default() };
    simulation().run_all(2_000, Guards { fences, ..Guards::default() });
}

#[test]
fn replays() {
    simulation().replays();
}
