//! Numbers that must not be mixed up: two of them in the wrong order do not compile.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A process that trains, by the number it drew when it started.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct WorkerId(pub u64);

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// One life of the master, from 1: each restart begins the next.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Term(pub u32);

impl Term {
    /// The term of the master that takes over.
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// Takes over from the term before. False: a master that was replaced still writes, and nothing of it counts.
    pub(crate) fn take_over(&mut self, term: Term) -> bool {
        let counts = term >= *self;
        *self = term.max(*self);
        counts
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of a membership. A later master's numbers are greater than all of an earlier one's, so that two
/// masters can never give the same number to different members.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Generation {
    /// Whose number it is. Journals of earlier releases call it `epoch`.
    #[serde(alias = "epoch")]
    pub term: Term,
    /// Counts on from the last journaled one.
    pub number: u32,
}

impl Generation {
    /// For wires.
    pub fn to_u64(self) -> u64 {
        u64::from(self.term.0) << 32 | u64::from(self.number)
    }

    /// From wires.
    pub fn from_u64(value: u64) -> Self {
        Self { term: Term((value >> 32) as u32), number: value as u32 }
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.term, self.number)
    }
}

/// How many exchanges were committed to a state.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Version(pub u64);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A hash over all commits that led to a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StateLineage(pub u64);
