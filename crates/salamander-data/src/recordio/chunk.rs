//! A chunk's payload: compressing, and decompressing without ever trusting a length in the file.

use std::io::{self, Read, Write};

use super::header::{ChunkHeader, Compression, Dialect};
use super::{MAX_CHUNK_BYTES, snappy};
use crate::error::{ChunkPlace, Error};

/// No compressor here makes a payload smaller than this many times (deflate can reach 1,032).
const MAX_RATIO: u64 = 1_100;

/// A decompressed chunk and where its records are.
#[derive(Debug)]
pub(crate) struct Chunk {
    payload: Vec<u8>,
    /// End of each record in the payload; `u32` because payloads are bounded by 1 GiB. A record begins after
    /// its length, which follows the record before.
    ends: Vec<u32>,
}

/// Memory to decode with; what it held before does not matter.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    /// Holds the compressed bytes, and after decoding some memory to use again.
    pub(crate) compressed: Vec<u8>,
    /// Becomes the chunk's payload.
    pub(crate) payload: Vec<u8>,
}

impl Chunk {
    /// Checks, decompresses and takes apart a chunk. `first_record` is only for messages.
    pub(crate) fn decode(
        dialect: Dialect,
        header: &ChunkHeader,
        buffers: &mut Buffers,
        place: &ChunkPlace,
        first_record: u64,
    ) -> Result<Chunk, Error> {
        let found = dialect.checksum(&buffers.compressed);
        if found != header.checksum {
            let (place, expected) = (place.clone(), header.checksum);
            return Err(Error::Checksum { place, found, expected });
        }
        let mut split = Split { records: header.records as usize, ends: Vec::new(), next: 0 };
        decompress(dialect, header.compression, buffers, &mut split).map_err(|error| {
            Error::Decompress { place: place.clone(), reason: error.to_string() }
        })?;
        let payload = std::mem::take(&mut buffers.payload);
        let ends = split.finish(&payload, place, first_record)?;
        Ok(Chunk { payload, ends })
    }

    /// The bytes of a record, counted from the chunk's first.
    pub(crate) fn record(&self, record: usize) -> Option<&[u8]> {
        let end = *self.ends.get(record)? as usize;
        let before = record.checked_sub(1).and_then(|before| self.ends.get(before));
        self.payload.get(before.map_or(0, |&end| end as usize) + 4..end)
    }

    /// Gives back memory that it does not use.
    pub(crate) fn shrink(&mut self) {
        self.payload.shrink_to_fit();
    }

    /// Its memory.
    pub(crate) fn into_payload(self) -> Vec<u8> {
        self.payload
    }

    /// Memory held, for the cache.
    pub(crate) fn bytes(&self) -> usize {
        self.payload.capacity() + self.ends.capacity() * size_of::<u32>()
    }
}

/// The most records that a chunk of this many compressed bytes can hold: each takes four bytes at least.
pub(crate) fn most_records(compression: Compression, compressed_size: u32) -> u64 {
    let size = u64::from(compressed_size);
    let payload = match compression {
        Compression::None => size,
        Compression::Snappy | Compression::Gzip => (size * MAX_RATIO).min(MAX_CHUNK_BYTES),
    };
    payload / 4
}

/// Compresses a payload in the standard dialect and puts its header before it.
pub(crate) fn encode(
    payload: &[u8],
    records: u32,
    compression: Compression,
    gzip_level: u32,
) -> io::Result<Vec<u8>> {
    let dialect = Dialect::Standard;
    let compressed = match compression {
        Compression::None => payload.to_vec(),
        Compression::Snappy => {
            let mut encoder = snap::write::FrameEncoder::new(Vec::new());
            encoder.write_all(payload)?;
            encoder.into_inner().map_err(|error| error.into_error())?
        }
        Compression::Gzip => {
            let level = flate2::Compression::new(gzip_level.min(9));
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
            encoder.write_all(payload)?;
            encoder.finish()?
        }
    };
    let compressed_size = u32::try_from(compressed.len()).map_err(io::Error::other)?;
    let checksum = dialect.checksum(&compressed);
    let mut chunk =
        ChunkHeader { checksum, compression, compressed_size, records }.encode(dialect).to_vec();
    chunk.extend_from_slice(&compressed);
    Ok(chunk)
}

/// Fills the payload from the compressed bytes.
fn decompress(
    dialect: Dialect,
    compression: Compression,
    buffers: &mut Buffers,
    split: &mut Split,
) -> io::Result<()> {
    let Buffers { compressed, payload } = buffers;
    match (compression, dialect) {
        (Compression::None, _) => std::mem::swap(compressed, payload),
        (Compression::Snappy, Dialect::Standard) => {
            let limit = MAX_CHUNK_BYTES as usize;
            snappy::framed(compressed, limit, payload, &mut |so_far| split.advance(so_far))?;
        }
        (Compression::Snappy, Dialect::PyRecordIo) => {
            snappy::raw(compressed, MAX_CHUNK_BYTES, payload)?;
        }
        (Compression::Gzip, _) => {
            read_bounded(flate2::bufread::MultiGzDecoder::new(&compressed[..]), payload)?;
        }
    }
    Ok(())
}

/// Reads to the end, growing by what arrives, and stops past the largest chunk allowed.
fn read_bounded(reader: impl Read, payload: &mut Vec<u8>) -> io::Result<()> {
    payload.clear();
    reader.take(MAX_CHUNK_BYTES + 1).read_to_end(payload)?;
    if payload.len() as u64 > MAX_CHUNK_BYTES {
        return Err(io::Error::other(format!("more than {MAX_CHUNK_BYTES} bytes")));
    }
    Ok(())
}

/// Finds the records of a payload, also while it grows: going from length to length costs little as long as
/// the payload's end is still in the processor's cache, and a wait per record later.
struct Split {
    /// How many records the header says.
    records: usize,
    /// Ends of the records found; one too many is enough to know.
    ends: Vec<u32>,
    /// Where the next record's length is.
    next: usize,
}

impl Split {
    /// Finds the records that are whole in a payload that may grow yet.
    fn advance(&mut self, payload: &[u8]) {
        while self.ends.len() <= self.records
            && let Some((length, after)) = payload[self.next..].split_first_chunk::<4>()
            && let Some(rest) = after.get(u32::from_le_bytes(*length) as usize..)
        {
            self.next = payload.len() - rest.len();
            self.ends.push(self.next as u32);
        }
    }

    /// The ends of the records, which must be exactly as many as the header says. `first_record` is only for
    /// messages.
    fn finish(
        mut self,
        payload: &[u8],
        place: &ChunkPlace,
        first_record: u64,
    ) -> Result<Vec<u32>, Error> {
        let (records, most) = (self.records, payload.len() / 4);
        if records > most {
            let (place, value, limit) = (place.clone(), records as u64, most as u64);
            return Err(Error::Length { place, what: "number of records", value, limit });
        }
        self.advance(payload);
        let found = self.ends.len();
        let rest = &payload[self.next..];
        let reason = match rest.split_first_chunk::<4>() {
            _ if found > records => format!("the header says {records} records"),
            Some((length, after)) => {
                let length = u32::from_le_bytes(*length);
                format!("length {length}, but {} bytes are left", after.len())
            }
            None if !rest.is_empty() => format!("{} bytes where a length needs 4", rest.len()),
            None if found < records => format!("missing: the header says {records} records"),
            None => return Ok(self.ends),
        };
        let record = first_record + found.min(records) as u64;
        Err(Error::Record { path: place.path.clone(), chunk: Some(place.chunk), record, reason })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn place() -> ChunkPlace {
        ChunkPlace { path: "f".into(), offset: 0, chunk: 2 }
    }

    /// Decodes a payload under a header whose checksum is right.
    fn decode(
        dialect: Dialect,
        compression: Compression,
        records: u32,
        bytes: &[u8],
    ) -> Result<Vec<Vec<u8>>, String> {
        let checksum = dialect.checksum(bytes);
        let header =
            ChunkHeader { checksum, compression, compressed_size: bytes.len() as u32, records };
        let mut buffers = Buffers { compressed: bytes.to_vec(), payload: vec![9; 50] };
        let chunk = Chunk::decode(dialect, &header, &mut buffers, &place(), 10)
            .map_err(|error| error.to_string())?;
        Ok((0..).map_while(|record| chunk.record(record).map(<[u8]>::to_vec)).collect())
    }

    #[test]
    fn payload_damage_names_the_record() {
        let check = |payload: &[u8], records: u32, expected: &str| {
            let found = decode(Dialect::Standard, Compression::None, records, payload);
            assert_eq!(found, Err(expected.to_owned()));
        };
        check(&[9, 0, 0, 0, 1], 1, "f: chunk 2 record 10: length 9, but 1 bytes are left");
        check(&[0xff; 4], 1, "f: chunk 2 record 10: length 4294967295, but 0 bytes are left");
        check(&[0, 0, 0, 0, 7, 7], 1, "f: chunk 2 record 11: 2 bytes where a length needs 4");
        check(&[0; 8], 1, "f: chunk 2 record 11: the header says 1 records");
        check(&[1, 0, 0, 0, 5, 0, 0, 0, 0], 1, "f: chunk 2 record 11: the header says 1 records");
        check(
            &[4, 0, 0, 0, 0, 0, 0, 0],
            2,
            "f: chunk 2 record 11: missing: the header says 2 records",
        );
        check(
            &[0; 4],
            9,
            "f: chunk 2 at byte 0: number of records is 9, but at most 1 is possible here",
        );
    }

    #[test]
    fn a_raw_block_cannot_announce_more_than_it_can_hold() {
        let check = |bytes: &[u8], expected: &str| {
            let found = decode(Dialect::PyRecordIo, Compression::Snappy, 1, bytes).unwrap_err();
            assert!(found.contains(expected), "{found}");
        };
        check(&[0xff, 0xff, 0xff, 0xff, 0x0f, 0], "announces 4294967295 bytes, but at most 132");
        check(&[0x80, 0x02, 0], "announces 256 bytes, but at most 66");
        check(&[], "cannot decompress");
    }

    #[test]
    fn a_gzip_bomb_is_stopped_by_the_record_count() {
        // 1,032 to 1 is deflate's limit, so a header can announce far fewer records than the bomb holds.
        let chunk = encode(&vec![0; 4 << 20], 3, Compression::Gzip, 9).unwrap();
        let found = decode(Dialect::Standard, Compression::Gzip, 3, &chunk[20..]);
        assert_eq!(found, Err("f: chunk 2 record 13: the header says 3 records".into()));
    }

    proptest! {
        #[test]
        fn any_bytes_decode_or_fail(bytes: Vec<u8>, records in 0u32..40, python: bool, kind in 0..3) {
            let dialect = if python { Dialect::PyRecordIo } else { Dialect::Standard };
            let compression =
                [Compression::None, Compression::Snappy, Compression::Gzip][kind as usize];
            if let Ok(found) = decode(dialect, compression, records, &bytes) {
                prop_assert_eq!(found.len(), records as usize);
                prop_assert!(u64::from(records) <= most_records(compression, bytes.len() as u32));
            }
        }

        #[test]
        fn raw_snappy_round_trips_within_the_ratio(byte: u8, length in 0usize..300_000) {
            let mut payload = (length as u32).to_le_bytes().to_vec();
            payload.resize(length + 4, byte);
            let block = snap::raw::Encoder::new().compress_vec(&payload).unwrap();
            let found = decode(Dialect::PyRecordIo, Compression::Snappy, 1, &block).unwrap();
            prop_assert_eq!(&found[0], &payload[4..]);
        }
    }
}
