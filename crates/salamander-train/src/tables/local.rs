//! Rows in this process: what a local run trains on, with the same engine as the servers'.

use std::path::{Path, PathBuf};

use salamander_core::push::Lineage;
use salamander_ps::{Engine, EngineOptions, Read, Rows, TableId, TableSpec};

use super::exported::import;
use super::{Finish, RowGradient, RowSource, SharedRows, StagedRows};
use crate::Error;

/// The file of a checkpoint that has all rows.
const FILE: &str = "tables.rows";

/// Rows in this process.
pub struct LocalRows {
    engine: Engine,
    tables: Vec<(TableId, usize)>,
}

impl LocalRows {
    /// No rows yet; first values are drawn from this seed.
    pub fn new(seed: u64) -> Result<Self, Error> {
        let engine = Engine::new(EngineOptions { seed, ..EngineOptions::default() })?;
        Ok(Self { engine, tables: Vec::new() })
    }

    /// Replaces rows by exported ones.
    pub fn import(&mut self, folder: &Path, specs: &[TableSpec]) -> Result<(), Error> {
        for ((table, _), spec) in self.tables.iter().zip(specs) {
            import(folder, spec, |ids, values| {
                Ok(self.engine.set(Rows { table: *table, ids, values })?)
            })?;
        }
        Ok(())
    }
}

impl RowSource for LocalRows {
    fn declare(&mut self, specs: &[TableSpec]) -> Result<(), Error> {
        self.tables.clear();
        for spec in specs {
            self.tables.push((self.engine.declare(spec.clone())?, spec.dim));
        }
        Ok(())
    }

    fn pull(&mut self, table: usize, ids: &[u64], training: bool) -> Result<Vec<f32>, Error> {
        let (table, dim) = self.tables[table];
        let mut rows = vec![0.0; ids.len() * dim];
        let read = if training { Read::Train } else { Read::Evaluate };
        self.engine.pull(table, ids, read, &mut rows)?;
        Ok(rows)
    }
}

impl StagedRows for LocalRows {
    fn stage(&mut self, version: u64, k: u32, rows: &[RowGradient]) -> Result<(), Error> {
        let rows: Vec<Rows<'_>> = rows
            .iter()
            .map(|row| Rows { table: self.tables[row.table].0, ids: &row.ids, values: &row.values })
            .collect();
        Ok(self.engine.stage(version, k, &rows)?)
    }

    fn settle(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn advance(&mut self, to: u64, factor: f64, divisor: f32) -> Result<(), Error> {
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

    fn restore(&mut self, files: &[PathBuf], version: u64, _lineage: Lineage) -> Result<(), Error> {
        if files.is_empty() {
            return Ok(self.engine.clear(version)?);
        }
        Ok(self.engine.restore(files)?)
    }

    fn shared(&mut self) -> Option<&mut dyn SharedRows> {
        None
    }
}
