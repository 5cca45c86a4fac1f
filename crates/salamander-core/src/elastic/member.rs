//! A worker's side of membership: what it has promised, what it takes part in and what it holds.

use super::{Activation, Fences, Generation, Holding, Identity, Source, WorkerId};

/// A worker as a member of generations.
#[derive(Clone, Debug)]
pub struct Member {
    id: WorkerId,
    /// The newest life of the master that was seen.
    epoch: u32,
    promised: Generation,
    active: Option<(Generation, usize)>,
    holding: Holding,
    /// The newest version that every member of the active generation is known to hold.
    common: Option<u64>,
    fences: Fences,
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

/// What a member does to begin a generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// It holds the state.
    Keep,
    /// It reads the checkpoint, or starts anew.
    Load(Option<super::CheckpointMark>),
    /// It receives the state from the member of this rank, and drops its own.
    Receive {
        /// Whose.
        from: usize,
    },
}

impl Member {
    /// A worker that has just started, with nothing.
    pub fn new(id: WorkerId) -> Self {
        Self::with_fences(id, Fences::default())
    }

    #[doc(hidden)]
    pub fn with_fences(id: WorkerId, fences: Fences) -> Self {
        let promised = Generation::default();
        let holding = Holding::default();
        Self { id, epoch: 0, promised, active: None, holding, common: None, fences }
    }

    /// Who it is.
    pub fn id(&self) -> WorkerId {
        self.id
    }

    /// What it holds.
    pub fn holding(&self) -> Holding {
        self.holding
    }

    /// The generation it takes part in.
    pub fn active(&self) -> Option<Generation> {
        self.active.map(|(generation, _)| generation)
    }

    /// The newest version that may be told outside: every member of the generation holds it.
    pub fn common(&self) -> Option<u64> {
        if self.fences.all_hold {
            self.common
        } else {
            self.holding.identity.map(|identity| identity.version)
        }
    }

    /// A master introduces itself; one of an older epoch is refused.
    pub fn welcome(&mut self, epoch: u32) -> Result<(), Fenced> {
        if epoch < self.epoch && self.fences.epoch {
            let found = Generation { epoch, number: 0 };
            return Err(Fenced { found, reason: "its master was replaced" });
        }
        self.epoch = self.epoch.max(epoch);
        Ok(())
    }

    /// Leaves the generation it is in, for good, and promises what it holds to the new one.
    pub fn prepare(&mut self, generation: Generation) -> Result<Holding, Fenced> {
        self.welcome(generation.epoch)?;
        let backward = generation < self.promised;
        if backward && (self.fences.epoch || generation.epoch == self.promised.epoch) {
            return Err(Fenced { found: generation, reason: "a later one was promised" });
        }
        // The same prepare may come twice; it must not end a generation that has begun.
        if self.active() == Some(generation) {
            return Err(Fenced { found: generation, reason: "it has begun already" });
        }
        self.promised = generation;
        if self.fences.promise {
            self.active = None;
        }
        self.common = None;
        Ok(self.holding)
    }

    /// Takes its part in the generation that it promised.
    pub fn activate(&mut self, activation: &Activation) -> Result<Part, Fenced> {
        let found = activation.generation;
        if found != self.promised {
            return Err(Fenced { found, reason: "another one was promised" });
        }
        if self.active() == Some(found) {
            return Err(Fenced { found, reason: "it has begun already" });
        }
        let rank = activation.members.iter().position(|peer| peer.id == self.id);
        let Some(rank) = rank else {
            return Err(Fenced { found, reason: "it does not have this member" });
        };
        self.active = Some((found, rank));
        self.common = None;
        Ok(match &activation.source {
            Source::Member { identity, .. } if self.holding.identity == Some(*identity) => {
                self.holding.confirmed = Some(found);
                Part::Keep
            }
            Source::Checkpoint { rank: loader, mark } if *loader == rank => {
                Part::Load(mark.clone())
            }
            source => Part::Receive { from: source.rank() },
        })
    }

    /// Holds a state that it has received and verified, or read.
    pub fn adopt(&mut self, generation: Generation, identity: Identity) -> Result<(), Fenced> {
        self.within(generation)?;
        self.holding = Holding { identity: Some(identity), confirmed: Some(generation) };
        Ok(())
    }

    /// The state to exchange from, if this member may take part in an exchange of the generation.
    pub fn ready(&self, generation: Generation) -> Result<Identity, Fenced> {
        self.within(generation)?;
        let confirmed = self.holding.confirmed == Some(generation);
        match self.holding.identity {
            Some(identity) if confirmed || !self.fences.adopted => Ok(identity),
            _ => Err(Fenced { found: generation, reason: "its state has not arrived" }),
        }
    }

    /// Commits the complete result of an exchange, which began at the state that this member holds. All
    /// members gave to it, so all of them held that state: it may be told outside from now on.
    pub fn commit(&mut self, generation: Generation, digest: u64) -> Result<Identity, Fenced> {
        let before = self.ready(generation)?;
        self.common = Some(before.version);
        let after = before.next(generation, digest);
        self.holding = Holding { identity: Some(after), confirmed: Some(generation) };
        Ok(after)
    }

    /// All members met at the state that this one holds, without a result.
    pub fn met(&mut self, generation: Generation) -> Result<u64, Fenced> {
        let identity = self.ready(generation)?;
        self.common = Some(identity.version);
        Ok(identity.version)
    }

    fn within(&self, generation: Generation) -> Result<(), Fenced> {
        match self.active {
            Some((active, _)) if active == generation => Ok(()),
            _ => Err(Fenced { found: generation, reason: "this member has left it" }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Peer;
    use super::*;

    const FIRST: Generation = Generation { epoch: 1, number: 1 };
    const SECOND: Generation = Generation { epoch: 1, number: 2 };

    fn alone(generation: Generation) -> Activation {
        Activation {
            generation,
            members: vec![Peer { id: WorkerId(7), endpoint: String::new() }],
            source: Source::Checkpoint { rank: 0, mark: None },
            transfer: false,
            servers: Vec::new(),
            rows: generation,
            destination: Vec::new(),
        }
    }

    fn begun() -> Member {
        let mut member = Member::new(WorkerId(7));
        member.prepare(FIRST).expect("newer");
        assert_eq!(member.activate(&alone(FIRST)), Ok(Part::Load(None)));
        member.adopt(FIRST, Identity::begin(0, FIRST, 0)).expect("active");
        member
    }

    #[test]
    fn nothing_is_applied_after_a_promise() {
        let mut member = begun();
        let promised = member.prepare(SECOND).expect("newer");
        assert!(member.commit(FIRST, 1).is_err());
        assert_eq!(member.holding(), promised);
    }

    #[test]
    fn an_older_master_is_refused() {
        let mut member = begun();
        member.welcome(2).expect("newer");
        let error = member.prepare(Generation { epoch: 1, number: 9 }).expect_err("older");
        assert_eq!(error.reason, "its master was replaced");
    }

    #[test]
    fn a_repeated_prepare_does_not_end_what_has_begun() {
        let mut member = begun();
        assert!(member.prepare(FIRST).is_err());
        assert!(member.commit(FIRST, 1).is_ok());
    }

    #[test]
    fn a_version_is_common_one_exchange_later() {
        let mut member = begun();
        assert_eq!(member.common(), None);
        member.commit(FIRST, 1).expect("active");
        assert_eq!(member.common(), Some(0));
        assert_eq!(member.met(FIRST), Ok(1));
        assert_eq!(member.common(), Some(1));
    }
}
