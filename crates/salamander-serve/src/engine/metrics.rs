//! What a server's metrics say about each model, whatever its versions: the page of `/metrics`.

use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

/// What all names begin with.
const PREFIX: &str = "salamander_serve";

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ModelLabel {
    model: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VersionLabels {
    model: String,
    version: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    model: String,
    outcome: &'static str,
}

/// Histograms of times, or of rows.
#[derive(Clone)]
enum HistogramKind {
    Seconds,
    Rows,
}

impl MetricConstructor<Histogram> for HistogramKind {
    fn new_metric(&self) -> Histogram {
        match self {
            // From a tenth of a millisecond to some twenty seconds.
            HistogramKind::Seconds => Histogram::new(exponential_buckets(1e-4, 2.0, 18)),
            HistogramKind::Rows => Histogram::new(exponential_buckets(1.0, 2.0, 11)),
        }
    }
}

type Histograms = Family<ModelLabel, Histogram, HistogramKind>;

/// The metrics of all models.
pub(crate) struct ServingMetrics {
    registry: Registry,
    requests: Family<OutcomeLabels, Counter>,
    loads: Family<OutcomeLabels, Counter>,
    records: Family<ModelLabel, Counter>,
    whole: Histograms,
    decoded: Histograms,
    queued: Histograms,
    computed: Histograms,
    rows: Histograms,
}

/// A version of a model at this moment.
pub(crate) struct VersionNow {
    pub(crate) model: String,
    pub(crate) version: Option<String>,
    pub(crate) waiting: usize,
    pub(crate) unknown_ids: Option<u64>,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestOutcome {
    Answered,
    Failed,
    Refused,
    Late,
    Cancelled,
}

/// The metrics of one model. A copy counts the same.
#[derive(Clone, Debug)]
pub(crate) struct ModelMetrics {
    outcomes: [Counter; 5],
    records: Counter,
    whole: Histogram,
    decoded: Histogram,
    queued: Histogram,
    computed: Histogram,
    rows: Histogram,
}

impl ServingMetrics {
    pub(crate) fn new() -> Self {
        let times = || Histograms::new_with_constructor(HistogramKind::Seconds);
        let mut metrics = Self {
            registry: Registry::with_prefix(PREFIX),
            requests: Family::default(),
            loads: Family::default(),
            records: Family::default(),
            whole: times(),
            decoded: times(),
            queued: times(),
            computed: times(),
            rows: Histograms::new_with_constructor(HistogramKind::Rows),
        };
        let to = &mut metrics.registry;
        to.register("requests", "Requests by what became of them", metrics.requests.clone());
        to.register("loads", "Versions that were loaded, or not", metrics.loads.clone());
        to.register("records", "Records that were answered", metrics.records.clone());
        let (whole, queued) = (metrics.whole.clone(), metrics.queued.clone());
        to.register("request_seconds", "From a request's records to its answer", whole);
        to.register("decode_seconds", "Making a model's input of records", metrics.decoded.clone());
        to.register("queue_seconds", "Waiting for the model", queued);
        to.register("compute_seconds", "Computing a batch", metrics.computed.clone());
        to.register("batch_rows", "Records that were computed together", metrics.rows.clone());
        metrics
    }

    pub(crate) fn of(&self, model: &str) -> ModelMetrics {
        let outcome = |outcome| {
            let labels = OutcomeLabels { model: model.to_string(), outcome };
            self.requests.get_or_create(&labels).clone()
        };
        let label = ModelLabel { model: model.to_string() };
        ModelMetrics {
            outcomes: ["answered", "failed", "refused", "late", "cancelled"].map(outcome),
            records: self.records.get_or_create(&label).clone(),
            whole: self.whole.get_or_create(&label).clone(),
            decoded: self.decoded.get_or_create(&label).clone(),
            queued: self.queued.get_or_create(&label).clone(),
            computed: self.computed.get_or_create(&label).clone(),
            rows: self.rows.get_or_create(&label).clone(),
        }
    }

    pub(crate) fn loaded(&self, model: &str, well: bool) {
        let outcome = if well { "loaded" } else { "failed" };
        self.loads.get_or_create(&OutcomeLabels { model: model.to_string(), outcome }).inc();
    }

    /// All of them as text, with what is so at this moment: models, their versions and what waits for each.
    pub(crate) fn page(&self, now: &[VersionNow]) -> String {
        let mut page = String::new();
        // Writing to a string does not fail.
        let _ = text::encode_registry(&mut page, &self.registry);
        let _ = text::encode(&mut page, &at_this_moment(now));
        page
    }
}

fn at_this_moment(now: &[VersionNow]) -> Registry {
    let mut registry = Registry::with_prefix(PREFIX);
    let waiting: Family<ModelLabel, Gauge> = Family::default();
    let versions: Family<VersionLabels, Gauge> = Family::default();
    let unknown_ids: Family<VersionLabels, Counter> = Family::default();
    registry.register("waiting", "Requests that wait", waiting.clone());
    registry.register("version", "The version in service", versions.clone());
    if now.iter().any(|one| one.unknown_ids.is_some()) {
        let help = "Look-ups of ids that no row of a table has";
        registry.register("unknown_ids", help, unknown_ids.clone());
    }
    for one in now {
        let label = ModelLabel { model: one.model.clone() };
        waiting.get_or_create(&label).inc_by(one.waiting as i64);
        let version = one.version.clone().unwrap_or_default();
        let labels = VersionLabels { model: one.model.clone(), version };
        versions.get_or_create(&labels).set(one.version.is_some().into());
        if let (Some(_), Some(count)) = (&one.version, one.unknown_ids) {
            unknown_ids.get_or_create(&labels).inc_by(count);
        }
    }
    registry
}

impl ModelMetrics {
    pub(crate) fn count(&self, outcome: RequestOutcome, requests: usize) {
        self.outcomes[outcome as usize].inc_by(requests as u64);
    }

    pub(crate) fn answered(&self, rows: usize, whole: Duration, queued: Duration) {
        self.count(RequestOutcome::Answered, 1);
        self.records.inc_by(rows as u64);
        self.whole.observe(whole.as_secs_f64());
        self.queued.observe(queued.as_secs_f64());
    }

    pub(crate) fn decoded(&self, time: Duration) {
        self.decoded.observe(time.as_secs_f64());
    }

    pub(crate) fn computed(&self, rows: usize, time: Duration) {
        self.rows.observe(rows as f64);
        self.computed.observe(time.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_what_was_counted_and_what_is_now() {
        let metrics = ServingMetrics::new();
        let own = metrics.of("m");
        own.answered(3, Duration::from_millis(2), Duration::ZERO);
        own.count(RequestOutcome::Refused, 2);
        own.computed(3, Duration::from_millis(1));
        metrics.loaded("m", true);
        let (model, version) = ("m".to_string(), Some("step-1".to_string()));
        let page = metrics.page(&[VersionNow { model, version, waiting: 4, unknown_ids: Some(5) }]);
        for line in [
            "salamander_serve_requests_total{model=\"m\",outcome=\"answered\"} 1",
            "salamander_serve_requests_total{model=\"m\",outcome=\"refused\"} 2",
            "salamander_serve_records_total{model=\"m\"} 3",
            "salamander_serve_batch_rows_bucket{le=\"4.0\",model=\"m\"} 1",
            "salamander_serve_waiting{model=\"m\"} 4",
            "salamander_serve_version{model=\"m\",version=\"step-1\"} 1",
            "salamander_serve_unknown_ids_total{model=\"m\",version=\"step-1\"} 5",
        ] {
            assert!(page.contains(line), "{line} is not in\n{page}");
        }
        assert!(page.ends_with("# EOF\n") && page.matches("# EOF").count() == 1);
        let (model, version) = ("a\"b\\".to_string(), None);
        let page = metrics.page(&[VersionNow { model, version, waiting: 1, unknown_ids: None }]);
        assert!(page.contains(r#"salamander_serve_waiting{model="a\"b\\"} 1"#), "{page}");
        assert!(!page.contains("unknown_ids"), "{page}");
    }
}
