//! A hash of all rows that does not depend on which server holds them, nor on when they were made.

use std::path::PathBuf;

use salamander_files::Disk;

use super::Catalog;
use crate::Error;
use crate::meta::Meta;

/// The BLAKE3 hash over all rows of some files: table, id, steps, values and optimizer state, by partition (which
/// follows from the id), table and id. Two sets of files with the same rows have the same one. When a row was last used
/// is not in it.
pub fn rows_hash(disk: &dyn Disk, files: &[PathBuf]) -> Result<[u8; 32], Error> {
    let catalog = Catalog::open_on(disk, files)?;
    let mut hasher = blake3::Hasher::new();
    for partition in catalog.places.keys() {
        catalog.read(*partition, |section, specs| {
            let mut tables: Vec<_> = specs.iter().zip(&section.tables).collect();
            tables.sort_by_key(|(spec, _)| &spec.name);
            for (spec, view) in tables {
                let mut rows: Vec<_> = view.ids().zip(view.rows()).collect();
                rows.sort_by_key(|(id, _)| *id);
                for (id, row) in rows {
                    let lengths = [spec.name.len(), row.values.len(), row.state.len()];
                    lengths.iter().for_each(|length| {
                        hasher.update(&(*length as u64).to_le_bytes());
                    });
                    hasher.update(spec.name.as_bytes());
                    hasher.update(&id.to_le_bytes());
                    hasher.update(&Meta(row.meta).step().to_le_bytes());
                    hasher.update(row.values);
                    hasher.update(row.state);
                }
            }
        })?;
    }
    Ok(*hasher.finalize().as_bytes())
}

#[cfg(test)]
mod tests {
    use salamander_core::progress::StepCount;

    use super::*;
    use crate::{Engine, EngineOptions, Read, TableRows, TableSpec};

    /// Two steps on some rows; the order of the ids is that of their making.
    fn file(
        folder: &std::path::Path,
        name: &str,
        threads: usize,
        ids: &[u64],
        rate: f64,
    ) -> PathBuf {
        let options = EngineOptions { threads, seed: 3, ..EngineOptions::default() };
        let engine = Engine::new(options).expect("an engine");
        let table = engine.declare(TableSpec::new("user", 2)).expect("a table");
        for version in [0, 1].map(StepCount) {
            let mut rows = vec![0.0; ids.len() * 2];
            engine.pull(table, ids, Read::Train, &mut rows).expect("rows");
            let values: Vec<f32> = ids.iter().flat_map(|id| [*id as f32, 0.5]).collect();
            engine.stage(version, 0, &[TableRows { table, ids, values: &values }]).expect("staged");
            engine.advance(version.next(), rate, 1.0).expect("advanced");
        }
        let path = folder.join(name);
        engine.snapshot().expect("a copy").write(&path).expect("written");
        path
    }

    #[test]
    fn rows_have_one_hash_whatever_thread_and_order_they_were_made_in() {
        let folder = tempfile::tempdir().expect("a folder");
        let ids: Vec<u64> = (0..300).map(|n| n * 7919 + 1).collect();
        let reversed: Vec<u64> = ids.iter().rev().copied().collect();
        let hash = |name: &str, threads, ids: &[u64], rate| {
            let path = file(folder.path(), name, threads, ids, rate);
            rows_hash(&*salamander_files::real(), &[path]).expect("a hash")
        };
        let one = hash("a", 1, &ids, 1.0);
        assert_eq!(hash("b", 3, &reversed, 1.0), one);
        assert_ne!(hash("c", 1, &ids, 0.5), one, "other values");
        assert_ne!(hash("d", 1, &ids[1..], 1.0), one, "a row less");
    }
}
