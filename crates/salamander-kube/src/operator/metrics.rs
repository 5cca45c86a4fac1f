//! What the operator counts, in Prometheus' text format.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use kube::runtime::reflector::Store;

use crate::crd::{Phase, TrainingJob};

/// Counters of an operator.
#[derive(Debug, Default)]
pub struct Metrics {
    leads: AtomicBool,
    reconciles: AtomicU64,
    failures: AtomicU64,
    masters: AtomicU64,
    /// All jobs, as the operator's watch knows them.
    jobs: OnceLock<Store<TrainingJob>>,
}

impl Metrics {
    /// This operator leads, or not.
    pub fn set_leads(&self, leads: bool) {
        self.leads.store(leads, Ordering::Relaxed);
    }

    /// Where all jobs are known.
    pub fn watch(&self, jobs: Store<TrainingJob>) {
        // An operator has one watch.
        let _ = self.jobs.set(jobs);
    }

    /// A job was looked at.
    pub fn reconciled(&self) {
        self.reconciles.fetch_add(1, Ordering::Relaxed);
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
        let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
        for job in self.jobs.get().map(Store::state).unwrap_or_default() {
            let phase = job.status.as_ref().and_then(|status| status.phase);
            *counts.entry(phase.map_or("Pending", Phase::as_str)).or_default() += 1;
        }
        for (phase, count) in counts {
            page += &format!("salamander_jobs{{phase=\"{phase}\"}} {count}\n");
        }
        page
    }
}

#[cfg(test)]
mod tests {
    use kube::runtime::reflector;
    use kube::runtime::watcher::Event;
    use serde_json::json;

    use super::*;

    #[test]
    fn jobs_are_counted_by_phase_and_forgotten_when_they_are_gone() {
        let job = |name: &str, phase: &str| -> TrainingJob {
            let spec = json!({"image": "i", "experiment": {"inline": {}}, "workers": {"max": 1}});
            let job = json!({
                "apiVersion": "salamander.dev/v1alpha1", "kind": "TrainingJob",
                "metadata": {"name": name}, "spec": spec, "status": {"phase": phase},
            });
            serde_json::from_value(job).expect("a job")
        };
        let (reader, mut writer) = reflector::store();
        let metrics = Metrics::default();
        metrics.set_leads(true);
        metrics.reconciled();
        metrics.watch(reader);
        for (name, phase) in [("a", "Pending"), ("b", "Running"), ("a", "Running")] {
            writer.apply_watcher_event(&Event::Apply(job(name, phase)));
        }
        let page = metrics.page();
        assert!(page.contains("salamander_jobs{phase=\"Running\"} 2\n"), "{page}");
        assert!(!page.contains("Pending"), "{page}");
        assert!(
            page.contains("_leader 1\n") && page.contains("salamander_reconciles_total 1\n"),
            "{page}"
        );
        writer.apply_watcher_event(&Event::Delete(job("a", "Running")));
        assert!(metrics.page().contains("salamander_jobs{phase=\"Running\"} 1\n"));
    }
}
