//! Rows that are read from a checkpoint when they are asked for: a model whose tables do not fit into memory can be
//! used, though not trained. Rows that were asked for lately are kept, up to a bound.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use salamander_ps::{Engine, EngineOptions, Read, RowFiles, TableSpec};

use super::{Declared, RowSource};
use crate::Error;

/// Bytes that a kept row takes besides its values.
const OVERHEAD: usize = 64;

/// Rows in files.
pub(crate) struct FileRows {
    files: RowFiles,
    /// Has no rows: what it reads are first values, those of ids that no file has.
    first_values: Engine,
    tables: Vec<(String, Declared)>,
    kept: KeptRows,
    unknown: Arc<AtomicU64>,
}

impl FileRows {
    /// Opens a checkpoint's files; rows of at most so many bytes are kept.
    pub(crate) fn open(files: &[PathBuf], seed: u64, most: usize) -> Result<Self, Error> {
        let first_values = Engine::new(EngineOptions { seed, ..EngineOptions::default() })?;
        Ok(Self {
            files: RowFiles::open(files)?,
            first_values,
            tables: Vec::new(),
            kept: KeptRows { most, ..KeptRows::default() },
            unknown: Arc::default(),
        })
    }

    /// Counts look-ups of ids that no file has.
    pub(crate) fn unknown(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.unknown)
    }
}

impl RowSource for FileRows {
    fn declare(&mut self, specs: &[TableSpec]) -> Result<(), Error> {
        self.tables.clear();
        for spec in specs {
            self.files.check(spec)?;
            let id = self.first_values.declare(spec.clone())?;
            self.tables.push((spec.name.clone(), Declared { id, dim: spec.dim }));
        }
        Ok(())
    }

    fn pull(&mut self, table: usize, ids: &[u64], read: Read) -> Result<Vec<f32>, Error> {
        let (name, declared) = &self.tables[table];
        let mut rows = vec![0.0; ids.len() * declared.dim];
        for (id, row) in ids.iter().zip(rows.chunks_mut(declared.dim.max(1))) {
            if let Some(kept) = self.kept.get(table, *id) {
                row.copy_from_slice(kept);
                continue;
            }
            if !self.files.read(name, *id, row)? {
                self.first_values.pull(declared.id, &[*id], read, row)?;
                self.unknown.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            self.kept.put(table, *id, row);
        }
        Ok(rows)
    }
}

type RowsById = HashMap<(usize, u64), Box<[f32]>>;

/// Rows that were asked for lately: when half of the bound is full, those go that were not asked for since the last
/// time.
#[derive(Default)]
struct KeptRows {
    most: usize,
    young: RowsById,
    old: RowsById,
    /// What the young ones take.
    bytes: usize,
}

impl KeptRows {
    fn get(&mut self, table: usize, id: u64) -> Option<&[f32]> {
        if let Some(row) = self.old.remove(&(table, id)) {
            self.insert(table, id, row);
        }
        self.young.get(&(table, id)).map(|row| &row[..])
    }

    fn put(&mut self, table: usize, id: u64, row: &[f32]) {
        self.insert(table, id, row.into());
    }

    fn insert(&mut self, table: usize, id: u64, row: Box<[f32]>) {
        let size = row.len() * size_of::<f32>() + OVERHEAD;
        if self.bytes + size > self.most / 2 {
            self.old = std::mem::take(&mut self.young);
            self.bytes = 0;
        }
        self.bytes += size;
        self.young.insert((table, id), row);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_bounded_and_what_is_asked_for_stays() {
        let mut kept = KeptRows { most: 20 * (OVERHEAD + 16), ..KeptRows::default() };
        for id in 0..1000 {
            kept.put(0, id, &[id as f32; 4]);
            assert_eq!(kept.get(0, 0).map(|row| row[0]), Some(0.0), "asked for each time");
            assert!(kept.young.len() + kept.old.len() <= 20, "{id}");
        }
        assert_eq!(kept.get(0, 999).map(|row| row[3]), Some(999.0));
        assert_eq!(kept.get(0, 500), None);
        assert_eq!(kept.get(1, 999), None);
    }
}
