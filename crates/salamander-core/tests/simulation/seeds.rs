//! Worlds run by their seeds, with all guards or without one of them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Counts, Tally};

/// Seeds that are tried to show that a fence is needed.
const ATTEMPTS: u64 = 40_000;
const THREADS: usize = 2;

/// What must never happen, and did.
#[derive(Clone, Debug)]
pub(crate) struct Violation {
    pub(crate) invariant: &'static str,
    pub(crate) what: String,
}

/// A protocol's worlds; `G` is what can be taken out of them.
pub(crate) struct Simulation<G> {
    /// Runs the world of a seed, telling what happens if asked to.
    pub(crate) run: fn(u64, G, bool) -> (Counts, Option<Violation>),
    /// The guards, each with a way to take it out alone.
    pub(crate) without: Vec<(&'static str, G)>,
    /// How many seeds keep every invariant, unless `SALAMANDER_SEEDS` says otherwise.
    pub(crate) seeds: u64,
    /// Seeds after which one violation is enough.
    pub(crate) enough: u64,
}

impl<G: Copy + Default + Sync> Simulation<G> {
    /// Every seed keeps every invariant, and everything that can go wrong did so in some of them.
    pub(crate) fn keeps_every_invariant(&self) {
        let seeds = std::env::var("SALAMANDER_SEEDS")
            .map_or(self.seeds, |seeds| seeds.parse().expect("SALAMANDER_SEEDS is a number"));
        let tally = self.run_all(seeds, G::default());
        println!("{seeds} seeds\n{tally}");
        for (name, runs) in tally.runs() {
            assert!(runs * 100 >= seeds, "only {runs} of {seeds} seeds had {name}");
        }
    }

    /// Runs all seeds, on several threads, and counts what they went through.
    pub(crate) fn run_all(&self, seeds: u64, guards: G) -> Tally {
        let next = AtomicU64::new(0);
        let tallies = on_threads(|| {
            let mut tally = Tally::default();
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= seeds {
                    return tally;
                }
                let (counts, violation) = (self.run)(seed, guards, false);
                if let Some(Violation { invariant, what }) = violation {
                    panic!("{invariant}: {what}; replay it with SALAMANDER_SEED={seed}");
                }
                tally = tally.add(counts);
            }
        });
        tallies.into_iter().fold(Tally::default(), Tally::merge)
    }

    /// Without any of the guards something goes wrong.
    pub(crate) fn needs_every_guard(&self) {
        let next = AtomicU64::new(0);
        let one = || self.without.get(next.fetch_add(1, Ordering::Relaxed) as usize);
        let needless = on_threads(|| {
            let mut needless = Vec::new();
            while let Some((name, guards)) = one() {
                let broken = self.broken(*guards);
                let lines = broken.iter().map(|(invariant, (count, seed, what))| {
                    format!("  {invariant}: {count} times, first in seed {seed}: {what}\n")
                });
                println!("without {name}:\n{}", lines.collect::<String>());
                if broken.is_empty() {
                    needless.push(*name);
                }
            }
            needless
        });
        let needless = needless.concat();
        assert!(needless.is_empty(), "nothing goes wrong without the fences {needless:?}");
    }

    /// What goes wrong: how often, in which seed first, and how.
    fn broken(&self, guards: G) -> BTreeMap<&'static str, (u64, u64, String)> {
        let mut broken = BTreeMap::<&str, (u64, u64, String)>::new();
        for seed in 0..ATTEMPTS {
            if seed >= self.enough && !broken.is_empty() {
                break;
            }
            if let Some(Violation { invariant, what }) = (self.run)(seed, guards, false).1 {
                broken.entry(invariant).or_insert((0, seed, what)).0 += 1;
            }
        }
        broken
    }

    /// Shows the run of `SALAMANDER_SEED`, if there is one, without the guard of `SALAMANDER_WITHOUT`.
    pub(crate) fn replays(&self) {
        let Ok(seed) = std::env::var("SALAMANDER_SEED") else { return };
        let seed = seed.parse().expect("SALAMANDER_SEED is a number");
        let without = std::env::var("SALAMANDER_WITHOUT").ok();
        let named = self.without.iter().find(|(name, _)| Some(*name) == without.as_deref());
        let guards = named.map_or(G::default(), |(_, guards)| *guards);
        let (counts, violation) = (self.run)(seed, guards, true);
        counts.iter().for_each(|(name, count)| println!("{count:8} {name}"));
        if let Some(Violation { invariant, what }) = violation {
            panic!("{invariant}: {what}");
        }
    }
}

/// What the same work gives on each of some threads.
fn on_threads<R: Send>(work: impl Fn() -> R + Sync) -> Vec<R> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(&work)).collect();
        threads.into_iter().map(|thread| thread.join().expect("all seeds pass")).collect()
    })
}
