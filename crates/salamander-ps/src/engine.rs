//! The handle on the tables of a server.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::naive::Naive;
use crate::{
    Changed, EngineOptions, Error, Held, Push, Read, Rows, Stats, TableId, TableSpec, Written,
};

/// The tables of a server: a handle that is cheap to clone. Every call blocks until it is done.
#[derive(Clone, Debug)]
pub struct Engine {
    inner: Arc<Mutex<Naive>>,
}

/// A copy of all partitions of an engine.
#[derive(Debug)]
pub struct Snapshot {
    pub(crate) bytes: Vec<u8>,
    pub(crate) rows: u64,
}

impl Engine {
    /// An engine without tables.
    pub fn new(options: EngineOptions) -> Result<Self, Error> {
        Ok(Self { inner: Arc::new(Mutex::new(Naive::new(options)?)) })
    }

    fn lock(&self) -> MutexGuard<'_, Naive> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a table known. The same again gives the same number; another one under the name is an
    /// error that tells the field.
    pub fn declare(&self, spec: TableSpec) -> Result<TableId, Error> {
        self.lock().declare(spec)
    }

    /// The tables, in the order of their numbers.
    pub fn tables(&self) -> Vec<TableSpec> {
        self.lock().tables.clone()
    }

    /// The partitions that live here, in order.
    pub fn partitions(&self) -> Vec<u16> {
        self.lock().parts.keys().copied().collect()
    }

    /// Reads rows into `out`. Ids come in any order and may repeat.
    pub fn pull(
        &self,
        table: TableId,
        ids: &[u64],
        read: Read,
        out: &mut [f32],
    ) -> Result<(), Error> {
        self.lock().pull(table, ids, read, out)
    }

    /// Writes values as they are, creating rows where there are none. Optimizer state stays.
    pub fn set(&self, rows: Rows<'_>) -> Result<(), Error> {
        self.lock().set(rows)
    }

    /// Keeps the gradient sum of slice `k` of optimizer step `version`, in place of what was staged
    /// for it before. A step that was applied already is acknowledged and ignored.
    pub fn stage(&self, version: u64, k: u32, rows: &[Rows<'_>]) -> Result<(), Error> {
        self.lock().stage(version, k, rows)
    }

    /// Applies what is staged: sums added in the order of `k` and multiplied by `scale`, each
    /// table's learning rate multiplied by `factor`. Advancing to the current version does nothing.
    pub fn advance(&self, to: u64, factor: f64, scale: f32) -> Result<(), Error> {
        self.lock().advance(to, factor, scale)
    }

    /// Optimizer steps that were applied.
    pub fn version(&self) -> u64 {
        self.lock().version
    }

    /// Applies the gradients of a micro-batch on each partition that has not yet had it.
    pub fn push(&self, push: Push<'_>) -> Result<(), Error> {
        self.lock().push(&push)
    }

    /// The rows that changed after the moment `since`; all of them for 0.
    pub fn changed(&self, table: TableId, since: u64) -> Result<Changed, Error> {
        self.lock().changed(table, since)
    }

    /// What the partitions here have applied, those with the same history together.
    pub fn applied(&self) -> Result<Vec<Held>, Error> {
        Ok(self.lock().applied())
    }

    /// Forgets the applied names of epochs below, which count as applied from then on.
    pub fn prune(&self, below_epoch: u64) -> Result<(), Error> {
        self.lock().prune(below_epoch);
        Ok(())
    }

    /// Figures of all tables.
    pub fn stats(&self) -> Result<Stats, Error> {
        Ok(self.lock().stats())
    }

    /// A copy of everything, of one moment.
    pub fn snapshot(&self) -> Result<Snapshot, Error> {
        self.lock().snapshot()
    }

    /// Replaces everything by what files hold of the partitions that live here.
    pub fn restore(&self, files: &[PathBuf]) -> Result<(), Error> {
        self.lock().restore(files)
    }

    /// Forgets all rows, staged gradients and applied names, and starts at a version.
    pub fn clear(&self, version: u64) -> Result<(), Error> {
        self.lock().clear(version);
        Ok(())
    }

    /// Takes partitions out of this engine, as bytes for [`put`](Engine::put).
    pub fn take(&self, partitions: &[u16]) -> Result<Vec<u8>, Error> {
        self.lock().take(partitions)
    }

    /// Puts partitions into this engine that [`take`](Engine::take) took out of another.
    pub fn put(&self, bytes: &[u8]) -> Result<(), Error> {
        self.lock().put(bytes)
    }
}

impl Snapshot {
    /// Rows in it.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Writes it: beside first, synced, then renamed.
    pub fn write(self, path: &Path) -> Result<Written, Error> {
        std::fs::write(path, &self.bytes).map_err(|error| Error::file(path, error))?;
        let blake3 = blake3::hash(&self.bytes).to_hex().to_string();
        Ok(Written { bytes: self.bytes.len() as u64, rows: self.rows, blake3 })
    }
}
