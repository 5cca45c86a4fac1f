//! Threads that help the calling one, and wait for its next call awake.
//!
//! A training step is hundreds of short calls one after the other. A thread that sleeps in between is woken late and
//! often on the caller's own core, so that a second thread gained nothing beside other work; these keep looking for
//! the next call for a while before they sleep. A call that is over before a helper came is taken back, so that nobody
//! waits for a thread that has not begun.
#![expect(
    unsafe_code,
    reason = "measured: helpers borrow the caller's work without a copy of it for each call"
)]

use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, TryLockError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// How long a helper looks for work before it sleeps: longer than what lies between two calls of a step.
const AWAKE: Duration = Duration::from_millis(2);

/// Rounds of looking between two looks at the clock.
const ROUNDS: usize = 64;

const IDLE: u8 = 0;
const OFFERED: u8 = 1;
const TAKEN: u8 = 2;

/// What a helper is asked to do, borrowed from the caller's stack.
type HelperWork = *const (dyn Fn() + Sync);

/// Where one helper finds its work.
struct HelperSlot {
    state: AtomicU8,
    asleep: AtomicBool,
    work: UnsafeCell<Option<HelperWork>>,
}

// SAFETY: the work is written by the caller while the slot is idle and read by the helper while it is taken; the
// changes of the state order the two.
unsafe impl Sync for HelperSlot {}
// SAFETY: as above; the pointer is only followed while its owner waits.
unsafe impl Send for HelperSlot {}

struct Helper {
    slot: Arc<HelperSlot>,
    thread: Thread,
}

/// All helpers of this process; whoever holds them has them to himself.
static HELPERS: Mutex<Vec<Helper>> = Mutex::new(Vec::new());

/// Runs `work` on the calling thread and on up to `helpers` others at the same time, and returns when all have ended.
///
/// Nobody else may be needed for it to end: where helpers are busy, late or cannot be started, the caller does all.
pub(super) fn together(helpers: usize, work: &(dyn Fn() + Sync)) {
    let mut helper_threads = match HELPERS.try_lock() {
        Ok(helper_threads) => helper_threads,
        Err(TryLockError::Poisoned(helper_threads)) => helper_threads.into_inner(),
        Err(TryLockError::WouldBlock) => return work(),
    };
    while helper_threads.len() < helpers {
        let Some(helper) = Helper::start(helper_threads.len()) else { break };
        helper_threads.push(helper);
    }
    let asked = helper_threads.get(..helpers).unwrap_or(&helper_threads);
    // Also when `work` panics: it lives on this stack.
    let _end = WaitForHelpers(asked);
    asked.iter().for_each(|helper| helper.offer(work));
    work();
}

/// Waits for helpers that have begun.
struct WaitForHelpers<'a>(&'a [Helper]);

impl Drop for WaitForHelpers<'_> {
    fn drop(&mut self) {
        for helper in self.0 {
            helper.slot.take_back();
        }
    }
}

impl Helper {
    fn start(number: usize) -> Option<Self> {
        let (state, asleep) = (AtomicU8::new(IDLE), AtomicBool::new(false));
        let slot = Arc::new(HelperSlot { state, asleep, work: UnsafeCell::new(None) });
        let own = Arc::clone(&slot);
        let thread = thread::Builder::new().name(format!("kernels-{}", number + 1));
        let handle = thread.spawn(move || own.serve()).ok()?;
        Some(Self { slot, thread: handle.thread().clone() })
    }

    fn offer(&self, work: &(dyn Fn() + Sync)) {
        let work: *const (dyn Fn() + Sync + '_) = work;
        // SAFETY: only the lifetime changes; the work is taken back or waited for before its owner goes on.
        let work =
            unsafe { std::mem::transmute::<*const (dyn Fn() + Sync + '_), HelperWork>(work) };
        // SAFETY: the slot is idle, so that its helper does not look at the work.
        unsafe { *self.slot.work.get() = Some(work) };
        self.slot.state.store(OFFERED, Ordering::SeqCst);
        if self.slot.asleep.load(Ordering::SeqCst) {
            self.thread.unpark();
        }
    }
}

impl HelperSlot {
    /// Ends an offer: at once if it was not taken, otherwise when the work has ended.
    fn take_back(&self) {
        let offer = self.state.compare_exchange(OFFERED, IDLE, Ordering::SeqCst, Ordering::SeqCst);
        let mut rounds = 0;
        while offer.is_err() && self.state.load(Ordering::Acquire) != IDLE {
            rounds += 1;
            // A helper that does not run needs this core.
            if rounds % (ROUNDS * ROUNDS) == 0 {
                thread::yield_now()
            } else {
                std::hint::spin_loop()
            }
        }
    }

    /// A helper's life.
    fn serve(&self) {
        loop {
            self.wait();
            let taken =
                self.state.compare_exchange(OFFERED, TAKEN, Ordering::SeqCst, Ordering::SeqCst);
            if taken.is_err() {
                continue;
            }
            // SAFETY: taken, so that the caller neither writes nor goes on before the slot is idle again.
            let work = unsafe { (*self.work.get()).map(|work| &*work) };
            // A panic leaves a task undone, which the caller notices.
            let _ = work.map(|work| catch_unwind(AssertUnwindSafe(work)));
            self.state.store(IDLE, Ordering::Release);
        }
    }

    /// Waits for an offer.
    fn wait(&self) {
        let offered = || self.state.load(Ordering::SeqCst) == OFFERED;
        let begun = Instant::now();
        while begun.elapsed() < AWAKE {
            for _ in 0..ROUNDS {
                if offered() {
                    return;
                }
                std::hint::spin_loop();
            }
        }
        self.asleep.store(true, Ordering::SeqCst);
        while !offered() {
            thread::park();
        }
        self.asleep.store(false, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn work_ends_before_the_caller_goes_on() {
        for round in 0..2000 {
            let (begun, ended) = (AtomicUsize::new(0), AtomicUsize::new(0));
            together(round % 4, &|| {
                begun.fetch_add(1, Ordering::SeqCst);
                if round % 500 == 0 {
                    // Long enough for the helpers to fall asleep.
                    let start = Instant::now();
                    while start.elapsed() < 2 * AWAKE {
                        std::hint::spin_loop();
                    }
                }
                ended.fetch_add(1, Ordering::SeqCst);
            });
            let ended = ended.into_inner();
            assert_eq!(begun.into_inner(), ended);
            assert!((1..=1 + round % 4).contains(&ended), "{ended}");
        }
    }

    #[test]
    fn callers_may_be_many_and_calls_nested() {
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let count = AtomicUsize::new(0);
                    for _ in 0..200 {
                        together(2, &|| {
                            together(1, &|| {
                                count.fetch_add(1, Ordering::SeqCst);
                            })
                        });
                    }
                    assert!(count.into_inner() >= 200);
                });
            }
        });
    }
}
