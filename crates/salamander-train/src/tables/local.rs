//! Rows in this process: what a local run trains on, with the same engine as the servers'.

use std::path::{Path, PathBuf};

use salamander_core::asynchronous::Lineage;
use salamander_core::progress::StepCount;
use salamander_ps::{Engine, EngineOptions, Read, TableRows, TableSpec};

use super::exported::import;
use super::{Declared, Finish, RowGradient, RowSource, StagedRows};
use crate::Error;

/// The file of a checkpoint that has all rows.
const FILE: &str = "tables.rows";

/// Rows in this process.
pub(crate) struct LocalRows {
    engine: Engine,
    tables: Vec<Declared>,
}

impl LocalRows {
    /// No rows yet; first values are drawn from this seed.
    pub(crate) fn new(seed: u64) -> Result<Self, Error> {
        let engine = Engine::new(EngineOptions { seed, ..EngineOptions::default() })?;
        Ok(Self { engine, tables: Vec::new() })
    }

    /// Replaces rows by exported ones.
    pub(crate) fn import(&mut self, folder: &Path, specs: &[TableSpec]) -> Result<(), Error> {
        for (table, spec) in self.tables.iter().zip(specs) {
            import(folder, spec, |ids, values| {
                Ok(self.engine.set(TableRows { table: table.id, ids, values })?)
            })?;
        }
        Ok(())
    }
}

impl RowSource for LocalRows {
    fn declare(&mut self, specs: &[TableSpec]) -> Result<(), Error> {
        self.tables.clear();
        for spec in specs {
            let id = self.engine.declare(spec.clone())?;
            self.tables.push(Declared { id, dim: spec.dim });
        }
        Ok(())
    }

    fn pull(&mut self, table: usize, ids: &[u64], read: Read) -> Result<Vec<f32>, Error> {
        let table = self.tables[table];
        let mut rows = table.room(ids);
        self.engine.pull(table.id, ids, read, &mut rows)?;
        Ok(rows)
    }
}

impl StagedRows for LocalRows {
    fn stage(&mut self, after: StepCount, k: u32, rows: &[RowGradient]) -> Result<(), Error> {
        Ok(self.engine.stage(after, k, &Declared::rows(&self.tables, rows))?)
    }

    fn advance(&mut self, to: StepCount, factor: f64, divisor: f32) -> Result<(), Error> {
        Ok(self.engine.advance(to, factor, divisor)?)
    }

    fn save(&mut self, _scratch: &Path) -> Result<Finish, Error> {
        let snapshot = self.engine.snapshot()?;
        Ok(Box::new(move |folder: &Path| {
            let path = folder.join(FILE);
            snapshot.write(&path)?;
            Ok(vec![path])
        }))
    }

    fn restore(
        &mut self,
        files: &[PathBuf],
        after: StepCount,
        _lineage: Lineage,
    ) -> Result<(), Error> {
        if files.is_empty() {
            return Ok(self.engine.clear(after)?);
        }
        Ok(self.engine.restore(files)?)
    }
}
