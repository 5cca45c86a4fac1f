//! Who is waited for: a worker that computes for too long while others find nothing to do.

use super::LeaseAnswer;
use crate::elastic::{Beat, Millis, Work};

/// Compares what workers say of themselves with how long others have waited. A slow worker that nobody waits for does
/// no harm.
#[derive(Clone, Debug)]
pub struct HangWatch {
    limit: Millis,
    waiting: Option<Millis>,
}

impl HangWatch {
    /// A worker that others have waited for so long hangs.
    pub fn new(limit: Millis) -> Self {
        Self { limit, waiting: None }
    }

    /// A worker that wanted work was answered.
    pub fn answered(&mut self, now: Millis, answer: &LeaseAnswer) {
        match answer {
            LeaseAnswer::Wait(_) => self.waiting = self.waiting.or(Some(now)),
            LeaseAnswer::Leased { .. } | LeaseAnswer::Validate { .. } => self.waiting = None,
            LeaseAnswer::Done | LeaseAnswer::Heard(_) => {}
        }
    }

    /// Whoever waited may have gone; who still does asks again in a moment.
    pub fn forget(&mut self) {
        self.waiting = None;
    }

    /// Whether a worker that says this of itself hangs. Another one has to be waited for as long again.
    pub fn hangs(&mut self, now: Millis, beat: &Beat) -> bool {
        let is_waited_for = self.waiting.is_some_and(|since| now > since + self.limit);
        let hangs = is_waited_for && beat.work == Work::Computing && beat.for_ms > self.limit;
        if hangs {
            self.waiting = None;
        }
        hangs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asynchronous::{Map, MapVersion};

    const WAIT: LeaseAnswer = LeaseAnswer::Wait(50);

    fn computes_for(for_ms: Millis) -> Beat {
        Beat { work: Work::Computing, for_ms, ..Beat::default() }
    }

    #[test]
    fn a_worker_that_others_wait_for_hangs() {
        let mut watch = HangWatch::new(1_000);
        watch.answered(100, &WAIT);
        watch.answered(900, &WAIT);
        assert!(!watch.hangs(1_100, &computes_for(5_000)), "nobody has waited for so long");
        assert!(!watch.hangs(1_200, &computes_for(1_000)));
        assert!(!watch.hangs(1_200, &Beat { work: Work::Idle, ..computes_for(5_000) }));
        assert!(watch.hangs(1_200, &computes_for(1_001)));
        assert!(!watch.hangs(1_300, &computes_for(1_101)), "it is told once");
    }

    #[test]
    fn a_slow_worker_that_nobody_waits_for_goes_on() {
        let mut watch = HangWatch::new(1_000);
        assert!(!watch.hangs(9_000, &computes_for(9_000)));
        watch.answered(9_000, &WAIT);
        let batches = LeaseAnswer::Validate {
            task: 0,
            fence: 1,
            batches: 0..4,
            map: Map { number: MapVersion::default(), servers: 1 },
            servers: Vec::new(),
        };
        watch.answered(9_900, &batches);
        assert!(!watch.hangs(11_000, &computes_for(11_000)), "there was work for others");
        watch.answered(11_000, &WAIT);
        watch.answered(11_500, &LeaseAnswer::Heard(true));
        watch.forget();
        assert!(!watch.hangs(13_000, &computes_for(13_000)), "who waited has gone");
    }
}
