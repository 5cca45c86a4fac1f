//! Keeps recently used chunks decompressed, because shuffled reading comes back to the same ones.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::chunk::Chunk;
use crate::Error;

/// Memory for decompressed chunks, unless told otherwise.
const DEFAULT_BYTES: usize = 256 << 20;

/// A chunk by number of file and number in the file.
pub(crate) type Key = (u64, usize);

/// Chunks by last use, bounded by their bytes, shared by threads and files.
#[derive(Debug)]
pub(crate) struct Cache {
    limit: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    chunks: HashMap<Key, (u64, Arc<Chunk>)>,
    by_use: BTreeMap<u64, Key>,
    bytes: usize,
    clock: u64,
    files: u64,
}

impl Default for Cache {
    fn default() -> Cache {
        Cache::new(DEFAULT_BYTES)
    }
}

impl Cache {
    pub(crate) fn new(limit: usize) -> Cache {
        Cache { limit, state: Mutex::default() }
    }

    /// A number for a file that no other file of this cache has.
    pub(crate) fn next_file(&self) -> u64 {
        let mut state = self.lock();
        state.files += 1;
        state.files
    }

    /// The chunk, from the cache or loaded. Two threads that miss together both load: holding the lock
    /// while decompressing would make all others wait.
    pub(crate) fn get(
        &self,
        key: Key,
        load: impl FnOnce() -> Result<Chunk, Error>,
    ) -> Result<Arc<Chunk>, Error> {
        if let Some(chunk) = self.lock().touch(key) {
            return Ok(chunk);
        }
        let chunk = Arc::new(load()?);
        self.lock().insert(key, Arc::clone(&chunk), self.limit);
        Ok(chunk)
    }

    /// A panic in another thread cannot leave the state half changed in a way that matters here: at worst
    /// a chunk is loaded again.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn touch(&mut self, key: Key) -> Option<Arc<Chunk>> {
        self.clock += 1;
        let (used, chunk) = self.chunks.get_mut(&key)?;
        self.by_use.remove(used);
        self.by_use.insert(self.clock, key);
        *used = self.clock;
        Some(Arc::clone(chunk))
    }

    fn insert(&mut self, key: Key, chunk: Arc<Chunk>, limit: usize) {
        let bytes = chunk.bytes();
        if bytes > limit || self.chunks.contains_key(&key) {
            return;
        }
        while self.bytes + bytes > limit {
            let Some((_, oldest)) = self.by_use.pop_first() else {
                break;
            };
            if let Some((_, evicted)) = self.chunks.remove(&oldest) {
                self.bytes -= evicted.bytes();
            }
        }
        self.clock += 1;
        self.by_use.insert(self.clock, key);
        self.chunks.insert(key, (self.clock, chunk));
        self.bytes += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::super::header::{Compression, Dialect, Header};
    use super::*;
    use crate::Place;

    fn chunk(bytes: u32) -> Chunk {
        let mut payload = (bytes - 4).to_le_bytes().to_vec();
        payload.resize(bytes as usize, 0);
        let checksum = Dialect::Standard.checksum(&payload);
        let compression = Compression::None;
        let header = Header { checksum, compression, compressed_size: bytes, records: 1 };
        let place = Place { path: "f".into(), offset: 0, chunk: 0 };
        Chunk::decode(Dialect::Standard, &header, payload, &place, 0).unwrap()
    }

    #[test]
    fn the_least_recently_used_chunk_goes_first() {
        let cache = Cache::new(3_000);
        let mut loads = Vec::new();
        for key in [1, 2, 1, 3, 1, 2, 3] {
            cache
                .get((0, key), || {
                    loads.push(key);
                    Ok(chunk(1_200))
                })
                .unwrap();
        }
        assert_eq!(loads, [1, 2, 3, 2, 3]);
        let state = cache.lock();
        assert!(state.bytes <= 3_000);
        assert_eq!(state.chunks.len(), state.by_use.len());
    }

    #[test]
    fn a_chunk_larger_than_the_cache_is_not_kept() {
        let cache = Cache::new(1_000);
        cache.get((0, 1), || Ok(chunk(600))).unwrap();
        cache.get((0, 2), || Ok(chunk(6_000))).unwrap();
        cache.get((0, 1), || panic!("the small chunk is still there")).unwrap();
        assert!(!cache.lock().chunks.contains_key(&(0, 2)));
    }

    #[test]
    fn a_failed_load_leaves_nothing() {
        let cache = Cache::default();
        assert!(cache.get((0, 1), || Err(Error::Rejected("no".into()))).is_err());
        assert_eq!(cache.lock().bytes, 0);
    }
}
