//! What the operator counts, in Prometheus' text format.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::crd::Phase;

/// Counters of an operator.
#[derive(Debug, Default)]
pub struct Metrics {
    leads: AtomicBool,
    reconciles: AtomicU64,
    failures: AtomicU64,
    masters: AtomicU64,
    phases: Mutex<BTreeMap<String, &'static str>>,
}

impl Metrics {
    /// This operator leads, or not.
    pub fn set_leads(&self, leads: bool) {
        self.leads.store(leads, Ordering::Relaxed);
    }

    /// A job was looked at; this is how it stands.
    pub fn reconciled(&self, job: &str, phase: Option<Phase>) {
        self.reconciles.fetch_add(1, Ordering::Relaxed);
        if let Some(phase) = phase {
            let mut phases = self.phases.lock().unwrap_or_else(PoisonError::into_inner);
            phases.insert(job.to_string(), phase.as_str());
        }
    }

    /// A job is gone.
    pub fn gone(&self, job: &str) {
        self.phases.lock().unwrap_or_else(PoisonError::into_inner).remove(job);
    }

    /// A job could not be looked after.
    pub fn failed(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// A master was started.
    pub fn launched(&self) {
        self.masters.fetch_add(1, Ordering::Relaxed);
    }

    /// The page.
    pub fn page(&self) -> String {
        let mut page = String::new();
        let mut one = |name: &str, kind: &str, help: &str, value: u64| {
            page += &format!("# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n");
        };
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let leads = u64::from(self.leads.load(Ordering::Relaxed));
        one("salamander_operator_leader", "gauge", "Whether this operator leads.", leads);
        let (reconciles, failures) = (read(&self.reconciles), read(&self.failures));
        one("salamander_reconciles_total", "counter", "Jobs looked at.", reconciles);
        one("salamander_reconcile_failures_total", "counter", "Jobs that could not be.", failures);
        one("salamander_masters_created_total", "counter", "Masters started.", read(&self.masters));
        page += "# HELP salamander_jobs Jobs by phase.\n# TYPE salamander_jobs gauge\n";
        let phases = self.phases.lock().unwrap_or_else(PoisonError::into_inner);
        let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
        for phase in phases.values() {
            *counts.entry(phase).or_default() += 1;
        }
        for (phase, count) in counts {
            page += &format!("salamander_jobs{{phase=\"{phase}\"}} {count}\n");
        }
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_counted_by_phase() {
        let metrics = Metrics::default();
        metrics.set_leads(true);
        for (job, phase) in [("a", Phase::Pending), ("b", Phase::Running), ("a", Phase::Running)] {
            metrics.reconciled(job, Some(phase));
        }
        let page = metrics.page();
        assert!(page.contains("salamander_jobs{phase=\"Running\"} 2\n"), "{page}");
        assert!(!page.contains("Pending"), "{page}");
        assert!(
            page.contains("salamander_operator_leader 1\n") && page.contains("_total 3\n"),
            "{page}"
        );
        metrics.gone("a");
        assert!(metrics.page().contains("salamander_jobs{phase=\"Running\"} 1\n"));
    }
}
