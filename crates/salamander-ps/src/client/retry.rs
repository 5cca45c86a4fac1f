//! Attempts until a deadline: the one place where a request waits before it is made again.

use std::time::{Duration, Instant};

use salamander_net::{Cancel, Patience};

/// Longer than anybody waits, and still a time that can be added to others.
const FAR: Duration = Duration::from_secs(86_400 * 365);

/// The time that a request has, with all its attempts.
#[derive(Clone, Debug)]
pub(crate) struct Retry {
    started: Instant,
    deadline: Instant,
    pause: Duration,
    longest: Duration,
    cancel: Cancel,
}

impl Retry {
    /// Begins now. The pause between attempts doubles from the first to the second of the two.
    pub(super) fn new(patience: Duration, pauses: [Duration; 2], cancel: Cancel) -> Self {
        let started = Instant::now();
        let [pause, longest] = pauses;
        Self { started, deadline: started + patience.min(FAR), pause, longest, cancel }
    }

    /// For the attempt at hand.
    pub(super) fn patience(&self) -> Patience<'_> {
        Patience::until(&self.cancel, self.deadline)
    }

    /// How long ago it began.
    pub(super) fn waited(&self) -> Duration {
        self.started.elapsed()
    }

    /// Waits for the next attempt; false when there is no time for one.
    pub(crate) fn pause(&mut self) -> bool {
        if Instant::now() + self.pause >= self.deadline {
            return false;
        }
        std::thread::sleep(self.pause);
        self.pause = (self.pause * 2).min(self.longest);
        true
    }
}
