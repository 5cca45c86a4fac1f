//! Indexes of many files in one file, so that a dataset of 10,000 shards opens the second time without
//! reading a shard.
//!
//! The bytes are never trusted: an entry counts only for a file of the same path, size and version, and each
//! format checks that what it restores can be of that file. What does not fit is left out and built again.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use salamander_files::{Durability, replace};

use crate::{Blob, Error, Format};

/// The file's name in the folder given.
const FILE: &str = "index.cache";
const MAGIC: &[u8; 8] = b"SALIDX02";
/// Entries of other datasets are kept up to this many bytes.
const MAX_BYTES: usize = 256 << 20;

/// What makes an index the index of one file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct IndexKey {
    path: Vec<u8>,
    size: u64,
    version: String,
}

/// A saved index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SavedIndex {
    pub(crate) format: Format,
    pub(crate) index: Vec<u8>,
}

/// All saved indexes.
#[derive(Debug, Default)]
pub(crate) struct IndexCache {
    entries: HashMap<Vec<u8>, (IndexKey, SavedIndex)>,
}

impl IndexKey {
    pub(crate) fn of(blob: &Blob) -> IndexKey {
        let path = key_path(blob.path());
        IndexKey { path, size: blob.size(), version: blob.version() }
    }

    /// The key of the same file, read in a way of its own.
    pub(crate) fn read_as(mut self, way: &str) -> IndexKey {
        self.version = format!("{} {way}", self.version);
        self
    }
}

impl IndexCache {
    /// What is in the folder; nothing, if that is missing or broken.
    pub(crate) fn load(folder: &Path) -> IndexCache {
        let bytes = std::fs::read(folder.join(FILE)).unwrap_or_default();
        IndexCache::decode(&bytes).unwrap_or_default()
    }

    /// True when something is known of a path, whatever the version.
    pub(crate) fn knows(&self, path: &Path) -> bool {
        self.entries.contains_key(&key_path(path))
    }

    pub(crate) fn get(&self, key: &IndexKey) -> Option<&SavedIndex> {
        let (known, entry) = self.entries.get(&key.path)?;
        (known == key).then_some(entry)
    }

    /// Adds entries and writes the folder's file in one step, so that a reader sees the old or the new one.
    pub(crate) fn save(
        mut self,
        folder: &Path,
        new: Vec<(IndexKey, SavedIndex)>,
    ) -> Result<(), Error> {
        let bytes = new.iter().map(|(key, entry)| weight(key, entry)).sum::<usize>();
        let old = self.entries.values().map(|(key, entry)| weight(key, entry)).sum::<usize>();
        if bytes + old > MAX_BYTES {
            self.entries.clear();
        }
        for (key, entry) in new {
            self.entries.insert(key.path.clone(), (key, entry));
        }
        let path = folder.join(FILE);
        std::fs::create_dir_all(folder).map_err(Error::io(folder))?;
        replace(&path, &self.encode(), Durability::Synced).map_err(Error::io(&path))
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        for (key, entry) in self.entries.values() {
            bytes.put_bytes(&key.path);
            bytes.put(key.size);
            bytes.put_bytes(key.version.as_bytes());
            bytes.put_bytes(entry.format.name().as_bytes());
            bytes.put_bytes(&entry.index);
        }
        let checksum = crc32fast::hash(&bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<IndexCache> {
        let (content, checksum) = bytes.split_last_chunk::<4>()?;
        let rest = content.strip_prefix(MAGIC)?;
        if crc32fast::hash(content) != u32::from_le_bytes(*checksum) {
            return None;
        }
        let mut cut = Cut(rest);
        let mut entries = HashMap::new();
        while !cut.0.is_empty() {
            let path = cut.bytes()?.to_vec();
            let size = cut.number()?;
            let version = String::from_utf8(cut.bytes()?.to_vec()).ok()?;
            let format = std::str::from_utf8(cut.bytes()?).ok()?.parse().ok()?;
            let index = cut.bytes()?.to_vec();
            let key = IndexKey { path: path.clone(), size, version };
            entries.insert(path, (key, SavedIndex { format, index }));
        }
        Some(IndexCache { entries })
    }
}

fn key_path(path: &Path) -> Vec<u8> {
    let full = match crate::places::scheme(path) {
        Some(_) => path.to_owned(),
        None => std::path::absolute(path).unwrap_or_else(|_| PathBuf::from(path)),
    };
    full.into_os_string().into_encoded_bytes()
}

fn weight(key: &IndexKey, entry: &SavedIndex) -> usize {
    key.path.len() + key.version.len() + entry.index.len() + 64
}

/// Appends numbers and byte strings to saved bytes.
pub(crate) trait Save {
    fn put(&mut self, number: u64);
    fn put_bytes(&mut self, bytes: &[u8]);
}

impl Save for Vec<u8> {
    fn put(&mut self, number: u64) {
        self.extend_from_slice(&number.to_le_bytes());
    }

    fn put_bytes(&mut self, bytes: &[u8]) {
        self.put(bytes.len() as u64);
        self.extend_from_slice(bytes);
    }
}

/// Saved bytes, of which numbers and byte strings are cut off at the front.
pub(crate) struct Cut<'a>(pub(crate) &'a [u8]);

impl<'a> Cut<'a> {
    pub(crate) fn number(&mut self) -> Option<u64> {
        let (number, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*number))
    }

    pub(crate) fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry(name: &str, size: u64) -> (IndexKey, SavedIndex) {
        let key = IndexKey { path: name.into(), size, version: "v".into() };
        (key, SavedIndex { format: Format::Csv, index: name.repeat(3).into_bytes() })
    }

    #[test]
    fn entries_of_several_saves_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("new");
        IndexCache::load(&inner).save(&inner, vec![entry("a", 1), entry("b", 2)]).unwrap();
        IndexCache::load(&inner).save(&inner, vec![entry("b", 3)]).unwrap();
        let cache = IndexCache::load(&inner);
        let check = |name, size, found: bool| {
            let (key, entry) = entry(name, size);
            assert_eq!(cache.get(&key), found.then_some(&entry), "{name} {size}");
        };
        check("a", 1, true);
        check("b", 3, true);
        check("b", 2, false);
        check("c", 1, false);
        assert_eq!(std::fs::read_dir(&inner).unwrap().count(), 1, "no partial file is left");
    }

    #[test]
    fn a_broken_file_counts_as_none() {
        let folder = tempfile::tempdir().unwrap();
        IndexCache::default().save(folder.path(), vec![entry("a", 1)]).unwrap();
        let good = std::fs::read(folder.path().join(FILE)).unwrap();
        for at in 0..good.len() {
            let mut bytes = good.clone();
            bytes[at] ^= 1;
            assert!(IndexCache::decode(&bytes).is_none(), "flipped {at}");
            assert!(IndexCache::decode(&good[..at]).is_none(), "cut at {at}");
        }
        std::fs::write(folder.path().join(FILE), &good[..20]).unwrap();
        assert!(IndexCache::load(folder.path()).entries.is_empty());
    }

    proptest! {
        #[test]
        fn any_bytes_load_or_not(content: Vec<u8>) {
            let mut bytes = [&MAGIC[..], &content[..]].concat();
            let checksum = crc32fast::hash(&bytes);
            bytes.extend_from_slice(&checksum.to_le_bytes());
            let _ = IndexCache::decode(&bytes);
        }
    }
}
