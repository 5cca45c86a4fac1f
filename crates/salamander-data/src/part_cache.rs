//! Keeps parts of files that were decoded lately, bounded by bytes, because shuffled reading comes back to the same
//! places. quick_cache decides which ones stay, and lets one thread load what several miss together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quick_cache::sync::Cache;
use quick_cache::{DefaultHashBuilder, Lifecycle, OptionsBuilder, Weighter};

/// Memory for decoded parts, unless told otherwise.
const DEFAULT_BYTES: usize = 256 << 20;
/// About what a part takes; the cache remembers as many names of parts that it gave up.
const USUAL_BYTES: usize = 256 << 10;

/// A decoded part by number of file and number in the file.
pub(crate) type PartKey = (u64, u64);

/// A part and its bytes.
type Part<V> = (Arc<V>, usize);

/// Decoded parts, shared by threads and files.
#[derive(Debug)]
pub(crate) struct PartCache<V> {
    parts: Cache<PartKey, Part<V>, PartBytes, DefaultHashBuilder, GivenUp>,
    files: AtomicU64,
}

#[derive(Clone, Debug)]
struct PartBytes;

impl<V> Weighter<PartKey, Part<V>> for PartBytes {
    fn weight(&self, _: &PartKey, (_, bytes): &Part<V>) -> u64 {
        // What weighs nothing would never make room.
        (*bytes).max(1) as u64
    }
}

/// Gives the parts that make room to whoever adds one.
#[derive(Clone, Debug)]
struct GivenUp;

impl<V> Lifecycle<PartKey, Part<V>> for GivenUp {
    type RequestState = Vec<Arc<V>>;

    fn on_evict(&self, given_up: &mut Vec<Arc<V>>, _: PartKey, (part, _): Part<V>) {
        given_up.push(part);
    }
}

impl<V> Default for PartCache<V> {
    fn default() -> PartCache<V> {
        PartCache::new(DEFAULT_BYTES)
    }
}

impl<V> PartCache<V> {
    pub(crate) fn new(limit: usize) -> PartCache<V> {
        // In one piece: a part may be as large as an eighth of the whole, and would not fit into a piece of many. Half
        // is for parts that were asked for once only: the windows that shuffled reading works in move on.
        let options = OptionsBuilder::new()
            .shards(1)
            .hot_allocation(0.5)
            .estimated_items_capacity(limit.div_ceil(USUAL_BYTES))
            .weight_capacity(limit as u64)
            .build()
            .expect("capacities are given");
        let hasher = DefaultHashBuilder::default();
        let parts = Cache::with_options(options, PartBytes, hasher, GivenUp);
        PartCache { parts, files: AtomicU64::new(0) }
    }

    /// A number for a file that no other file of this cache has.
    pub(crate) fn next_file(&self) -> u64 {
        self.files.fetch_add(1, Ordering::Relaxed)
    }

    /// The part, if it is still there.
    pub(crate) fn get(&self, key: PartKey) -> Option<Arc<V>> {
        self.parts.get(&key).map(|(part, _)| part)
    }

    /// The part, from the cache or loaded with its size. Of several threads that miss it together one loads, and
    /// the others wait for that.
    pub(crate) fn get_or_load<E>(
        &self,
        key: PartKey,
        load: impl FnOnce() -> Result<(V, usize), E>,
    ) -> Result<Arc<V>, E> {
        let load = || load().map(|(part, bytes)| (Arc::new(part), bytes));
        self.parts.get_or_insert_with(&key, load).map(|(part, _)| part)
    }

    /// The same for those who do not block.
    #[cfg(feature = "cloud")]
    pub(crate) async fn get_or_await<E>(
        &self,
        key: PartKey,
        load: impl Future<Output = Result<Part<V>, E>>,
    ) -> Result<Arc<V>, E> {
        self.parts.get_or_insert_async(&key, load).await.map(|(part, _)| part)
    }

    /// Keeps a part in the place of others, which are given back; one larger than half of the limit comes back itself.
    pub(crate) fn insert(&self, key: PartKey, part: Arc<V>, bytes: usize) -> Vec<Arc<V>> {
        let mut given_up = Vec::new();
        self.parts.insert_with_lifecycle(key, (part, bytes), &mut given_up);
        given_up
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_stays_below_the_limit_and_the_rest_is_given_back() {
        let cache = PartCache::new(100);
        let mut given_up = 0;
        for key in 0..50 {
            given_up += cache.insert((0, key), Arc::new(key), 12).len();
        }
        let kept = (0..50).filter(|key| cache.get((0, *key)).is_some()).count();
        assert_eq!((kept, given_up), (8, 42));
        assert!(cache.parts.weight() <= 100);
    }

    #[test]
    fn parts_that_are_asked_for_outlive_a_scan() {
        let cache = PartCache::new(1000);
        let mut loads = 0;
        for scanned in 0..1000 {
            for key in [0, 1, 2, 1000 + scanned] {
                loads += usize::from(cache.get((0, key)).is_none());
                cache.get_or_load((0, key), || Ok::<_, ()>((key, 50))).unwrap();
            }
        }
        assert_eq!(loads, 1003);
    }

    #[test]
    fn a_failed_load_leaves_nothing() {
        let cache = PartCache::new(30);
        assert_eq!(cache.get_or_load((0, 1), || Err::<(u8, usize), _>("no")), Err("no"));
        assert_eq!(cache.get_or_load((0, 1), || Ok::<_, ()>((7, 1))).as_deref(), Ok(&7));
        assert_eq!(cache.get_or_load((0, 1), || Err("kept")).as_deref(), Ok(&7));
    }

    #[test]
    fn a_part_that_several_miss_is_loaded_once() {
        let (cache, loads) = (PartCache::new(30), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let load = || Ok::<_, ()>((loads.fetch_add(1, Ordering::Relaxed), 1));
                    assert_eq!(cache.get_or_load((0, 1), load).as_deref(), Ok(&0));
                });
            }
        });
        assert_eq!(loads.into_inner(), 1);
    }

    #[test]
    fn a_part_larger_than_the_cache_is_not_kept() {
        let cache = PartCache::new(10);
        cache.insert((0, 1), Arc::new(1), 4);
        assert_eq!(cache.insert((0, 2), Arc::new(2), 60), [Arc::new(2)]);
        assert!(cache.get((0, 1)).is_some() && cache.get((0, 2)).is_none());
        assert_ne!(cache.next_file(), cache.next_file());
    }
}
