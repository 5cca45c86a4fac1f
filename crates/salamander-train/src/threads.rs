//! The threads that compute, with the calling one among them.
//!
//! A call into a pool from outside hands its work over and sleeps, twice for every operation of a model. A thread that
//! belongs to the pool works on what it asks for, and with a pool of one nothing is handed over at all.
//!
//! Sums are cut by shapes alone, so the number of threads changes no result.
//!
//! ```
//! let loop_of_my_own = std::thread::spawn(|| {
//!     salamander_train::threads::join(Some(2));
//!     // Everything that this thread computes is shared with one other from here on.
//! });
//! assert!(loop_of_my_own.join().is_ok());
//! ```

use std::any::Any;
use std::cell::RefCell;
use std::thread::JoinHandle;

use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::Error;

/// A thread with an owner: whoever drops this waits for its end.
pub(crate) struct OwnedThread(Option<JoinHandle<()>>);

impl OwnedThread {
    /// Starts a thread; `what` says what it is when it cannot be started.
    pub(crate) fn spawn(
        name: String,
        what: &str,
        work: impl FnOnce() + Send + 'static,
    ) -> Result<Self, Error> {
        let thread = std::thread::Builder::new().name(name).spawn(work);
        let thread =
            thread.map_err(|error| Error::Invalid(format!("cannot start {what}: {error}")))?;
        Ok(Self(Some(thread)))
    }
}

impl Drop for OwnedThread {
    fn drop(&mut self) {
        if let Some(thread) = self.0.take() {
            let _ = thread.join();
        }
    }
}

/// What a panic said, if it was text.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> Option<&str> {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
}

thread_local! {
    /// The pool that this thread is a part of: it ends with the thread.
    static OWN_POOL: RefCell<Option<ThreadPool>> = const { RefCell::new(None) };
}

/// Makes the calling thread one of `count` that compute, or of as many as `RAYON_NUM_THREADS` or else the machine says.
/// Other threads of the process keep rayon's own pool, so that none of them waits for this one. A thread that belongs
/// to
/// a pool already stays there.
pub fn join(count: Option<usize>) {
    let pool = ThreadPoolBuilder::new()
        .num_threads(count.unwrap_or(0))
        .thread_name(|index| format!("compute-{index}"))
        .use_current_thread()
        .build();
    match pool {
        // Its other threads would stay for ever: a server that loads a thousand versions would have a thousand of them.
        Ok(pool) => OWN_POOL.with(|own| *own.borrow_mut() = Some(pool)),
        Err(error) => tracing::debug!(%error, "this thread computes where it is"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_calling_thread_computes_with_others_and_only_once_joins() {
        let seen = std::thread::spawn(|| {
            join(Some(3));
            join(Some(5));
            rayon::current_num_threads()
        });
        assert_eq!(seen.join().expect("joins"), 3);
        let alone = std::thread::spawn(|| {
            join(Some(1));
            let own = std::thread::current().id();
            rayon::join(
                || std::thread::current().id() == own,
                || std::thread::current().id() == own,
            )
        });
        assert_eq!(alone.join().expect("joins"), (true, true));
    }
}
