//! Giving up from another thread: the control plane says that a generation is over while a member
//! is deep inside a collective.
//!
//! It is a flag and not a descriptor to poll, because every wait of this crate wakes up after
//! [`SLICE`] anyway to see whether its neighbours are alive, and a flag costs nothing in between.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::Error;

/// The longest sleep that looks at neither the flag nor the neighbours.
pub(crate) const SLICE: Duration = Duration::from_millis(5);

/// Makes every blocked operation of its holders return [`Error::Cancelled`], within milliseconds.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Not cancelled.
    pub fn new() -> Self {
        Self::default()
    }

    /// Cancels, for good.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether anybody cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.is_cancelled() { Err(Error::Cancelled) } else { Ok(()) }
    }
}

/// How long to wait for something, unless cancelled before.
#[derive(Clone, Copy, Debug)]
pub struct Patience<'a> {
    pub(crate) cancel: &'a Cancel,
    pub(crate) deadline: Instant,
}

impl<'a> Patience<'a> {
    /// Waits for so long from now on.
    pub fn new(cancel: &'a Cancel, time: Duration) -> Self {
        let now = Instant::now();
        // A timeout beyond what the clock can count means "until cancelled".
        let deadline = now.checked_add(time).unwrap_or(now + Duration::from_secs(86_400 * 365));
        Self { cancel, deadline }
    }

    /// The same, but for so long from now on at most.
    #[must_use]
    pub fn shortened(&self, time: Duration) -> Self {
        let shorter = Self::new(self.cancel, time);
        Self { cancel: self.cancel, deadline: self.deadline.min(shorter.deadline) }
    }

    /// So long from now on, however much time was left.
    #[must_use]
    pub fn renewed(&self, time: Duration) -> Self {
        Self::new(self.cancel, time)
    }

    /// When time is up.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Whether time is up; an error if cancelled.
    pub fn is_over(&self) -> Result<bool, Error> {
        self.cancel.check()?;
        Ok(Instant::now() >= self.deadline)
    }
}
