//! A parameter server's side: which orders it follows, which requests it lets in, and what it may give to others.

use super::{Fence, Lineage};
use crate::elastic::Term;

/// Who gives an order, and to whom.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Envelope {
    /// The term of the master that gives it.
    pub term: Term,
    /// The incarnation of the server that it is for.
    pub to: u64,
}

/// Why a server refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// A newer master is known.
    #[error("the master of term {theirs} was replaced by that of term {known}; end it")]
    OldMaster {
        /// The term of the order.
        theirs: Term,
        /// The newest one.
        known: Term,
    },
    /// The order is for another process.
    #[error("the order is for incarnation {wanted:016x} of the server, and this is {own:016x}")]
    OtherProcess {
        /// The one that was meant.
        wanted: u64,
        /// This one.
        own: u64,
    },
    /// The request is of another lineage.
    #[error(
        "the server is in lineage {own}, and the request is of lineage {theirs}; ask the master"
    )]
    OtherLineage {
        /// The lineage of the request.
        theirs: Lineage,
        /// The lineage of the server.
        own: Lineage,
    },
    /// Partitions are on their way to the server.
    #[error("the server is getting its partitions")]
    NotPlaced,
    /// Nobody knows what the tables hold.
    #[error("the tables could not be restored; reset the server from other files")]
    NotRestored,
    /// The server has heard of the lineage, and is about to put the partitions of others apart.
    #[error("the server does not give partitions away yet; ask again")]
    NotApart,
}

/// What the tables of a server hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// All partitions that are wanted here in a lineage.
    All(Lineage),
    /// Partitions are on their way: what was held before is apart, for others.
    Moving {
        /// The lineage before.
        from: Lineage,
        /// The one that begins.
        to: Lineage,
    },
    /// Nobody knows: they are being replaced, or that has failed.
    Unknown,
}

/// What a server has to do about a reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resetting {
    /// Get the partitions of the lineage. Nothing of an older one is let in from now on, and getting the partitions
    /// of an older one ends.
    Begin,
    /// It was asked for before, and is under way or has failed.
    Again,
    /// It was done.
    Done,
}

/// What a move of partitions to this server begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldPartitions {
    /// All that the server held in the lineage before, part of which is for others from now on.
    Whole,
    /// What an earlier attempt at the same move has got.
    Part,
    /// Nothing: the server had no part in the lineage before, or has lost it.
    Nothing,
}

/// What a server goes by. Requests are done under a look at it, and changes of it exclude them, so that nothing is
/// let in under one lineage and applied under another.
#[derive(Clone, Debug)]
pub struct Gate {
    incarnation: u64,
    without: Option<Fence>,
    term: Term,
    lineage: Lineage,
    holds: Holds,
}

impl Gate {
    /// A server that has just started: its empty tables are of lineage 0, which no master begins.
    pub fn new(incarnation: u64) -> Self {
        let lineage = Lineage::default();
        let holds = Holds::All(lineage);
        Self { incarnation, without: None, term: Term(0), lineage, holds }
    }

    #[doc(hidden)]
    #[must_use]
    pub fn without(self, without: Option<Fence>) -> Self {
        Self { without, ..self }
    }

    /// This life of the server.
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// The newest lineage that it has heard of.
    pub fn lineage(&self) -> Lineage {
        self.lineage
    }

    /// Whether it has all its partitions of that lineage.
    pub fn is_placed(&self) -> bool {
        self.holds == Holds::All(self.lineage)
    }

    /// An order comes. Nothing of it may be done when it is refused.
    pub fn order(&mut self, order: Envelope) -> Result<(), Refused> {
        if order.term < self.term && self.without != Some(Fence::Master) {
            return Err(Refused::OldMaster { theirs: order.term, known: self.term });
        }
        if order.to != self.incarnation && self.without != Some(Fence::Orders) {
            return Err(Refused::OtherProcess { wanted: order.to, own: self.incarnation });
        }
        self.term = self.term.max(order.term);
        Ok(())
    }

    /// An order to begin a lineage. The same one may come twice, because its answer got lost.
    pub fn reset(&mut self, order: Envelope, lineage: Lineage) -> Result<Resetting, Refused> {
        self.order(order)?;
        if lineage < self.lineage {
            return Err(self.other(lineage));
        }
        if lineage > self.lineage {
            self.lineage = lineage;
            return Ok(Resetting::Begin);
        }
        Ok(if self.is_placed() { Resetting::Done } else { Resetting::Again })
    }

    /// What a move to the lineage in force can begin with.
    pub fn stock(&self, from: Lineage) -> HeldPartitions {
        match self.holds {
            Holds::All(held) if held == from => HeldPartitions::Whole,
            holds if holds == (Holds::Moving { from, to: self.lineage }) => HeldPartitions::Part,
            _ => HeldPartitions::Nothing,
        }
    }

    /// What the tables hold from now on; told also by a reset that a newer one ends, which goes by it.
    pub fn hold(&mut self, holds: Holds) {
        self.holds = holds;
    }

    /// A request that reads or changes rows.
    pub fn admit(&self, lineage: Lineage) -> Result<(), Refused> {
        if lineage != self.lineage && self.without != Some(Fence::Map) {
            return Err(self.other(lineage));
        }
        match self.holds {
            Holds::All(held) if held == self.lineage => Ok(()),
            Holds::Unknown => Err(Refused::NotRestored),
            _ => Err(Refused::NotPlaced),
        }
    }

    /// Another server asks for partitions that are its own in a lineage: it gets them if nothing can be pushed to
    /// them here any more.
    pub fn give(&self, lineage: Lineage) -> Result<(), Refused> {
        self.continues(lineage)?;
        let apart = match self.holds {
            Holds::All(held) => held == lineage,
            Holds::Moving { to, .. } => to == lineage,
            Holds::Unknown => false,
        };
        if apart { Ok(()) } else { Err(Refused::NotApart) }
    }

    /// A reset goes on, unless a newer one has come.
    pub fn continues(&self, lineage: Lineage) -> Result<(), Refused> {
        if lineage == self.lineage { Ok(()) } else { Err(self.other(lineage)) }
    }

    fn other(&self, theirs: Lineage) -> Refused {
        Refused::OtherLineage { theirs, own: self.lineage }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TO: Envelope = Envelope { term: Term(1), to: 7 };

    fn is_other(outcome: Result<(), Refused>, own: u64) -> bool {
        matches!(outcome, Err(Refused::OtherLineage { own: there, .. }) if there == Lineage(own))
    }

    /// A server that has all its partitions of lineage 3.
    fn placed() -> Gate {
        let mut gate = Gate::new(7);
        assert_eq!(gate.reset(TO, Lineage(3)), Ok(Resetting::Begin));
        gate.hold(Holds::All(Lineage(3)));
        gate
    }

    #[test]
    fn an_old_master_and_orders_to_the_dead_are_refused() {
        let mut gate = Gate::new(7);
        let order = |term, to| Envelope { term: Term(term), to };
        assert_eq!(gate.order(order(2, 7)), Ok(()));
        assert_eq!(
            gate.order(order(1, 7)),
            Err(Refused::OldMaster { theirs: Term(1), known: Term(2) })
        );
        let dead = Refused::OtherProcess { wanted: 6, own: 7 };
        assert_eq!(gate.order(order(3, 6)), Err(dead));
        assert_eq!(gate.order(order(2, 7)), Ok(()), "an order to another tells nothing");
        assert_eq!(gate.reset(order(9, 6), Lineage(1)), Err(dead));
        assert_eq!(gate.lineage(), Lineage(0));
    }

    #[test]
    fn only_the_lineage_in_force_is_let_in() {
        let mut gate = placed();
        assert_eq!(gate.admit(Lineage(3)), Ok(()));
        assert!(is_other(gate.admit(Lineage(2)), 3) && is_other(gate.admit(Lineage(4)), 3));
        assert_eq!(gate.reset(TO, Lineage(4)), Ok(Resetting::Begin));
        assert!(is_other(gate.admit(Lineage(3)), 4));
        assert_eq!(gate.admit(Lineage(4)), Err(Refused::NotPlaced));
        assert!(!gate.is_placed());
    }

    #[test]
    fn lineages_do_not_go_back_and_a_reset_is_done_once() {
        let mut gate = placed();
        assert!(is_other(gate.reset(TO, Lineage(2)).map(drop), 3));
        assert_eq!(gate.reset(TO, Lineage(3)), Ok(Resetting::Done));
        assert_eq!(gate.reset(TO, Lineage(5)), Ok(Resetting::Begin));
        assert_eq!(gate.reset(TO, Lineage(5)), Ok(Resetting::Again));
        gate.hold(Holds::All(Lineage(5)));
        assert_eq!(gate.reset(TO, Lineage(5)), Ok(Resetting::Done));
    }

    #[test]
    fn a_failed_reset_closes_the_gate_until_one_works() {
        let mut gate = placed();
        assert_eq!(gate.reset(TO, Lineage(4)), Ok(Resetting::Begin));
        gate.hold(Holds::Unknown);
        assert_eq!(gate.admit(Lineage(4)), Err(Refused::NotRestored));
        assert_eq!(gate.reset(TO, Lineage(4)), Ok(Resetting::Again));
        assert_eq!(gate.stock(Lineage(3)), HeldPartitions::Nothing);
        gate.hold(Holds::All(Lineage(4)));
        assert_eq!(gate.admit(Lineage(4)), Ok(()));
    }

    #[test]
    fn partitions_are_given_away_only_when_nothing_reaches_them_here() {
        let mut gate = placed();
        assert!(is_other(gate.give(Lineage(4)), 3));
        assert_eq!(gate.reset(TO, Lineage(4)), Ok(Resetting::Begin));
        assert_eq!(gate.give(Lineage(4)), Err(Refused::NotApart));
        assert_eq!(
            (gate.stock(Lineage(3)), gate.stock(Lineage(2))),
            (HeldPartitions::Whole, HeldPartitions::Nothing)
        );
        gate.hold(Holds::Moving { from: Lineage(3), to: Lineage(4) });
        assert_eq!((gate.give(Lineage(4)), gate.stock(Lineage(3))), (Ok(()), HeldPartitions::Part));
        assert_eq!(gate.admit(Lineage(4)), Err(Refused::NotPlaced), "it lacks partitions");
        gate.hold(Holds::All(Lineage(4)));
        assert_eq!(gate.give(Lineage(4)), Ok(()));
        assert_eq!(gate.reset(TO, Lineage(5)), Ok(Resetting::Begin));
        assert!(is_other(gate.give(Lineage(4)), 5) && is_other(gate.continues(Lineage(4)), 5));
    }
}
