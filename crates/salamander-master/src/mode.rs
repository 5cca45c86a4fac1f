//! How a run gives its work out. A mode is told what happens ([`ModeEvent`]) and answers with what is to be done
//! ([`Effect`]): it waits for nothing, and what it wants on disk is there before anything else of the answer is done.

mod leases;
mod members;
mod tasks;

use std::collections::BTreeSet;

use salamander_core::asynchronous::Process;
use salamander_core::elastic::{
    Beat, Ending, FromMember, GenerationChain, Hello, MemberReport, MembershipEntry, Millis, Peer,
    RunState, ToMember, Version, WorkerId,
};
use salamander_core::note::Note;
use salamander_core::report::{Report, TaskResult};
use salamander_proto::v1::ScaleRequest;

pub(crate) use leases::Leases;
pub(crate) use members::Members;
pub(crate) use tasks::Tasks;

use crate::asynchronous::ServerTask;
use crate::record::Record;
use crate::server_calls::ServerAnswer;

/// How work is given out.
pub(crate) enum Mode {
    /// Workers are members of generations and train in step.
    Members(Box<Members>),
    /// Workers lease names of micro-batches and push to parameter servers.
    Leases(Box<Leases>),
    /// Workers lease ranges of records, of which each counts once.
    Tasks(Box<Tasks>),
}

/// Something that happens to a run.
#[derive(Debug)]
pub(crate) enum ModeEvent {
    /// Time has passed.
    Tick,
    /// A worker that may be a member has connected.
    Joined(Hello),
    /// A worker lives.
    Beat(WorkerId, Beat),
    /// A member says something.
    Said(WorkerId, FromMember),
    /// A member tells what was measured.
    Reported(Box<MemberReport<Report>>),
    /// A worker's data or model is wrong, it says.
    Failed(WorkerId, String),
    /// A worker's connection has ended.
    Disconnected(WorkerId),
    /// A worker was not heard of for a while,
    Silent(WorkerId),
    /// and has no connection either.
    Lost(WorkerId),
    /// A process has ended, for this reason.
    Gone(WorkerId, &'static str),
    /// A parameter server is ready to take its seat.
    ServerUp(u32, Peer),
    /// A parameter server wants to leave.
    ServerLeaves(WorkerId),
    /// Other numbers of processes are wanted than now.
    Scale(ScaleRequest),
    /// An early end is wanted.
    Stop,
    /// The run is over.
    End(Ending),
    /// A parameter server has answered.
    Server(Process, ServerAnswer),
    /// The folder of a checkpoint is made, or why not.
    Folder(Result<String, String>),
}

/// Something that is to be done.
pub(crate) enum Effect {
    /// Write down, before anything else.
    Journal(Record),
    /// Tell a worker.
    Send(WorkerId, ToMember),
    /// Tell people.
    Note(Note),
    /// Tell people what was measured, unless it was told.
    Report { line: GenerationChain, version: Version, report: Report },
    /// What comes after a version is told anew, where no line says so.
    Restored(Version),
    /// A task has this result.
    Result { task: u64, result: TaskResult },
    /// A checkpoint counts.
    Kept(String),
    /// Work goes on: crashes before were not in a row.
    Progressed,
    /// End a process, so that another takes its place.
    Replace(WorkerId, Option<&'static str>),
    /// Have something done about parameter servers.
    Server(ServerTask),
}

impl Mode {
    /// Takes in what happens and says what is to be done.
    pub(crate) fn step(&mut self, now: Millis, event: ModeEvent) -> Vec<Effect> {
        match self {
            Mode::Members(members) => members.step(now, event),
            Mode::Leases(leases) => leases.step(now, event),
            Mode::Tasks(tasks) => tasks.step(now, event),
        }
    }

    /// What does not depend on the mode.
    pub(crate) fn run(&self) -> &RunState {
        match self {
            Mode::Members(members) => members.coordinator.run(),
            Mode::Leases(leases) => &leases.run,
            Mode::Tasks(tasks) => &tasks.run,
        }
    }

    /// How many parameter servers have to run. Those that are not wanted any more give their rows away first.
    pub(crate) fn needed_servers(&self) -> usize {
        match self {
            Mode::Members(members) => members.coordinator.needed_servers(),
            Mode::Leases(leases) => leases.dispatcher.needed_servers() as usize,
            Mode::Tasks(tasks) => tasks.run.wanted().servers,
        }
    }

    /// How many workers are enough to go on.
    pub(crate) fn least_workers(&self) -> usize {
        match self {
            Mode::Members(members) => members.coordinator.least(),
            Mode::Leases(_) | Mode::Tasks(_) => 1,
        }
    }

    /// Parameter servers that are not needed are told to end now.
    pub(crate) fn forget_superfluous_servers(&mut self) {
        if let Mode::Members(members) = self {
            members.coordinator.forget_superfluous_servers();
        }
    }

    /// The slots of workers that must not be ended because fewer are wanted: what they hold is handed over first.
    /// None: that is not known yet.
    pub(crate) fn needed_slots(&self) -> Option<BTreeSet<u32>> {
        match self {
            Mode::Members(members) => members.coordinator.needed_slots(),
            Mode::Leases(_) | Mode::Tasks(_) => Some(BTreeSet::new()),
        }
    }
}

/// An entry of the run, by the master of this term.
fn journal(run: &RunState, entry: MembershipEntry) -> Effect {
    Effect::Journal(Record::Entry { term: run.term(), entry })
}

/// What scaling writes where nothing else depends on it.
fn scale(run: &mut RunState, wanted: ScaleRequest) -> Vec<Effect> {
    let workers = wanted.workers.map(|workers| run.scale(workers as usize));
    let servers = wanted.servers.map(|servers| run.scale_servers(servers as usize));
    workers.into_iter().chain(servers).map(|entry| journal(run, entry)).collect()
}

/// What the end of a run writes, if it is not over yet.
fn end(run: &mut RunState, ending: Ending) -> Option<Effect> {
    run.end(ending).map(|entry| journal(run, entry))
}
