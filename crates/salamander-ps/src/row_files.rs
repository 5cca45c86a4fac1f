//! Rows of a checkpoint, read where they are: for models whose tables do not fit into memory. Of 64 rows one hash is
//! kept; the ids around it and the row itself are read when they are asked for.

use std::collections::HashMap;
use std::path::PathBuf;

use salamander_core::seed::mix;

use crate::checkpoint::{Catalog, widen};
use crate::{Error, TableSpec, partition_of};

/// Ids that are read at a time: their place is known by the hash of the first of them.
const STRIDE: u64 = 64;

/// The tables of a checkpoint's files.
#[derive(Debug)]
pub struct RowFiles {
    catalog: Catalog,
    tables: HashMap<String, TablePlaces>,
}

#[derive(Debug)]
struct TablePlaces {
    spec: TableSpec,
    partitions: HashMap<u16, PartitionPlace>,
}

/// Where a partition of a table is in its file.
#[derive(Debug)]
struct PartitionPlace {
    rows: u64,
    /// Where its ids begin, and where its values do.
    ids: u64,
    values: u64,
    /// The hash of every 64th id.
    marks: Vec<u64>,
}

impl RowFiles {
    /// Reads and checks the files once, a partition at a time; memory is taken for the hashes only.
    pub fn open(files: &[PathBuf]) -> Result<Self, Error> {
        let catalog = Catalog::open(files)?;
        let empty =
            |spec: TableSpec| (spec.name.clone(), TablePlaces { spec, partitions: HashMap::new() });
        let mut tables: HashMap<String, TablePlaces> =
            catalog.header().tables.into_iter().map(empty).collect();
        for partition in catalog.partitions() {
            let begin = catalog.place_of(partition)?;
            catalog.read_bytes(partition, |bytes, section, specs| {
                for (spec, view) in specs.iter().zip(&section.tables) {
                    let (ids, values) = view.places(bytes);
                    let place = PartitionPlace {
                        rows: view.ids().len() as u64,
                        ids: begin + ids as u64,
                        values: begin + values as u64,
                        marks: view.ids().step_by(STRIDE as usize).map(mix).collect(),
                    };
                    if let Some(table) = tables.get_mut(&spec.name) {
                        table.partitions.insert(partition, place);
                    }
                }
            })?;
        }
        Ok(Self { catalog, tables })
    }

    /// Refuses a table that is not as in the files; one that they do not know has no rows.
    pub fn check(&self, spec: &TableSpec) -> Result<(), Error> {
        self.tables.get(&spec.name).map_or(Ok(()), |table| table.spec.check_same(spec))
    }

    /// Reads the row of an id, if it is there.
    ///
    /// # Panics
    /// If the row has another width.
    pub fn read(&self, table: &str, id: u64, row: &mut [f32]) -> Result<bool, Error> {
        let partition = partition_of(id);
        let Some(table) = self.tables.get(table) else { return Ok(false) };
        let Some(place) = table.partitions.get(&partition) else { return Ok(false) };
        // The last mark that is not behind the id.
        let hash = mix(id);
        let Some(block) = place.marks.partition_point(|mark| *mark <= hash).checked_sub(1) else {
            return Ok(false);
        };
        let first = block as u64 * STRIDE;
        let count = STRIDE.min(place.rows - first);
        let ids = self.catalog.bytes_at(partition, place.ids + first * 8, count * 8)?;
        let is = |bytes: &[u8; 8]| u64::from_le_bytes(*bytes) == id;
        let Some(at) = ids.as_chunks().0.iter().position(is) else { return Ok(false) };
        let width = (table.spec.dim * table.spec.storage.width()) as u64;
        let begin = place.values + (first + at as u64) * width;
        let kept = self.catalog.bytes_at(partition, begin, width)?;
        let mut wide = Vec::with_capacity(row.len());
        widen(table.spec.storage, &kept, &mut wide);
        row.copy_from_slice(&wide);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Engine, EngineOptions, Read, Storage, TableRows};

    #[test]
    fn rows_are_those_that_an_engine_restores() {
        for storage in [Storage::F32, Storage::F16, Storage::Bf16] {
            let spec = TableSpec { storage, ..TableSpec::new("user", 6) };
            let engine = Engine::new(EngineOptions::default()).expect("an engine");
            let table = engine.declare(spec.clone()).expect("declared");
            let ids: Vec<u64> = (0..50_000).map(|id| id * 7).collect();
            let values: Vec<f32> = (0..ids.len() * 6).map(|at| at as f32 * 0.25).collect();
            engine.set(TableRows { table, ids: &ids, values: &values }).expect("set");
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("tables.rows");
            engine.snapshot().expect("copied").write(&path).expect("written");
            let files = RowFiles::open(&[path]).expect("opened");
            files.check(&spec).expect("the same");
            assert!(files.check(&TableSpec::new("user", 7)).is_err());
            let (mut found, mut expected) = ([0.0; 6], [0.0; 6]);
            for id in (0..350_000).step_by(11) {
                let there = files.read("user", id, &mut found).expect("read");
                assert_eq!(there, id % 7 == 0, "{id}");
                engine.pull(table, &[id], Read::Evaluate, &mut expected).expect("pulled");
                assert!(!there || found == expected, "{id}");
            }
            assert!(!files.read("item", 7, &mut found).expect("read"));
        }
    }

    #[test]
    fn damaged_files_are_refused() {
        let engine = Engine::new(EngineOptions::default()).expect("an engine");
        let table = engine.declare(TableSpec::new("user", 4)).expect("declared");
        engine.set(TableRows { table, ids: &[1, 2], values: &[1.0; 8] }).expect("set");
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("tables.rows");
        engine.snapshot().expect("copied").write(&path).expect("written");
        let mut bytes = std::fs::read(&path).expect("read");
        let middle = bytes.len() / 4;
        bytes[middle] ^= 1;
        std::fs::write(&path, bytes).expect("written");
        assert!(RowFiles::open(&[path]).is_err());
    }
}
