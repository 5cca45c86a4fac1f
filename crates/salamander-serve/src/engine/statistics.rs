//! What became of the requests of a version, as the protocol's statistics have it, and of its model in metrics.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::metrics::{ModelMetrics, Outcome};
use crate::refusal::Refusal;

/// Counts and sums of times, which threads add to.
#[derive(Debug)]
pub(crate) struct Statistics {
    metrics: ModelMetrics,
    succeeded: Sum,
    failed: Sum,
    rows: AtomicU64,
    executions: Sum,
    queued: Sum,
    last: AtomicU64,
}

#[derive(Debug, Default)]
struct Sum {
    count: AtomicU64,
    nanos: AtomicU64,
}

impl Sum {
    fn add(&self, time: Duration) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.nanos.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }

    fn now(&self) -> SumNow {
        SumNow { count: self.count.load(Ordering::Relaxed), ns: self.nanos.load(Ordering::Relaxed) }
    }
}

/// A count and the sum of its times, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub(crate) struct SumNow {
    pub(crate) count: u64,
    pub(crate) ns: u64,
}

/// Statistics of a moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StatisticsNow {
    pub(crate) succeeded: SumNow,
    pub(crate) failed: SumNow,
    /// Records that were answered.
    pub(crate) rows: u64,
    /// Batches that were computed.
    pub(crate) executions: SumNow,
    pub(crate) queued: SumNow,
    /// The last answer, in milliseconds since 1970.
    pub(crate) last: u64,
}

impl Statistics {
    pub(crate) fn new(metrics: ModelMetrics) -> Self {
        Self {
            metrics,
            succeeded: Sum::default(),
            failed: Sum::default(),
            rows: AtomicU64::new(0),
            executions: Sum::default(),
            queued: Sum::default(),
            last: AtomicU64::new(0),
        }
    }

    pub(crate) fn succeeded(&self, rows: usize, whole: Duration, queued: Duration) {
        self.succeeded.add(whole);
        self.queued.add(queued);
        self.rows.fetch_add(rows as u64, Ordering::Relaxed);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.last.store(now.as_millis() as u64, Ordering::Relaxed);
        self.metrics.answered(rows, whole, queued);
    }

    pub(crate) fn failed(&self, refusal: &Refusal, whole: Duration) {
        self.failed.add(whole);
        let outcome = match refusal {
            Refusal::Busy(_) => Outcome::Refused,
            Refusal::Late => Outcome::Late,
            _ => Outcome::Failed,
        };
        self.metrics.count(outcome, 1);
    }

    pub(crate) fn executed(&self, rows: usize, time: Duration) {
        self.executions.add(time);
        self.metrics.computed(rows, time);
    }

    /// Requests that nobody waits for any more.
    pub(crate) fn cancelled(&self, requests: usize) {
        self.metrics.count(Outcome::Cancelled, requests);
    }

    pub(crate) fn now(&self) -> StatisticsNow {
        StatisticsNow {
            succeeded: self.succeeded.now(),
            failed: self.failed.now(),
            rows: self.rows.load(Ordering::Relaxed),
            executions: self.executions.now(),
            queued: self.queued.now(),
            last: self.last.load(Ordering::Relaxed),
        }
    }
}
