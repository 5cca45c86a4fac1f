//! The metrics of a run, which its master's pod shows in the OpenMetrics format that Prometheus reads.

use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use salamander_core::status::TableStats;

use crate::health;
use crate::member_metrics::{Decimal, Named, TableMetrics};
use crate::progress::{JobProgress, WorkerFigures};

/// Gauges of a run.
#[derive(Debug)]
pub struct RunMetrics {
    registry: Registry,
    workers: Gauge,
    servers: Gauge,
    pending: Gauge,
    steps: Gauge,
    epoch: Gauge,
    restarts: Gauge,
    loss: Decimal,
    wanted: Gauge,
    generations: Gauge,
    goodput: Decimal,
    validation: Named<Decimal>,
    records: Named<Gauge>,
    compute: Named<Decimal>,
    exchange: Named<Decimal>,
    data: Named<Decimal>,
    tables: TableMetrics,
}

impl Default for RunMetrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("salamander_run");
        let mut gauge = |name: &str, help: &str| {
            let gauge = Gauge::default();
            registry.register(name, help, gauge.clone());
            gauge
        };
        let workers = gauge("workers", "Workers that train together");
        let servers = gauge("servers", "Parameter servers that serve");
        let pending = gauge("pending_pods", "Pods that do not run yet");
        let steps = gauge("steps", "Steps done");
        let epoch = gauge("epoch", "The epoch");
        let restarts = gauge("restarts", "Workers and servers that were started again");
        let wanted = gauge("wanted_workers", "Workers that are wanted");
        let generations = gauge("generations", "Generations of workers that began");
        let (loss, goodput) = (Decimal::default(), Decimal::default());
        registry.register("loss", "The last loss", loss.clone());
        let part = "The part of the time in which training went on";
        registry.register("goodput", part, goodput.clone());
        let (validation, compute) = (Named::default(), Named::default());
        registry.register("validation", "The last validation", validation.clone());
        let records = Named::default();
        registry.register("worker_records", "Records that a worker computed", records.clone());
        let seconds = "Seconds that a worker spent on its records";
        registry.register("worker_compute_seconds", seconds, compute.clone());
        let (exchange, data) = (Named::default(), Named::default());
        let seconds = "Seconds that a worker spent in exchanges with others";
        registry.register("worker_exchange_seconds", seconds, exchange.clone());
        let seconds = "Seconds of computing that a worker waited for records";
        registry.register("worker_data_seconds", seconds, data.clone());
        let tables = TableMetrics::register(&mut registry);
        Self {
            registry,
            workers,
            servers,
            pending,
            steps,
            epoch,
            restarts,
            loss,
            wanted,
            generations,
            goodput,
            validation,
            records,
            compute,
            exchange,
            data,
            tables,
        }
    }
}

impl RunMetrics {
    /// Takes in how far the run is; what is not known yet stays as it was.
    pub fn observe(&self, progress: &JobProgress) {
        self.workers.set(progress.workers.into());
        self.servers.set(progress.servers.into());
        self.pending.set(progress.pending.into());
        let steps = progress.step.map(|step| step.0);
        for (gauge, value) in [(&self.steps, steps), (&self.epoch, progress.epoch)] {
            if let Some(value) = value {
                gauge.set(value as i64);
            }
        }
        self.restarts.set((progress.restarts + progress.server_restarts) as i64);
        self.wanted.set(progress.wanted.into());
        self.generations.set(progress.generations as i64);
        for (gauge, value) in [(&self.loss, progress.loss), (&self.goodput, progress.goodput)] {
            if let Some(value) = value {
                gauge.set(value);
            }
        }
        for (name, value) in progress.milestones.last_validation().into_iter().flatten() {
            let gauge = self.validation.get_or_create(&[("metric", name.clone())]);
            gauge.set(value.unwrap_or(f64::NAN));
        }
        self.observe_workers(&progress.each);
    }

    /// Those that are gone are not shown any more.
    fn observe_workers(&self, workers: &[WorkerFigures]) {
        let times = [&self.compute, &self.exchange, &self.data];
        self.records.clear();
        times.iter().for_each(|time| time.clear());
        for worker in workers {
            let name = [("worker", worker.index.to_string())];
            self.records.get_or_create(&name).set(worker.records as i64);
            let spent = [worker.seconds, worker.exchange_seconds, worker.data_seconds];
            for (time, spent) in times.iter().zip(spent) {
                time.get_or_create(&name).set(spent);
            }
        }
    }

    /// Takes in what tables hold, over all servers.
    pub fn observe_tables(&self, tables: &[TableStats]) {
        self.tables.observe(tables);
    }

    /// All metrics as text.
    pub fn encode(&self) -> String {
        health::encode(&self.registry)
    }
}

#[cfg(test)]
mod tests {
    use salamander_core::progress::StepCount;

    use super::*;

    #[test]
    fn a_run_shows_how_far_it_is() {
        let metrics = RunMetrics::default();
        let progress = JobProgress {
            workers: 2,
            step: Some(StepCount(7)),
            loss: Some(0.5),
            restarts: 1,
            ..Default::default()
        };
        metrics.observe(&progress);
        let each =
            vec![WorkerFigures { index: 3, records: 9, data_seconds: 0.5, ..Default::default() }];
        metrics.observe(&JobProgress { workers: 1, step: None, loss: None, each, ..progress });
        let item = TableStats { name: "item".into(), waiting: 3, evicted: 9, ..Default::default() };
        metrics.observe_tables(&[item]);
        let page = metrics.encode();
        let tables = ["table_waiting{table=\"item\"} 3\n", "table_evicted{table=\"item\"} 9\n"];
        let run = [
            "workers 1\n",
            "steps 7\n",
            "loss 0.5\n",
            "restarts 1\n",
            "worker_records{worker=\"3\"} 9\n",
            "worker_data_seconds{worker=\"3\"} 0.5\n",
        ];
        for line in run.into_iter().chain(tables) {
            assert!(page.contains(&format!("\nsalamander_run_{line}")), "{line}{page}");
        }
        assert!(page.ends_with("# EOF\n"), "{page}");
    }
}
