//! How long the master waits for whom.

use crate::elastic::Millis;

/// How long to wait for whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// A worker that was not heard for so long is dropped.
    pub silence: Millis,
    /// A worker that does not answer a prepare for so long is left out.
    pub promise: Millis,
    /// One that has answered that it is still changing its state is waited for this long: it may be the only one that
    /// has the state.
    pub apply: Millis,
    /// How long a newcomer waits for others, so that several cause one regroup.
    pub join: Millis,
    /// How long the first generation waits for all workers that are wanted, once there are enough.
    pub first: Millis,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { silence: 5_000, promise: 2_000, apply: 120_000, join: 100, first: 3_000 }
    }
}
