//! Trying again: waits that double up to a longest one, for a limited time in all.

use std::time::{Duration, Instant};

/// The waits between the tries of something that may work later.
#[derive(Clone, Debug)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    next: Duration,
    begun: Instant,
    within: Duration,
}

impl Backoff {
    /// Waits from `first` to `longest`, each twice the one before, for as long as the caller wants to go on.
    pub fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, next: first, begun: Instant::now(), within: Duration::MAX }
    }

    /// The same wait each time.
    pub fn every(wait: Duration) -> Self {
        Self::new(wait, wait)
    }

    /// Gives up after this time, counted from now or from the last [`Backoff::reset`].
    pub fn within(self, time: Duration) -> Self {
        Self { within: time, ..self }
    }

    /// It worked: the next failure is the first one again.
    pub fn reset(&mut self) {
        (self.next, self.begun) = (self.first, Instant::now());
    }

    /// The time since it began.
    pub fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// How long to wait before the next try; nothing once the time is over.
    pub fn wait(&mut self) -> Option<Duration> {
        self.wait_after(self.elapsed())
    }

    fn wait_after(&mut self, spent: Duration) -> Option<Duration> {
        if spent > self.within {
            return None;
        }
        let wait = self.next;
        self.next = (wait * 2).min(self.longest);
        Some(wait)
    }
}

/// Tries until it works, the error is not one that `passes`, or the time is over. Sleeps in between.
pub fn retry<T, E>(
    mut backoff: Backoff,
    mut attempt: impl FnMut() -> Result<T, E>,
    passes: impl Fn(&E) -> bool,
) -> Result<T, E> {
    loop {
        let error = match attempt() {
            Ok(done) => return Ok(done),
            Err(error) => error,
        };
        match backoff.wait().filter(|_| passes(&error)) {
            Some(wait) => std::thread::sleep(wait),
            None => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn waits_double_up_to_the_longest() {
        let mut backoff = Backoff::new(2 * MS, 5 * MS);
        let waits: Vec<_> = (0..4).filter_map(|_| backoff.wait_after(Duration::ZERO)).collect();
        assert_eq!(waits, [2 * MS, 4 * MS, 5 * MS, 5 * MS]);
        backoff.reset();
        assert_eq!(backoff.wait_after(Duration::ZERO), Some(2 * MS));
    }

    #[test]
    fn the_time_has_an_end() {
        let mut backoff = Backoff::every(MS).within(10 * MS);
        assert_eq!(backoff.wait_after(10 * MS), Some(MS));
        assert_eq!(backoff.wait_after(11 * MS), None);
    }

    #[test]
    fn only_what_passes_is_tried_again() {
        let mut left = vec![Err("never"), Ok(1), Err("busy"), Err("busy")];
        let tried =
            retry(Backoff::every(MS), || left.pop().expect("asked too often"), |e| *e == "busy");
        assert_eq!(tried, Ok(1));
        let tried =
            retry(Backoff::every(MS), || left.pop().expect("asked too often"), |e| *e == "busy");
        assert_eq!(tried, Err("never"));
    }
}
