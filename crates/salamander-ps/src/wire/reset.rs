//! What a server is to hold in another history, and where it gets it. Small and rare, so a text.

use std::ops::Range;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The start of a history on one server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reset {
    /// The partitions that it holds from now on; nothing: those that it holds.
    #[serde(default)]
    pub partitions: Option<Vec<Range<u16>>>,
    /// The version at the start, when there are no files.
    pub version: u64,
    /// A checkpoint: for all partitions, or for those that none of the servers before has.
    #[serde(default)]
    pub files: Vec<PathBuf>,
    /// The servers that hold the partitions in the history before. Nothing of that history is let
    /// in any more, and each of them keeps what it gives away until it is told to release it.
    #[serde(default)]
    pub from: Option<Before>,
}

/// Who holds what in the history before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Before {
    /// That history.
    pub lineage: u64,
    /// Its servers, as far as they are known.
    pub owners: Vec<Owner>,
}

/// A server of the history before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// Where it listens.
    pub endpoint: String,
    /// What it holds.
    pub partitions: Vec<Range<u16>>,
}
