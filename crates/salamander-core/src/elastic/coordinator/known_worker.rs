//! A worker as the master knows it.

use crate::elastic::{Generation, Holding, Millis, Peer};

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
    pub(super) strikes: u32,
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
            slot: None,
        }
    }
}
