//! A worker's line to the master: what it asks, signs of life, and word of the end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use salamander_core::elastic::{Beat, Ending, ToMember, Work, WorkerId};
use salamander_core::push::{Ask, Told};
use salamander_net::{Cancel, Keys};
use salamander_proto::client::{Admin, Handler, Session, SessionOptions};
use salamander_proto::v1;

use crate::Error;
use crate::exchange::About;
use crate::worker::{Phases, fresh_id, process_number};

/// How long a call to the master may take,
const CALL: Duration = Duration::from_secs(5);
/// and the wait before it is made again.
const AGAIN: Duration = Duration::from_millis(50);
/// How long a last word may take to be heard.
const FAREWELL: Duration = Duration::from_secs(5);

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
    id: WorkerId,
    session: Session,
    admin: Option<Admin>,
    over: Receiver<Ending>,
    ending: Option<Ending>,
    state: Arc<Mutex<Beat>>,
    since: Instant,
    phases: Phases,
    cancel: Cancel,
}

impl Desk {
    pub(super) fn open(line: Line, about: About, cancel: Cancel) -> Result<Self, Error> {
        let id = fresh_id()?;
        let (said, over) = channel();
        let state = Arc::new(Mutex::new(Beat::default()));
        let voice = Voice {
            id,
            slot: line.slot,
            about,
            said,
            state: Arc::clone(&state),
            cancel: cancel.clone(),
        };
        let mut options = SessionOptions::of(&line.master, &line.keys);
        options.beat_every = line.beat_every;
        let session = Session::open(&options, voice)
            .map_err(|error| Error::Invalid(format!("the master's address: {error}")))?;
        Ok(Self {
            line,
            id,
            session,
            admin: None,
            over,
            ending: None,
            state,
            since: Instant::now(),
            phases: Phases::open(),
            cancel,
        })
    }

    /// Says what this worker does from now on, and how many records it has computed.
    pub(super) fn working(&mut self, work: Work, records: u64) {
        let mut beat = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if beat.work == Work::Computing {
            beat.compute_ms += self.since.elapsed().as_millis() as u64;
        }
        self.since = Instant::now();
        beat.records += records;
        beat.work = work;
        self.phases.note(work);
    }

    /// Whether this worker has nothing to do here any more: the run is over, or it was told to go.
    pub(super) fn is_over(&mut self) -> bool {
        self.wait(Duration::ZERO);
        self.ending.is_some() || self.line.leave.load(Ordering::Relaxed)
    }

    /// Waits, but not past the end.
    pub(super) fn wait(&mut self, longest: Duration) {
        if self.ending.is_none() {
            self.ending = self.over.recv_timeout(longest).ok();
        }
    }

    /// Asks the master, again and again while it is away: it is started again.
    pub(super) fn ask(&mut self, ask: &Ask) -> Result<Told, Error> {
        loop {
            match self.try_ask(ask) {
                Ok(told) => return Ok(told),
                Err(reason) => {
                    tracing::debug!(reason, "the master does not answer");
                    self.admin = None;
                }
            }
            self.wait(AGAIN);
            if self.is_over() {
                return Err(Error::Leaving);
            }
        }
    }

    fn try_ask(&mut self, ask: &Ask) -> Result<Told, String> {
        let admin = match &mut self.admin {
            Some(admin) => admin,
            none => {
                let options = SessionOptions::of(&self.line.master, &self.line.keys);
                let admin = Admin::connect(&options, CALL);
                none.insert(admin.map_err(|error| error.to_string())?)
            }
        };
        admin.names(self.id, ask).map_err(|error| error.to_string())
    }

    /// Ends the session. An error that no other worker can do better about ends the run.
    pub(super) fn close(self, result: Result<(), Error>) -> Result<(), Error> {
        self.cancel.cancel();
        match (&self.ending, result) {
            (Some(Ending::Failed(reason)), _) => Err(Error::Invalid(reason.clone())),
            (Some(_), _) => Ok(()),
            (None, Err(Error::Leaving) | Ok(())) => Err(Error::Leaving),
            (None, Err(error)) => {
                self.session.failed(error.to_string());
                self.session.close(FAREWELL);
                Err(error)
            }
        }
    }
}

/// The session's side.
struct Voice {
    id: WorkerId,
    slot: u32,
    about: About,
    said: Sender<Ending>,
    state: Arc<Mutex<Beat>>,
    cancel: Cancel,
}

impl Handler for Voice {
    fn hello(&mut self) -> v1::Hello {
        v1::Hello {
            peer: Some(v1::Peer { id: self.id.0, endpoint: String::new() }),
            active: None,
            slot: self.slot,
            pid: process_number(),
            records: self.about.records,
            fingerprint: self.about.fingerprint,
            tasks_only: true,
            server: false,
        }
    }

    /// Any master may lease names: what is done twice is applied once.
    fn welcome(&mut self, _epoch: u32) -> Result<(), String> {
        Ok(())
    }

    fn message(&mut self, message: ToMember) {
        if let ToMember::Ended(ending) = message {
            tracing::info!(?ending, "the run is over");
            // Nobody listens when this process is about to end anyway.
            let _ = self.said.send(ending);
            self.cancel.cancel();
        }
    }

    fn beat(&mut self) -> Beat {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refused(&mut self, reason: &str) {
        let _ = self.said.send(Ending::Failed(format!("the master refuses this worker: {reason}")));
    }
}
