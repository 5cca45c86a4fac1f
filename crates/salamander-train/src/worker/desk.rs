//! What the master and the trainer share: the membership, guarded by one lock, so that a promise and a commit can
//! never cross.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use salamander_core::elastic::{
    Activation, Beat, Ending, FromMember, Generation, Identity, Member, Part, ToMember, Work,
    WorkerId,
};
use salamander_net::Cancel;
use salamander_proto::client::{Handler, Sender};
use salamander_proto::v1;

use super::phases::Phases;
use crate::Error;
use crate::exchange::About;

/// How often a waiting trainer looks whether it has to leave.
const LOOK: Duration = Duration::from_millis(50);

/// The membership and who waits for it.
pub(super) struct Desk {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    member: Member,
    activation: Option<Activation>,
    /// Ends the exchange that is going on.
    cancel: Cancel,
    /// A committed result is being put into the state: a promise has to wait for it.
    applying: bool,
    pending: Option<Generation>,
    stop: bool,
    ending: Option<Ending>,
    work: Work,
    since: Instant,
    records: u64,
    computed: Duration,
    phases: Phases,
}

/// A generation that this member takes part in.
pub(super) struct Begun {
    pub(super) activation: Activation,
    pub(super) part: Part,
    pub(super) cancel: Cancel,
}

impl Desk {
    pub(super) fn new(id: WorkerId) -> Self {
        let state = State {
            member: Member::new(id),
            activation: None,
            cancel: Cancel::new(),
            applying: false,
            pending: None,
            stop: false,
            ending: None,
            work: Work::Idle,
            since: Instant::now(),
            records: 0,
            computed: Duration::ZERO,
            phases: Phases::open(),
        };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn ending(&self) -> Option<Ending> {
        self.lock().ending.clone()
    }

    pub(super) fn wants_stop(&self) -> bool {
        self.lock().stop
    }

    /// The version that this member holds.
    pub(super) fn version(&self) -> u64 {
        self.lock().member.holding().identity.map_or(0, |identity| identity.version)
    }

    /// The newest version that all members hold.
    pub(super) fn common(&self) -> Option<u64> {
        self.lock().member.common()
    }

    /// Waits for a generation that has this member.
    pub(super) fn begin(&self, leave: &AtomicBool) -> Result<Begun, Error> {
        let mut state = self.lock();
        state.turn_to(Work::Idle, 0);
        loop {
            if state.ending.is_some() || leave.load(Ordering::Relaxed) {
                return Err(Error::Leaving);
            }
            if let Some(activation) = state.activation.take() {
                match state.member.activate(&activation) {
                    Ok(part) => {
                        state.cancel = Cancel::new();
                        let cancel = state.cancel.clone();
                        return Ok(Begun { activation, part, cancel });
                    }
                    Err(fenced) => tracing::info!(%fenced, "an activation came too late"),
                }
            }
            let woken = self.changed.wait_timeout(state, LOOK);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits for the end of the run, or of the generation.
    pub(super) fn await_end(
        &self,
        generation: Generation,
        leave: &AtomicBool,
    ) -> Result<(), Error> {
        let mut state = self.lock();
        state.turn_to(Work::Idle, 0);
        loop {
            if state.ending.is_some() {
                return Ok(());
            }
            if leave.load(Ordering::Relaxed) {
                return Err(Error::Leaving);
            }
            if state.member.active() != Some(generation) {
                return Err(Error::Broken("others need this member's state".to_string()));
            }
            let woken = self.changed.wait_timeout(state, LOOK);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    pub(super) fn adopt(&self, generation: Generation, identity: Identity) -> Result<(), Error> {
        self.lock().member.adopt(generation, identity).map_err(broken)
    }

    /// The state that this member may exchange from.
    pub(super) fn ready(&self, generation: Generation) -> Result<Identity, Error> {
        self.lock().member.ready(generation).map_err(broken)
    }

    pub(super) fn commit(&self, generation: Generation, digest: u64) -> Result<Identity, Error> {
        let mut state = self.lock();
        let identity = state.member.commit(generation, digest).map_err(broken)?;
        state.applying = true;
        Ok(identity)
    }

    pub(super) fn applied(&self, sender: &Sender) {
        let mut state = self.lock();
        state.applying = false;
        if let Some(generation) = state.pending.take() {
            state.promise(generation, sender);
        }
    }

    pub(super) fn working(&self, work: Work, records: u64) {
        self.lock().turn_to(work, records);
    }
}

fn broken(fenced: salamander_core::elastic::Fenced) -> Error {
    Error::Broken(fenced.to_string())
}

impl State {
    fn promise(&mut self, generation: Generation, sender: &Sender) {
        match self.member.prepare(generation) {
            Ok(holding) => {
                self.cancel.cancel();
                self.activation = None;
                sender.send(FromMember::Promise(generation, holding));
            }
            Err(fenced) => tracing::info!(%fenced, "a prepare was refused"),
        }
    }

    fn turn_to(&mut self, work: Work, records: u64) {
        if self.work == Work::Computing {
            self.computed += self.since.elapsed();
        }
        self.records += records;
        if self.work != work {
            self.phases.note(work);
        }
        (self.work, self.since) = (work, Instant::now());
    }
}

/// The number that the platform knows this process by. In a pod every process is number 1, so the pod says another.
pub fn process_number() -> u32 {
    let given = std::env::var("SALAMANDER_PROCESS").ok().and_then(|text| text.parse().ok());
    given.unwrap_or_else(std::process::id)
}

/// The master's voice: called on the session's thread.
pub(super) struct Voice {
    pub(super) desk: std::sync::Arc<Desk>,
    pub(super) sender: Sender,
    pub(super) endpoint: String,
    pub(super) slot: u32,
    pub(super) about: About,
}

impl Handler for Voice {
    fn hello(&mut self) -> v1::Hello {
        let state = self.desk.lock();
        let peer = v1::Peer { id: state.member.id().0, endpoint: self.endpoint.clone() };
        v1::Hello {
            peer: Some(peer),
            active: state.member.active().map(Generation::to_u64),
            slot: self.slot,
            pid: process_number(),
            records: self.about.records,
            fingerprint: self.about.fingerprint,
            tasks_only: false,
            server: false,
        }
    }

    fn welcome(&mut self, epoch: u32) -> Result<(), String> {
        self.desk.lock().member.welcome(epoch).map_err(|fenced| fenced.to_string())
    }

    fn message(&mut self, message: ToMember) {
        let mut state = self.desk.lock();
        match message {
            ToMember::Prepare(generation) if state.applying => state.pending = Some(generation),
            ToMember::Prepare(generation) => state.promise(generation, &self.sender),
            ToMember::Activate(activation) => state.activation = Some(activation),
            ToMember::Kept(mark) => tracing::info!(id = mark.id, "a checkpoint counts"),
            ToMember::Stop => state.stop = true,
            ToMember::Ended(ending) => {
                tracing::info!(?ending, "the run is over");
                state.ending = Some(ending);
                state.cancel.cancel();
            }
        }
        self.desk.changed.notify_all();
    }

    fn beat(&mut self) -> Beat {
        let state = self.desk.lock();
        let now = state.since.elapsed();
        let going_on = if state.work == Work::Computing { now } else { Duration::ZERO };
        Beat {
            work: state.work,
            for_ms: now.as_millis() as u64,
            records: state.records,
            compute_ms: (state.computed + going_on).as_millis() as u64,
        }
    }

    fn connection(&mut self, up: bool) {
        tracing::info!(up, "connection to the master");
    }

    fn refused(&mut self, reason: &str) {
        tracing::error!(reason, "the master refuses this worker");
        let mut state = self.desk.lock();
        state.ending = Some(Ending::Failed(format!("the master refuses this worker: {reason}")));
        self.desk.changed.notify_all();
    }
}
