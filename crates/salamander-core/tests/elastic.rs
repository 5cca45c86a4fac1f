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
//! - `rows`: parameter servers with the rows of tables; `calls`: what members ask them for; `leaving`: those that are
//!   asked to leave
//! - `truth`: what really happened, and the invariants; `stats`: what a seed went through

#[path = "elastic/calls.rs"]
mod calls;
#[path = "elastic/event.rs"]
mod event;
#[path = "elastic/exchange.rs"]
mod exchange;
#[path = "elastic/faults.rs"]
mod faults;
#[path = "elastic/leaving.rs"]
mod leaving;
#[path = "elastic/master.rs"]
mod master;
#[path = "elastic/mood.rs"]
mod mood;
#[path = "elastic/network.rs"]
mod network;
#[path = "elastic/rows.rs"]
mod rows;
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

use simulation::seeds::{keep_every_invariant, need_every_guard, replay};
use world::World;

#[test]
fn ten_thousand_seeds_keep_every_invariant() {
    keep_every_invariant::<World>();
}

#[test]
fn each_fence_is_needed() {
    need_every_guard::<World>();
}

#[test]
fn replays() {
    replay::<World>();
}
