//! RecordIO: files of compressed chunks of records, in the two dialects found in the wild.
//!
//! A file is a sequence of chunks, each a header of 20 bytes and a compressed payload that repeats
//! `u32 length, bytes`. `header` knows the two dialects, `chunk` and `snappy` compress and decompress payloads,
//! `index` finds the chunks without decompressing them, `cache` keeps chunks and their memory, and
//! [`RecordFile`] and [`Writer`] put these together.

mod cache;
mod chunk;
mod header;
mod index;
mod reader;
mod snappy;
pub mod writer;

use cache::Cache;
pub use header::{Compression, Dialect};
use index::ChunkIndex;
pub use index::ChunkInfo;
pub use reader::{RECORD_COLUMN, RecordFile};
pub use writer::{Writer, WriterOptions};

use crate::format::Definition;
use crate::sink;

pub(crate) static FORMAT: Definition = Definition {
    endings: &["recordio", "rio"],
    begins: |start| start.starts_with(&[4, 3, 2, 1]),
    open: Some(|opening| {
        let chunks = opening.shared::<Cache>();
        opening.indexed(ChunkIndex::build, |blob, index| RecordFile::new(blob, index, chunks))
    }),
    create: Some(sink::example::recordio),
    ..Definition::named("recordio")
};

/// Bytes of a chunk that may be held in memory at most; a longer one is refused as damage.
pub(crate) const MAX_CHUNK_BYTES: u64 = 1 << 30;

/// Records of this size and more are refused by writers.
pub const MAX_RECORD_BYTES: usize = 32 << 20;
