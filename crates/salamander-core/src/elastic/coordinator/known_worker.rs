//! A worker as the master knows it.

use crate::elastic::{Generation, Holding, Millis, Peer};

/// Failures to reach a member, in generations that never got to work, before it is left out for a while.
const STRIKES: u32 = 3;

/// One that cannot be reached is tried again after the time of a silence, doubled so many times at most.
const RAREST: u32 = 6;

/// What the master knows of a worker.
#[derive(Clone, Debug)]
pub(super) struct KnownWorker {
    pub(super) peer: Peer,
    pub(super) heard: Millis,
    pub(super) connected: bool,
    /// Left out until this time, unless it is heard again after it.
    pub(super) excluded: Option<Millis>,
    pub(super) promise: Option<(Generation, Holding)>,
    /// It has heard of this generation, and promises as soon as its state is complete.
    pub(super) busy: Option<Generation>,
    /// How often neighbours could not reach it since a generation last had its state everywhere,
    pub(super) strikes: u32,
    /// and how often it was left out for that since it was last in such a generation.
    pub(super) unreachable: u32,
    /// The platform's place for its process, if a platform looks after it.
    pub(super) slot: Option<u32>,
}

impl KnownWorker {
    pub(super) fn new(peer: Peer, heard: Millis) -> Self {
        Self {
            peer,
            heard,
            connected: true,
            excluded: None,
            promise: None,
            busy: None,
            strikes: 0,
            unreachable: 0,
            slot: None,
        }
    }

    /// A neighbour could not reach it, though the master does. If that happens again and again: how long it is to be
    /// left out. Each try holds all others up, so that it is tried ever more rarely, and once is enough then.
    pub(super) fn accuse(&mut self, silence: Millis) -> Option<Millis> {
        self.strikes += 1;
        if self.strikes < if self.unreachable > 0 { 1 } else { STRIKES } {
            return None;
        }
        let pause = silence << self.unreachable.min(RAREST);
        (self.strikes, self.unreachable) = (0, self.unreachable + 1);
        Some(pause)
    }
}
