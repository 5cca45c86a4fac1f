//! A worker's session with the master.

use std::sync::Arc;
use std::time::Duration;

use prost::Message as _;
use salamander_core::elastic::{
    Beat, FromMember, Generation, MemberReport, Term, ToMember, WorkerId,
};
use salamander_core::report::Report;
use salamander_core::status::TableStats;
use serde::{Deserialize, Serialize};
use tracing::warn;

use super::link::{Link, Side};
use super::outbox::{Matters, Outbox};
use super::{Error, SessionOptions};
use crate::convert::{FromMaster, FromProcess, Hello, TableReport};
use crate::{limits, v1};

/// Who opens a session: what it says of itself at each connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// Who.
    pub id: WorkerId,
    /// Where others reach it; empty: they need not.
    pub endpoint: String,
    /// The platform's place for the process.
    pub slot: u32,
    /// The number that the platform knows the process by.
    pub process: u32,
    /// What it does in the run.
    pub role: Role,
}

/// What a process does in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It takes part in generations.
    Member(TrainedOn),
    /// It leases tasks, or names of micro-batches.
    Tasks(TrainedOn),
    /// It is a parameter server.
    Server,
}

/// What a worker trains on: all workers of a run must see the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrainedOn {
    /// Records of an epoch.
    pub records: u64,
    /// A hash over the experiment and the sizes of its data.
    pub fingerprint: u64,
    /// A hash of the instruction set that it computes with. This and the next ones are 0 where equal bits are not asked
    /// for.
    #[serde(default)]
    pub instructions: u64,
    /// A hash of the shape of its caches, which products are cut by.
    #[serde(default)]
    pub blocking: u64,
    /// A hash of its program.
    #[serde(default)]
    pub program: u64,
    /// A hash of the bits of a probe product.
    #[serde(default)]
    pub probe: u64,
    /// A hash of the settings in force that decide about the result. This and the next ones are 0 where they are not
    /// compared.
    #[serde(default)]
    pub settings: u64,
    /// A hash of its optimizers, with schedule and clipping.
    #[serde(default)]
    pub optimizer: u64,
    /// A hash of the list of its files: names, sizes, and some of their records.
    #[serde(default)]
    pub files: u64,
    /// A hash of the release of its program.
    #[serde(default)]
    pub release: u64,
}

impl TrainedOn {
    /// In what it differs from another one, so that it would train another model.
    pub fn other_training(&self, other: &Self) -> Option<&'static str> {
        first_difference([
            ("experiment", self.settings, other.settings),
            ("optimizer", self.optimizer, other.optimizer),
            ("list of data files", self.files, other.files),
            ("release of the program", self.release, other.release),
        ])
    }

    /// In what its arithmetic differs from another one's, so that its sums would have other bits.
    pub fn other_arithmetic(&self, other: &Self) -> Option<&'static str> {
        first_difference([
            ("program", self.program, other.program),
            ("instruction set", self.instructions, other.instructions),
            ("shape of caches", self.blocking, other.blocking),
            ("result of a probe product", self.probe, other.probe),
        ])
    }
}

/// The first part that two processes know and that is not the same.
fn first_difference(parts: [(&'static str, u64, u64); 4]) -> Option<&'static str> {
    let differs = |own: u64, theirs: u64| own != 0 && theirs != 0 && own != theirs;
    parts.into_iter().find(|(_, own, theirs)| differs(*own, *theirs)).map(|(name, ..)| name)
}

/// What a worker does with its session. All is called on the session's thread and must be quick: heartbeats wait
/// for it.
pub trait Handler: Send + 'static {
    /// The generation that it takes part in.
    fn active(&mut self) -> Option<Generation> {
        None
    }
    /// A master introduces itself. The error says that it is an old one: the session leaves it and tries again.
    fn welcome(&mut self, _term: Term) -> Result<(), String> {
        Ok(())
    }
    /// The master says something.
    fn message(&mut self, message: ToMember);
    /// Asked for at the session's pace.
    fn beat(&mut self) -> Beat {
        Beat::default()
    }
    /// The connection is there, or gone.
    fn connection(&mut self, _up: bool) {}
    /// The master refuses this worker: a wrong token, for example. The session tries on; told once per reason.
    fn refused(&mut self, _reason: &str) {}
}

/// A worker's session. It connects again for as long as it lives; dropping it ends it at once.
#[derive(Debug)]
pub struct Session {
    link: Link,
}

/// Sends over a session, from any thread; never waits.
#[derive(Clone, Debug)]
pub struct Sender(Arc<Outbox>);

impl Session {
    /// Opens a session. The master need not be there yet.
    pub fn open(
        options: &SessionOptions,
        registration: Registration,
        handler: impl Handler,
    ) -> Result<Self, Error> {
        Self::open_with(options, registration, |_| handler)
    }

    /// Opens a session whose handler answers by itself.
    pub fn open_with<H: Handler>(
        options: &SessionOptions,
        registration: Registration,
        make: impl FnOnce(Sender) -> H,
    ) -> Result<Self, Error> {
        let outbox = Arc::new(Outbox::default());
        let worker = WorkerSide { registration, handler: make(Sender(outbox.clone())) };
        Ok(Self { link: Link::open(options, outbox, worker)? })
    }

    /// To send from other threads.
    pub fn sender(&self) -> Sender {
        Sender(self.link.outbox.clone())
    }

    /// See [`Sender::send`].
    pub fn send(&self, message: FromMember) {
        self.sender().send(message);
    }

    /// See [`Sender::failed`].
    pub fn failed(&self, reason: String) {
        self.sender().failed(reason);
    }

    /// Ends the session, after at most this time for what must be received; false if something was not.
    pub fn close(self, flush: Duration) -> bool {
        self.link.close(flush)
    }
}

impl Sender {
    /// Sends as a member. All but promises are sent again, also to another master, until they were received;
    /// a promise is asked for again when a connection breaks, and each master hears who wants to leave and who waits
    /// for that.
    pub fn send(&self, message: FromMember) {
        let matters = match message {
            FromMember::Promise(..) | FromMember::Busy(_) => Matters::Now,
            FromMember::Leave | FromMember::Holds(_) => Matters::ToEach,
            _ => Matters::Always,
        };
        self.0.push(matters, FromProcess::Member(message).into());
    }

    /// Sends something for people and files. The master takes each (version, [`Report::part`]) once, in growing
    /// order.
    pub fn report(&self, told: MemberReport<Report>) {
        let MemberReport { version, generation, report } = told;
        let report = Box::new(report);
        let said = FromProcess::Report { version, generation, report };
        let message = v1::ProcessMessage::from(said);
        let bytes = message.encoded_len();
        if bytes > limits::REPORT {
            warn!(%version, bytes, "a report is too long and was left out");
            return;
        }
        self.0.push(Matters::Long, message);
    }

    /// What the tables of a parameter server hold. It need not be received: the next one says more.
    pub fn tables(&self, tables: Vec<TableStats>) {
        self.0.push(Matters::Now, FromProcess::Tables(TableReport { tables }).into());
    }

    /// The worker's own data or model is wrong: the run ends with this reason.
    pub fn failed(&self, mut reason: String) {
        let longest = reason.floor_char_boundary(limits::REPORT);
        reason.truncate(longest);
        self.0.push(Matters::Always, FromProcess::Failed(reason).into());
    }
}

struct WorkerSide<H> {
    registration: Registration,
    handler: H,
}

impl<H: Handler> Side for WorkerSide<H> {
    fn first(&mut self) -> FromProcess {
        let (registration, active) = (self.registration.clone(), self.handler.active());
        FromProcess::Hello(Hello { registration, active })
    }

    fn welcome(&mut self, term: Term) -> Result<(), String> {
        self.handler.welcome(term)
    }

    fn take(&mut self, message: FromMaster) {
        if let FromMaster::Member(message) = message {
            self.handler.message(message);
        }
    }

    fn beat(&mut self) -> Option<Beat> {
        Some(self.handler.beat())
    }

    fn connection(&mut self, up: bool) {
        self.handler.connection(up);
    }

    fn refused(&mut self, reason: &str) {
        self.handler.refused(reason);
    }
}
