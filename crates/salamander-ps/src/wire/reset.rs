//! What a server is to hold in another history, and where it gets it. Small and rare, so a text.

use std::ops::Range;
use std::path::PathBuf;

use salamander_core::asynchronous::Lineage;
use salamander_core::progress::StepCount;
use serde::{Deserialize, Serialize};

use crate::placement::partitions_of;

/// The start of a history on one server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reset {
    /// The partitions that it holds from now on.
    pub partitions: Vec<Range<u16>>,
    /// Steps that are done at the start, when there are no files.
    pub version: StepCount,
    /// A checkpoint: for all partitions, or for those that none of the servers before has.
    #[serde(default)]
    pub files: Vec<PathBuf>,
    /// What to begin with instead if those cannot be read, one after the other.
    #[serde(default)]
    pub older: Vec<Vec<PathBuf>>,
    /// The servers that hold the partitions in the history before. Nothing of that history is let
    /// in any more, and each of them keeps what it gives away until it is told to release it.
    #[serde(default)]
    pub from: Option<Before>,
}

/// Who holds what in the history before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Before {
    /// That history.
    pub lineage: Lineage,
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

/// The start of a history on all its servers: the one place where resets are made.
///
/// ```
/// use salamander_ps::wire::HistoryStart;
///
/// let start = HistoryStart { servers: 2, ..HistoryStart::default() };
/// assert_eq!((start.reset(0).partitions, start.reset(1).partitions), (vec![0..512], vec![512..1024]));
/// assert!(start.reset(2).partitions.is_empty(), "there is no such server");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistoryStart {
    /// How many servers the history has.
    pub servers: usize,
    /// Steps that are done at the start, when there are no files.
    pub version: StepCount,
    /// The files of a checkpoint.
    pub files: Vec<PathBuf>,
    /// What to begin with instead if those cannot be read, one after the other.
    pub older: Vec<Vec<PathBuf>>,
    /// The servers of the history before, if partitions move.
    pub from: Option<Before>,
}

impl HistoryStart {
    /// What a server is told: one of the history that begins, or one that only gives.
    pub fn reset(&self, server: usize) -> Reset {
        let Self { servers, version, files, older, from } = self.clone();
        Reset { partitions: partitions_of(server, servers), version, files, older, from }
    }
}

impl Before {
    /// A history of so many servers, of which those that can be reached have an endpoint.
    pub fn new(
        lineage: Lineage,
        servers: usize,
        known: impl IntoIterator<Item = (usize, String)>,
    ) -> Self {
        let owner =
            |(server, endpoint)| Owner { endpoint, partitions: partitions_of(server, servers) };
        let of_history = known.into_iter().filter(|(server, _)| *server < servers);
        Self { lineage, owners: of_history.map(owner).collect() }
    }
}
