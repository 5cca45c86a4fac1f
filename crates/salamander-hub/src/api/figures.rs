//! What Prometheus asks a hub for, in the OpenMetrics format and under the names that all roles use:
//! `salamander_ROLE_WHAT`.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use prometheus_client::encoding::text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::Api;
use super::reply::ask;
use crate::Error;

/// What Prometheus calls the format.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A gauge for each state.
type ByState = Family<[(&'static str, String); 1], Gauge>;

/// All figures as they are at this moment.
pub(super) async fn figures(State(api): State<Api>) -> Response {
    let counted = ask(&api, |store| {
        let jobs = store.jobs()?.into_iter().map(|job| job.state).collect::<Vec<_>>();
        Ok((store.count_experiments()?, store.count_runs()?, jobs))
    });
    let (experiments, runs, jobs) = match counted.await {
        Ok(counted) => counted,
        Err(error) => return error.into_response(),
    };
    let waiting = jobs.iter().filter(|state| *state == "queued").count();
    let mut registry = Registry::with_prefix("salamander_hub");
    by_state(&mut registry, "experiments", "Experiments by their state", experiments);
    by_state(&mut registry, "runs", "Runs by their state", runs);
    let mut gauge = |name: &str, help: &str, value: i64| {
        let gauge: Gauge = Gauge::default();
        gauge.set(value);
        registry.register(name, help, gauge);
    };
    let open = super::STREAMS - api.streams.available_permits();
    gauge("event_streams", "Streams of events that are open", open as i64);
    gauge("waiting_experiments", "Experiments that wait for slots", waiting as i64);
    if let Some(slots) = api.slots {
        gauge("slots", "Slots of this hub", slots.into());
    }
    let mut counter = |name: &str, help: &str, value: u64| {
        let counter: Counter = Counter::default();
        counter.inc_by(value);
        registry.register(name, help, counter);
    };
    counter("changes", "Changes of the store", api.hub.store().change().unsigned_abs());
    counter("failed_logins", "Wrong tokens", api.guard.failed_logins());
    let mut page = String::new();
    match text::encode(&mut page, &registry) {
        Ok(()) => ([(header::CONTENT_TYPE, OPEN_METRICS)], page).into_response(),
        Err(error) => Error::Invalid(error.to_string()).into_response(),
    }
}

fn by_state(
    registry: &mut Registry,
    name: &str,
    help: &str,
    counts: impl IntoIterator<Item = (String, i64)>,
) {
    let family = ByState::default();
    for (state, count) in counts.into_iter().collect::<BTreeMap<_, _>>() {
        family.get_or_create(&[("state", state)]).set(count);
    }
    registry.register(name, help, family);
}
