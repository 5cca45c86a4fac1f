//! Writes RecordIO in the standard dialect, chunk by chunk, so that memory is bounded by one chunk.

use std::io::{self, Write};

use super::header::Compression;
use super::{MAX_RECORD_BYTES, chunk};

/// How a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriterOptions {
    /// How chunks are compressed.
    pub compression: Compression,
    /// Effort of gzip, 0 to 9.
    pub gzip_level: u32,
    /// A chunk is closed before a record that would take the sum of record lengths past this.
    pub max_chunk_bytes: usize,
    /// A chunk is closed when it has this many records.
    pub max_chunk_records: u32,
}

impl Default for WriterOptions {
    fn default() -> WriterOptions {
        WriterOptions {
            compression: Compression::Snappy,
            gzip_level: 6,
            max_chunk_bytes: MAX_RECORD_BYTES,
            max_chunk_records: 1 << 20,
        }
    }
}

/// Why a record could not be written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The output refused.
    #[error("record {record}: cannot write: {cause}")]
    Io {
        /// The last record handed in.
        record: u64,
        /// What the system said.
        cause: io::Error,
    },
    /// Records of 32 MiB and more are refused, as other readers refuse them.
    #[error("record {record}: {bytes} bytes, but recordio takes records below {MAX_RECORD_BYTES}")]
    TooLarge {
        /// The record, from 0.
        record: u64,
        /// Its size.
        bytes: usize,
    },
}

/// Writes records one after the other; [`Writer::finish`] writes the last chunk.
///
/// ```
/// use salamander_data::recordio::{WriterOptions, Writer};
///
/// let mut writer = Writer::new(Vec::new(), WriterOptions::default());
/// writer.write(b"first")?;
/// writer.write(b"")?;
/// let bytes = writer.finish()?;
/// assert_eq!(bytes[..4], [4, 3, 2, 1]);
/// # Ok::<(), salamander_data::recordio::writer::Error>(())
/// ```
#[must_use = "records are lost without finish"]
#[derive(Debug)]
pub struct Writer<W: Write> {
    out: W,
    options: WriterOptions,
    payload: Vec<u8>,
    pending: u32,
    written: u64,
}

impl<W: Write> Writer<W> {
    /// A writer at the start of an empty output, or at the end of one in the same dialect.
    pub fn new(out: W, options: WriterOptions) -> Writer<W> {
        Writer { out, options, payload: Vec::new(), pending: 0, written: 0 }
    }

    /// Adds a record, which may be empty.
    pub fn write(&mut self, record: &[u8]) -> Result<(), Error> {
        if record.len() >= MAX_RECORD_BYTES {
            return Err(Error::TooLarge { record: self.written, bytes: record.len() });
        }
        let pending_bytes = self.payload.len() - 4 * self.pending as usize;
        let full = self.pending >= self.options.max_chunk_records.max(1)
            || pending_bytes + record.len() > self.options.max_chunk_bytes;
        if full {
            self.flush_chunk()?;
        }
        self.payload.extend_from_slice(&(record.len() as u32).to_le_bytes());
        self.payload.extend_from_slice(record);
        self.pending += 1;
        self.written += 1;
        Ok(())
    }

    /// How many records were handed in.
    pub fn records(&self) -> u64 {
        self.written
    }

    /// Writes the last chunk and gives the output back.
    pub fn finish(mut self) -> Result<W, Error> {
        self.flush_chunk()?;
        self.out.flush().map_err(|cause| Error::Io { record: self.written, cause })?;
        Ok(self.out)
    }

    fn flush_chunk(&mut self) -> Result<(), Error> {
        if self.pending == 0 {
            return Ok(());
        }
        let WriterOptions { compression, gzip_level, .. } = self.options;
        chunk::encode(&self.payload, self.pending, compression, gzip_level)
            .and_then(|bytes| self.out.write_all(&bytes))
            .map_err(|cause| Error::Io { record: self.written.saturating_sub(1), cause })?;
        self.payload.clear();
        self.pending = 0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_those_of_the_standard_dialect() {
        let options = WriterOptions { compression: Compression::None, ..WriterOptions::default() };
        let mut writer = Writer::new(Vec::new(), options);
        writer.write(b"ab").unwrap();
        writer.write(b"").unwrap();
        // The CRC-32 of 02 00 00 00 61 62 00 00 00 00, taken with Python's zlib.
        let expected = [
            &[4, 3, 2, 1],
            &0xc725_4099_u32.to_le_bytes()[..],
            &[0, 0, 0, 0],
            &[10, 0, 0, 0],
            &[2, 0, 0, 0],
            b"\x02\0\0\0ab\0\0\0\0",
        ];
        assert_eq!(writer.finish().unwrap(), expected.concat());
    }

    #[test]
    fn limits_close_chunks() {
        let check = |max_chunk_bytes, max_chunk_records, expected: usize| {
            let compression = Compression::None;
            let options = WriterOptions {
                compression,
                max_chunk_bytes,
                max_chunk_records,
                ..WriterOptions::default()
            };
            let mut writer = Writer::new(Vec::new(), options);
            for _ in 0..6 {
                writer.write(b"abc").unwrap();
            }
            assert_eq!(writer.records(), 6);
            assert_eq!(writer.finish().unwrap().len(), expected * 20 + 6 * 7);
        };
        check(1_000, 1_000, 1);
        check(1_000, 4, 2);
        check(6, 1_000, 3);
        check(5, 1_000, 6);
        check(0, 0, 6);
    }

    #[test]
    fn a_record_of_32_mib_is_refused() {
        let mut writer = Writer::new(io::sink(), WriterOptions::default());
        writer.write(&vec![0; MAX_RECORD_BYTES - 1]).unwrap();
        let error = writer.write(&vec![0; MAX_RECORD_BYTES]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "record 1: 33554432 bytes, but recordio takes records below 33554432"
        );
    }

    #[test]
    fn nothing_written_is_an_empty_file() {
        assert!(Writer::new(Vec::new(), WriterOptions::default()).finish().unwrap().is_empty());
    }
}
