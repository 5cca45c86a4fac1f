//! What became of the requests of a version, as the protocol's statistics have it, and of its model in metrics.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::metrics::{ModelMetrics, RequestOutcome};
use crate::refusal::Refusal;

/// Counts and sums of times, which threads add to.
#[derive(Debug)]
pub(crate) struct Statistics {
    metrics: ModelMetrics,
    succeeded: Sum,
    failed: Sum,
    rows: AtomicU64,
    executions: Sum,
    /// The same by how many records were computed together.
    batches: Mutex<BTreeMap<usize, SumNow>>,
    queued: Sum,
    decoded: Sum,
    computed: Sum,
    last: AtomicU64,
}

/// How long the parts of an answered request took.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RequestTimes {
    pub(crate) whole: Duration,
    pub(crate) decoded: Duration,
    pub(crate) queued: Duration,
    /// The batch that it was computed in.
    pub(crate) computed: Duration,
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub(crate) struct SumNow {
    pub(crate) count: u64,
    pub(crate) ns: u64,
}

/// Statistics of a moment.
#[derive(Clone, Debug)]
pub(crate) struct StatisticsNow {
    pub(crate) succeeded: SumNow,
    pub(crate) failed: SumNow,
    /// Records that were answered.
    pub(crate) rows: u64,
    /// Batches that were computed.
    pub(crate) executions: SumNow,
    /// The same by how many records were computed together.
    pub(crate) batches: Vec<(usize, SumNow)>,
    pub(crate) queued: SumNow,
    /// Of answered requests, as the others: perf_analyzer wants the same counts.
    pub(crate) decoded: SumNow,
    pub(crate) computed: SumNow,
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
            batches: Mutex::default(),
            queued: Sum::default(),
            decoded: Sum::default(),
            computed: Sum::default(),
            last: AtomicU64::new(0),
        }
    }

    pub(crate) fn succeeded(&self, rows: usize, times: RequestTimes) {
        let RequestTimes { whole, decoded, queued, computed } = times;
        self.succeeded.add(whole);
        self.decoded.add(decoded);
        self.queued.add(queued);
        self.computed.add(computed);
        self.rows.fetch_add(rows as u64, Ordering::Relaxed);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.last.store(now.as_millis() as u64, Ordering::Relaxed);
        self.metrics.answered(rows, whole, queued);
        self.metrics.decoded(decoded);
    }

    pub(crate) fn failed(&self, refusal: &Refusal, whole: Duration) {
        self.failed.add(whole);
        let outcome = match refusal {
            Refusal::Busy(_) => RequestOutcome::Refused,
            Refusal::Late => RequestOutcome::Late,
            _ => RequestOutcome::Failed,
        };
        self.metrics.count(outcome, 1);
    }

    pub(crate) fn executed(&self, rows: usize, time: Duration) {
        self.executions.add(time);
        let mut batches = self.batches.lock().unwrap_or_else(PoisonError::into_inner);
        let own = batches.entry(rows).or_default();
        own.count += 1;
        own.ns += time.as_nanos() as u64;
        drop(batches);
        self.metrics.computed(rows, time);
    }

    /// Requests that nobody waits for any more.
    pub(crate) fn cancelled(&self, requests: usize) {
        self.metrics.count(RequestOutcome::Cancelled, requests);
    }

    pub(crate) fn now(&self) -> StatisticsNow {
        let batches = self.batches.lock().unwrap_or_else(PoisonError::into_inner);
        StatisticsNow {
            batches: batches.iter().map(|(rows, sum)| (*rows, *sum)).collect(),
            succeeded: self.succeeded.now(),
            failed: self.failed.now(),
            rows: self.rows.load(Ordering::Relaxed),
            executions: self.executions.now(),
            queued: self.queued.now(),
            decoded: self.decoded.now(),
            computed: self.computed.now(),
            last: self.last.load(Ordering::Relaxed),
        }
    }
}
