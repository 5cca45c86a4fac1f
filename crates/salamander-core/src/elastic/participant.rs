//! A worker's whole side of membership: what the master says and what the trainer does come in, what has to be done
//! comes out. Threads, locks and connections are its caller's.

use super::{
    Activation, Activity, Beat, Ending, Fenced, Fences, FromMember, Generation, Hello, Identity,
    Member, Millis, Part, Peer, Source, Term, ToMember, Version, Work, WorkerId,
};

/// A worker that takes part in generations.
///
/// Its trainer waits for a generation ([`Participant::begin`]), gets the state ([`Participant::adopt`]) and then
/// exchanges and commits until the generation is over. A promise never falls between a commit and its
/// [`Participant::applied`]: it waits, so that what a member promises is what it holds.
#[derive(Clone, Debug)]
pub struct Participant {
    member: Member,
    mode: Mode,
    stop: bool,
    ending: Option<Ending>,
    activity: Activity,
    effects: Vec<Effect>,
}

#[derive(Clone, Debug)]
enum Mode {
    /// It is in no generation. One may have been announced that its trainer has not begun.
    Waiting { announced: Option<Activation> },
    /// It is in this one.
    Within { activation: Activation, apply: Apply },
}

#[derive(Clone, Copy, Debug)]
enum Apply {
    /// What it holds is complete.
    Done,
    /// A committed result is being put into the state; a promise to this generation waits for it.
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

/// A generation that a worker begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Begun {
    /// Its members and its state.
    pub activation: Activation,
    /// This worker's rank in it.
    pub rank: usize,
    /// How this worker comes by the state.
    pub part: Part,
}

impl Participant {
    /// A worker that has just started, with nothing.
    pub fn new(id: WorkerId) -> Self {
        Self::with_fences(id, Fences::default())
    }

    #[doc(hidden)]
    pub fn with_fences(id: WorkerId, fences: Fences) -> Self {
        Self {
            member: Member::new(id, fences),
            mode: Mode::Waiting { announced: None },
            stop: false,
            ending: None,
            activity: Activity::default(),
            effects: Vec::new(),
        }
    }

    /// What it has promised and holds.
    pub fn member(&self) -> &Member {
        &self.member
    }

    /// The generation that it is in.
    pub fn generation(&self) -> Option<Generation> {
        self.activation().map(|activation| activation.generation)
    }

    /// The members and the state of that generation.
    pub fn activation(&self) -> Option<&Activation> {
        match &self.mode {
            Mode::Within { activation, .. } => Some(activation),
            Mode::Waiting { .. } => None,
        }
    }

    /// Whether an early end of the run was asked for.
    pub fn wants_stop(&self) -> bool {
        self.stop
    }

    /// How the run ended, once that is known.
    pub fn ending(&self) -> Option<&Ending> {
        self.ending.as_ref()
    }

    /// What is to be done since the last call, in this order.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// Its first words at a connection.
    pub fn hello(&self, endpoint: String) -> Hello {
        let peer = Peer { id: self.member.id(), endpoint };
        Hello { peer, active: self.member.active() }
    }

    /// A master introduces itself; one of an older term is refused.
    pub fn welcome(&mut self, term: Term) -> Result<(), Fenced> {
        self.member.welcome(term)
    }

    /// The master says something.
    pub fn message(&mut self, message: ToMember) {
        match message {
            ToMember::Prepare(generation) => self.prepare(generation),
            ToMember::Activate(activation) => match self.member.rank_in(&activation) {
                Ok(_) => self.mode = Mode::Waiting { announced: Some(activation) },
                Err(fenced) => self.effects.push(Effect::Refused(fenced)),
            },
            ToMember::Kept(_) => {}
            ToMember::Stop => self.stop = true,
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

    /// The generation that the trainer begins now, if one was announced.
    pub fn begin(&mut self) -> Option<Begun> {
        let Mode::Waiting { announced } = &mut self.mode else { return None };
        let activation = announced.take()?;
        match self.member.activate(&activation) {
            Ok((rank, part)) => {
                let begun = Begun { activation: activation.clone(), rank, part };
                self.mode = Mode::Within { activation, apply: Apply::Done };
                Some(begun)
            }
            Err(fenced) => {
                self.effects.push(Effect::Refused(fenced));
                None
            }
        }
    }

    /// It holds the state that the generation begins with; the digest is that of the bytes of a checkpoint.
    pub fn adopt(&mut self, generation: Generation, digest: u64) -> Result<Identity, Fenced> {
        let identity = match self.activation().map(|activation| &activation.source) {
            Some(Source::Member { identity, .. }) => *identity,
            Some(Source::Checkpoint { mark, .. }) => {
                let version = mark.as_ref().map_or(Version(0), |mark| mark.version);
                Identity::begin(version, generation, digest)
            }
            None => return Err(Fenced::left(generation)),
        };
        self.member.adopt(generation, identity)?;
        self.effects.push(Effect::Send(FromMember::Confirmed(generation)));
        Ok(identity)
    }

    /// The state to exchange from, if it may take part in an exchange of the generation.
    pub fn ready(&self, generation: Generation) -> Result<Identity, Fenced> {
        self.member.ready(generation)
    }

    /// Commits the complete result of an exchange. Until [`Participant::applied`] no promise is given.
    pub fn commit(&mut self, generation: Generation, digest: u64) -> Result<Identity, Fenced> {
        let Mode::Within { apply, .. } = &mut self.mode else {
            return Err(Fenced::left(generation));
        };
        let identity = self.member.commit(generation, digest)?;
        *apply = Apply::Busy { promise: None };
        Ok(identity)
    }

    /// The committed result is in the state; a promise that waited for it is given.
    pub fn applied(&mut self) {
        if let Mode::Within { apply, .. } = &mut self.mode
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

    /// What it does from now on, and how many records it computed since it last said so.
    pub fn working(&mut self, now: Millis, work: Work, records: u64) {
        self.activity.turn_to(now, work, records);
    }

    /// Its heartbeat.
    pub fn beat(&self, now: Millis) -> Beat {
        self.activity.beat(now)
    }

    /// Leaves its generation and promises what it holds, or does so as soon as that is complete.
    fn prepare(&mut self, generation: Generation) {
        if let Mode::Within { apply: Apply::Busy { promise }, .. } = &mut self.mode {
            *promise = (*promise).max(Some(generation));
            return;
        }
        match self.member.prepare(generation) {
            Ok(holding) => {
                if self.member.active().is_none() {
                    self.wait_for(generation);
                }
                let promise = FromMember::Promise(generation, holding);
                self.effects.extend([Effect::Cancel, Effect::Send(promise)]);
            }
            Err(fenced) => self.effects.push(Effect::Refused(fenced)),
        }
    }

    /// A prepare that comes once more, after the activation, must not take that back: the master sends it once only.
    fn wait_for(&mut self, generation: Generation) {
        let announced = match &mut self.mode {
            Mode::Waiting { announced } => announced.take_if(|it| it.generation == generation),
            Mode::Within { .. } => None,
        };
        self.mode = Mode::Waiting { announced };
    }
}

#[cfg(test)]
mod tests {
    use super::super::CheckpointMark;
    use super::*;

    const FIRST: Generation = Generation { term: Term(1), number: 1 };
    const SECOND: Generation = Generation { term: Term(1), number: 2 };
    const ID: WorkerId = WorkerId(7);

    fn activation(generation: Generation, mark: Option<CheckpointMark>) -> Activation {
        Activation {
            generation,
            members: vec![Peer { id: ID, endpoint: String::new() }],
            source: Source::Checkpoint { rank: 0, mark },
            transfer: false,
            servers: Vec::new(),
            rows: generation,
            destination: Vec::new(),
        }
    }

    fn begun() -> Participant {
        let mut worker = Participant::new(ID);
        worker.message(ToMember::Prepare(FIRST));
        worker.message(ToMember::Activate(activation(FIRST, None)));
        assert_eq!(worker.begin().map(|begun| begun.part), Some(Part::Load(None)));
        worker.adopt(FIRST, 0).expect("it is within");
        worker.take_effects();
        worker
    }

    fn promise(worker: &Participant, generation: Generation) -> Effect {
        Effect::Send(FromMember::Promise(generation, worker.member().holding()))
    }

    #[test]
    fn a_promise_waits_for_what_is_being_applied() {
        let mut worker = begun();
        let committed = worker.commit(FIRST, 1).expect("it is within");
        worker.message(ToMember::Prepare(SECOND));
        assert_eq!(worker.take_effects(), []);
        assert_eq!(worker.member().common(), Some(Version(0)), "a checkpoint may be named by it");
        worker.applied();
        assert_eq!(worker.member().holding().identity, Some(committed));
        assert_eq!(worker.take_effects(), [Effect::Cancel, promise(&worker, SECOND)]);
        assert!(worker.commit(FIRST, 2).is_err());
    }

    #[test]
    fn a_late_prepare_does_not_replace_a_newer_one_that_waits() {
        let mut worker = begun();
        worker.commit(FIRST, 1).expect("it is within");
        worker.message(ToMember::Prepare(Generation { term: Term(2), number: 3 }));
        worker.message(ToMember::Prepare(SECOND));
        worker.applied();
        let newest = promise(&worker, Generation { term: Term(2), number: 3 });
        assert_eq!(worker.take_effects(), [Effect::Cancel, newest]);
    }

    #[test]
    fn an_announced_generation_is_gone_with_the_next_prepare() {
        let mut worker = begun();
        worker.message(ToMember::Prepare(SECOND));
        worker.message(ToMember::Activate(activation(SECOND, None)));
        worker.message(ToMember::Prepare(Generation { term: Term(1), number: 3 }));
        assert_eq!(worker.begin(), None);
    }

    #[test]
    fn a_repeated_prepare_does_not_take_back_what_was_announced() {
        let mut worker = begun();
        worker.message(ToMember::Prepare(SECOND));
        worker.message(ToMember::Activate(activation(SECOND, None)));
        worker.message(ToMember::Prepare(SECOND));
        assert_eq!(worker.begin().map(|begun| begun.activation.generation), Some(SECOND));
    }

    #[test]
    fn a_repeated_activation_does_not_end_what_has_begun() {
        let mut worker = begun();
        worker.message(ToMember::Activate(activation(FIRST, None)));
        assert!(matches!(worker.take_effects().as_slice(), [Effect::Refused(_)]));
        assert!(worker.commit(FIRST, 1).is_ok());
    }

    #[test]
    fn a_checkpoint_gives_its_version() {
        let mut worker = Participant::new(ID);
        let mark = CheckpointMark { id: "step-4".into(), version: Version(4), generation: FIRST };
        worker.message(ToMember::Prepare(SECOND));
        worker.message(ToMember::Activate(activation(SECOND, Some(mark))));
        worker.begin().expect("it was announced");
        let identity = worker.adopt(SECOND, 9).expect("it is within");
        assert_eq!(identity, Identity::begin(Version(4), SECOND, 9));
    }

    #[test]
    fn the_end_lets_a_commit_finish_that_has_its_result() {
        let mut worker = begun();
        worker.message(ToMember::Ended(Ending::Completed));
        assert_eq!(worker.take_effects(), [Effect::Cancel]);
        assert_eq!(worker.ending(), Some(&Ending::Completed));
        assert!(worker.commit(FIRST, 1).is_ok());
    }

    #[test]
    fn a_refused_worker_knows_why() {
        let mut worker = begun();
        worker.refused("wrong token");
        let reason = "the master refuses this worker: wrong token".to_string();
        assert_eq!(worker.ending(), Some(&Ending::Failed(reason)));
    }
}
