//! A chunk's payload: compressing, and decompressing without ever trusting a length in the file.

use std::io::{self, Read, Write};

use super::MAX_CHUNK_BYTES;
use super::header::{Compression, Dialect, Header};
use crate::error::{Error, Place};

/// No compressor here makes a payload smaller than this many times (deflate can reach 1,032).
const MAX_RATIO: u64 = 1_100;

/// Snappy's densest element turns three bytes into 64.
const MAX_RAW_SNAPPY_RATIO: u64 = 22;

/// A decompressed chunk and where its records are.
#[derive(Debug)]
pub(crate) struct Chunk {
    payload: Vec<u8>,
    /// Start and end of each record in the payload; `u32` because payloads are bounded by 1 GiB.
    bounds: Vec<(u32, u32)>,
}

impl Chunk {
    /// Checks, decompresses and takes apart a chunk. `first_record` is only for messages.
    pub(crate) fn decode(
        dialect: Dialect,
        header: &Header,
        compressed: Vec<u8>,
        place: &Place,
        first_record: u64,
    ) -> Result<Chunk, Error> {
        let found = dialect.checksum(&compressed);
        if found != header.checksum {
            let (place, expected) = (place.clone(), header.checksum);
            return Err(Error::Checksum { place, found, expected });
        }
        let payload = decompress(dialect, header.compression, compressed, place)?;
        let bounds = split(&payload, header.records, place, first_record)?;
        Ok(Chunk { payload, bounds })
    }

    /// The bytes of a record, counted from the chunk's first.
    pub(crate) fn record(&self, record: usize) -> Option<&[u8]> {
        let (start, end) = *self.bounds.get(record)?;
        self.payload.get(start as usize..end as usize)
    }

    /// Memory held, for the cache.
    pub(crate) fn bytes(&self) -> usize {
        self.payload.capacity() + self.bounds.capacity() * size_of::<(u32, u32)>()
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
        Header { checksum, compression, compressed_size, records }.encode(dialect).to_vec();
    chunk.extend_from_slice(&compressed);
    Ok(chunk)
}

fn decompress(
    dialect: Dialect,
    compression: Compression,
    compressed: Vec<u8>,
    place: &Place,
) -> Result<Vec<u8>, Error> {
    let result = match (compression, dialect) {
        (Compression::None, _) => return Ok(compressed),
        (Compression::Snappy, Dialect::Standard) => {
            read_bounded(snap::read::FrameDecoder::new(&compressed[..]))
        }
        (Compression::Snappy, Dialect::PyRecordIo) => raw_snappy(&compressed),
        (Compression::Gzip, _) => {
            read_bounded(flate2::bufread::MultiGzDecoder::new(&compressed[..]))
        }
    };
    result.map_err(|error| Error::Decompress { place: place.clone(), reason: error.to_string() })
}

/// Reads to the end, growing by what arrives, and stops past the largest chunk allowed.
fn read_bounded(reader: impl Read) -> io::Result<Vec<u8>> {
    let mut payload = Vec::new();
    reader.take(MAX_CHUNK_BYTES + 1).read_to_end(&mut payload)?;
    if payload.len() as u64 > MAX_CHUNK_BYTES {
        return Err(io::Error::other(format!("more than {MAX_CHUNK_BYTES} bytes")));
    }
    payload.shrink_to_fit();
    Ok(payload)
}

fn raw_snappy(compressed: &[u8]) -> io::Result<Vec<u8>> {
    // The decoder allocates what the block announces, so that number is checked before it runs.
    let announced = snap::raw::decompress_len(compressed)? as u64;
    let possible = (compressed.len() as u64 * MAX_RAW_SNAPPY_RATIO).min(MAX_CHUNK_BYTES);
    if announced > possible {
        let message = format!("announces {announced} bytes, but at most {possible} are possible");
        return Err(io::Error::other(message));
    }
    Ok(snap::raw::Decoder::new().decompress_vec(compressed)?)
}

/// Finds the records of a payload, which must be exactly as many as the header says.
fn split(
    payload: &[u8],
    records: u32,
    place: &Place,
    first_record: u64,
) -> Result<Vec<(u32, u32)>, Error> {
    let fail = |record: usize, reason: String| Error::Record {
        path: place.path.clone(),
        chunk: Some(place.chunk),
        record: first_record + record as u64,
        reason,
    };
    let most = (payload.len() / 4) as u64;
    if u64::from(records) > most {
        let (place, value) = (place.clone(), u64::from(records));
        return Err(Error::Length { place, what: "number of records", value, limit: most });
    }
    let mut bounds = Vec::with_capacity(records as usize);
    let mut rest = payload;
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        let length = u32::from_le_bytes(*length) as usize;
        if length > after.len() {
            let left = after.len();
            return Err(fail(bounds.len(), format!("length {length}, but {left} bytes are left")));
        }
        let start = payload.len() - after.len();
        bounds.push((start as u32, (start + length) as u32));
        rest = &after[length..];
        if bounds.len() > records as usize {
            return Err(fail(records as usize, format!("the header says {records} records")));
        }
    }
    if !rest.is_empty() {
        return Err(fail(bounds.len(), format!("{} bytes where a length needs 4", rest.len())));
    }
    if bounds.len() != records as usize {
        return Err(fail(bounds.len(), format!("missing: the header says {records} records")));
    }
    Ok(bounds)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn place() -> Place {
        Place { path: "f".into(), offset: 0, chunk: 2 }
    }

    /// Decodes a payload under a header whose checksum is right.
    fn decode(
        dialect: Dialect,
        compression: Compression,
        records: u32,
        bytes: &[u8],
    ) -> Result<Vec<Vec<u8>>, String> {
        let checksum = dialect.checksum(bytes);
        let header = Header { checksum, compression, compressed_size: bytes.len() as u32, records };
        let chunk = Chunk::decode(dialect, &header, bytes.to_vec(), &place(), 10)
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
