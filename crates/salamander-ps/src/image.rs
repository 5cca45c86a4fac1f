//! Partitions as one string of bytes, in a file or on a wire: a header, a section for each
//! partition, an index with the place and hash of each, and a footer that finds the index.
//!
//! `magic(8) | header length(8) | header (JSON) | sections | index (JSON) | index place(8) |
//! index length(8) | hash of header and index(32) | magic(8)`, numbers in little endian.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use salamander_core::progress::StepCount;
use salamander_files::{Access, Disk, DiskFile};
use serde::{Deserialize, Serialize};

use crate::shard::Encoded;
use crate::{Error, TableSpec};

const MAGIC: &[u8; 8] = b"SLMDRPS1";
const FOOTER: usize = 8 + 8 + 32 + 8;

/// What holds for all sections.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Header {
    /// Optimizer steps that were applied.
    pub(crate) version: StepCount,
    /// Where first values are drawn from.
    pub(crate) seed: u64,
    /// Micro-batches of a step.
    pub(crate) slices: u32,
    pub(crate) tables: Vec<TableSpec>,
}

/// Where a section is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SectionEntry {
    pub(crate) partition: u16,
    offset: u64,
    length: u64,
    /// Rows of each table.
    pub(crate) rows: Vec<u64>,
    blake3: String,
}

impl SectionEntry {
    /// Where it begins.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }
}

/// Writes an image; returns its length and the hash that identifies it.
pub(crate) fn write(
    out: &mut impl Write,
    header: &Header,
    sections: impl IntoIterator<Item = Encoded>,
) -> io::Result<(u64, String)> {
    let header = serde_json::to_vec(header)?;
    out.write_all(MAGIC)?;
    out.write_all(&(header.len() as u64).to_le_bytes())?;
    out.write_all(&header)?;
    let mut offset = (16 + header.len()) as u64;
    let mut index = Vec::new();
    // Each section is dropped once it is written.
    for Encoded { partition, bytes, rows } in sections {
        out.write_all(&bytes)?;
        let length = bytes.len() as u64;
        let blake3 = blake3::hash(&bytes).to_hex().to_string();
        index.push(SectionEntry { partition, offset, length, rows, blake3 });
        offset += length;
    }
    let index = serde_json::to_vec(&index)?;
    let hash = hash_of(&header, &index);
    out.write_all(&index)?;
    out.write_all(&offset.to_le_bytes())?;
    out.write_all(&(index.len() as u64).to_le_bytes())?;
    out.write_all(hash.as_bytes())?;
    out.write_all(MAGIC)?;
    Ok((offset + (index.len() + FOOTER) as u64, hash.to_hex().to_string()))
}

fn hash_of(header: &[u8], index: &[u8]) -> blake3::Hash {
    blake3::Hasher::new().update(header).update(index).finalize()
}

/// An image whose header and index were read and are sound.
#[derive(Debug)]
pub(crate) struct TableImage<'a> {
    source: ImageBytes<'a>,
    pub(crate) header: Header,
    pub(crate) index: Vec<SectionEntry>,
    pub(crate) blake3: String,
}

#[derive(Debug)]
enum ImageBytes<'a> {
    File(Box<dyn DiskFile>, PathBuf),
    Bytes(&'a [u8]),
}

impl TableImage<'static> {
    pub(crate) fn open(disk: &dyn Disk, path: &Path) -> Result<Self, Error> {
        let file = disk.open(path, Access::Read).map_err(|error| Error::file(path, error))?;
        let length = file.length().map_err(|error| Error::file(path, error))?;
        TableImage::read(ImageBytes::File(file, path.to_path_buf()), length)
    }
}

impl<'a> TableImage<'a> {
    pub(crate) fn of_bytes(bytes: &'a [u8]) -> Result<Self, Error> {
        Self::read(ImageBytes::Bytes(bytes), bytes.len() as u64)
    }

    fn read(source: ImageBytes<'a>, length: u64) -> Result<Self, Error> {
        let damaged = |reason: &str| Error::damaged(source.name(), reason);
        let Some(end) = length.checked_sub((FOOTER + 16) as u64) else {
            return Err(damaged("it is cut short"));
        };
        let head = source.read(0, 16)?;
        let footer = source.read(length - FOOTER as u64, FOOTER as u64)?;
        if head[..8] != MAGIC[..] || footer[FOOTER - 8..] != MAGIC[..] {
            return Err(damaged("it does not begin and end like a checkpoint of tables"));
        }
        let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |n, b| (n << 8) | u64::from(*b));
        let header_len = number(&head[8..]);
        let (offset, index_len) = (number(&footer[..8]), number(&footer[8..16]));
        let whole = offset.checked_add(index_len) == Some(end + 16);
        if !whole || offset < 16 || header_len > offset - 16 {
            return Err(damaged("its parts do not fit its length"));
        }
        let (header, index) = (source.read(16, header_len)?, source.read(offset, index_len)?);
        let hash = hash_of(&header, &index);
        if hash.as_bytes() != &footer[16..48] {
            return Err(damaged("its header or index does not match their checksum"));
        }
        let header = serde_json::from_slice(&header).map_err(|e| damaged(&e.to_string()))?;
        let index: Vec<SectionEntry> =
            serde_json::from_slice(&index).map_err(|e| damaged(&e.to_string()))?;
        let inside = |place: &SectionEntry| {
            place.offset.checked_add(place.length).is_some_and(|end| end <= offset)
        };
        if !index.iter().all(inside) {
            return Err(damaged("a section lies outside of it"));
        }
        let blake3 = hash.to_hex().to_string();
        Ok(Self { source, header, index, blake3 })
    }

    /// The bytes of a section, once they match their checksum.
    pub(crate) fn section(&self, place: &SectionEntry) -> Result<Vec<u8>, Error> {
        let bytes = self.source.read(place.offset, place.length)?;
        match blake3::hash(&bytes).to_hex().as_str() == place.blake3 {
            true => Ok(bytes),
            false => Err(self.damaged(place.partition, "it does not match its checksum")),
        }
    }

    /// Bytes of a range, which were checked when their section was read.
    pub(crate) fn read_at(&self, offset: u64, length: u64) -> Result<Vec<u8>, Error> {
        self.source.read(offset, length)
    }

    /// The error for a section that cannot be used.
    pub(crate) fn damaged(&self, partition: u16, reason: impl ToString) -> Error {
        Error::damaged(format!("{}, partition {partition}", self.source.name()), reason)
    }

    pub(crate) fn name(&self) -> String {
        self.source.name()
    }
}

impl ImageBytes<'_> {
    fn name(&self) -> String {
        match self {
            ImageBytes::File(_, path) => path.display().to_string(),
            ImageBytes::Bytes(_) => "moved partitions".to_string(),
        }
    }

    /// Bytes of a range that was checked to lie inside.
    fn read(&self, offset: u64, length: u64) -> Result<Vec<u8>, Error> {
        let cut_short = || Error::damaged(self.name(), "it is cut short");
        match self {
            ImageBytes::File(file, path) => {
                let mut bytes = vec![0; usize::try_from(length).map_err(|_| cut_short())?];
                match file.read_exact_at(&mut bytes, offset) {
                    Ok(()) => Ok(bytes),
                    Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(cut_short()),
                    Err(error) => Err(Error::file(path, error)),
                }
            }
            ImageBytes::Bytes(bytes) => {
                let range = offset as usize..offset.saturating_add(length) as usize;
                bytes.get(range).map(<[u8]>::to_vec).ok_or_else(cut_short)
            }
        }
    }
}
