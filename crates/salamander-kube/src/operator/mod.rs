//! The operator: looks after the masters of jobs. Masters look after the rest, so that a job goes on while no
//! operator runs.

pub mod conditions;
pub mod decide;
pub mod lease;
pub mod metrics;
pub mod plan;
mod reconciler;
mod status;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::controller::{Action, Config, Controller};
use kube::runtime::events::{Recorder, Reporter};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use salamander_core::environment;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tracing::{info, warn};

use crate::crd::TrainingJob;
use crate::error::{retry, within};
use crate::health::Health;
use crate::{Error, client, names};
use lease::LeaderElector;
use metrics::OperatorMetrics;
use reconciler::Context;

/// How soon a job is reconciled again after an error.
const AFTER_ERROR: Duration = Duration::from_secs(5);
/// How soon a job is reconciled again that waits for what an earlier one left.
const WHILE_LEAVING: Duration = Duration::from_secs(1);
/// The longest wait of a job that is blocked: many may wait for one quota.
const WHILE_BLOCKED: Duration = Duration::from_secs(60);
/// How long reconciling a job may take: a connection whose other end has vanished would hold it up for ever.
const RECONCILE: Duration = Duration::from_secs(60);
/// Events of one job within this time are reconciled together.
const DEBOUNCE: Duration = Duration::from_millis(200);
/// Jobs that are reconciled at the same time.
const CONCURRENCY: u16 = 8;
/// How long the lease of an operator holds that does not renew it.
const LEASE: Duration = Duration::from_secs(15);

/// How to run an operator.
#[derive(Clone, Debug)]
pub struct OperatorOptions {
    /// The namespace whose jobs it looks after; all, if none is said.
    pub namespace: Option<String>,
    /// The election; without it this operator always leads.
    pub lease: Option<lease::LeaseOptions>,
}

/// Runs an operator from within its pod, whose name and namespace are in the environment, with the endpoints
/// for probes and metrics. Elsewhere it runs without an election, as for a try from a developer's machine.
pub async fn serve(
    namespace: Option<String>,
    health_at: SocketAddr,
    shutdown: impl Future<Output = ()>,
) -> Result<(), Error> {
    let client = client::connect().await?;
    let variable = |variable: environment::Variable| std::env::var(variable.name);
    let in_pod = variable(environment::POD_NAME)
        .and_then(|pod| Ok((pod, variable(environment::POD_NAMESPACE)?)));
    let watched = namespace.clone();
    let lease = in_pod.ok().map(|(identity, namespace)| lease::LeaseOptions {
        // Operators of several namespaces may run beside each other.
        name: match &watched {
            Some(watched) => format!("salamander-operator-{watched}"),
            None => "salamander-operator".to_string(),
        },
        namespace,
        identity,
        duration: LEASE,
    });
    let cannot =
        |error: std::io::Error| Error::Invalid(format!("cannot listen on {health_at}: {error}"));
    let listener = TcpListener::bind(health_at).await.map_err(cannot)?;
    let monitoring = Monitoring::default();
    let endpoints = monitoring.health.clone();
    tokio::select! {
        result = run(OperatorOptions { namespace, lease }, client, monitoring, shutdown) => result,
        never = endpoints.serve(listener) => match never {},
    }
}

/// How an operator is watched from outside.
#[derive(Clone, Debug)]
pub struct Monitoring {
    /// What it counts.
    pub metrics: Arc<OperatorMetrics>,
    /// Whether it is ready.
    pub health: Health,
}

impl Default for Monitoring {
    fn default() -> Self {
        let metrics = Arc::new(OperatorMetrics::default());
        let shown = metrics.clone();
        Self { metrics, health: Health::new(move || shown.encode()) }
    }
}

/// Looks after jobs until `shutdown` resolves, or until it leads no more, which is an error: the next one
/// starts from what there is.
pub async fn run(
    options: OperatorOptions,
    client: Client,
    monitoring: Monitoring,
    shutdown: impl Future<Output = ()>,
) -> Result<(), Error> {
    let Monitoring { metrics, health } = monitoring;
    let jobs: Api<TrainingJob> = match &options.namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    // Missing rights and a missing definition are told clearly, once, instead of again and again by a watch.
    let probe = kube::api::ListParams::default().limit(1);
    retry(async || jobs.list(&probe).await.map_err(Error::doing("listing training jobs"))).await?;
    health.set_ready(true);
    tokio::pin!(shutdown);
    let mut elector = options.lease.clone().map(|lease| LeaderElector::new(client.clone(), lease));
    if let Some(elector) = &mut elector {
        tokio::select! {
            elected = elector.acquire() => elected?,
            () = &mut shutdown => return Ok(()),
        }
    }
    metrics.leader.set(1);
    let (stop, stopped) = oneshot::channel::<()>();
    let controller = control(&options, client, jobs, metrics.clone(), stopped);
    tokio::pin!(controller);
    let lost = async {
        match &mut elector {
            Some(elector) => elector.renew().await,
            None => std::future::pending().await,
        }
    };
    let result = tokio::select! {
        () = &mut controller => Ok(()),
        () = lost => {
            // At once: another operator may be at work already.
            metrics.leader.set(0);
            return Err(Error::Invalid("this operator lost its lease; another one leads".into()));
        }
        () = &mut shutdown => Ok(()),
    };
    info!("the operator leaves");
    // What is under way is finished before the lease is given back.
    let _ = stop.send(());
    controller.await;
    metrics.leader.set(0);
    if let Some(elector) = &mut elector {
        elector.release().await;
    }
    result
}

async fn control(
    options: &OperatorOptions,
    client: Client,
    jobs: Api<TrainingJob>,
    metrics: Arc<OperatorMetrics>,
    stopped: oneshot::Receiver<()>,
) {
    let pods: Api<Pod> = match &options.namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let identity = options.lease.as_ref().map(|lease| lease.identity.clone());
    let reporter = Reporter { controller: "salamander.dev/operator".into(), instance: identity };
    let recorder = Recorder::new(client.clone(), reporter);
    let context = Arc::new(Context::new(client, metrics, recorder));
    let config = Config::default().concurrency(CONCURRENCY).debounce(DEBOUNCE);
    let owned = watcher::Config::default().labels(names::JOB);
    let controller = Controller::new(jobs, watcher::Config::default());
    context.metrics.watch(controller.store());
    controller
        .owns(pods, owned)
        .with_config(config)
        .graceful_shutdown_on(async {
            let _ = stopped.await;
        })
        .run(reconcile, after_error, context)
        .for_each(|outcome| async move {
            if let Err(error) = outcome {
                warn!(error = crate::error::root(&error), "a job was not reconciled");
            }
        })
        .await;
}

async fn reconcile(job: Arc<TrainingJob>, context: Arc<Context>) -> Result<Action, Error> {
    let reconciled = within(RECONCILE, "reconciling a job", Box::pin(context.reconcile(&job)));
    Ok(Action::requeue(reconciled.await?))
}

fn after_error(job: Arc<TrainingJob>, error: &Error, context: Arc<Context>) -> Action {
    let namespace = job.namespace().unwrap_or_default();
    warn!(job = job.name_any(), namespace, %error, "a job could not be reconciled");
    context.metrics.failures.inc();
    Action::requeue(wait_after(&job, error, Timestamp::now()))
}

/// How soon a job is reconciled again after an error: ever more rarely the longer it is blocked.
fn wait_after(job: &TrainingJob, error: &Error, now: Timestamp) -> Duration {
    let first = match error {
        // What an earlier job left goes without an event that this operator would hear of.
        Error::Leaving { .. } => WHILE_LEAVING,
        _ => AFTER_ERROR,
    };
    let mut conditions = job.status.iter().flat_map(|status| &status.conditions);
    let blocked = conditions.find(|known| known.type_ == "Blocked" && known.status == "True");
    let since = blocked.map_or(now, |known| known.last_transition_time.0);
    let seconds = u64::try_from(now.as_second() - since.as_second()).unwrap_or(0);
    first.max(Duration::from_secs(seconds / 4).min(WHILE_BLOCKED))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_job_that_is_blocked_for_long_is_looked_at_ever_more_rarely() {
        let now = Timestamp::from_second(1_800_000_000).expect("a time");
        let blocked = |seconds: i64| -> TrainingJob {
            let since = Timestamp::from_second(now.as_second() - seconds).expect("a time");
            let condition = json!({
                "type": "Blocked", "status": "True", "reason": "Blocked", "message": "quota",
                "lastTransitionTime": since.to_string(),
            });
            let spec = json!({"image": "i", "experiment": {"inline": {}}, "workers": {"max": 1}});
            let job = json!({
                "apiVersion": "salamander.dev/v1alpha1", "kind": "TrainingJob",
                "metadata": {"name": "j"}, "spec": spec, "status": {"conditions": [condition]},
            });
            serde_json::from_value(job).expect("a job")
        };
        let refused = Error::Refused { what: "w".into(), message: "m".into() };
        let leaving = Error::Leaving { kind: "Pod".into(), name: "p".into() };
        let check = |error: &Error, seconds: i64, expected: u64| {
            let wait = wait_after(&blocked(seconds), error, now);
            assert_eq!(wait.as_secs(), expected, "{error} for {seconds} s");
        };
        check(&refused, 0, 5);
        check(&refused, 100, 25);
        check(&refused, 10_000, 60);
        check(&leaving, 2, 1);
        check(&leaving, 40, 10);
    }
}
