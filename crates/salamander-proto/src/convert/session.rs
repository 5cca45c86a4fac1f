//! What travels in a worker's session.

use salamander_core::elastic;
use salamander_core::report::Report;

use super::{Error, generation, need};
use crate::v1;
use crate::v1::{master_message, worker_message};

/// What a worker says.
#[derive(Clone, Debug, PartialEq)]
pub enum FromWorker {
    /// Its first words.
    Hello(v1::Hello),
    /// A sign of life.
    Beat(elastic::Beat),
    /// As a member.
    Member(elastic::FromMember),
    /// For people and files, about a version.
    Report {
        /// The version.
        version: u64,
        /// The report.
        report: Box<Report>,
    },
    /// The run cannot go on.
    Failed(String),
}

/// What the master says to a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromMaster {
    /// Its first words, with its term.
    Welcome(elastic::Term),
    /// To a member.
    Member(elastic::ToMember),
    /// What was sent up to this number has been acted on.
    Received(u64),
}

impl From<elastic::ToMember> for v1::MasterMessage {
    fn from(message: elastic::ToMember) -> Self {
        use master_message::Message as M;
        let message = match message {
            elastic::ToMember::Prepare(generation) => M::Prepare(generation.to_u64()),
            elastic::ToMember::Activate(activation) => M::Activate(activation.into()),
            elastic::ToMember::Kept(mark) => M::Kept(mark.into()),
            elastic::ToMember::Stop => M::Stop(v1::StopOrder {}),
            elastic::ToMember::Ended(ending) => M::Ended(ending.into()),
        };
        Self { message: Some(message) }
    }
}

impl TryFrom<v1::MasterMessage> for FromMaster {
    type Error = Error;

    fn try_from(message: v1::MasterMessage) -> Result<Self, Error> {
        use master_message::Message as M;
        Ok(match need(message.message, "MasterMessage", "message")? {
            M::Welcome(welcome) => Self::Welcome(elastic::Term(welcome.term)),
            M::Received(number) => Self::Received(number),
            M::Prepare(number) => Self::Member(elastic::ToMember::Prepare(generation(number))),
            M::Activate(begin) => Self::Member(elastic::ToMember::Activate(begin.try_into()?)),
            M::Kept(mark) => Self::Member(elastic::ToMember::Kept(mark.into())),
            M::Stop(v1::StopOrder {}) => Self::Member(elastic::ToMember::Stop),
            M::Ended(ending) => Self::Member(elastic::ToMember::Ended(ending.try_into()?)),
        })
    }
}

impl From<elastic::FromMember> for worker_message::Message {
    fn from(message: elastic::FromMember) -> Self {
        match message {
            elastic::FromMember::Promise(generation, holding) => Self::Promise(v1::Promise {
                generation: generation.to_u64(),
                holding: Some(holding.into()),
            }),
            elastic::FromMember::Confirmed(generation) => Self::Confirmed(generation.to_u64()),
            elastic::FromMember::Broken(generation, accused) => Self::Broken(v1::Broken {
                generation: generation.to_u64(),
                accused: accused.map(|id| id.0),
            }),
            elastic::FromMember::Wrote(mark) => Self::Wrote(mark.into()),
            elastic::FromMember::Reached(generation, ending) => Self::Reached(v1::Reached {
                generation: generation.to_u64(),
                ending: Some(ending.into()),
            }),
            elastic::FromMember::Moved(generation) => Self::Moved(generation.to_u64()),
            elastic::FromMember::Leave => Self::Leave(v1::Leave {}),
        }
    }
}

impl TryFrom<v1::WorkerMessage> for FromWorker {
    type Error = Error;

    fn try_from(message: v1::WorkerMessage) -> Result<Self, Error> {
        use worker_message::Message as M;
        Ok(match need(message.message, "WorkerMessage", "message")? {
            M::Hello(hello) => Self::Hello(hello),
            M::Beat(beat) => Self::Beat(beat.try_into()?),
            M::Report(report) => {
                let version = report.version;
                Self::Report { version, report: Box::new(report.try_into()?) }
            }
            M::Failed(reason) => Self::Failed(reason),
            M::Promise(promise) => {
                let holding = need(promise.holding, "Promise", "holding")?.into();
                Self::Member(elastic::FromMember::Promise(generation(promise.generation), holding))
            }
            M::Confirmed(number) => {
                Self::Member(elastic::FromMember::Confirmed(generation(number)))
            }
            M::Broken(broken) => Self::Member(elastic::FromMember::Broken(
                generation(broken.generation),
                broken.accused.map(elastic::WorkerId),
            )),
            M::Wrote(mark) => Self::Member(elastic::FromMember::Wrote(mark.into())),
            M::Reached(reached) => {
                let ending = need(reached.ending, "Reached", "ending")?.try_into()?;
                Self::Member(elastic::FromMember::Reached(generation(reached.generation), ending))
            }
            M::Moved(number) => Self::Member(elastic::FromMember::Moved(generation(number))),
            M::Leave(v1::Leave {}) => Self::Member(elastic::FromMember::Leave),
        })
    }
}
