//! A worker's session with the master: what it asks, heartbeats, and word of the end.

use std::time::Duration;

use salamander_core::asynchronous::{LeaseAnswer, LeaseAsk};
use salamander_core::elastic::Ending;
use salamander_net::Cancel;
use salamander_proto::client::{NonMember, Role, RunEnd};

use crate::Error;
use crate::exchange::TrainedOn;
use crate::worker::{WorkerConnection, fresh_id};

/// The session.
pub(super) struct LeaseSession {
    connection: WorkerConnection,
    pub(super) session: NonMember,
    cancel: Cancel,
}

impl LeaseSession {
    pub(super) fn open(
        connection: WorkerConnection,
        data: TrainedOn,
        cancel: Cancel,
    ) -> Result<Self, Error> {
        let registration = connection.registration(fresh_id()?, String::new(), Role::Tasks(data));
        let session = NonMember::open(&connection.session(), registration, cancel.clone())
            .map_err(|error| Error::Invalid(format!("the master's address: {error}")))?;
        Ok(Self { connection, session, cancel })
    }

    /// Whether this worker has nothing to do here any more: the run is over, or it was told to go.
    pub(super) fn is_over(&mut self) -> bool {
        self.session.end().is_some() || self.connection.has_to_leave()
    }

    /// Gives a lease back, and leaves servers some time.
    pub(super) fn give_back(&mut self, fence: u64) -> Result<(), Error> {
        self.ask(&LeaseAsk::GiveBack { fence })?;
        self.session.wait(Duration::from_millis(20));
        Ok(())
    }

    /// Asks the master, again and again while it is away: it is started again.
    pub(super) fn ask(&mut self, ask: &LeaseAsk) -> Result<LeaseAnswer, Error> {
        let leaves = || self.connection.has_to_leave();
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
            (Some(RunEnd::Released), _) | (None, Err(Error::Leaving) | Ok(())) => {
                Err(Error::Leaving)
            }
            (None, Err(error)) => {
                self.session.failed(error.to_string());
                Err(error)
            }
        }
    }
}
