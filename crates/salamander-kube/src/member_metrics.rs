//! The metrics that workers and parameter servers show themselves, named as those of their run's master are:
//! `salamander_worker_..`, `salamander_server_..`. What is known of a run as a whole its master shows.

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use salamander_core::elastic::{Millis, TrainingFigures};
use salamander_core::progress::StepCount;
use salamander_core::status::TableStats;

use crate::health;

/// A gauge of something that is no whole number.
pub(crate) type Decimal = Gauge<f64, AtomicU64>;
/// A gauge for each of several things, by its name.
pub(crate) type Named<G> = Family<[(&'static str, String); 1], G>;

type Figure = fn(&TrainingFigures) -> f64;

/// What is shown of a worker.
const WORKER: [(&str, &str, Figure); 9] = [
    ("steps", "Steps of the run that are done, as far as this worker knows", |f| f.steps.0 as f64),
    ("epoch", "The epoch of the last step, from 0", |f| f.epoch as f64),
    ("loss", "The loss of the last step", |f| f.loss),
    ("members", "Workers that train together, this one included; 0 while it waits", |f| {
        f.members as f64
    }),
    ("generations", "Groups of workers that it has trained in", |f| f.generations as f64),
    ("records", "Records that it computed", |f| f.beat.records as f64),
    ("compute_seconds", "Seconds that it spent on its records", |f| seconds(f.beat.compute_ms)),
    ("exchange_seconds", "Seconds that it spent in exchanges with others", |f| {
        seconds(f.beat.exchange_ms)
    }),
    ("data_seconds", "Seconds of computing that it waited for records", |f| {
        seconds(f.beat.data_ms)
    }),
];

/// The metrics of a worker.
#[derive(Debug)]
pub struct WorkerMetrics {
    registry: Registry,
    gauges: Vec<(Decimal, Figure)>,
}

impl Default for WorkerMetrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("salamander_worker");
        let gauge = |(name, help, figure): (&str, &str, Figure)| {
            let gauge = Decimal::default();
            registry.register(name, help, gauge.clone());
            (gauge, figure)
        };
        let gauges = WORKER.map(gauge).into();
        Self { registry, gauges }
    }
}

impl WorkerMetrics {
    /// All metrics as text.
    pub fn encode(&self, figures: &TrainingFigures) -> String {
        for (gauge, figure) in &self.gauges {
            gauge.set(figure(figures));
        }
        health::encode(&self.registry)
    }
}

fn seconds(millis: Millis) -> f64 {
    millis as f64 / 1_000.0
}

type TableFigure = fn(&TableStats) -> u64;

/// What is shown of each table.
const TABLES: [(&str, &str, TableFigure); 7] = [
    ("table_rows", "Rows of a table", |table| table.rows),
    ("table_bytes", "Bytes that they take", |table| table.bytes),
    ("table_admitted", "Rows created by the servers that serve", |table| table.admitted),
    ("table_waiting", "Ids that are not yet admitted", |table| table.waiting),
    ("table_expired", "Rows dropped because nothing used them for long", |table| table.expired),
    ("table_evicted", "Rows dropped to make room", |table| table.evicted),
    ("table_lookups", "Rows read to train on", |table| table.lookups),
];

/// The figures of tables, under the same names wherever they are shown.
#[derive(Debug)]
pub(crate) struct TableMetrics(Vec<(Named<Gauge>, TableFigure)>);

impl TableMetrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let table = |(name, help, figure): (&str, &str, TableFigure)| {
            let gauges = Named::default();
            registry.register(name, help, gauges.clone());
            (gauges, figure)
        };
        Self(TABLES.map(table).into())
    }

    pub(crate) fn observe(&self, tables: &[TableStats]) {
        for table in tables {
            for (gauges, figure) in &self.0 {
                let gauge = gauges.get_or_create(&[("table", table.name.clone())]);
                gauge.set(figure(table) as i64);
            }
        }
    }
}

/// What a parameter server shows of itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServerFigures {
    /// Steps that its rows have in them; strategy `ps` counts none.
    pub steps: StepCount,
    /// Partitions that it holds, of 1024.
    pub partitions: u64,
    /// What its tables hold here.
    pub tables: Vec<TableStats>,
}

/// The metrics of a parameter server.
#[derive(Debug)]
pub struct ServerMetrics {
    registry: Registry,
    steps: Gauge,
    partitions: Gauge,
    tables: TableMetrics,
}

impl Default for ServerMetrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("salamander_server");
        let mut gauge = |name: &str, help: &str| {
            let gauge = Gauge::default();
            registry.register(name, help, gauge.clone());
            gauge
        };
        let steps = gauge("steps", "Steps that its rows have in them; strategy ps counts none");
        let partitions = gauge("partitions", "Partitions that it holds, of 1024");
        let tables = TableMetrics::register(&mut registry);
        Self { registry, steps, partitions, tables }
    }
}

impl ServerMetrics {
    /// All metrics as text.
    pub fn encode(&self, figures: &ServerFigures) -> String {
        self.steps.set(figures.steps.0 as i64);
        self.partitions.set(figures.partitions as i64);
        self.tables.observe(&figures.tables);
        health::encode(&self.registry)
    }
}

#[cfg(test)]
mod tests {
    use salamander_core::elastic::Beat;

    use super::*;

    fn check(page: &str, lines: &[&str]) {
        for line in lines {
            assert!(page.contains(&format!("\nsalamander_{line}\n")), "{line}\n{page}");
        }
        assert!(page.ends_with("# EOF\n"), "{page}");
    }

    #[test]
    fn a_worker_shows_where_it_is_and_where_its_time_went() {
        let beat = Beat {
            records: 640,
            compute_ms: 1_500,
            exchange_ms: 250,
            data_ms: 40,
            ..Beat::default()
        };
        let figures = TrainingFigures {
            steps: StepCount(10),
            epoch: 1,
            loss: 0.25,
            members: 3,
            generations: 2,
            beat,
        };
        let lines = [
            "worker_steps 10.0",
            "worker_epoch 1.0",
            "worker_loss 0.25",
            "worker_members 3.0",
            "worker_generations 2.0",
            "worker_records 640.0",
            "worker_compute_seconds 1.5",
            "worker_exchange_seconds 0.25",
            "worker_data_seconds 0.04",
        ];
        check(&WorkerMetrics::default().encode(&figures), &lines);
    }

    #[test]
    fn a_server_shows_what_it_holds() {
        let table = TableStats { name: "item".into(), rows: 5, lookups: 9, ..Default::default() };
        let figures = ServerFigures { steps: StepCount(7), partitions: 512, tables: vec![table] };
        let lines = [
            "server_steps 7",
            "server_partitions 512",
            "server_table_rows{table=\"item\"} 5",
            "server_table_lookups{table=\"item\"} 9",
        ];
        check(&ServerMetrics::default().encode(&figures), &lines);
    }
}
