//! The rules that a member keeps: what it has promised, what it takes part in and what it holds.

use super::{Activation, Fences, Generation, Holding, Identity, Source, Term, Version, WorkerId};

/// A worker as a member of generations.
#[derive(Clone, Debug)]
pub struct Member {
    id: WorkerId,
    /// The newest term of a master that was seen.
    term: Term,
    promised: Generation,
    active: Option<(Generation, usize)>,
    holding: Holding,
    /// The newest version that every member of the active generation is known to hold.
    common: Option<Version>,
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
    pub(super) fn new(id: WorkerId, fences: Fences) -> Self {
        let promised = Generation::default();
        let holding = Holding::default();
        Self { id, term: Term(0), promised, active: None, holding, common: None, fences }
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
    pub fn common(&self) -> Option<Version> {
        if self.fences.all_hold {
            self.common
        } else {
            self.holding.identity.map(|identity| identity.version)
        }
    }

    /// A master introduces itself; one of an older term is refused.
    pub(super) fn welcome(&mut self, term: Term) -> Result<(), Fenced> {
        if term < self.term && self.fences.term {
            let found = Generation { term, number: 0 };
            return Err(Fenced { found, reason: "its master was replaced" });
        }
        self.term = self.term.max(term);
        Ok(())
    }

    /// Leaves the generation it is in, for good, and promises what it holds to the new one.
    pub(super) fn prepare(&mut self, generation: Generation) -> Result<Holding, Fenced> {
        self.welcome(generation.term)?;
        let backward = generation < self.promised;
        if backward && (self.fences.term || generation.term == self.promised.term) {
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

    /// Its rank in a generation that it may begin: the one that it promised, and not yet begun.
    pub(super) fn rank_in(&self, activation: &Activation) -> Result<usize, Fenced> {
        let found = activation.generation;
        if found != self.promised {
            return Err(Fenced { found, reason: "another one was promised" });
        }
        if self.active() == Some(found) {
            return Err(Fenced { found, reason: "it has begun already" });
        }
        let rank = activation.members.iter().position(|peer| peer.id == self.id);
        rank.ok_or(Fenced { found, reason: "it does not have this member" })
    }

    /// Takes its part in the generation that it promised: its rank, and how it comes by the state.
    pub(super) fn activate(&mut self, activation: &Activation) -> Result<(usize, Part), Fenced> {
        let (found, rank) = (activation.generation, self.rank_in(activation)?);
        self.active = Some((found, rank));
        self.common = None;
        let part = match &activation.source {
            Source::Member { identity, .. } if self.holding.identity == Some(*identity) => {
                self.holding.confirmed = Some(found);
                Part::Keep
            }
            Source::Checkpoint { rank: loader, mark } if *loader == rank => {
                Part::Load(mark.clone())
            }
            source => Part::Receive { from: source.rank() },
        };
        Ok((rank, part))
    }

    /// Holds a state that it has received and verified, or read.
    pub(super) fn adopt(
        &mut self,
        generation: Generation,
        identity: Identity,
    ) -> Result<(), Fenced> {
        self.within(generation)?;
        self.holding = Holding { identity: Some(identity), confirmed: Some(generation) };
        Ok(())
    }

    /// The state to exchange from, if this member may take part in an exchange of the generation.
    pub(super) fn ready(&self, generation: Generation) -> Result<Identity, Fenced> {
        self.within(generation)?;
        let confirmed = self.holding.confirmed == Some(generation);
        match self.holding.identity {
            Some(identity) if confirmed || !self.fences.adopted => Ok(identity),
            _ => Err(Fenced { found: generation, reason: "its state has not arrived" }),
        }
    }

    /// Commits the complete result of an exchange, which began at the state that this member holds. All
    /// members gave to it, so all of them held that state: it may be told outside from now on.
    pub(super) fn commit(
        &mut self,
        generation: Generation,
        digest: u64,
    ) -> Result<Identity, Fenced> {
        let before = self.ready(generation)?;
        self.common = Some(before.version);
        let after = before.next(generation, digest);
        self.holding = Holding { identity: Some(after), confirmed: Some(generation) };
        Ok(after)
    }

    fn within(&self, generation: Generation) -> Result<(), Fenced> {
        match self.active {
            Some((active, _)) if active == generation => Ok(()),
            _ => Err(Fenced::left(generation)),
        }
    }
}

impl Fenced {
    /// The member is not in the generation any more.
    pub(super) fn left(found: Generation) -> Self {
        Self { found, reason: "this member has left it" }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Peer;
    use super::*;

    const FIRST: Generation = Generation { term: Term(1), number: 1 };
    const SECOND: Generation = Generation { term: Term(1), number: 2 };

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
        let mut member = Member::new(WorkerId(7), Fences::default());
        member.prepare(FIRST).expect("newer");
        assert_eq!(member.activate(&alone(FIRST)), Ok((0, Part::Load(None))));
        member.adopt(FIRST, Identity::begin(Version(0), FIRST, 0)).expect("active");
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
        member.welcome(Term(2)).expect("newer");
        let error = member.prepare(Generation { term: Term(1), number: 9 }).expect_err("older");
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
        assert_eq!(member.common(), Some(Version(0)));
        member.commit(FIRST, 2).expect("active");
        assert_eq!(member.common(), Some(Version(1)));
    }
}
