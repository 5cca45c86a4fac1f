//! Chunks read lately, and the memory of those that nobody needs any more: on some machines the first touch
//! of fresh memory costs as much as decompressing into it.

use std::sync::{Arc, Mutex, PoisonError};

use super::chunk::{Buffers, Chunk};
use crate::part_cache::{PartCache, PartKey};

/// Buffers kept for the next chunks: a compressed and a decompressed one for each of two threads.
const SPARES: usize = 4;
/// A buffer larger than a chunk of the usual 32 MiB, with the lengths of its records, is not kept.
const SPARE_BYTES: usize = 40 << 20;
/// Chunks of fewer bytes are kept in any case.
const SMALL_BYTES: usize = 1 << 20;

/// Decompressed chunks, shared by files.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    pub(super) chunks: PartCache<Chunk>,
    spares: Mutex<Vec<Vec<u8>>>,
}

impl Cache {
    #[cfg(test)]
    pub(super) fn new(limit: usize) -> Cache {
        Cache { chunks: PartCache::new(limit), ..Cache::default() }
    }

    /// Takes a chunk in, unless it is large and the reader takes `whole` chunks: that one will not come back
    /// to it soon, and what others come back to must not make room for it.
    pub(super) fn add(&self, key: PartKey, mut chunk: Chunk, whole: bool) -> Arc<Chunk> {
        if whole && chunk.bytes() > SMALL_BYTES {
            return Arc::new(chunk);
        }
        chunk.shrink();
        let bytes = chunk.bytes();
        let chunk = Arc::new(chunk);
        let evicted = self.chunks.insert(key, Arc::clone(&chunk), bytes);
        evicted.into_iter().for_each(|chunk| self.release(chunk));
        chunk
    }

    /// Takes back a chunk; its memory is used again when nobody else has it.
    pub(super) fn release(&self, chunk: Arc<Chunk>) {
        if let Some(chunk) = Arc::into_inner(chunk) {
            self.give(chunk.into_payload());
        }
    }

    /// Memory to decode a chunk with, the smaller buffer for its compressed bytes.
    pub(super) fn take(&self) -> Buffers {
        let mut spares = self.spares.lock().unwrap_or_else(PoisonError::into_inner);
        let mut pair = [spares.pop().unwrap_or_default(), spares.pop().unwrap_or_default()];
        pair.sort_by_key(Vec::capacity);
        let [compressed, payload] = pair;
        Buffers { compressed, payload }
    }

    /// Takes back a buffer.
    pub(super) fn give(&self, buffer: Vec<u8>) {
        let mut spares = self.spares.lock().unwrap_or_else(PoisonError::into_inner);
        if spares.len() < SPARES && (1..=SPARE_BYTES).contains(&buffer.capacity()) {
            spares.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::header::{ChunkHeader, Compression, Dialect};
    use super::*;
    use crate::ChunkPlace;

    /// A chunk of one record, of so many bytes with its length.
    fn chunk(bytes: usize) -> Chunk {
        let mut compressed = (bytes as u32 - 4).to_le_bytes().to_vec();
        compressed.resize(bytes, 7);
        let dialect = Dialect::Standard;
        let checksum = dialect.checksum(&compressed);
        let compression = Compression::None;
        let header =
            ChunkHeader { checksum, compression, compressed_size: bytes as u32, records: 1 };
        let place = ChunkPlace { path: "f".into(), offset: 0, chunk: 0 };
        let mut buffers = Buffers { compressed, ..Buffers::default() };
        Chunk::decode(dialect, &header, &mut buffers, &place, 0).unwrap()
    }

    #[test]
    fn a_large_chunk_that_is_taken_whole_is_not_kept_but_its_memory_is() {
        let check = |bytes: usize, whole: bool, kept: bool| {
            let cache = Cache::default();
            let added = cache.add((1, 1), chunk(bytes), whole);
            cache.release(added);
            assert_eq!(cache.chunks.get((1, 1)).is_some(), kept, "{bytes} {whole}");
            assert_eq!(cache.take().payload.capacity() >= bytes, !kept);
        };
        check(2 << 20, true, false);
        check(2 << 20, false, true);
        check(1 << 10, true, true);
    }

    #[test]
    fn evicted_chunks_leave_their_memory() {
        let cache = Cache::new(7_000);
        for number in 0..4 {
            let added = cache.add((1, number), chunk(3_000), false);
            cache.release(added);
        }
        let Buffers { compressed, payload } = cache.take();
        assert!(compressed.capacity() >= 3_000 && payload.capacity() >= 3_000);
        assert_eq!(cache.take().payload.capacity(), 0, "two were evicted");
    }
}
