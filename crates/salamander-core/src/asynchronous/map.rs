//! Which server holds which partition, and in which history.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::elastic::{Generation, Term};

/// The number of a [`Map`], raised by every move of partitions and by every return to a checkpoint.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct MapVersion(pub Generation);

impl MapVersion {
    /// The one after it, given by a master of this term.
    #[must_use]
    pub fn next(self, term: Term) -> Self {
        Self(Generation { term, number: self.0.number + 1 })
    }
}

impl fmt::Display for MapVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The history that the rows of a server belong to: the number of the map, or of the generation of workers, that
/// it began with. Requests carry it, and servers refuse another one.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Lineage(pub u64);

impl Lineage {
    /// The term of the master that began it.
    pub fn term(self) -> Term {
        Generation::from_u64(self.0).term
    }

    /// The map that it began with, where it began with one.
    pub fn map(self) -> MapVersion {
        MapVersion(Generation::from_u64(self.0))
    }
}

impl From<Generation> for Lineage {
    fn from(generation: Generation) -> Self {
        Self(generation.to_u64())
    }
}

impl From<MapVersion> for Lineage {
    fn from(version: MapVersion) -> Self {
        version.0.into()
    }
}

impl fmt::Display for Lineage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Generation::from_u64(self.0).fmt(f)
    }
}

/// Which server holds which partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Map {
    /// Which map it is.
    pub number: MapVersion,
    /// How many servers there are.
    pub servers: u32,
}
