//! The metrics of an operator, in the OpenMetrics format that Prometheus reads.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use kube::runtime::reflector::Store;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::Registry;

use crate::crd::{Phase, TrainingJob};
use crate::health;

/// Counters and gauges of an operator.
#[derive(Debug)]
pub struct OperatorMetrics {
    registry: Registry,
    /// 1 while this operator leads.
    pub leader: Gauge,
    /// Jobs that were reconciled.
    pub reconciles: Counter,
    /// Jobs that could not be reconciled.
    pub failures: Counter,
    /// Masters that were started.
    pub masters: Counter,
    jobs: JobsByPhase,
}

impl Default for OperatorMetrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("salamander_operator");
        let (leader, jobs) = (Gauge::default(), JobsByPhase::default());
        registry.register("leader", "Whether this operator leads", leader.clone());
        let mut counter = |name: &str, help: &str| {
            let counter = Counter::default();
            registry.register(name, help, counter.clone());
            counter
        };
        let reconciles = counter("reconciles", "Jobs reconciled");
        let failures = counter("reconcile_failures", "Jobs that could not be reconciled");
        let masters = counter("masters_created", "Masters started");
        registry.register_collector(Box::new(jobs.clone()));
        Self { registry, leader, reconciles, failures, masters, jobs }
    }
}

impl OperatorMetrics {
    /// Counts these jobs from now on.
    pub fn watch(&self, jobs: Store<TrainingJob>) {
        // An operator has one watch.
        let _ = self.jobs.0.set(jobs);
    }

    /// All metrics as text.
    pub fn encode(&self) -> String {
        health::encode(&self.registry)
    }
}

/// Counts the jobs that the operator's watch knows whenever it is asked: those that are gone are not in it.
#[derive(Clone, Default)]
struct JobsByPhase(Arc<OnceLock<Store<TrainingJob>>>);

impl Collector for JobsByPhase {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut counts: BTreeMap<Phase, i64> = BTreeMap::new();
        for job in self.0.get().map(Store::state).unwrap_or_default() {
            let phase = job.status.as_ref().and_then(|status| status.phase);
            *counts.entry(phase.unwrap_or(Phase::Pending)).or_default() += 1;
        }
        let mut family =
            encoder.encode_descriptor("jobs", "Jobs by phase.", None, MetricType::Gauge)?;
        for (phase, count) in counts {
            ConstGauge::new(count)
                .encode(family.encode_family(&[("phase", phase.to_string())])?)?;
        }
        Ok(())
    }
}

impl fmt::Debug for JobsByPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JobsByPhase")
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
        let metrics = OperatorMetrics::default();
        metrics.leader.set(1);
        metrics.reconciles.inc();
        metrics.watch(reader);
        for (name, phase) in [("a", "Pending"), ("b", "Running"), ("a", "Running")] {
            writer.apply_watcher_event(&Event::Apply(job(name, phase)));
        }
        let page = metrics.encode();
        assert!(page.contains("\nsalamander_operator_jobs{phase=\"Running\"} 2\n"), "{page}");
        assert!(!page.contains("Pending"), "{page}");
        for line in [
            "salamander_operator_leader 1\n",
            "salamander_operator_reconciles_total 1\n",
            "# EOF\n",
        ] {
            assert!(page.contains(line), "{line}{page}");
        }
        writer.apply_watcher_event(&Event::Delete(job("a", "Running")));
        assert!(metrics.encode().contains("\nsalamander_operator_jobs{phase=\"Running\"} 1\n"));
    }
}
