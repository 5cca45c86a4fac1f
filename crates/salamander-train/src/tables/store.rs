//! What a training needs from the place where rows live: this process, or parameter servers.

use std::path::{Path, PathBuf};

use salamander_ps::TableSpec;

use crate::Error;

/// The gradient sum of one table's rows.
#[derive(Clone, Debug, PartialEq)]
pub struct RowGradient {
    /// The table's number.
    pub table: usize,
    /// Ids, each once.
    pub ids: Vec<u64>,
    /// Their rows, one after the other.
    pub values: Vec<f32>,
}

/// Finishes a save on another thread: writes what was copied, and says which files there are.
pub type Finish = Box<dyn FnOnce(&Path) -> Result<Vec<PathBuf>, Error> + Send>;

/// Whether other processes see the same rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shared {
    /// They are this process's own.
    No,
    /// All workers of the run use them: who moves them on must know that all have come as far.
    Yes,
}

/// Where rows live. A step is staged slice by slice and changes nothing until it is advanced to.
pub trait RowStore: Send {
    /// Makes the tables known; the numbers in other calls count these.
    fn declare(&mut self, specs: &[TableSpec]) -> Result<(), Error>;
    /// Whether other processes see the same rows.
    fn shared(&self) -> Shared;
    /// Another generation has begun, in which the rows have this history.
    fn follow(&mut self, lineage: u64);
    /// The rows of these ids, each once, one after the other.
    fn pull(&mut self, table: usize, ids: &[u64], training: bool) -> Result<Vec<f32>, Error>;
    /// Keeps the gradient sums of slice `k` of step `version`, in place of an earlier try at it.
    fn stage(&mut self, version: u64, k: u32, rows: &[RowGradient]) -> Result<(), Error>;
    /// Waits until what was staged is kept, and the step before is applied. Nobody may commit a step before all
    /// members have done this.
    fn settle(&mut self) -> Result<(), Error> {
        Ok(())
    }
    /// Applies the staged step before `to`, unless that was done, before anything else that is asked from now on:
    /// `factor` is the schedule's, sums are multiplied by `divisor`.
    fn advance(&mut self, to: u64, factor: f64, divisor: f32) -> Result<(), Error>;
    /// Copies all rows as they are now; the rest of the save is left to another thread. The folder is for files that
    /// are on their way.
    fn save(&mut self, scratch: &Path) -> Result<Finish, Error>;
    /// Brings all rows, which are at this version, to the servers that the generation moves them to; a new history of
    /// them begins.
    fn relocate(&mut self, _version: u64, _lineage: u64) -> Result<(), Error> {
        Err(Error::Invalid("these rows are on no servers that they could leave".to_string()))
    }
    /// The rows are where the generation has moved them to, and are looked for there from now on.
    fn relocated(&mut self) {}
    /// Replaces all rows by those of a checkpoint's files, or by none, at this version; a new history of them begins.
    fn restore(&mut self, files: &[PathBuf], version: u64, lineage: u64) -> Result<(), Error>;
}
