//! A worker's whole side of membership: what the master says and what the trainer does come in, what has to be done
//! comes out. Threads, locks and connections are its caller's.

#[cfg(test)]
mod tests;

use std::time::Duration;

use super::{
    Activation, Activity, Beat, CheckpointMark, Ending, Fence, FromMember, Generation, Holding,
    Identity, Millis, StateSource, Term, ToMember, Version, Work, WorkerId,
};

/// A worker that takes part in generations.
///
/// Its trainer waits for a generation ([`Participant::begin`]), gets the state ([`Participant::replace`],
/// [`Participant::adopt`]) and then exchanges and commits until the generation is over. While the state changes, from
/// a commit or the begin of a replacement to [`Participant::applied`], a promise waits, so that what a member promises
/// is what it holds.
#[derive(Clone, Debug)]
pub struct Participant {
    id: WorkerId,
    /// The newest term of a master that was seen.
    term: Term,
    promised: Generation,
    holding: Holding,
    /// The newest version that every member of its generation is known to hold.
    common: Option<Version>,
    mode: ParticipantMode,
    stop: bool,
    save: bool,
    ending: Option<Ending>,
    activity: Activity,
    effects: Vec<Effect>,
    without: Option<Fence>,
}

#[derive(Clone, Debug)]
enum ParticipantMode {
    /// It is in no generation. One may have been announced that its trainer has not begun.
    Waiting { announced: Option<Activation> },
    /// It is in this one.
    Within { activation: Activation, apply: Apply },
}

#[derive(Clone, Copy, Debug)]
enum Apply {
    /// What it holds is complete.
    Done,
    /// Its state is being changed; a promise to this generation waits for it.
    Busy { promise: Option<Generation> },
}

/// What is to be done for a participant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Tell the master.
    Send(FromMember),
    /// End the exchange that is going on: its result could not count.
    Cancel,
    /// Nothing; an order came too late, for this reason.
    Refused(Fenced),
}

/// A result or an order of a membership that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("generation {found} is over: {reason}")]
pub struct Fenced {
    /// The generation it belongs to.
    pub found: Generation,
    /// Why it does not count.
    pub reason: &'static str,
}

/// A generation that a worker begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Begun {
    /// Its members and its state.
    pub activation: Activation,
    /// This worker's rank in it.
    pub rank: usize,
    /// How this worker comes by the state.
    pub part: StartFrom,
}

/// What a member does to begin a generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartFrom {
    /// It holds the state.
    Keep,
    /// It reads the checkpoint, or starts anew.
    Load(Option<CheckpointMark>),
    /// It receives the state from the member of this rank, and drops its own.
    Receive {
        /// Whose.
        from: usize,
    },
}

impl Participant {
    /// A worker that has just started, with nothing.
    pub fn new(id: WorkerId) -> Self {
        Self {
            id,
            term: Term(0),
            promised: Generation::default(),
            holding: Holding::default(),
            common: None,
            mode: ParticipantMode::Waiting { announced: None },
            stop: false,
            save: false,
            ending: None,
            activity: Activity::default(),
            effects: Vec::new(),
            without: None,
        }
    }

    #[doc(hidden)]
    #[must_use]
    pub fn without(self, without: Option<Fence>) -> Self {
        Self { without, ..self }
    }

    /// Who it is.
    pub fn id(&self) -> WorkerId {
        self.id
    }

    /// What it holds.
    pub fn holding(&self) -> Holding {
        self.holding
    }

    /// The newest version that may be told outside: every member of the generation holds it.
    pub fn common(&self) -> Option<Version> {
        match self.without {
            Some(Fence::AllHold) => self.holding.identity.map(|identity| identity.version),
            _ => self.common,
        }
    }

    /// The generation that it is in.
    pub fn generation(&self) -> Option<Generation> {
        self.activation().map(|activation| activation.generation)
    }

    /// The members and the state of that generation.
    pub fn activation(&self) -> Option<&Activation> {
        match &self.mode {
            ParticipantMode::Within { activation, .. } => Some(activation),
            ParticipantMode::Waiting { .. } => None,
        }
    }

    /// Whether an early end of the run was asked for.
    pub fn wants_stop(&self) -> bool {
        self.stop
    }

    /// Whether a checkpoint was asked for since this was last asked.
    pub fn take_save(&mut self) -> bool {
        std::mem::take(&mut self.save)
    }

    /// How the run ended, once that is known.
    pub fn ending(&self) -> Option<&Ending> {
        self.ending.as_ref()
    }

    /// What is to be done since the last call, in this order.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// A master introduces itself; one of an older term is refused.
    pub fn welcome(&mut self, term: Term) -> Result<(), Fenced> {
        if term < self.term && self.has(Fence::Term) {
            let found = Generation { term, number: 0 };
            return Err(Fenced { found, reason: "its master was replaced" });
        }
        self.term = self.term.max(term);
        Ok(())
    }

    /// The master says something.
    pub fn message(&mut self, message: ToMember) {
        match message {
            ToMember::Prepare(generation) => self.prepare(generation),
            ToMember::Activate(activation) => match self.rank_in(&activation) {
                Ok(_) => {
                    // It was asked of the generation before; whoever still wants it asks again.
                    self.save = false;
                    self.mode = ParticipantMode::Waiting { announced: Some(activation) };
                }
                Err(fenced) => self.effects.push(Effect::Refused(fenced)),
            },
            ToMember::Kept(_) => {}
            ToMember::Stop => self.stop = true,
            ToMember::Save => self.save = true,
            ToMember::Ended(ending) => {
                self.ending = Some(ending);
                self.effects.push(Effect::Cancel);
            }
        }
    }

    /// The master wants nothing to do with this worker: for it the run is over.
    pub fn refused(&mut self, reason: &str) {
        let reason = format!("the master refuses this worker: {reason}");
        self.ending = Some(Ending::Failed(reason));
    }

    /// The generation that the trainer begins now, if one was announced: the one that was promised last.
    pub fn begin(&mut self) -> Option<Begun> {
        let ParticipantMode::Waiting { announced } = &mut self.mode else { return None };
        let activation = announced.take()?;
        let rank = self.rank_in(&activation).ok()?;
        let part = match &activation.source {
            StateSource::Member { identity, .. } if self.holding.identity == Some(*identity) => {
                self.holding.confirmed = Some(activation.generation);
                StartFrom::Keep
            }
            StateSource::Checkpoint { rank: loader, mark } if *loader == rank => {
                StartFrom::Load(mark.clone())
            }
            source => StartFrom::Receive { from: source.rank() },
        };
        // Nobody's state may be chosen any more, so what is read takes its place without further ado.
        if matches!(activation.source, StateSource::Checkpoint { .. }) && self.has(Fence::Whole) {
            self.holding = Holding::default();
        }
        self.common = None;
        self.mode = ParticipantMode::Within { activation: activation.clone(), apply: Apply::Done };
        Some(Begun { activation, rank, part })
    }

    /// The state that has arrived is about to take the place of its own, unless the generation is over: then it keeps
    /// what it has. From now on it holds nothing, until [`Participant::adopt`], and no promise is given until
    /// [`Participant::applied`].
    pub fn replace(&mut self, generation: Generation) -> Result<(), Fenced> {
        self.within(generation)?;
        if self.has(Fence::Whole) {
            self.holding = Holding::default();
            self.change();
        }
        Ok(())
    }

    /// It holds the state that the generation begins with; the digest is that of the bytes of a checkpoint.
    pub fn adopt(&mut self, generation: Generation, digest: u64) -> Result<Identity, Fenced> {
        let identity = match &self.within(generation)?.source {
            StateSource::Member { identity, .. } => *identity,
            StateSource::Checkpoint { mark, .. } => {
                let version = mark.as_ref().map_or(Version(0), |mark| mark.version);
                Identity::begin(version, generation, digest)
            }
        };
        self.holding = Holding { identity: Some(identity), confirmed: Some(generation) };
        self.effects.push(Effect::Send(FromMember::Confirmed(generation)));
        Ok(identity)
    }

    /// The state to exchange from, if it may take part in an exchange of the generation.
    pub fn ready(&self, generation: Generation) -> Result<Identity, Fenced> {
        self.within(generation)?;
        let confirmed = self.holding.confirmed == Some(generation);
        match self.holding.identity {
            Some(identity) if confirmed || self.without == Some(Fence::Adopted) => Ok(identity),
            _ => Err(Fenced { found: generation, reason: "its state has not arrived" }),
        }
    }

    /// Commits the complete result of an exchange, which began at the state that this member holds. All members gave
    /// to it, so all of them held that state: it may be told outside from now on. Until [`Participant::applied`] no
    /// promise is given.
    pub fn commit(&mut self, generation: Generation, digest: u64) -> Result<Identity, Fenced> {
        let before = self.ready(generation)?;
        let after = before.next(generation, digest);
        self.common = Some(before.version);
        self.holding = Holding { identity: Some(after), confirmed: Some(generation) };
        if self.has(Fence::Whole) {
            self.change();
        }
        Ok(after)
    }

    /// The state is complete again, or gone; a promise that waited for it is given.
    pub fn applied(&mut self) {
        if let ParticipantMode::Within { apply, .. } = &mut self.mode
            && let Apply::Busy { promise } = std::mem::replace(apply, Apply::Done)
            && let Some(generation) = promise
        {
            self.prepare(generation);
        }
    }

    /// An exchange of its generation failed, because of the member of this rank if it is known.
    pub fn broken(&mut self, accused: Option<usize>) {
        if let Some(activation) = self.activation() {
            let accused = accused.and_then(|rank| activation.members.get(rank));
            let broken = FromMember::Broken(activation.generation, accused.map(|peer| peer.id));
            self.effects.push(Effect::Send(broken));
        }
    }

    /// It cannot reach what its generation needs beside its members, and others may: it accuses itself.
    pub fn gave_up(&mut self) {
        if let Some(activation) = self.activation() {
            let broken = FromMember::Broken(activation.generation, Some(self.id));
            self.effects.push(Effect::Send(broken));
        }
    }

    /// What it does from now on, and how many records it computed since it last said so.
    pub fn working(&mut self, now: Millis, work: Work, records: u64) {
        self.activity.turn_to(now, work, records);
    }

    /// So much of the time that it computed was spent on waiting for records.
    pub fn waited(&mut self, time: Duration) {
        self.activity.waited(time);
    }

    /// Its heartbeat.
    pub fn beat(&self, now: Millis) -> Beat {
        self.activity.beat(now)
    }

    fn has(&self, fence: Fence) -> bool {
        self.without != Some(fence)
    }

    /// The state is about to change.
    fn change(&mut self) {
        if let ParticipantMode::Within { apply, .. } = &mut self.mode {
            *apply = Apply::Busy { promise: None };
        }
    }

    /// Leaves its generation for good and promises what it holds, or does so as soon as that is complete: then it says
    /// at once that it has heard.
    fn prepare(&mut self, generation: Generation) {
        if let ParticipantMode::Within { apply: Apply::Busy { promise }, .. } = &mut self.mode {
            *promise = (*promise).max(Some(generation));
            self.effects.push(Effect::Send(FromMember::Busy(generation)));
            return;
        }
        if let Err(fenced) = self.may_promise(generation) {
            self.effects.push(Effect::Refused(fenced));
            return;
        }
        (self.promised, self.common) = (generation, None);
        match &mut self.mode {
            // The same prepare may come once more, after the activation, which the master sends once only.
            ParticipantMode::Waiting { announced } => {
                announced.take_if(|announced| announced.generation != generation);
            }
            ParticipantMode::Within { .. } if self.without == Some(Fence::Promise) => {}
            ParticipantMode::Within { .. } => {
                self.mode = ParticipantMode::Waiting { announced: None }
            }
        }
        let promise = FromMember::Promise(generation, self.holding);
        self.effects.extend([Effect::Cancel, Effect::Send(promise)]);
    }

    fn may_promise(&mut self, generation: Generation) -> Result<(), Fenced> {
        self.welcome(generation.term)?;
        let backward = generation < self.promised;
        let same_term = generation.term == self.promised.term;
        if backward && (self.has(Fence::Term) || same_term) {
            return Err(Fenced { found: generation, reason: "a later one was promised" });
        }
        self.not_begun(generation)
    }

    /// Its rank in a generation that it may begin: the one that it promised, and not yet begun.
    fn rank_in(&self, activation: &Activation) -> Result<usize, Fenced> {
        let found = activation.generation;
        if found != self.promised {
            return Err(Fenced { found, reason: "another one was promised" });
        }
        self.not_begun(found)?;
        let rank = activation.members.iter().position(|peer| peer.id == self.id);
        rank.ok_or(Fenced { found, reason: "it does not have this member" })
    }

    /// Orders may come twice; they must not end a generation that has begun.
    fn not_begun(&self, found: Generation) -> Result<(), Fenced> {
        match self.generation() == Some(found) {
            true => Err(Fenced { found, reason: "it has begun already" }),
            false => Ok(()),
        }
    }

    /// The generation, if this member is in it.
    fn within(&self, found: Generation) -> Result<&Activation, Fenced> {
        let active = self.activation().filter(|activation| activation.generation == found);
        active.ok_or(Fenced { found, reason: "this member has left it" })
    }
}
