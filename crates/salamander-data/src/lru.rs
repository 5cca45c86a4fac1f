//! Keeps what was decoded last, bounded by bytes, because shuffled reading comes back to the same places.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Memory for decoded parts, unless told otherwise.
const DEFAULT_BYTES: usize = 256 << 20;

/// A decoded part by number of file and number in the file.
pub(crate) type Key = (u64, u64);

/// Values by last use, shared by threads and files.
#[derive(Debug)]
pub(crate) struct Lru<V> {
    limit: usize,
    state: Mutex<State<V>>,
}

#[derive(Debug)]
struct State<V> {
    entries: HashMap<Key, Entry<V>>,
    by_use: BTreeMap<u64, Key>,
    bytes: usize,
    clock: u64,
    files: u64,
}

#[derive(Debug)]
struct Entry<V> {
    used: u64,
    bytes: usize,
    value: Arc<V>,
}

impl<V> Default for Lru<V> {
    fn default() -> Lru<V> {
        Lru::new(DEFAULT_BYTES)
    }
}

impl<V> Lru<V> {
    pub(crate) fn new(limit: usize) -> Lru<V> {
        let (entries, by_use) = (HashMap::new(), BTreeMap::new());
        let state = State { entries, by_use, bytes: 0, clock: 0, files: 0 };
        Lru { limit, state: Mutex::new(state) }
    }

    /// A number for a file that no other file of this cache has.
    pub(crate) fn next_file(&self) -> u64 {
        let mut state = self.lock();
        state.files += 1;
        state.files
    }

    /// The value, if it is still there.
    pub(crate) fn get(&self, key: Key) -> Option<Arc<V>> {
        let mut state = self.lock();
        let state = &mut *state;
        state.clock += 1;
        let entry = state.entries.get_mut(&key)?;
        state.by_use.remove(&entry.used);
        state.by_use.insert(state.clock, key);
        entry.used = state.clock;
        Some(Arc::clone(&entry.value))
    }

    /// The value, from the cache or loaded with its size. Two threads that miss together both load: holding
    /// the lock while decoding would make all others wait.
    pub(crate) fn get_or_load<E>(
        &self,
        key: Key,
        load: impl FnOnce() -> Result<(V, usize), E>,
    ) -> Result<Arc<V>, E> {
        if let Some(value) = self.get(key) {
            return Ok(value);
        }
        let (value, bytes) = load()?;
        let value = Arc::new(value);
        drop(self.insert(key, Arc::clone(&value), bytes));
        Ok(value)
    }

    /// Keeps a value in the place of those used longest ago, which are given back; one larger than the limit
    /// is not kept.
    pub(crate) fn insert(&self, key: Key, value: Arc<V>, bytes: usize) -> Vec<Arc<V>> {
        let mut evicted = Vec::new();
        let mut state = self.lock();
        if bytes > self.limit || state.entries.contains_key(&key) {
            return evicted;
        }
        while state.bytes + bytes > self.limit {
            let Some((_, oldest)) = state.by_use.pop_first() else { break };
            if let Some(entry) = state.entries.remove(&oldest) {
                state.bytes -= entry.bytes;
                evicted.push(entry.value);
            }
        }
        state.clock += 1;
        let used = state.clock;
        state.by_use.insert(used, key);
        state.entries.insert(key, Entry { used, bytes, value });
        state.bytes += bytes;
        evicted
    }

    /// A panic in another thread cannot leave the state half changed in a way that matters here: at worst
    /// a value is decoded again.
    fn lock(&self) -> MutexGuard<'_, State<V>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_value_goes_first() {
        let cache = Lru::new(30);
        let mut loads = Vec::new();
        for key in [1, 2, 1, 3, 1, 2, 3] {
            if cache.get((0, key)).is_none() {
                loads.push(key);
                cache.insert((0, key), Arc::new(key), 12);
            }
        }
        assert_eq!(loads, [1, 2, 3, 2, 3]);
        let state = cache.lock();
        assert_eq!((state.bytes, state.entries.len(), state.by_use.len()), (24, 2, 2));
    }

    #[test]
    fn a_failed_load_leaves_nothing() {
        let cache = Lru::new(30);
        assert_eq!(cache.get_or_load((0, 1), || Err::<(u8, usize), _>("no")), Err("no"));
        assert_eq!(cache.get_or_load((0, 1), || Ok::<_, ()>((7, 1))).as_deref(), Ok(&7));
        assert_eq!(cache.get_or_load((0, 1), || Err("kept")).as_deref(), Ok(&7));
    }

    #[test]
    fn a_value_larger_than_the_cache_is_not_kept() {
        let cache = Lru::new(10);
        cache.insert((0, 1), Arc::new(1), 6);
        cache.insert((0, 2), Arc::new(2), 60);
        assert!(cache.get((0, 1)).is_some() && cache.get((0, 2)).is_none());
        assert_ne!(cache.next_file(), cache.next_file());
    }
}
