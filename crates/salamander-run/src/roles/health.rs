//! Probes and metrics of workers and parameter servers: where the arguments or the environment ask for them.

use std::net::SocketAddr;

use salamander_core::environment;
use salamander_kube::health::{Health, HealthThread};
use salamander_kube::member_metrics::{ServerFigures, ServerMetrics, WorkerMetrics};
use salamander_ps::Engine;
use salamander_train::worker::Meter;
use tracing::{info, warn};

use super::MemberOptions;
use crate::Error;
use crate::cluster::in_family;

/// Those of a worker, which is ready while it trains with others.
pub(super) fn of_worker(
    options: &MemberOptions,
    meter: &Meter,
) -> Result<Option<HealthThread>, Error> {
    let (shown, asked) = (meter.clone(), meter.clone());
    let metrics = WorkerMetrics::default();
    let health = Health::new(move || metrics.encode(&shown.figures()));
    answer(options, health.when(move || asked.figures().members > 0))
}

/// Those of a parameter server, which is ready when it has partitions to hold.
pub(super) fn of_server(
    options: &MemberOptions,
    engine: &Engine,
) -> Result<Option<HealthThread>, Error> {
    let (shown, asked) = (engine.clone(), engine.clone());
    let metrics = ServerMetrics::default();
    let health = Health::new(move || metrics.encode(&figures(&shown)));
    answer(options, health.when(move || !asked.partitions().is_empty()))
}

fn figures(engine: &Engine) -> ServerFigures {
    ServerFigures {
        steps: engine.version(),
        partitions: engine.partitions().len() as u64,
        // A broken engine ends the server by itself.
        tables: engine.stats().unwrap_or_default(),
    }
}

fn answer(options: &MemberOptions, health: Health) -> Result<Option<HealthThread>, Error> {
    let Some(address) = options.health.map_or_else(from_environment, |given| Ok(Some(given)))?
    else {
        return Ok(None);
    };
    match health.listen(in_family(address)) {
        Ok(thread) => {
            info!(address = %thread.address(), "answers probes and shows metrics");
            Ok(Some(thread))
        }
        // Nobody stops training because it cannot be watched.
        Err(error) => {
            warn!(%error, %address, "nobody can ask for metrics here");
            Ok(None)
        }
    }
}

fn from_environment() -> Result<Option<SocketAddr>, Error> {
    let name = environment::HEALTH.name;
    let Ok(text) = std::env::var(name) else { return Ok(None) };
    let wrong = |error| Error::Invalid(format!("{name}={text}: {error}; write IP:PORT"));
    text.parse().map(Some).map_err(wrong)
}
