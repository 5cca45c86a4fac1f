//! Worlds run by their seeds, with all guards or without one of them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Seeded, Tally, Violation};

/// Seeds that are tried to show that a guard is needed.
const ATTEMPTS: u64 = 40_000;
const THREADS: usize = 2;

/// Every seed keeps every invariant, and everything that can go wrong did so in some of them.
pub(crate) fn keep_every_invariant<W: Seeded>() {
    let seeds = std::env::var("SALAMANDER_SEEDS")
        .map_or(W::SEEDS, |seeds| seeds.parse().expect("SALAMANDER_SEEDS is a number"));
    let tally = run_all::<W>(seeds, None);
    println!("{seeds} seeds\n{tally}");
    for (name, runs) in tally.runs() {
        assert!(runs * 100 >= seeds, "only {runs} of {seeds} seeds had {name}");
    }
}

/// Runs all seeds, on several threads, and counts what they went through.
pub(crate) fn run_all<W: Seeded>(seeds: u64, without: Option<W::Guard>) -> Tally {
    let next = AtomicU64::new(0);
    let tallies = on_threads(|| {
        let mut tally = Tally::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds {
                return tally;
            }
            let (counts, violation) = W::run(seed, without, false);
            if let Some(Violation { invariant, what }) = violation {
                panic!("{invariant}: {what}; replay it with SALAMANDER_SEED={seed}");
            }
            tally = tally.add(counts);
        }
    });
    tallies.into_iter().fold(Tally::default(), Tally::merge)
}

/// Without any of the guards something goes wrong.
pub(crate) fn need_every_guard<W: Seeded>() {
    let next = AtomicU64::new(0);
    let one = || W::GUARDS.get(next.fetch_add(1, Ordering::Relaxed) as usize);
    let needless = on_threads(|| {
        let mut needless = Vec::new();
        while let Some(guard) = one() {
            let (name, broken) = (name::<W>(guard), broken::<W>(*guard));
            let lines = broken.iter().map(|(invariant, (count, seed, what))| {
                format!("  {invariant}: {count} times, first in seed {seed}: {what}\n")
            });
            println!("without {name}:\n{}", lines.collect::<String>());
            if broken.is_empty() {
                needless.push(name);
            }
        }
        needless
    });
    let needless = needless.concat();
    assert!(needless.is_empty(), "nothing goes wrong without the guards {needless:?}");
}

/// What goes wrong without a guard: how often, in which seed first, and how.
fn broken<W: Seeded>(guard: W::Guard) -> BTreeMap<&'static str, (u64, u64, String)> {
    let mut broken = BTreeMap::<&str, (u64, u64, String)>::new();
    for seed in 0..ATTEMPTS {
        if seed >= W::ENOUGH && !broken.is_empty() {
            break;
        }
        if let Some(Violation { invariant, what }) = W::run(seed, Some(guard), false).1 {
            broken.entry(invariant).or_insert((0, seed, what)).0 += 1;
        }
    }
    broken
}

/// Shows the run of `SALAMANDER_SEED`, if there is one, without the guard of `SALAMANDER_WITHOUT`.
pub(crate) fn replay<W: Seeded>() {
    let Ok(seed) = std::env::var("SALAMANDER_SEED") else { return };
    let seed = seed.parse().expect("SALAMANDER_SEED is a number");
    let without = std::env::var("SALAMANDER_WITHOUT").ok();
    let guard = W::GUARDS.iter().find(|guard| Some(name::<W>(guard)) == without);
    let (counts, violation) = W::run(seed, guard.copied(), true);
    counts.iter().for_each(|(name, count)| println!("{count:8} {name}"));
    if let Some(Violation { invariant, what }) = violation {
        panic!("{invariant}: {what}");
    }
}

/// `Fence(AllHold)` is `allhold`.
fn name<W: Seeded>(guard: &W::Guard) -> String {
    let words = format!("{guard:?}").to_lowercase();
    let inner = words.split_once('(').map_or(words.as_str(), |(_, inner)| inner);
    inner.trim_end_matches(')').to_string()
}

/// What the same work gives on each of some threads.
fn on_threads<R: Send>(work: impl Fn() -> R + Sync) -> Vec<R> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(&work)).collect();
        threads.into_iter().map(|thread| thread.join().expect("all seeds pass")).collect()
    })
}
