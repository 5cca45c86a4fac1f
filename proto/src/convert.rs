//! Between generated messages, in which anything can be missing, and the types of the state machines, in which
//! nothing can.
//!
//! # Layout
//! - `table`: which type is which message
//! - `wire`: how the table's lines become code
//! - `report`: what has no line in the table

mod report;
mod table;
mod wire;

use salamander_core::asynchronous::LeaseAsk;
use salamander_core::elastic::{
    Beat, Ended, FromMember, Generation, Order, Term, ToMember, Version, WorkerId,
};
use salamander_core::report::{Report, TaskResult};
use salamander_core::status::TableStats;

use crate::client::Registration;
use crate::v1;

/// A message that cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A field that must be there is not.
    #[error("message {message}: field \"{field}\" is missing")]
    Missing {
        /// The message.
        message: &'static str,
        /// The field.
        field: &'static str,
    },
    /// A field has a value that means nothing.
    #[error("message {message}: field \"{field}\" cannot be {value}")]
    Value {
        /// The message.
        message: &'static str,
        /// The field.
        field: &'static str,
        /// Its value.
        value: i64,
    },
    /// The progress of a run that has ended is not what this program knows.
    #[error("message End: field \"progress\": {0}")]
    Progress(String),
}

/// What a process says in its session.
#[derive(Clone, Debug, PartialEq)]
pub enum FromProcess {
    /// The first words of a worker or a parameter server.
    Hello(Hello),
    /// The first words of a platform.
    Inventory(Inventory),
    /// A heartbeat.
    Beat(Beat),
    /// As a member.
    Member(FromMember),
    /// For people and files, about a version.
    Report {
        /// The version.
        version: Version,
        /// The generation that came by it.
        generation: Generation,
        /// The report.
        report: Box<Report>,
    },
    /// The run cannot go on.
    Failed(String),
    /// A process of the platform has ended.
    End(ProcessEnd),
    /// What the tables of a parameter server hold.
    Tables(TableReport),
}

/// What a process says, with its number if it must not be lost.
#[derive(Clone, Debug, PartialEq)]
pub struct Numbered {
    /// 0: it may be lost.
    pub number: u64,
    /// What it says.
    pub said: FromProcess,
}

impl From<FromProcess> for v1::ProcessMessage {
    fn from(said: FromProcess) -> Self {
        Numbered { number: 0, said }.into()
    }
}

/// What the master says to a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromMaster {
    /// Its first words, with its term.
    Welcome(Term),
    /// What was sent up to this number has been acted on.
    Received(u64),
    /// To a member; the end of the run is for all.
    Member(ToMember),
    /// To the platform.
    Order(Order),
}

/// The first words of a worker or a parameter server, at each connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Who it is.
    pub registration: Registration,
    /// The generation that it takes part in now.
    pub active: Option<Generation>,
}

/// The first words of a platform: a slot that is in neither list is free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inventory {
    /// What runs.
    pub running: Vec<v1::Process>,
    /// Ends that no master has received yet.
    pub ended: Vec<ProcessEnd>,
}

/// The end of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessEnd {
    /// The same when it is told again; slot and process may be those of an earlier one.
    pub id: u64,
    /// The slot that it was in.
    pub slot: u32,
    /// The process.
    pub pid: u32,
    /// How it ended.
    pub how: Ended,
}

/// What the tables of a parameter server hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableReport {
    /// Its tables.
    pub tables: Vec<TableStats>,
}

/// What came of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Who had it.
    pub worker: WorkerId,
    /// The task.
    pub task: u64,
    /// Which lease of it.
    pub fence: u64,
    /// The result, or why there is none.
    pub outcome: Result<TaskResult, String>,
}

/// What a worker of asynchronous training says.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerLeaseAsk {
    /// Who.
    pub worker: WorkerId,
    /// What.
    pub ask: LeaseAsk,
}

#[cfg(test)]
mod report_tests;
#[cfg(test)]
mod tests;
