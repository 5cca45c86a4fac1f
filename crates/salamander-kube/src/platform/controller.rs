//! The pods of one run: brings what the master orders, what Kubernetes tells and what people want together, and has
//! the API server do what follows.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::runtime::events::EventType;
use kube::runtime::watcher::Event;
use salamander_core::elastic::{Ending, Order};
use salamander_core::status::Status;
use salamander_proto::client::{Ends, PlatformClient};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::info;

use super::event_watcher::EventWatcher;
use super::master_poller::MasterPoller;
use super::memory::MemoryLimits;
use super::metrics::RunMetrics;
use super::orders::{MasterMessage, OrderHandler, WAITING, lock, report};
use super::pod_api::{CallOutcome, PodApi};
use super::pod_set::{PodAction, PodSet, RoleMemory};
use super::status_reporter::{PodFacts, StatusReporter};
use super::{Error, PlatformOptions};
use crate::health::Health;
use crate::job::Job;
use crate::names::{self, PodRole};
use crate::progress::JobProgress;
use crate::quantity::mebibytes;

/// How long workers have to end by themselves once the run is over.
const GRACE_PERIOD: Duration = Duration::from_secs(10);
/// How long the last events are waited for once the run is over.
const LAST_EVENTS: Duration = Duration::from_secs(3);
/// How long the platform waits for pods that do not end and for progress that cannot be written.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(60);

pub(super) struct Controller {
    pub(super) job: Job,
    /// The pod of the master.
    pod: String,
    pub(super) api: PodApi,
    pub(super) poller: MasterPoller,
    watcher: EventWatcher,
    reporter: StatusReporter,
    health: Option<Health>,
    metrics: Arc<RunMetrics>,
    pods: Arc<Mutex<PodSet>>,
    ends: Ends,
    pub(super) messages: mpsc::Receiver<MasterMessage>,
    /// Pods of a list that is not complete yet.
    listed: Vec<Pod>,
    ending: Option<(Ending, Instant)>,
    /// Whether the master has answered since its run was over: its last checkpoint is in that answer.
    answered_last: bool,
    /// Ends with the controller, after the ends that it reported.
    _session: PlatformClient,
}

impl Controller {
    pub(super) fn start(
        options: PlatformOptions,
        api: PodApi,
        pods: Vec<Pod>,
    ) -> Result<Self, Error> {
        let PlatformOptions { job, pod, session, poll_every, write_every, health, metrics } =
            options;
        let [worker, server] =
            [PodRole::Worker, PodRole::Ps].map(|role| MemoryLimits::of(&job, role));
        let set = Arc::new(Mutex::new(PodSet::new(&job.name, RoleMemory { worker, server })));
        let (orders, messages) = mpsc::channel(WAITING);
        // Ends of pods that nobody was told of go out with the first message.
        let adopted = lock(&set).adopt(Timestamp::now(), pods);
        let handler = OrderHandler { pods: set.clone(), orders };
        let mut reporter = StatusReporter::new(write_every);
        reporter.take_over(api.before.clone());
        let mut opened = None;
        let client = PlatformClient::open_with(&session, |ends| {
            report(&ends, &adopted);
            opened = Some(ends);
            handler
        })?;
        let mut controller = Self {
            poller: MasterPoller::start(&session, poll_every)?,
            watcher: EventWatcher::start(&session)?,
            reporter,
            job,
            pod,
            api,
            health,
            metrics,
            pods: set,
            ends: opened.unwrap_or_else(|| client.ends()),
            messages,
            listed: Vec::new(),
            ending: None,
            answered_last: false,
            _session: client,
        };
        for action in adopted {
            controller.act(action);
        }
        Ok(controller)
    }

    pub(super) fn pods(&self) -> MutexGuard<'_, PodSet> {
        lock(&self.pods)
    }

    /// Changes the set of pods, and reports ends under the same lock: an inventory never has a pod in neither list.
    fn change(&mut self, change: impl FnOnce(&mut PodSet, Timestamp) -> Vec<PodAction>) {
        let actions = {
            let mut pods = lock(&self.pods);
            let actions = change(&mut pods, Timestamp::now());
            report(&self.ends, &actions);
            actions
        };
        for action in actions {
            self.act(action);
        }
    }

    fn act(&mut self, action: PodAction) {
        match action {
            PodAction::Create { key, memory } => {
                info!(?key, ?memory, "creating a pod");
                let note = memory.map_or_else(
                    || "a pod is created".to_string(),
                    |memory| format!("a pod is created, with {} of memory", mebibytes(memory)),
                );
                self.api.tell_decision(key.slot, "Created", &note);
                self.api.create(&self.job, key, memory);
            }
            PodAction::Delete { name, force } => {
                info!(name, force, "deleting a pod");
                self.api.delete(name, force);
            }
            PodAction::SetMember { name, member } => self.api.set_member(name, member),
            PodAction::Report { key, how } => {
                info!(?key, ?how, "a pod ended");
                self.api.tell_end(key.slot, &how);
            }
        }
    }

    pub(super) fn message(&mut self, message: MasterMessage) {
        match message {
            MasterMessage::Order(Order::Start(slot)) => {
                self.change(|pods, now| pods.start(now, slot))
            }
            MasterMessage::Order(Order::End(slot)) => {
                self.api.tell_decision(slot, "Released", "it is not wanted any more");
                self.change(|pods, _| pods.end(slot));
            }
            MasterMessage::Over(ending) => self.over(ending),
        }
    }

    /// The run is over: so the master said, or answered.
    fn over(&mut self, ending: Ending) {
        if self.ending.is_none() {
            info!(?ending, "the run is over");
            self.pods().over();
            self.ending = Some((ending, Instant::now()));
        }
    }

    pub(super) fn pod_event(&mut self, event: Event<Pod>) {
        match event {
            Event::Apply(pod) => {
                self.read_annotations(&pod);
                if self.api.owns(&pod) {
                    self.change(|pods, now| pods.seen(now, pod));
                }
            }
            Event::Delete(pod) => self.change(|pods, _| pods.deleted(&pod)),
            Event::Init => self.listed.clear(),
            Event::InitApply(pod) => {
                self.read_annotations(&pod);
                self.listed.push(pod);
            }
            Event::InitDone => {
                let mut listed = std::mem::take(&mut self.listed);
                listed.retain(|pod| self.api.owns(pod));
                self.change(|pods, now| pods.relisted(now, listed));
            }
        }
    }

    /// The pod of this master says what people want.
    fn read_annotations(&mut self, pod: &Pod) {
        if pod.name_any() != self.pod {
            return;
        }
        let annotations = pod.annotations();
        let number = |key: &str| annotations.get(key).and_then(|text| text.parse().ok());
        self.reporter.wanted = number(names::WANTED);
        self.reporter.wanted_servers = number(names::WANTED_SERVERS);
        self.reporter.stop = annotations.get(names::STOP).is_some_and(|text| text == "true");
        if pod.metadata.deletion_timestamp.is_some() {
            // The next master starts what is missing; and if the job is deleted, nobody does.
            self.pods().close();
        }
    }

    pub(super) fn outcome(&mut self, outcome: CallOutcome) {
        match outcome {
            CallOutcome::Created(key, answer) => {
                self.change(|pods, now| pods.created(now, key, answer));
            }
            CallOutcome::ProgressWritten(written) => self.reporter.written(written),
        }
    }

    pub(super) fn status(&mut self, status: &Status) {
        if let Some(health) = &self.health {
            health.set_ready(true);
        }
        let members = JobProgress::members(status);
        self.change(|pods, _| pods.members(&members));
        self.metrics.observe_tables(&status.tables());
        let progress = JobProgress::of(status);
        if let Some(ending) = progress.ended() {
            self.over(ending);
            // An answer that was on its way when the end was told is of before it.
            self.answered_last = true;
        }
        for request in self.reporter.requests(&progress) {
            let action = format!("{request:?}");
            self.api.tell(EventType::Normal, &action, request.reason(), &request.to_string());
            self.poller.request(request);
        }
        self.reporter.take(progress);
    }

    /// Tells people what the master has noted.
    fn tell_notes(&self) {
        for note in self.watcher.notes() {
            self.api.tell(note.type_, &note.about, note.reason, &note.text);
        }
    }

    /// Writes how far the run is; the ending, once all is done.
    pub(super) fn tick(&mut self) -> Option<Ending> {
        self.change(|pods, now| pods.tick(now));
        self.tell_notes();
        let facts = {
            let pods = self.pods();
            let (pending, waiting) = pods.waiting();
            PodFacts { pending, waiting, last_crash: pods.last_crash().map(str::to_string) }
        };
        // Before what it told is read: what comes in between is read the next time.
        let told_all = self.watcher.is_over();
        self.reporter.note(self.watcher.milestones());
        match &self.ending {
            // The run's last events are part of its last progress.
            Some((ending, since))
                if (told_all && self.answered_last) || since.elapsed() > LAST_EVENTS =>
            {
                // A master that has left before it was asked again has told its last checkpoint on the way.
                let kept = self.watcher.kept().filter(|_| !self.answered_last);
                self.reporter.over(ending, kept);
            }
            Some(_) => return None,
            None => {}
        }
        if let Some(progress) = self.reporter.due(facts) {
            self.metrics.observe(&progress);
            self.api.write_progress(self.pod.clone(), progress);
        }
        let (ending, since) = self.ending.clone()?;
        if since.elapsed() > GRACE_PERIOD {
            self.change(|pods, _| pods.end_all());
        }
        let done = self.pods().inventory().is_empty() && self.reporter.is_written();
        (done || since.elapsed() > SHUTDOWN_TIMEOUT).then_some(ending)
    }
}
