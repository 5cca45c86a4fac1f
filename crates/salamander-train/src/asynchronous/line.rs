//! A worker's line to the master: what it asks, signs of life, and word of the end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use salamander_core::elastic::{Ending, Work};
use salamander_core::push::{Ask, Told};
use salamander_net::{Cancel, Keys};
use salamander_proto::client::{NonMember, Registration, Role, RunEnd, SessionOptions, TrainedOn};

use crate::Error;
use crate::exchange::About;
use crate::worker::{fresh_id, process_number};

/// How a worker takes part in asynchronous training.
#[derive(Clone, Debug)]
pub struct Line {
    /// The master's address, `host:port`.
    pub master: String,
    /// The run's secrets.
    pub keys: Keys,
    /// The platform's place for this process.
    pub slot: u32,
    /// bf16 on the wire.
    pub bf16: bool,
    /// How often the master hears from this worker.
    pub beat_every: Duration,
    /// Set from outside when this worker has to go.
    pub leave: Arc<AtomicBool>,
}

/// The line when it is open.
pub(super) struct Desk {
    line: Line,
    session: NonMember,
    cancel: Cancel,
}

impl Desk {
    pub(super) fn open(line: Line, about: About, cancel: Cancel) -> Result<Self, Error> {
        let About { records, fingerprint } = about;
        let registration = Registration {
            id: fresh_id()?,
            endpoint: String::new(),
            slot: line.slot,
            process: process_number(),
            role: Role::Tasks(TrainedOn { records, fingerprint }),
        };
        let mut options = SessionOptions::of(&line.master, &line.keys);
        options.beat_every = line.beat_every;
        let session = NonMember::open(&options, registration, cancel.clone())
            .map_err(|error| Error::Invalid(format!("the master's address: {error}")))?;
        Ok(Self { line, session, cancel })
    }

    /// Says what this worker does from now on, and how many records it has computed.
    pub(super) fn working(&mut self, work: Work, records: u64) {
        self.session.working(work, records);
    }

    /// Whether this worker has nothing to do here any more: the run is over, or it was told to go.
    pub(super) fn is_over(&mut self) -> bool {
        self.session.end().is_some() || self.line.leave.load(Ordering::Relaxed)
    }

    /// Waits, but not past the end.
    pub(super) fn wait(&mut self, longest: Duration) {
        self.session.wait(longest);
    }

    /// Asks the master, again and again while it is away: it is started again.
    pub(super) fn ask(&mut self, ask: &Ask) -> Result<Told, Error> {
        let leave = &self.line.leave;
        let leaves = || leave.load(Ordering::Relaxed);
        let told = self.session.call(Duration::MAX, leaves, |admin, id| admin.names(id, ask));
        told.map_err(|_| Error::Leaving)
    }

    /// Ends the session. An error that no other worker can do better about ends the run.
    pub(super) fn close(self, result: Result<(), Error>) -> Result<(), Error> {
        self.cancel.cancel();
        match (self.session.end(), result) {
            (Some(RunEnd::Over(Ending::Failed(reason))), _) => Err(Error::Invalid(reason)),
            (Some(RunEnd::Refused(reason)), _) => {
                Err(Error::Invalid(format!("the master refuses this worker: {reason}")))
            }
            (Some(RunEnd::Over(_)), _) => Ok(()),
            (None, Err(Error::Leaving) | Ok(())) => Err(Error::Leaving),
            (None, Err(error)) => {
                self.session.failed(error.to_string());
                Err(error)
            }
        }
    }
}
