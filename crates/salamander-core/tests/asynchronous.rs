//! The push protocol in seeded worlds where everything goes wrong: the machines that ship, not a model of them.
//!
//! A failure names its seed. One run is shown, step by step, by
//! `SALAMANDER_SEED=n cargo test -p salamander-core --test asynchronous replays -- --nocapture`,
//! and with one fence taken out by `SALAMANDER_WITHOUT=acks` in addition. `SALAMANDER_SEEDS=n` runs more of them.
//!
//! # Layout
//! - `simulation`: what simulations share
//! - `world`, `event`: time, the loop and the network; `mood`, `faults`: what goes wrong
//! - `master`, `server`, `worker`: the processes around the machines
//! - `truth`: what really happened to each partition, and the invariants; `stats`: what a seed went through

#[path = "asynchronous/event.rs"]
mod event;
#[path = "asynchronous/faults.rs"]
mod faults;
#[path = "asynchronous/master.rs"]
mod master;
#[path = "asynchronous/mood.rs"]
mod mood;
#[path = "asynchronous/server.rs"]
mod server;
mod simulation;
#[path = "asynchronous/stats.rs"]
mod stats;
#[path = "asynchronous/truth.rs"]
mod truth;
#[path = "asynchronous/worker.rs"]
mod worker;
#[path = "asynchronous/world.rs"]
mod world;

use salamander_core::asynchronous::Fence;
use simulation::seeds::{keep_every_invariant, need_every_guard, replay, run_all};
use world::{Guard, World};

#[test]
fn ten_thousand_seeds_keep_every_invariant() {
    keep_every_invariant::<World>();
}

#[test]
fn each_fence_is_needed() {
    need_every_guard::<World>();
}

/// They say which lease a report is for, and nothing else: a report that closes the lease of another only makes work.
#[test]
fn exactly_once_does_not_rest_on_the_numbers_of_leases() {
    run_all::<World>(2_000, Some(Guard::Fence(Fence::Lease)));
}

#[test]
fn replays() {
    replay::<World>();
}
