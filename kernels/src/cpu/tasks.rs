//! Work cut into tasks that the calling thread shares with its helpers. As many threads take part as rayon's pool has
//! (`RAYON_NUM_THREADS`).
//!
//! Which thread does which task is a matter of chance; what a task does and where its result goes is not.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::helpers;

/// Calls `work` for every piece of `size` values, with its number.
pub(crate) fn share_pieces(
    values: &mut [f32],
    size: usize,
    work: impl Fn(usize, &mut [f32]) + Sync,
) {
    share(values.chunks_mut(size).collect(), work);
}

/// Calls `work` for every item with its number, and returns what it gave, in order.
pub fn share<T: Send, R: Send>(items: Vec<T>, work: impl Fn(usize, T) -> R + Sync) -> Vec<R> {
    let helpers = rayon::current_num_threads().min(items.len()).saturating_sub(1);
    if helpers == 0 {
        return items.into_iter().enumerate().map(|(index, item)| work(index, item)).collect();
    }
    let slots: Vec<_> = items.into_iter().map(|item| Mutex::new((Some(item), None))).collect();
    let next = AtomicUsize::new(0);
    helpers::together(helpers, &|| {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(slot) = slots.get(index) else { break };
            // Nobody else has this number, so that nobody waits here.
            let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
            let task = slot.0.take().map(|item| AssertUnwindSafe(|| work(index, item)));
            slot.1 = task.map(catch_unwind);
        }
    });
    let done =
        slots.into_iter().map(|slot| slot.into_inner().unwrap_or_else(PoisonError::into_inner));
    done.map(|(_, result)| match result.expect("every number was handed out") {
        Ok(result) => result,
        // In the words of the task, whichever thread did it.
        Err(panic) => resume_unwind(panic),
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_items() {
        for threads in [1, 2, 5] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
            pool.expect("threads start").install(|| {
                let found = share((0..100).collect(), |index, item: usize| (index, item * 2));
                assert!(found.iter().enumerate().all(|(at, found)| *found == (at, at * 2)));
                assert!(share(Vec::<u8>::new(), |_, _| ()).is_empty());
            });
        }
        let mut values = vec![0.0; 10];
        share_pieces(&mut values, 4, |index, piece| piece.fill(index as f32));
        assert_eq!(values, [0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 2.0, 2.0]);
    }

    #[test]
    fn a_panic_in_a_task_reaches_the_caller() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().expect("threads start");
        for bad in 0..40 {
            let found = std::panic::catch_unwind(AssertUnwindSafe(|| {
                pool.install(|| share((0..40).collect(), |_, item| assert!(item != bad, "{item}")));
            }));
            let words = found.expect_err("it panics").downcast::<String>().expect("words");
            assert_eq!(*words, bad.to_string());
        }
    }
}
