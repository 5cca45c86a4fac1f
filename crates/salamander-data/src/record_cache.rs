//! Decoded records in memory, and in a file once all are there: text takes longer to decode than to train on in small
//! models, and is the same in every epoch.
//!
//! What is kept are bytes that somebody else makes and understands. A key says who, so that bytes of another model,
//! program or file are never taken: with them a record would be another one.

use std::path::{Path, PathBuf};
use std::sync::{OnceLock, PoisonError, RwLock};

use salamander_files::{Durability, replace};

use crate::index_cache::{Cut, Save};

const MAGIC: &[u8; 8] = b"SALDEC01";
/// What a record takes besides its bytes.
const SLOT_BYTES: usize = 32;

/// Decoded records of a dataset, by number.
#[derive(Debug)]
pub struct RecordCache {
    limit: usize,
    file: Option<PathBuf>,
    /// What tells the dataset from others.
    fingerprint: u64,
    owner: OnceLock<u64>,
    slots: RwLock<CachedRecords>,
}

#[derive(Debug)]
struct CachedRecords {
    records: Vec<Option<Box<[u8]>>>,
    missing: u64,
    bytes: usize,
}

impl RecordCache {
    /// A cache of at most `limit` bytes; nothing where not even the records' numbers fit. `file` is where complete ones
    /// are kept.
    pub(crate) fn new(
        records: u64,
        fingerprint: u64,
        limit: usize,
        file: Option<PathBuf>,
    ) -> Option<RecordCache> {
        let count = usize::try_from(records).ok()?;
        let bytes = count.checked_mul(SLOT_BYTES).filter(|bytes| *bytes <= limit)?;
        let slots = CachedRecords { records: vec![None; count], missing: records, bytes };
        let (owner, slots) = (OnceLock::new(), RwLock::new(slots));
        Some(RecordCache { limit, file, fingerprint, owner, slots })
    }

    /// Whether the cache is for this kind of bytes, which `owner` names: the first one has it. Then what a file has of
    /// it is loaded, if that is complete.
    pub fn claim(&self, owner: u64) -> bool {
        let first = self.owner.get_or_init(|| {
            self.load(owner);
            owner
        });
        *first == owner
    }

    /// Gives what is there of some records, with the place in `records`.
    pub fn read(&self, records: &[u64], each: &mut dyn FnMut(usize, &[u8])) {
        let slots = self.slots.read().unwrap_or_else(PoisonError::into_inner);
        for (place, record) in records.iter().enumerate() {
            let found = usize::try_from(*record).ok().and_then(|record| slots.records.get(record));
            if let Some(bytes) = found.and_then(Option::as_deref) {
                each(place, bytes);
            }
        }
    }

    /// Keeps records as long as there is room. When the last one is there, they are written to the file.
    pub fn add(&self, new: Vec<(u64, Vec<u8>)>) {
        let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
        let before = slots.missing;
        for (record, bytes) in new {
            let fits = slots.bytes.saturating_add(bytes.len()) <= self.limit;
            let record = usize::try_from(record).unwrap_or(usize::MAX);
            let Some(slot) = slots.records.get_mut(record).filter(|slot| slot.is_none() && fits)
            else {
                continue;
            };
            let length = bytes.len();
            *slot = Some(bytes.into_boxed_slice());
            slots.bytes += length;
            slots.missing -= 1;
        }
        let complete = slots.missing == 0 && before > 0;
        drop(slots);
        if complete {
            self.save();
        }
    }

    fn key(&self, owner: u64) -> u64 {
        salamander_core::seed::derive(self.fingerprint, &[owner])
    }

    /// A file that cannot be written costs the next start its time, and nothing else.
    fn save(&self) {
        let (Some(path), Some(owner)) = (&self.file, self.owner.get()) else { return };
        let slots = self.slots.read().unwrap_or_else(PoisonError::into_inner);
        let mut bytes = Vec::with_capacity(slots.bytes + 64);
        bytes.extend_from_slice(MAGIC);
        bytes.put(self.key(*owner));
        bytes.put(slots.records.len() as u64);
        for record in slots.records.iter().flatten() {
            bytes.put_bytes(record);
        }
        drop(slots);
        let checksum = crc32fast::hash(&bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        let _ = replace(path, &bytes, Durability::Unsynced);
    }

    fn load(&self, owner: u64) {
        let Some(records) = self.file.as_deref().and_then(|file| self.loaded(file, owner)) else {
            return;
        };
        let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
        if records.len() == slots.records.len() {
            slots.bytes += records.iter().map(|record| record.len()).sum::<usize>();
            (slots.records, slots.missing) = (records.into_iter().map(Some).collect(), 0);
        }
    }

    /// What the file has, if all of it is ours.
    fn loaded(&self, file: &Path, owner: u64) -> Option<Vec<Box<[u8]>>> {
        let size = std::fs::metadata(file).ok()?.len();
        if size > self.limit as u64 {
            return None;
        }
        let bytes = std::fs::read(file).ok()?;
        let (content, checksum) = bytes.split_last_chunk::<4>()?;
        let mut cut = Cut(content.strip_prefix(MAGIC)?);
        if cut.number()? != self.key(owner)
            || crc32fast::hash(content) != u32::from_le_bytes(*checksum)
        {
            return None;
        }
        let mut records = Vec::new();
        for _ in 0..cut.number()? {
            records.push(cut.bytes()?.into());
        }
        cut.0.is_empty().then_some(records)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(cache: &RecordCache, records: &[u64]) -> Vec<(usize, Vec<u8>)> {
        let mut found = Vec::new();
        cache.read(records, &mut |place, bytes| found.push((place, bytes.to_vec())));
        found
    }

    #[test]
    fn a_complete_cache_is_found_by_its_owner_only() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("decoded");
        let open = |fingerprint| {
            RecordCache::new(3, fingerprint, 1 << 20, Some(file.clone())).expect("room")
        };
        let first = open(7);
        assert!(first.claim(1) && first.claim(1) && !first.claim(2));
        first.add(vec![(0, b"a".to_vec()), (2, b"c".to_vec())]);
        assert!(!file.exists(), "an incomplete one is not kept");
        assert_eq!(found(&first, &[2, 1, 0]), [(0, b"c".to_vec()), (2, b"a".to_vec())]);
        first.add(vec![(1, Vec::new()), (1, b"again".to_vec()), (9, b"none".to_vec())]);
        assert!(file.exists());

        let again = open(7);
        assert!(again.claim(1));
        assert_eq!(found(&again, &[1, 2]), [(0, Vec::new()), (1, b"c".to_vec())]);
        for (fingerprint, owner) in [(7, 2), (8, 1)] {
            let other = open(fingerprint);
            assert!(other.claim(owner));
            assert!(found(&other, &[0, 1, 2]).is_empty(), "{fingerprint} {owner}");
        }
        let good = std::fs::read(&file).unwrap();
        for at in 0..good.len() {
            let mut bytes = good.clone();
            bytes[at] ^= 1;
            std::fs::write(&file, &bytes).unwrap();
            let broken = open(7);
            broken.claim(1);
            assert!(found(&broken, &[0, 1, 2]).is_empty(), "flipped {at}");
        }
    }

    #[test]
    fn memory_is_bounded() {
        assert!(RecordCache::new(1000, 0, 1000, None).is_none());
        let cache = RecordCache::new(10, 0, 10 * SLOT_BYTES + 25, None).expect("room");
        cache.claim(0);
        cache.add((0..10).map(|record| (record, vec![0; 10])).collect());
        assert_eq!(found(&cache, &[0, 1, 2, 3]).len(), 2);
    }
}
