//! The push protocol in seeded worlds where everything goes wrong: the machines that ship, not a model of them.
//!
//! A failure names its seed. One run is shown, step by step, by
//! `SALAMANDER_SEED=n cargo test -p salamander-core --test push replays -- --nocapture`,
//! and with one fence taken out by `SALAMANDER_WITHOUT=acks` in addition. `SALAMANDER_SEEDS=n` runs more of them.
//!
//! # Layout
//! - `world`, `event`: time, the loop and the network; `mood`, `faults`: what goes wrong
//! - `master`, `server`, `worker`: the processes around the machines
//! - `truth`: what really happened to each partition, and the invariants; `stats`: what the seeds went through

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
#[path = "push/stats.rs"]
mod stats;
#[path = "push/truth.rs"]
mod truth;
#[path = "push/worker.rs"]
mod worker;
#[path = "push/world.rs"]
mod world;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use salamander_core::push::Fences;
use stats::{Stats, Tally};
use truth::Violation;
use world::{Guards, World};

const SEEDS: u64 = 12_000;
/// Seeds that are tried to show that a fence is needed.
const ATTEMPTS: u64 = 40_000;
/// Seeds after which one violation is enough.
const ENOUGH: u64 = 500;
const THREADS: usize = 2;

fn run(seed: u64, guards: Guards, trace: bool) -> (Stats, Option<Violation>) {
    World::new(seed, guards, trace).run()
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
        ("prune", Fences { prune: false, ..all }),
        ("restored", Fences { restored: false, ..all }),
        ("round", Fences { round: false, ..all }),
        ("rollback", Fences { rollback: false, ..all }),
    ];
    let without = fences.map(|(name, fences)| (name, Guards { fences, ..Guards::default() }));
    let owner = ("owner", Guards { owner: false, ..Guards::default() });
    let once = ("once", Guards { once: false, ..Guards::default() });
    without.into_iter().chain([owner, once]).collect()
}

/// Runs all seeds, on several threads, and counts what they went through.
fn run_all(seeds: u64, guards: Guards) -> Tally {
    let next = AtomicU64::new(0);
    let work = || {
        let mut tally = Tally::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds {
                return tally;
            }
            let (stats, violation) = run(seed, guards, false);
            if let Some(Violation { invariant, what }) = violation {
                panic!("{invariant}: {what}; replay it with SALAMANDER_SEED={seed}");
            }
            tally.add(&stats);
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
        let tallies = threads.into_iter().map(|thread| thread.join().expect("all seeds pass"));
        tallies.fold(Tally::default(), Tally::merge)
    })
}

#[test]
fn ten_thousand_seeds_keep_every_invariant() {
    let seeds = std::env::var("SALAMANDER_SEEDS")
        .map_or(SEEDS, |seeds| seeds.parse().expect("SALAMANDER_SEEDS is a number"));
    let tally = run_all(seeds, Guards::default());
    println!("{seeds} seeds\n{tally}");
    for (name, runs) in tally.runs() {
        assert!(runs * 100 >= seeds, "only {runs} of {seeds} seeds had {name}");
    }
}

/// What goes wrong without a fence.
fn broken(guards: Guards) -> BTreeMap<&'static str, (u64, u64, String)> {
    let mut broken = BTreeMap::<&str, (u64, u64, String)>::new();
    for seed in 0..ATTEMPTS {
        if seed >= ENOUGH && !broken.is_empty() {
            break;
        }
        if let Some(Violation { invariant, what }) = run(seed, guards, false).1 {
            broken.entry(invariant).or_insert((0, seed, what)).0 += 1;
        }
    }
    broken
}

#[test]
fn each_fence_is_needed() {
    let guards = guards();
    let next = AtomicU64::new(0);
    let work = || {
        let mut needless = Vec::new();
        while let Some((name, guards)) = guards.get(next.fetch_add(1, Ordering::Relaxed) as usize) {
            let broken = broken(*guards);
            let lines = broken.iter().map(|(invariant, (count, seed, what))| {
                format!("  {invariant}: {count} times, first in seed {seed}: {what}\n")
            });
            println!("without {name}:\n{}", lines.collect::<String>());
            if broken.is_empty() {
                needless.push(*name);
            }
        }
        needless
    };
    let needless = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
        let found = threads.into_iter().flat_map(|thread| thread.join().expect("it only runs"));
        found.collect::<Vec<_>>()
    });
    assert!(needless.is_empty(), "nothing goes wrong without the fences {needless:?}");
}

/// They say which lease a report is for, and nothing else: a report that closes the lease of another only makes work.
#[test]
fn exactly_once_does_not_rest_on_the_numbers_of_leases() {
    let fences = Fences { lease: false, ..Fences::default() };
    run_all(ENOUGH * 4, Guards { fences, ..Guards::default() });
}

#[test]
fn replays() {
    let Ok(seed) = std::env::var("SALAMANDER_SEED") else { return };
    let seed = seed.parse().expect("SALAMANDER_SEED is a number");
    let without = std::env::var("SALAMANDER_WITHOUT").ok();
    let named = guards().into_iter().find(|(name, _)| Some(*name) == without.as_deref());
    let (stats, violation) = run(seed, named.map_or(Guards::default(), |(_, out)| out), true);
    stats.rows().iter().for_each(|(name, count)| println!("{count:8} {name}"));
    if let Some(Violation { invariant, what }) = violation {
        panic!("{invariant}: {what}");
    }
}
