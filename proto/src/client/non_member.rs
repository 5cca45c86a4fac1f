//! The session of a process that takes no part in generations: it gives heartbeats, makes calls, and hears of the end.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use salamander_core::elastic::{Activity, Beat, Ending, Millis, ToMember, Work, WorkerId};
use salamander_net::{Backoff, Cancel};

use super::{Admin, Error, Handler, Registration, Sender, Session, SessionOptions};

/// How long a call to the master may take,
const CALL: Duration = Duration::from_secs(5);
/// and the wait before it is made again.
const AGAIN: Duration = Duration::from_millis(50);
/// How long a last word may take to be heard.
const FAREWELL: Duration = Duration::from_secs(5);

/// The session of a parameter server, or of a worker of tasks. Any master may lead such a process: what it does twice
/// counts once.
#[derive(Debug)]
pub struct NonMember {
    options: SessionOptions,
    id: WorkerId,
    session: Session,
    admin: Option<Admin>,
    shared: Arc<SessionState>,
}

/// Why there is nothing left to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// The run is over.
    Over(Ending),
    /// The master refuses this process, for this reason.
    Refused(String),
    /// This process wanted to leave, and may.
    Released,
}

/// Why a call has no answer.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The run is over, or the caller wanted to wait no longer.
    #[error("the run is over")]
    Over,
    /// The master did not answer for as long as it was tried.
    #[error("cannot reach the master: {0}")]
    Unanswered(Error),
}

#[derive(Debug)]
struct SessionState {
    state: Mutex<SessionStanding>,
    ended: Condvar,
    started: Instant,
}

#[derive(Debug, Default)]
struct SessionStanding {
    end: Option<RunEnd>,
    activity: Activity,
}

impl NonMember {
    /// Opens the session. `cancel` is cancelled when there is nothing left to do.
    pub fn open(
        options: &SessionOptions,
        registration: Registration,
        cancel: Cancel,
    ) -> Result<Self, Error> {
        let (state, ended) = (Mutex::default(), Condvar::new());
        let shared = Arc::new(SessionState { state, ended, started: Instant::now() });
        let (id, options) = (registration.id, options.clone());
        let listener = OrderListener { shared: Arc::clone(&shared), cancel };
        let session = Session::open(&options, registration, listener)?;
        Ok(Self { options, id, session, admin: None, shared })
    }

    /// Why there is nothing left to do, if that is so.
    pub fn end(&self) -> Option<RunEnd> {
        self.shared.lock().end.clone()
    }

    /// To send from other threads.
    pub fn sender(&self) -> Sender {
        self.session.sender()
    }

    /// Waits, but not past the end.
    pub fn wait(&self, longest: Duration) {
        let state = self.shared.lock();
        // Woken for nothing or too late: the caller looks by itself.
        drop(self.shared.ended.wait_timeout_while(state, longest, |state| state.end.is_none()));
    }

    /// What this process does from now on, and how many records it has computed since it last said so.
    pub fn working(&self, work: Work, records: u64) {
        self.shared.lock().activity.turn_to(self.shared.now(), work, records);
    }

    /// So much of the time that it computed was spent on waiting for records.
    pub fn waited(&self, time: Duration) {
        self.shared.lock().activity.waited(time);
    }

    /// What this process does and has done so far.
    pub fn beat(&self) -> Beat {
        self.shared.beat()
    }

    /// Calls the master, again and again while it is away: until the run is over, `leaves` says so, or this time has
    /// passed.
    pub fn call<T>(
        &mut self,
        within: Duration,
        leaves: impl Fn() -> bool,
        mut call: impl FnMut(&mut Admin, WorkerId) -> Result<T, Error>,
    ) -> Result<T, CallError> {
        let mut backoff = Backoff::every(AGAIN).within(within);
        loop {
            let called = match &mut self.admin {
                Some(admin) => call(admin, self.id),
                none => Admin::connect(&self.options, CALL)
                    .and_then(|admin| call(none.insert(admin), self.id)),
            };
            let error = match called {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            tracing::debug!(%error, "the master does not answer");
            self.admin = None;
            let Some(wait) = backoff.wait() else { return Err(CallError::Unanswered(error)) };
            self.wait(wait);
            if self.end().is_some() || leaves() {
                return Err(CallError::Over);
            }
        }
    }

    /// This process' own data or model is wrong: the run ends with this reason.
    pub fn failed(self, reason: String) {
        self.session.failed(reason);
        self.session.close(FAREWELL);
    }
}

impl SessionState {
    fn lock(&self) -> MutexGuard<'_, SessionStanding> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Millis {
        self.started.elapsed().as_millis() as Millis
    }

    fn beat(&self) -> Beat {
        self.lock().activity.beat(self.now())
    }
}

struct OrderListener {
    shared: Arc<SessionState>,
    cancel: Cancel,
}

impl OrderListener {
    fn end(&self, end: RunEnd) {
        // The first reason is the one that ends it.
        self.shared.lock().end.get_or_insert(end);
        self.shared.ended.notify_all();
        self.cancel.cancel();
    }
}

impl Handler for OrderListener {
    fn message(&mut self, message: ToMember) {
        match message {
            ToMember::Ended(ending) => {
                match &ending {
                    Ending::Failed(reason) => tracing::warn!(reason, "the run is over"),
                    ending => tracing::info!(?ending, "the run is over"),
                }
                self.end(RunEnd::Over(ending));
            }
            ToMember::Stop => self.end(RunEnd::Released),
            _ => {}
        }
    }

    fn beat(&mut self) -> Beat {
        self.shared.beat()
    }

    fn refused(&mut self, reason: &str) {
        self.end(RunEnd::Refused(reason.to_string()));
    }
}
