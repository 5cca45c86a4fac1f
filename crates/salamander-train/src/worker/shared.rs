//! The participant that the session's thread and the trainer's share: guarded by one lock, so that a promise and a
//! commit can never cross. What it decides is done before the lock is given back.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use salamander_core::elastic::{
    Beat, Begun, Effect, Fenced, Generation, Millis, Participant, Term, ToMember, Work, WorkerId,
};
use salamander_net::Cancel;
use salamander_proto::client::{Handler, Sender};

use crate::Error;

/// How often a waiting trainer looks whether it has to leave.
const LOOK: Duration = Duration::from_millis(50);

/// The participant and who waits for it.
pub(super) struct SharedMember {
    state: Mutex<MemberState>,
    changed: Condvar,
    /// To the master, once the session is open.
    sender: OnceLock<Sender>,
    started: Instant,
}

struct MemberState {
    machine: Participant,
    /// Ends the exchange that is going on.
    cancel: Cancel,
}

impl SharedMember {
    pub(super) fn new(id: WorkerId) -> Self {
        let state = MemberState { machine: Participant::new(id), cancel: Cancel::new() };
        Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
            sender: OnceLock::new(),
            started: Instant::now(),
        }
    }

    /// Asks or tells the participant, and does what it wants done.
    pub(super) fn with<T>(&self, ask: impl FnOnce(&mut Participant) -> T) -> T {
        let mut state = self.lock();
        let answer = ask(&mut state.machine);
        self.perform(&mut state);
        answer
    }

    /// Like [`SharedMember::with`]; what is fenced breaks the generation.
    pub(super) fn within<T>(
        &self,
        ask: impl FnOnce(&mut Participant) -> Result<T, Fenced>,
    ) -> Result<T, Error> {
        self.with(ask).map_err(|fenced| Error::Broken(fenced.to_string()))
    }

    pub(super) fn working(&self, work: Work, records: u64) {
        let now = self.now();
        self.with(|machine| machine.working(now, work, records));
    }

    pub(super) fn waited(&self, time: Duration) {
        self.with(|machine| machine.waited(time));
    }

    pub(super) fn beat(&self) -> Beat {
        let now = self.now();
        self.with(|machine| machine.beat(now))
    }

    /// Waits for a generation that has this member; the exchanges in it end with what comes along.
    pub(super) fn begin(&self, leave: &AtomicBool) -> Result<(Begun, Cancel), Error> {
        self.wait(|state| {
            if state.machine.ending().is_some() || leave.load(Ordering::Relaxed) {
                return Some(Err(Error::Leaving));
            }
            let begun = state.machine.begin()?;
            state.cancel = Cancel::new();
            Some(Ok((begun, state.cancel.clone())))
        })
    }

    /// Waits for the end of the run, or of the generation.
    pub(super) fn await_end(
        &self,
        generation: Generation,
        leave: &AtomicBool,
    ) -> Result<(), Error> {
        self.wait(|state| match &state.machine {
            machine if machine.ending().is_some() => Some(Ok(())),
            _ if leave.load(Ordering::Relaxed) => Some(Err(Error::Leaving)),
            machine if machine.generation() != Some(generation) => {
                Some(Err(Error::Broken("others need this member's state".to_string())))
            }
            _ => None,
        })
    }

    fn wait<T>(&self, mut look: impl FnMut(&mut MemberState) -> Option<T>) -> T {
        self.working(Work::Idle, 0);
        let mut state = self.lock();
        loop {
            let found = look(&mut state);
            self.perform(&mut state);
            if let Some(found) = found {
                return found;
            }
            let woken = self.changed.wait_timeout(state, LOOK);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn perform(&self, state: &mut MemberState) {
        for effect in state.machine.take_effects() {
            match effect {
                Effect::Cancel => state.cancel.cancel(),
                Effect::Refused(fenced) => tracing::info!(%fenced, "an order came too late"),
                Effect::Send(message) => {
                    if let Some(sender) = self.sender.get() {
                        sender.send(message);
                    }
                }
            }
        }
    }

    /// Like [`SharedMember::with`], for what a waiting trainer has to see.
    fn tell(&self, tell: impl FnOnce(&mut Participant)) {
        self.with(tell);
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, MemberState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Millis {
        self.started.elapsed().as_millis() as Millis
    }
}

/// The session's side.
pub(super) struct SessionHandler(Arc<SharedMember>);

impl SessionHandler {
    pub(super) fn new(member: Arc<SharedMember>, sender: Sender) -> Self {
        // A member opens one session only.
        let _ = member.sender.set(sender);
        Self(member)
    }
}

impl Handler for SessionHandler {
    fn active(&mut self) -> Option<Generation> {
        self.0.with(|machine| machine.generation())
    }

    fn welcome(&mut self, term: Term) -> Result<(), String> {
        self.0.with(|machine| machine.welcome(term)).map_err(|fenced| fenced.to_string())
    }

    fn message(&mut self, message: ToMember) {
        match &message {
            ToMember::Kept(mark) => tracing::info!(id = mark.id, "a checkpoint counts"),
            ToMember::Ended(ending) => tracing::info!(?ending, "the run is over"),
            _ => {}
        }
        self.0.tell(|machine| machine.message(message));
    }

    fn beat(&mut self) -> Beat {
        self.0.beat()
    }

    fn connection(&mut self, up: bool) {
        tracing::info!(up, "connection to the master");
    }

    fn refused(&mut self, reason: &str) {
        tracing::error!(reason, "the master refuses this worker");
        self.0.tell(|machine| machine.refused(reason));
    }
}
