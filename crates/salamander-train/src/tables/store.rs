//! What a training needs from the place where rows live: this process, or parameter servers.

use std::path::{Path, PathBuf};

use salamander_core::asynchronous::Lineage;
use salamander_core::progress::StepCount;
use salamander_ps::{Read, TableId, TableRows, TableSpec};

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

/// A table where rows live.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Declared {
    pub(crate) id: TableId,
    pub(crate) dim: usize,
}

impl Declared {
    /// Room for the rows of so many ids.
    pub(crate) fn room(&self, ids: &[u64]) -> Vec<f32> {
        vec![0.0; ids.len() * self.dim]
    }

    /// Gradients as the place knows their tables.
    pub(crate) fn rows<'a>(tables: &[Self], gradients: &'a [RowGradient]) -> Vec<TableRows<'a>> {
        let rows = gradients.iter().map(|gradient| TableRows {
            table: tables[gradient.table].id,
            ids: &gradient.ids,
            values: &gradient.values,
        });
        rows.collect()
    }
}

/// Finishes a save on another thread: writes what was copied, and says which files there are.
pub(crate) type Finish = Box<dyn FnOnce(&Path) -> Result<Vec<PathBuf>, Error> + Send>;

/// Where rows are read: this process, or parameter servers.
pub trait RowSource: Send {
    /// Makes the tables known; the numbers in other calls count these.
    fn declare(&mut self, specs: &[TableSpec]) -> Result<(), Error>;
    /// The rows of these ids, each once, one after the other.
    fn pull(&mut self, table: usize, ids: &[u64], read: Read) -> Result<Vec<f32>, Error>;
}

/// Rows that move with the steps of a trainer: a step is staged slice by slice and changes nothing until it is
/// advanced to.
pub trait StagedRows: RowSource {
    /// Keeps the gradient sums of slice `k` of the step after so many, in place of an earlier try at it.
    fn stage(&mut self, after: StepCount, k: u32, rows: &[RowGradient]) -> Result<(), Error>;
    /// Waits until what was staged is kept, and the step before is applied. Nobody may commit a step before all
    /// members have done this.
    fn settle(&mut self) -> Result<(), Error> {
        Ok(())
    }
    /// Applies the staged step before `to`, unless that was done, before anything else that is asked from now on:
    /// `factor` is the schedule's, sums are multiplied by `divisor`.
    fn advance(&mut self, to: StepCount, factor: f64, divisor: f32) -> Result<(), Error>;
    /// Copies all rows as they are now; the rest of the save is left to another thread. The folder is for files that
    /// are on their way.
    fn save(&mut self, scratch: &Path) -> Result<Finish, Error>;
    /// Replaces all rows by those of a checkpoint's files, or by none, after so many steps; a new history of them
    /// begins.
    fn restore(
        &mut self,
        files: &[PathBuf],
        after: StepCount,
        lineage: Lineage,
    ) -> Result<(), Error>;
    /// The rows as other processes see them, if they do: who moves them on must know that all workers have come as
    /// far.
    fn shared(&mut self) -> Option<&mut dyn SharedRows> {
        None
    }
}

/// Rows on parameter servers, which all workers of a run use.
pub trait SharedRows {
    /// Another generation has begun, in which the rows have this history.
    fn follow(&mut self, lineage: Lineage);
    /// Brings all rows, which have done so many steps, to the servers that the generation moves them to; a new history
    /// of them begins.
    fn relocate(&mut self, after: StepCount, lineage: Lineage) -> Result<(), Error>;
    /// The rows are where the generation has moved them to, and are looked for there from now on.
    fn relocated(&mut self);
}
