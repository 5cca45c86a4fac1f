//! The same work for many things on a few threads, with the results in the order of the things.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Calls `work` for all things on a few threads, of which the caller's is one, and gives the results in the order of
/// the things, or the first error in that order. `progress` is told how many are done, one call at a time.
pub(crate) fn in_parallel<I: Sync, T: Send, E: Send>(
    things: &[I],
    threads: usize,
    work: impl Fn(&I) -> Result<T, E> + Sync,
    progress: impl Fn(usize) + Sync,
) -> Result<Vec<T>, E> {
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let results = Mutex::new(Vec::with_capacity(things.len()));
    let run = || {
        while !failed.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(thing) = things.get(number) else { break };
            let result = work(thing);
            failed.fetch_or(result.is_err(), Ordering::Relaxed);
            let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
            results.push((number, result));
            progress(results.len());
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.min(things.len()) {
            scope.spawn(run);
        }
        run();
    });
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_by_key(|(number, _)| *number);
    results.into_iter().map(|(_, result)| result).collect()
}
