//! The bytes of a file or object for the parquet crate, with every length checked against the file's size
//! before memory is taken for it.

use std::io::{self, BufReader, Read};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use parquet::errors::{ParquetError, Result};
use parquet::file::reader::{ChunkReader, Length};

use crate::Error;
use crate::blob::{Blob, BlobHandle};

/// Read ahead of a page header, which seldom has more.
const HEADER_BYTES: usize = 512;

/// An opened file; clones share it.
#[derive(Clone)]
pub(super) struct ParquetBytes {
    handle: Arc<BlobHandle>,
    size: u64,
    /// What the system said last, because the parquet crate keeps only its text.
    failure: Arc<Mutex<Option<io::Error>>>,
}

impl ParquetBytes {
    pub(super) fn open(blob: &Blob) -> std::result::Result<ParquetBytes, Error> {
        Ok(ParquetBytes {
            handle: Arc::new(blob.handle()?),
            size: blob.size(),
            failure: Arc::default(),
        })
    }

    /// The failure of the system behind an error of the parquet crate, if there was one.
    pub(super) fn take_failure(&self) -> Option<io::Error> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.handle.read_exact_at(bytes, offset).map_err(|error| {
            let copy = io::Error::new(error.kind(), error.to_string());
            *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            copy
        })
    }
}

impl Length for ParquetBytes {
    fn len(&self) -> u64 {
        self.size
    }
}

impl ChunkReader for ParquetBytes {
    type T = BufReader<At>;

    fn get_read(&self, start: u64) -> Result<BufReader<At>> {
        let at = At { source: self.clone(), offset: start };
        Ok(BufReader::with_capacity(HEADER_BYTES, at))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        let size = self.size;
        if start.checked_add(length as u64).is_none_or(|end| end > size) {
            return Err(ParquetError::EOF(format!(
                "{length} bytes at byte {start} are needed, but the file has {size}"
            )));
        }
        let mut bytes = vec![0; length];
        self.read_at(&mut bytes, start)?;
        Ok(bytes.into())
    }
}

/// Reads on from a place.
pub(super) struct At {
    source: ParquetBytes,
    offset: u64,
}

impl Read for At {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.source.size.saturating_sub(self.offset);
        let length = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        self.source.read_at(&mut buffer[..length], self.offset)?;
        self.offset += length as u64;
        Ok(length)
    }
}
