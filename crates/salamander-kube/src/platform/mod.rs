//! Pods in the place of processes: attaches to the master as the supervisor of one machine does, turns its
//! orders into pods, and tells it what became of them. It runs in the master's pod; what people want comes, and
//! what they are told goes, through that pod's annotations.

mod clerk;
mod cluster;
pub mod fleet;
mod herald;
pub mod hunger;
mod listener;
pub mod reasons;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Client, ResourceExt};
use salamander_core::elastic::{Ending, Order};
use salamander_proto::client::{
    Ends, Error as SessionError, PlatformClient, PlatformHandler, SessionOptions,
};
use tokio::net::TcpListener;
use tokio::sync::mpsc::{self, error::TrySendError};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tracing::{info, warn};

use crate::Error as ClusterError;
use crate::client;
use crate::error::patiently;
use crate::health::Health;
use crate::job::Job;
use crate::names::{self, Role};
use crate::progress::Progress;
use clerk::Clerk;
use cluster::{Cluster, Done};
use fleet::{Action, Fleet};
use herald::Herald;
use hunger::Memory;
use listener::Listener;

/// Orders that may wait.
const WAITING: usize = 1_024;
/// How often time is looked at.
const TICK: Duration = Duration::from_millis(250);
/// How long workers have to end by themselves once the run is over.
const FAREWELL: Duration = Duration::from_secs(10);
/// How long the end is listened for.
const LISTEN: Duration = Duration::from_secs(3);
/// How long the platform waits for pods that do not end and for words that cannot be told.
const LAST_WORDS: Duration = Duration::from_secs(60);

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
pub struct Options {
    /// The job.
    pub job: Job,
    /// The pod that the master runs in.
    pub pod: String,
    /// How to reach the master.
    pub session: SessionOptions,
    /// How often the master is asked how far it is.
    pub ask_every: Duration,
    /// How often at most that is told.
    pub tell_every: Duration,
    /// Told when the master answers.
    pub health: Option<Health>,
}

impl Options {
    /// Asks each second, tells every two.
    pub fn new(job: Job, pod: impl Into<String>, session: SessionOptions) -> Self {
        Self {
            job,
            pod: pod.into(),
            session,
            ask_every: Duration::from_secs(1),
            tell_every: Duration::from_secs(2),
            health: None,
        }
    }
}

impl Options {
    /// For a master that runs in a pod: its job is in a file, its pod's name in the environment.
    pub fn in_pod(job: &Path, session: SessionOptions) -> Result<Self, ClusterError> {
        let wrong =
            |reason: String| ClusterError::Invalid(format!("job {}: {reason}", job.display()));
        let text = std::fs::read_to_string(job).map_err(|error| wrong(error.to_string()))?;
        let parsed: Job = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        let pod = std::env::var("POD_NAME").map_err(|_| {
            ClusterError::Invalid(
                "POD_NAME is not set: the kube platform runs in a pod".to_string(),
            )
        })?;
        Ok(Self::new(parsed, pod, session))
    }
}

/// Runs the pods of a job from within the master's pod, with the endpoints for probes.
pub async fn serve(
    mut options: Options,
    health: SocketAddr,
    shutdown: impl Future<Output = ()>,
) -> Result<Ending, Error> {
    let client = client::connect().await?;
    let listener = TcpListener::bind(health).await?;
    let endpoints = Health::new(String::new);
    options.health = Some(endpoints.clone());
    tokio::select! {
        ending = run(options, client, shutdown) => ending,
        never = endpoints.serve(listener) => match never {},
    }
}

/// Runs the pods of a job until the run is over. When `shutdown` resolves it ends without ending them: the next master
/// goes on with them.
pub async fn run(
    options: Options,
    client: Client,
    shutdown: impl Future<Output = ()>,
) -> Result<Ending, Error> {
    let cluster = patiently(|| Cluster::open(client.clone(), &options.job, &options.pod)).await?;
    // Before the session, which begins with what there is.
    let pods = patiently(|| cluster.list()).await?;
    let mut platform = Platform::start(options, cluster, pods)?;
    let query = watcher::Config::default().labels(&names::job_query(&platform.job.name));
    let events = watcher(platform.cluster.pods(), query).default_backoff();
    let mut events = events.map_err(|error| warn!(%error, "watching pods")).boxed();
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    tokio::pin!(shutdown);
    loop {
        tokio::select! {
            Some(message) = platform.messages.recv() => platform.told(message),
            Some(event) = events.next() => {
                if let Ok(event) = event {
                    platform.event(event);
                }
            }
            Some(done) = platform.cluster.done() => platform.done(done),
            Some(status) = platform.clerk.statuses.recv() => platform.status(&status),
            _ = ticks.tick() => {
                if let Some(ending) = platform.tick().await {
                    return Ok(ending);
                }
            }
            () = &mut shutdown => {
                platform.fleet().close();
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

/// What the session's thread tells.
enum Message {
    Order(Order),
    Over(Ending),
}

struct Platform {
    job: Job,
    pod: String,
    cluster: Cluster,
    clerk: Clerk,
    listener: Listener,
    herald: Herald,
    health: Option<Health>,
    fleet: Arc<Mutex<Fleet>>,
    ends: Ends,
    messages: mpsc::Receiver<Message>,
    /// Pods of a list that is not complete yet.
    listed: Vec<Pod>,
    ending: Option<(Ending, Instant)>,
    /// Ends with the platform, after the ends that it told.
    _session: PlatformClient,
}

impl Platform {
    fn start(options: Options, cluster: Cluster, pods: Vec<Pod>) -> Result<Self, Error> {
        let Options { job, pod, session, ask_every, tell_every, health } = options;
        let memory = (Memory::of(&job, Role::Worker), Memory::of(&job, Role::Ps));
        let fleet = Arc::new(Mutex::new(Fleet::new(&job.name, memory)));
        let (orders, messages) = mpsc::channel(WAITING);
        // Ends of pods that nobody was told of go out with the first message.
        let adopted = lock(&fleet).adopt(Timestamp::now(), pods);
        let handler = Handler { fleet: fleet.clone(), orders };
        let mut told = None;
        let session_client = PlatformClient::open_with(&session, |ends| {
            report(&ends, &adopted);
            told = Some(ends);
            handler
        })?;
        let ends = told.unwrap_or_else(|| session_client.ends());
        let clerk = Clerk::start(&session, ask_every)?;
        let listener = Listener::start(&session)?;
        let mut platform = Self {
            herald: Herald::new(tell_every),
            job,
            pod,
            cluster,
            clerk,
            listener,
            health,
            fleet,
            ends,
            messages,
            listed: Vec::new(),
            ending: None,
            _session: session_client,
        };
        for action in adopted {
            platform.act(action);
        }
        Ok(platform)
    }

    fn fleet(&self) -> MutexGuard<'_, Fleet> {
        lock(&self.fleet)
    }

    /// Changes the fleet, and tells ends under the same lock: an inventory never has a pod in neither list.
    fn change(&mut self, change: impl FnOnce(&mut Fleet, Timestamp) -> Vec<Action>) {
        let actions = {
            let mut fleet = lock(&self.fleet);
            let actions = change(&mut fleet, Timestamp::now());
            report(&self.ends, &actions);
            actions
        };
        for action in actions {
            self.act(action);
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Create { slot, process, memory } => {
                info!(slot, process, ?memory, "creating a pod");
                self.cluster.create(&self.job, (slot, process), memory);
            }
            Action::Delete { name, force } => {
                info!(name, force, "deleting a pod");
                self.cluster.delete(name, force);
            }
            Action::Mark { name, member } => self.cluster.mark(name, member),
            Action::Report { slot, process, how } => {
                info!(slot, process, ?how, "a pod ended");
                self.cluster.event(slot, &how);
            }
        }
    }

    fn told(&mut self, message: Message) {
        match message {
            Message::Order(Order::Start(slot)) => self.change(|fleet, now| fleet.start(now, slot)),
            Message::Order(Order::End(slot)) => self.change(|fleet, _| fleet.end(slot)),
            Message::Over(ending) => {
                if self.ending.is_none() {
                    info!(?ending, "the run is over");
                    self.fleet().over();
                    self.ending = Some((ending, Instant::now()));
                }
            }
        }
    }

    fn event(&mut self, event: Event<Pod>) {
        match event {
            Event::Apply(pod) => {
                self.own(&pod);
                if !self.cluster.owns(&pod) {
                    return;
                }
                self.change(|fleet, now| fleet.seen(now, pod));
            }
            Event::Delete(pod) => self.change(|fleet, _| fleet.deleted(pod)),
            Event::Init => self.listed.clear(),
            Event::InitApply(pod) => {
                self.own(&pod);
                self.listed.push(pod);
            }
            Event::InitDone => {
                let mut pods = std::mem::take(&mut self.listed);
                pods.retain(|pod| self.cluster.owns(pod));
                self.change(|fleet, now| fleet.relisted(now, pods));
            }
        }
    }

    /// The pod of this master says what people want.
    fn own(&mut self, pod: &Pod) {
        if pod.name_any() != self.pod {
            return;
        }
        let annotations = pod.annotations();
        let number = |key: &str| annotations.get(key).and_then(|text| text.parse().ok());
        self.herald.wanted = number(names::WANTED);
        self.herald.wanted_servers = number(names::WANTED_SERVERS);
        self.herald.stop = annotations.get(names::STOP).is_some_and(|text| text == "true");
        if pod.metadata.deletion_timestamp.is_some() {
            // The next master starts what is missing; and if the job is deleted, nobody does.
            self.fleet().close();
        }
    }

    fn done(&mut self, done: Done) {
        match done {
            Done::Created(place, answer) => {
                self.change(|fleet, now| fleet.created(now, place, answer));
            }
            Done::Told(heard) => self.herald.heard(heard),
        }
    }

    fn status(&mut self, status: &serde_json::Value) {
        if let Some(health) = &self.health {
            health.set_ready(true);
        }
        let members = Progress::members(status);
        self.change(|fleet, _| fleet.members(&members));
        let progress = Progress::read(status);
        for wish in self.herald.wishes(&progress) {
            self.clerk.wish(wish);
        }
        self.herald.take(progress);
    }

    /// Tells how far the run is; the ending, once all is done.
    async fn tick(&mut self) -> Option<Ending> {
        self.change(|fleet, now| fleet.tick(now));
        let facts = {
            let fleet = self.fleet();
            let (pending, waiting) = fleet.waiting();
            (pending, waiting, fleet.last_crash().map(str::to_string))
        };
        self.herald.note(self.listener.milestones());
        match &self.ending {
            // What the run told last is part of the last words.
            Some((ending, since)) if self.listener.is_over() || since.elapsed() > LISTEN => {
                self.herald.over(ending);
            }
            Some(_) => return None,
            None => {}
        }
        if let Some(progress) = self.herald.news(facts) {
            self.cluster.tell(self.pod.clone(), progress);
        }
        let (ending, since) = self.ending.clone()?;
        if since.elapsed() > FAREWELL {
            self.change(|fleet, _| fleet.end_all());
        }
        let quiet = self.fleet().inventory().is_empty() && self.herald.is_heard();
        (quiet || since.elapsed() > LAST_WORDS).then_some(ending)
    }
}

/// Passes the master's orders on.
struct Handler {
    fleet: Arc<Mutex<Fleet>>,
    orders: mpsc::Sender<Message>,
}

impl PlatformHandler for Handler {
    fn inventory(&mut self) -> Vec<(u32, u32)> {
        lock(&self.fleet).inventory()
    }

    fn order(&mut self, order: Order) {
        self.send(Message::Order(order));
    }

    fn over(&mut self, ending: Ending) {
        self.send(Message::Over(ending));
    }

    fn refused(&mut self, reason: &str) {
        warn!(reason, "the master refuses its platform");
    }
}

impl Handler {
    /// Waits for room: the session's thread has nothing more important to do, but is inside of a runtime.
    fn send(&self, mut message: Message) {
        while let Err(TrySendError::Full(back)) = self.orders.try_send(message) {
            std::thread::sleep(Duration::from_millis(1));
            message = back;
        }
        // Closed: the platform is gone, and the next one says what it has.
    }
}

fn lock(fleet: &Mutex<Fleet>) -> MutexGuard<'_, Fleet> {
    fleet.lock().unwrap_or_else(PoisonError::into_inner)
}

fn report(ends: &Ends, actions: &[Action]) {
    for action in actions {
        if let Action::Report { slot, process, how } = action {
            ends.ended(*slot, *process, how.clone());
        }
    }
}
