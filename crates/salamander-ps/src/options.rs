//! What goes into an [`Engine`](crate::Engine) and what comes out of it.

use std::collections::BTreeMap;
use std::ops::Range;

use salamander_core::plan::MicroBatch;
use serde::{Deserialize, Serialize};

use crate::{Applied, PARTITIONS};

/// How gradients are applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// Sums of slices wait until somebody has proof that the step is complete.
    Staged,
    /// Each push is applied when it comes, once for each partition.
    Immediate,
}

/// How an engine is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineOptions {
    /// How gradients are applied.
    pub mode: Mode,
    /// Where first values are drawn from.
    pub seed: u64,
    /// Owner threads.
    pub threads: usize,
    /// The partitions that live here.
    pub partitions: Vec<Range<u16>>,
    /// Micro-batches of an optimizer step, which makes names dense numbers.
    pub slices: u32,
}

impl Default for EngineOptions {
    /// One thread that owns everything, staged: what a local run needs.
    fn default() -> Self {
        let all = 0..PARTITIONS as u16;
        Self { mode: Mode::Staged, seed: 0, threads: 1, partitions: vec![all], slices: 1 }
    }
}

/// The number of a declared table, the same on every server that was told in the same order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TableId(pub u32);

/// Why rows are read. No read changes anything: a row that is not there reads as its first value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Read {
    /// To train on; counted in the statistics.
    Train,
    /// To evaluate or predict; not counted.
    Evaluate,
}

/// Rows of a table: gradients or values.
#[derive(Clone, Copy, Debug)]
pub struct TableRows<'a> {
    /// The table.
    pub table: TableId,
    /// Ids, each once.
    pub ids: &'a [u64],
    /// Their rows, one after the other.
    pub values: &'a [f32],
}

/// The gradients of one micro-batch, named by it.
#[derive(Clone, Copy, Debug)]
pub struct Push<'a> {
    /// The micro-batch.
    pub name: MicroBatch,
    /// What it adds to the ledger of each partition.
    pub tally: LedgerPage,
    /// The schedule's factor on each table's learning rate.
    pub factor: f64,
    /// What the gradients are multiplied by: one over the records, for sums.
    pub scale: f32,
    /// The counter of the parameters that the gradients were computed from, where their age is to count: with
    /// so many changes since then the rate is divided by one more than that.
    pub seen: Option<u64>,
    /// The rows, at most one entry for each table.
    pub rows: &'a [TableRows<'a>],
}

/// Counts of one epoch on one partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerPage {
    /// Records whose gradient was applied.
    pub applied: u64,
    /// Records that could not be decoded.
    pub skipped: u64,
    /// Sum of the hashes of all those records.
    pub digest: u64,
}

impl LedgerPage {
    /// Adds the counts of more records.
    pub fn add(&mut self, other: &LedgerPage) {
        self.applied += other.applied;
        self.skipped += other.skipped;
        self.digest = self.digest.wrapping_add(other.digest);
    }
}

/// The ledger of a partition: its pages by epoch.
pub type Pages = BTreeMap<u64, LedgerPage>;

/// What partitions with one history have applied.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Held {
    /// The partitions, in order.
    pub partitions: Vec<u16>,
    /// The names that each of them has applied.
    pub applied: Applied,
    /// The ledger of each of them.
    pub pages: Pages,
}

impl Held {
    /// Puts those with the same history together, and leaves out those without partitions.
    pub(crate) fn joined(all: impl IntoIterator<Item = Held>) -> Vec<Held> {
        let mut joined: Vec<Held> = Vec::new();
        for held in all {
            let same =
                |there: &&mut Held| there.applied == held.applied && there.pages == held.pages;
            match joined.iter_mut().find(same) {
                Some(there) => {
                    there.partitions.extend(held.partitions);
                    there.partitions.sort_unstable();
                }
                None => joined.push(held),
            }
        }
        joined.retain(|held| !held.partitions.is_empty());
        joined
    }
}

/// Rows that changed after a moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Changed {
    /// The moment to ask about next time.
    pub counter: u64,
    /// Ids, each once.
    pub ids: Vec<u64>,
    /// Their rows, one after the other.
    pub values: Vec<f32>,
}

/// What was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written {
    /// Length of the file.
    pub bytes: u64,
    /// Rows in it.
    pub rows: u64,
    /// Hash of its index, which holds the hash of every section: the identity of the file.
    pub blake3: String,
}
