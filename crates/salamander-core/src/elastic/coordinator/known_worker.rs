//! A worker as the master knows it.

use crate::elastic::{Generation, Holding, Millis, Peer};

/// Failures of one kind, in generations that never got to work, before a worker is left out for a while.
const STRIKES: u32 = 3;

/// It is tried again after the time of a silence, doubled so many times at most.
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
    /// Neighbours could not reach it, since it was last in a generation that had its state everywhere.
    pub(super) unreachable: Strikes,
    /// It could not reach the servers, since it was last in a generation that did a step.
    pub(super) without_rows: Strikes,
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
            unreachable: Strikes::default(),
            without_rows: Strikes::default(),
            slot: None,
        }
    }
}

/// Failures of a worker that the master hears of from others, or from itself.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Strikes {
    /// Since it was last left out, or the others last got to work.
    pub(super) count: u32,
    /// How often it was left out for them.
    times: u32,
}

impl Strikes {
    /// One more. If that happens again and again: how long it is to be left out. Each try holds all others up, so that
    /// it is tried ever more rarely, and once is enough then.
    pub(super) fn add(&mut self, silence: Millis) -> Option<Millis> {
        self.count += 1;
        if self.count < if self.times > 0 { 1 } else { STRIKES } {
            return None;
        }
        let pause = silence << self.times.min(RAREST);
        *self = Self { count: 0, times: self.times + 1 };
        Some(pause)
    }
}
