//! Asynchronous training: workers lease names of micro-batches, servers get and save their partitions, epochs end. The
//! rules are the dispatcher's and the course's.

mod course;
mod endings;
mod talk;

use std::collections::BTreeMap;

use salamander_core::asynchronous::{
    AsynchronousEntry, DispatchAction, Dispatcher, HangWatch, History, PartitionSource, Process,
    ServerCheckpoint,
};
use salamander_core::course::LeasePlan;
use salamander_core::elastic::{
    Ending, GenerationChain, LeavingServers, MembershipEntry as RunEntry, Millis, RunState,
    TaskQueue, ToMember, Version, WorkerId,
};
use salamander_core::progress::StepCount;
use salamander_core::report::EvaluationPart;
use salamander_core::status::CheckpointStatus;
use salamander_core::words::count;
use salamander_net::Keys;
use tracing::{debug, info};

use super::{Effect, ModeEvent, end, journal, scale};
use course::{HostedCourse, Reports};

use crate::asynchronous::{RowFiles, ServerTask, ServerThreads};
use crate::inbox::MasterHandle;
use crate::record::Record;
use crate::server_calls::{ServerAnswer, ServerCall};

/// Names of micro-batches that are leased until all servers have applied them.
pub(crate) struct Leases {
    pub(crate) run: RunState,
    pub(crate) dispatcher: Dispatcher,
    course: HostedCourse,
    files: RowFiles,
    /// Who is waited for.
    hangs: HangWatch,
    /// Batches of a validation; 0: there is none.
    validation_batches: u64,
    validations: u64,
    validating: Option<Validating>,
    /// The epoch whose names are all done, until the next one begins.
    ended: Option<u64>,
    /// A checkpoint that nothing may be computed before.
    awaited: Option<AwaitedCheckpoint>,
    /// How the run ends when its last checkpoint counts.
    leaving: Option<Leaving>,
    /// Servers that wait for a checkpoint.
    leaving_servers: LeavingServers,
    /// Folders of checkpoints that are being made, one after the other.
    keeping: usize,
    /// The newest version that was reached.
    pub(crate) version: Version,
    /// The newest checkpoint whose folder is there.
    pub(crate) kept: Option<CheckpointStatus>,
    effects: Vec<Effect>,
    /// Does what is to be done about servers.
    pub(crate) threads: ServerThreads,
}

/// A checkpoint that nothing may be computed before.
struct AwaitedCheckpoint {
    /// It was begun after it was wanted.
    asked: bool,
}

/// A run that ends when its last checkpoint counts.
struct Leaving {
    ending: Ending,
    since: Millis,
    saved: bool,
}

/// A validation that is under way.
struct Validating {
    tasks: TaskQueue,
    parts: BTreeMap<u64, EvaluationPart>,
}

impl Leases {
    pub(crate) fn open(
        run: RunState,
        plan: LeasePlan,
        mut history: History,
        keys: Keys,
        handle: MasterHandle,
    ) -> Self {
        let mut settings = plan.settings.clone();
        // One number of servers and one term, whoever counts.
        settings.servers = run.wanted().servers as u32;
        history.term = run.history().term;
        let slices = settings.names.slices();
        let dispatcher = Dispatcher::open(history, settings);
        Self {
            run,
            threads: ServerThreads::new(keys, dispatcher.term(), slices, handle),
            dispatcher,
            files: RowFiles {
                initial: plan.initial.clone(),
                checkpoints: plan.checkpoints.clone(),
            },
            hangs: HangWatch::new(plan.hang),
            validation_batches: plan.validation_batches,
            course: HostedCourse::open(plan),
            validations: 0,
            validating: None,
            ended: None,
            awaited: None,
            leaving: None,
            leaving_servers: LeavingServers::default(),
            keeping: 0,
            version: Version::default(),
            kept: None,
            effects: Vec::new(),
        }
    }

    /// Takes the course up.
    pub(crate) fn begin(&mut self, now: Millis, resumed: bool) -> Vec<Effect> {
        self.effects.push(journal(&self.run, RunEntry::Opened));
        if !self.is_over() {
            // What a killed run was writing is of no use; the checkpoint that counts stays.
            self.sweep();
            let reports = self.course.begin(self.run.wanted().workers as u64);
            if resumed && let Some((steps, _)) = reports.first() {
                // What is told from now on is new to those who watch.
                self.effects.push(Effect::Restored(version_of(*steps)));
            }
            if let Some(last) = self.dispatcher.history().checkpoint {
                // The master before may not have come to it.
                self.keep(&last, true);
            }
            self.report(reports);
        }
        self.settle(now)
    }

    /// Whether the run is about to end.
    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving.is_some()
    }

    pub(crate) fn step(&mut self, now: Millis, event: ModeEvent) -> Vec<Effect> {
        match event {
            ModeEvent::Tick if !self.is_over() => self.tick(now),
            ModeEvent::Beat(id, beat) if !self.is_over() && self.hangs.hangs(now, &beat) => {
                self.release(id);
                self.effects.push(Effect::Replace(id, Some("it hangs")));
            }
            // A worker that is only slow loses nothing: what it pushes is applied once.
            ModeEvent::Silent(id) => self.release(id),
            ModeEvent::Gone(id, _) => {
                self.release(id);
                self.server_lost(id);
            }
            ModeEvent::ServerUp(seat, server) => {
                let process = Process { server: seat, incarnation: server.id.0 };
                let endpoint = server.endpoint.clone();
                self.run.server_up(seat, server);
                self.effects.push(Effect::Server(ServerTask::Meet { process, endpoint }));
            }
            ModeEvent::ServerLeaves(id) => {
                self.leaving_servers.add(id);
                self.ask_for_leaving();
            }
            ModeEvent::Scale(numbers) => {
                self.effects.extend(scale(&mut self.run, numbers));
                if let Some(servers) = numbers.servers {
                    self.dispatcher.resize(servers);
                }
            }
            ModeEvent::Stop => {
                self.effects.push(Effect::Note("an early end was asked for".into()));
                self.leave(now, Ending::Interrupted);
            }
            ModeEvent::End(ending) => self.end(ending),
            ModeEvent::Failed(_, reason) => self.end(Ending::Failed(reason)),
            ModeEvent::Server(process, news) => self.news(now, process, news),
            ModeEvent::Folder(made) => self.folder(now, made),
            ModeEvent::Tick
            | ModeEvent::Joined(_)
            | ModeEvent::Beat(..)
            | ModeEvent::Said(..)
            | ModeEvent::Reported(_)
            | ModeEvent::Disconnected(_)
            | ModeEvent::Lost(_) => {}
        }
        self.settle(now)
    }

    /// Everything that is to be done, with what follows from the dispatcher's orders.
    fn settle(&mut self, now: Millis) -> Vec<Effect> {
        loop {
            let orders = self.dispatcher.take_orders();
            let settled = orders.is_empty();
            orders.into_iter().for_each(|order| self.follow(now, order));
            if settled && !self.proceed(now) {
                return std::mem::take(&mut self.effects);
            }
        }
    }

    fn is_over(&self) -> bool {
        self.run.ending().is_some()
    }

    fn end(&mut self, ending: Ending) {
        self.effects.extend(end(&mut self.run, ending));
    }

    fn tick(&mut self, now: Millis) {
        for worker in self.dispatcher.tick(now) {
            info!(%worker, "a lease is over");
        }
        self.course.tick(now);
        self.version = self.version.max(version_of(self.dispatcher.version()));
        if let Some(awaited) = &mut self.awaited
            && !awaited.asked
        {
            awaited.asked = self.dispatcher.save();
        }
        self.ask_for_leaving();
        self.try_leave(now);
    }

    /// A checkpoint for servers that want to leave is begun when nobody works any more, and nobody is given work until
    /// they have left: so it has all that was done.
    fn ask_for_leaving(&mut self) {
        let dispatcher = &mut self.dispatcher;
        self.leaving_servers.ask(|| dispatcher.is_idle() && dispatcher.save());
    }

    /// A worker will not report any more.
    fn release(&mut self, worker: WorkerId) {
        self.hangs.forget();
        let back = self.dispatcher.release(worker);
        if back > 0 {
            info!(%worker, leases = back, "names are for others");
        }
        if let Some(validating) = &mut self.validating {
            validating.tasks.release(worker);
        }
    }

    /// A process has ended, which may have been a server.
    fn server_lost(&mut self, id: WorkerId) {
        self.leaving_servers.remove(id);
        let seat = self.run.servers().find(|(_, server)| server.id == id).map(|(seat, _)| seat);
        let Some(server) = seat else { return };
        self.run.server_lost(id);
        let process = Process { server, incarnation: id.0 };
        self.effects.push(Effect::Server(ServerTask::Forget(process)));
        self.dispatcher.server_lost(process);
        // What is validated is not what it was, and names may have to be done again: the dispatcher tells the epoch's
        // end once more. It does not for a server that has no partitions.
        if server < self.dispatcher.map().servers {
            (self.validating, self.ended) = (None, None);
        }
    }

    /// A server has answered. Words of a process that has ended are of no use.
    fn news(&mut self, now: Millis, process: Process, news: ServerAnswer) {
        let is_seated = |(seat, server): (u32, &salamander_core::elastic::Peer)| {
            (seat, server.id.0) == (process.server, process.incarnation)
        };
        if !self.run.servers().any(is_seated) {
            return;
        }
        match news {
            ServerAnswer::State(state) => self.dispatcher.server_up(process.server, state),
            ServerAnswer::Saved(id) => self.dispatcher.saved(process, id),
            ServerAnswer::Fallback(text) => {
                let text = format!("parameter server {}: {text}", process.server);
                self.effects.push(Effect::Note(text.into()));
            }
            ServerAnswer::Trouble => self.tell(process, ServerCall::Look),
        }
        self.try_leave(now);
    }

    fn tell(&mut self, process: Process, call: ServerCall) {
        self.effects.push(Effect::Server(ServerTask::Tell { process, call }));
    }

    fn follow(&mut self, now: Millis, order: DispatchAction) {
        if let DispatchAction::Journal(entry) = &order {
            let term = self.dispatcher.term();
            self.effects.push(Effect::Journal(Record::MicroBatches { term, entry: entry.clone() }));
        }
        if self.is_over() {
            return;
        }
        match order {
            DispatchAction::Journal(entry) => self.entered(&entry),
            DispatchAction::Place { to, placement, checkpoint, older } => {
                let checkpoints: Vec<ServerCheckpoint> =
                    checkpoint.into_iter().chain(older).collect();
                let reset = self.files.placing(to, placement, &checkpoints, self.run.servers());
                self.tell(to, ServerCall::Place { map: placement.map.number, reset });
            }
            DispatchAction::Settled { to, map } => self.tell(to, ServerCall::Release { map }),
            DispatchAction::Save { to, id, map } => {
                let path = self.files.file(id, to.server, self.dispatcher.map().servers);
                self.tell(to, ServerCall::Save { map, id, path });
            }
            DispatchAction::Prune { to, map, below } => {
                self.tell(to, ServerCall::Prune { map, below })
            }
            DispatchAction::Dismiss { to, reason } => {
                let text = format!("parameter server {} dismissed: {reason}", to.server);
                let replace = Effect::Replace(WorkerId(to.incarnation), None);
                self.effects.extend([Effect::Note(text.into()), replace]);
            }
            DispatchAction::Validate { epoch } => {
                self.ended = Some(epoch);
                let reports = self.course.epoch_done(now, epoch);
                self.report(reports);
            }
            DispatchAction::End(ending) => {
                // Everything that was done is in a checkpoint, whose folder is being made.
                let leaving =
                    self.leaving.get_or_insert(Leaving { ending, since: now, saved: false });
                leaving.saved = true;
                self.try_leave(now);
            }
        }
    }

    fn entered(&mut self, entry: &AsynchronousEntry) {
        match entry {
            AsynchronousEntry::Kept(checkpoint) => {
                let free = self.leaving_servers.release().into_iter();
                self.effects.extend(free.map(|id| Effect::Send(id, ToMember::Stop)));
                let is_due = self.awaited.take_if(|awaited| awaited.asked).is_some();
                self.keep(checkpoint, is_due || self.leaving.is_some());
                if is_due {
                    self.course.saved();
                }
            }
            AsynchronousEntry::Placed(placement) => {
                let (number, servers) = (placement.map.number, placement.map.servers);
                let moves = matches!(placement.source, PartitionSource::Servers(_));
                debug!(%number, servers, moves, "a map is in force");
                if moves {
                    let servers = count(servers.into(), "parameter server");
                    let text = format!("partitions move to {servers}");
                    self.effects.push(Effect::Note(text.into()));
                }
            }
            AsynchronousEntry::Finished(_)
            | AsynchronousEntry::Opened
            | AsynchronousEntry::Stopping
            | AsynchronousEntry::Resumed => {}
        }
    }

    /// Has reports told.
    fn report(&mut self, reports: Reports) {
        let line = GenerationChain::default();
        for (steps, report) in reports {
            let version = version_of(steps);
            self.effects.push(Effect::Report { line, version, report });
        }
    }
}

/// There are no exchanges here: steps alone make a version.
fn version_of(StepCount(steps): StepCount) -> Version {
    Version(steps)
}
