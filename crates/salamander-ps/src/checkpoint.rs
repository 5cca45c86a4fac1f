//! Reading what [`Snapshot::write`](crate::Snapshot::write) wrote, with any number of files and
//! without an engine: for export, evaluation and restore.

mod hash;

use std::collections::BTreeMap;
use std::path::PathBuf;

use half::{bf16, f16};
use salamander_core::progress::StepCount;
use salamander_files::{Disk, real};
use serde::{Deserialize, Serialize};

use crate::image::{Header, SectionEntry, TableImage};
use crate::section::{PartitionHistory, Section};
use crate::{Error, Held, PARTITIONS, Storage, TableSpec};

pub use hash::rows_hash;

/// What files hold together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Description {
    /// Optimizer steps that were applied.
    pub version: StepCount,
    /// The tables.
    pub tables: Vec<TableSpec>,
    /// Rows of each table.
    pub rows: Vec<u64>,
    /// Partitions that no file holds.
    pub missing: Vec<u16>,
    /// The hash that identifies each file, as [`Written`](crate::Written) has it.
    pub blake3: Vec<String>,
}

/// Says what files hold, from their headers and indices alone.
pub fn describe(files: &[PathBuf]) -> Result<Description, Error> {
    let catalog = Catalog::open(files)?;
    let header = catalog.header();
    let mut rows = vec![0; header.tables.len()];
    for (image, place) in catalog.places.values() {
        let theirs = &catalog.images[*image].header.tables;
        for (table, count) in theirs.iter().zip(&place.rows) {
            let at = header.tables.iter().position(|known| known.name == table.name);
            at.into_iter().for_each(|at| rows[at] += count);
        }
    }
    let missing = (0..PARTITIONS as u16)
        .filter(|partition| !catalog.places.contains_key(partition))
        .collect();
    let blake3 = catalog.images.iter().map(|image| image.blake3.clone()).collect();
    Ok(Description { version: header.version, tables: header.tables, rows, missing, blake3 })
}

/// Hands over each row of a table, id and values, partition by partition. A table that no file
/// knows has no rows.
pub fn for_each_row(
    files: &[PathBuf],
    table: &str,
    mut each: impl FnMut(u64, &[f32]),
) -> Result<(), Error> {
    let catalog = Catalog::open(files)?;
    let mut wide = Vec::new();
    for partition in catalog.places.keys() {
        catalog.read(*partition, |section, specs| {
            let tables = specs.iter().zip(section.tables);
            for (spec, view) in tables.filter(|(spec, _)| spec.name == table) {
                for (id, row) in view.ids().zip(view.rows()) {
                    widen(spec.storage, row.values, &mut wide);
                    each(id, &wide);
                }
            }
        })?;
    }
    Ok(())
}

/// What the partitions have applied, those with the same history together. Reads and checks all of the files.
pub fn held(files: &[PathBuf]) -> Result<Vec<Held>, Error> {
    held_on(&*real(), files)
}

/// [`held`] on a given disk.
pub fn held_on(disk: &dyn Disk, files: &[PathBuf]) -> Result<Vec<Held>, Error> {
    let catalog = Catalog::open_on(disk, files)?;
    let mut all = Vec::with_capacity(catalog.places.len());
    for partition in catalog.places.keys() {
        let PartitionHistory { applied, pages, .. } =
            catalog.read(*partition, |section, _| section.history)?;
        all.push(Held { partitions: vec![*partition], applied, pages });
    }
    Ok(Held::joined(all))
}

pub(crate) fn widen(storage: Storage, kept: &[u8], wide: &mut Vec<f32>) {
    wide.clear();
    let halves = || kept.as_chunks().0.iter().copied();
    match storage {
        Storage::F32 => wide.extend(kept.as_chunks().0.iter().copied().map(f32::from_le_bytes)),
        Storage::F16 => wide.extend(halves().map(|bytes| f16::from_le_bytes(bytes).to_f32())),
        Storage::Bf16 => wide.extend(halves().map(|bytes| bf16::from_le_bytes(bytes).to_f32())),
    }
}

/// Files that were checked to fit together.
#[derive(Debug)]
pub(crate) struct Catalog {
    images: Vec<TableImage<'static>>,
    /// The image and the place in it of each partition.
    places: BTreeMap<u16, (usize, SectionEntry)>,
}

impl Catalog {
    pub(crate) fn open(files: &[PathBuf]) -> Result<Self, Error> {
        Self::open_on(&*real(), files)
    }

    fn open_on(disk: &dyn Disk, files: &[PathBuf]) -> Result<Self, Error> {
        let images = files.iter().map(|path| TableImage::open(disk, path));
        let images = images.collect::<Result<Vec<_>, _>>()?;
        let mut places: BTreeMap<u16, (usize, SectionEntry)> = BTreeMap::new();
        for (at, image) in images.iter().enumerate() {
            check_alike(&images[0], image)?;
            for place in &image.index {
                if let Some((other, _)) = places.insert(place.partition, (at, place.clone())) {
                    return Err(Error::Restore(format!(
                        "partition {} is in both {} and {}",
                        place.partition,
                        images[other].name(),
                        image.name()
                    )));
                }
            }
        }
        Ok(Self { images, places })
    }

    /// The header of all files together.
    pub(crate) fn header(&self) -> Header {
        let empty = Header { version: StepCount(0), seed: 0, slices: 1, tables: Vec::new() };
        let mut header = self.images.first().map_or(empty, |image| image.header.clone());
        for table in self.images.iter().flat_map(|image| &image.header.tables) {
            if header.tables.iter().all(|known| known.name != table.name) {
                header.tables.push(table.clone());
            }
        }
        header
    }

    /// The partitions that there are.
    pub(crate) fn partitions(&self) -> Vec<u16> {
        self.places.keys().copied().collect()
    }

    /// Where a partition begins in its file.
    pub(crate) fn place_of(&self, partition: u16) -> Result<u64, Error> {
        self.find(partition).map(|(_, place)| place.offset())
    }

    /// Bytes of the file of a partition.
    pub(crate) fn bytes_at(
        &self,
        partition: u16,
        offset: u64,
        length: u64,
    ) -> Result<Vec<u8>, Error> {
        self.find(partition)?.0.read_at(offset, length)
    }

    fn find(&self, partition: u16) -> Result<(&TableImage<'static>, &SectionEntry), Error> {
        let found = self.places.get(&partition);
        found.map(|(image, place)| (&self.images[*image], place)).ok_or_else(|| {
            Error::Restore(format!(
                "no file holds partition {partition}; give the files of all servers"
            ))
        })
    }

    /// Reads a partition with the tables of its file.
    pub(crate) fn read<R>(
        &self,
        partition: u16,
        use_it: impl FnOnce(Section<'_>, &[TableSpec]) -> R,
    ) -> Result<R, Error> {
        self.read_bytes(partition, |_, section, specs| use_it(section, specs))
    }

    /// The same with the bytes that the partition is made of.
    pub(crate) fn read_bytes<R>(
        &self,
        partition: u16,
        use_it: impl FnOnce(&[u8], Section<'_>, &[TableSpec]) -> R,
    ) -> Result<R, Error> {
        let (image, place) = self.find(partition)?;
        let bytes = image.section(place)?;
        let section = Section::decode(&bytes, partition, &image.header.tables)
            .map_err(|reason| image.damaged(partition, reason))?;
        Ok(use_it(&bytes, section, &image.header.tables))
    }
}

fn check_alike(first: &TableImage<'_>, other: &TableImage<'_>) -> Result<(), Error> {
    let (a, b) = (&first.header, &other.header);
    let fields = [
        ("version", a.version.0, b.version.0),
        ("seed", a.seed, b.seed),
        ("slices", u64::from(a.slices), u64::from(b.slices)),
    ];
    for (field, of_first, of_other) in fields {
        if of_first != of_other {
            return Err(Error::Restore(format!(
                "{} has {field} {of_first} and {} has {of_other}; give files of one checkpoint",
                first.name(),
                other.name()
            )));
        }
    }
    for table in &b.tables {
        let known = a.tables.iter().find(|known| known.name == table.name);
        known.map_or(Ok(()), |known| known.check_same(table))?;
    }
    Ok(())
}
