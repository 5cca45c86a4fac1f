//! Pods in the place of processes: attaches to the master as the supervisor of one machine does, turns its
//! orders into pods, and tells it what became of them. It runs in the master's pod; what people want comes, and
//! what they are told goes, through that pod's annotations.

mod controller;
mod event_watcher;
pub mod log_words;
mod master_poller;
pub mod memory;
pub mod metrics;
mod notes;
mod orders;
mod pod_api;
pub mod pod_set;
pub mod pod_state;
mod status_reporter;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use kube::Client;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, watcher};
use salamander_core::elastic::Ending;
use salamander_core::environment;
use salamander_proto::client::{Error as SessionError, SessionOptions};
use tokio::net::TcpListener;
use tokio::time::{MissedTickBehavior, interval};
use tracing::warn;

use crate::Error as ClusterError;
use crate::error::retry;
use crate::health::Health;
use crate::job::Job;
use crate::names;
use crate::{client, contract};
use controller::Controller;
use metrics::RunMetrics;
use pod_api::PodApi;

/// How often time is looked at.
const TICK: Duration = Duration::from_millis(250);

/// Why the platform ends before the run does.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The cluster does not let it work.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// The session with the master cannot be opened.
    #[error(transparent)]
    Client(#[from] SessionError),
    /// The port for probes, or the thread that talks to the master, cannot be had.
    #[error("cannot start the platform: {0}")]
    Start(#[from] std::io::Error),
    /// It was told to leave; another one can take over.
    #[error("the platform was told to leave before the run was over")]
    Shutdown,
}

/// How to run a job's pods.
#[derive(Clone, Debug)]
pub struct PlatformOptions {
    /// The job.
    pub job: Job,
    /// The pod that the master runs in.
    pub pod: String,
    /// How to reach the master.
    pub session: SessionOptions,
    /// How often the master's status is polled.
    pub poll_every: Duration,
    /// How often at most progress is written to the cluster, unless the state changes.
    pub write_every: Duration,
    /// Told when the master answers.
    pub health: Option<Health>,
    /// Told how far the run is.
    pub metrics: Arc<RunMetrics>,
}

impl PlatformOptions {
    /// Polls each second, writes every two.
    pub fn new(job: Job, pod: impl Into<String>, session: SessionOptions) -> Self {
        Self {
            job,
            pod: pod.into(),
            session,
            poll_every: Duration::from_secs(1),
            write_every: Duration::from_secs(2),
            health: None,
            metrics: Arc::default(),
        }
    }

    /// For a master that runs in a pod: its job is in a file, its pod's name in the environment.
    pub fn in_pod(job: &Path, session: SessionOptions) -> Result<Self, ClusterError> {
        let wrong =
            |reason: String| ClusterError::Invalid(format!("job {}: {reason}", job.display()));
        let text = std::fs::read_to_string(job).map_err(|error| wrong(error.to_string()))?;
        let parsed: Job = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        if let Some(reason) = contract::refusal(parsed.contract, contract::CONTRACT) {
            return Err(wrong(reason));
        }
        let pod = std::env::var(environment::POD_NAME.name).map_err(|_| {
            ClusterError::Invalid(
                "POD_NAME is not set: the kube platform runs in a pod".to_string(),
            )
        })?;
        Ok(Self::new(parsed, pod, session))
    }
}

/// Runs the pods of a job from within the master's pod, with the endpoints for probes.
pub async fn serve(
    mut options: PlatformOptions,
    health: SocketAddr,
    shutdown: impl Future<Output = ()>,
) -> Result<Ending, Error> {
    let client = client::connect().await?;
    let listener = TcpListener::bind(health).await?;
    let metrics = options.metrics.clone();
    let endpoints = Health::new(move || metrics.encode());
    options.health = Some(endpoints.clone());
    tokio::select! {
        ending = run(options, client, shutdown) => ending,
        never = endpoints.serve(listener) => match never {},
    }
}

/// Runs the pods of a job until the run is over. When `shutdown` resolves it ends without ending them: the next master
/// goes on with them.
pub async fn run(
    options: PlatformOptions,
    client: Client,
    shutdown: impl Future<Output = ()>,
) -> Result<Ending, Error> {
    let api = retry(|| PodApi::open(client.clone(), &options.job, &options.pod)).await?;
    // Before the session, which begins with what there is.
    let pods = retry(|| api.list()).await?;
    api.take_belongings(client, &options.job);
    let mut controller = Controller::start(options, api, pods)?;
    let query = watcher::Config::default().labels(&names::job_query(&controller.job.name));
    let events = watcher(controller.api.pods(), query).default_backoff();
    let mut events = events.map_err(|error| warn!(%error, "watching pods")).boxed();
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    tokio::pin!(shutdown);
    loop {
        tokio::select! {
            Some(message) = controller.messages.recv() => controller.message(message),
            Some(event) = events.next() => {
                if let Ok(event) = event {
                    controller.pod_event(event);
                }
            }
            Some(outcome) = controller.api.outcome() => controller.outcome(outcome),
            Some(status) = controller.poller.statuses.recv() => controller.status(&status),
            _ = ticks.tick() => {
                if let Some(ending) = controller.tick() {
                    return Ok(ending);
                }
            }
            () = &mut shutdown => {
                controller.pods().close();
                return Err(Error::Shutdown);
            }
        }
    }
}

/// The exit code of a master whose run ended so: whoever looks after it must know whether another one can go on.
pub fn exit_code(ending: &Ending) -> i32 {
    match ending {
        Ending::Completed => 0,
        Ending::Interrupted => names::EXIT_RUN_STOPPED,
        Ending::Failed(_) => names::EXIT_RUN_FAILED,
    }
}
