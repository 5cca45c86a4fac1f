//! The chunk header in both dialects, so that the rest of the module sees only one.

/// Size of a chunk header in the file.
pub(crate) const HEADER_BYTES: u64 = 20;

/// What every chunk begins with.
pub(crate) const MAGIC: u32 = 0x0102_0304;

/// Which order of header fields, checksum and snappy form a file uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// Go's recordio and PaddlePaddle: CRC-32 IEEE, snappy as a framed stream. What [`Writer`] writes.
    ///
    /// [`Writer`]: super::Writer
    Standard,
    /// The Python package pyrecordio: CRC-32C, snappy as one raw block.
    PyRecordIo,
}

/// How payloads are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    None = 0,
    /// Snappy: fast.
    #[default]
    Snappy = 1,
    /// Gzip: small.
    Gzip = 2,
}

/// A chunk header without regard to dialect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkHeader {
    pub(crate) checksum: u32,
    pub(crate) compression: Compression,
    pub(crate) compressed_size: u32,
    pub(crate) records: u32,
}

/// Why twenty bytes are not a header of a dialect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeaderFault {
    /// Another magic number.
    Magic(u32),
    /// No such compressor in this dialect.
    Compressor { code: u32, limit: u32 },
}

impl Dialect {
    /// Both, the usual one first.
    pub(crate) const ALL: [Dialect; 2] = [Dialect::Standard, Dialect::PyRecordIo];

    /// Checksum of a compressed payload.
    pub(crate) fn checksum(self, payload: &[u8]) -> u32 {
        self.append(0, payload)
    }

    /// Checksum of a payload from that of its beginning and the bytes that follow.
    pub(crate) fn append(self, checksum: u32, rest: &[u8]) -> u32 {
        match self {
            Dialect::Standard => {
                let mut hasher = crc32fast::Hasher::new_with_initial(checksum);
                hasher.update(rest);
                hasher.finalize()
            }
            Dialect::PyRecordIo => crc32c::crc32c_append(checksum, rest),
        }
    }

    /// pyrecordio numbers its compressors from 1.
    fn first_code(self) -> u32 {
        match self {
            Dialect::Standard => 0,
            Dialect::PyRecordIo => 1,
        }
    }
}

impl ChunkHeader {
    /// Reads the header of a dialect.
    pub(crate) fn decode(dialect: Dialect, bytes: &[u8; 20]) -> Result<ChunkHeader, HeaderFault> {
        let mut words = [0; 5];
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
            *word = u32::from_le_bytes(*bytes);
        }
        if dialect == Dialect::PyRecordIo {
            // It has the number of records first.
            words[1..].rotate_left(1);
        }
        let [magic, checksum, compressor, compressed_size, records] = words;
        if magic != MAGIC {
            return Err(HeaderFault::Magic(magic));
        }
        let code = compressor.wrapping_sub(dialect.first_code());
        let known = [Compression::None, Compression::Snappy, Compression::Gzip];
        let compression = known.into_iter().find(|known| *known as u32 == code);
        let limit = dialect.first_code() + 2;
        let compression = compression.ok_or(HeaderFault::Compressor { code: compressor, limit })?;
        Ok(ChunkHeader { checksum, compression, compressed_size, records })
    }

    /// Writes the header of a dialect.
    pub(crate) fn encode(self, dialect: Dialect) -> [u8; 20] {
        let ChunkHeader { checksum, compression, compressed_size, records } = self;
        let compressor = dialect.first_code() + compression as u32;
        let mut words = [MAGIC, checksum, compressor, compressed_size, records];
        if dialect == Dialect::PyRecordIo {
            words[1..].rotate_right(1);
        }
        let mut bytes = [0; 20];
        bytes.copy_from_slice(words.map(u32::to_le_bytes).as_flattened());
        bytes
    }

    /// Bytes of the whole chunk in the file.
    pub(crate) fn chunk_bytes(&self) -> u64 {
        HEADER_BYTES + u64::from(self.compressed_size)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn both_dialects_are_laid_out_as_documented() {
        let header = ChunkHeader {
            checksum: 0xa1a2_a3a4,
            compression: Compression::Snappy,
            compressed_size: 0xb1,
            records: 0xc1,
        };
        let check = |dialect: Dialect, expected: [u8; 20]| {
            assert_eq!(header.encode(dialect), expected);
            assert_eq!(ChunkHeader::decode(dialect, &expected), Ok(header));
        };
        check(
            Dialect::Standard,
            [4, 3, 2, 1, 0xa4, 0xa3, 0xa2, 0xa1, 1, 0, 0, 0, 0xb1, 0, 0, 0, 0xc1, 0, 0, 0],
        );
        check(
            Dialect::PyRecordIo,
            [4, 3, 2, 1, 0xc1, 0, 0, 0, 0xa4, 0xa3, 0xa2, 0xa1, 2, 0, 0, 0, 0xb1, 0, 0, 0],
        );
    }

    #[test]
    fn faults_are_told_apart() {
        let check = |dialect, bytes: [u8; 20], expected| {
            assert_eq!(ChunkHeader::decode(dialect, &bytes), Err(expected));
        };
        let mut bytes = [0; 20];
        bytes[0] = 9;
        check(Dialect::Standard, bytes, HeaderFault::Magic(9));
        bytes[..4].copy_from_slice(&[4, 3, 2, 1]);
        check(Dialect::PyRecordIo, bytes, HeaderFault::Compressor { code: 0, limit: 3 });
        bytes[8] = 3;
        check(Dialect::Standard, bytes, HeaderFault::Compressor { code: 3, limit: 2 });
    }

    proptest! {
        #[test]
        fn any_twenty_bytes_decode_or_fail_and_come_back(tail: [u8; 16], magic: bool) {
            let mut bytes = [0; 20];
            bytes[4..].copy_from_slice(&tail);
            if magic {
                bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
            }
            for dialect in Dialect::ALL {
                if let Ok(header) = ChunkHeader::decode(dialect, &bytes) {
                    prop_assert_eq!(header.encode(dialect), bytes);
                }
            }
        }
    }
}
