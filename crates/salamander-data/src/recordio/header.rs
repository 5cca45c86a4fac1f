//! The chunk header in both dialects, so that the rest of the module sees only one.

use std::io::Cursor;

use binrw::{BinRead, BinWrite};

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
    None,
    /// Snappy: fast.
    #[default]
    Snappy,
    /// Gzip: small.
    Gzip,
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
pub(crate) enum Fault {
    /// Another magic number.
    Magic(u32),
    /// No such compressor in this dialect.
    Compressor { code: u32, limit: u32 },
}

#[derive(BinRead, BinWrite)]
#[brw(little)]
struct Standard {
    magic: u32,
    checksum: u32,
    compressor: u32,
    compressed_size: u32,
    records: u32,
}

#[derive(BinRead, BinWrite)]
#[brw(little)]
struct PyRecordIo {
    magic: u32,
    records: u32,
    checksum: u32,
    compressor: u32,
    compressed_size: u32,
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
    pub(crate) fn decode(dialect: Dialect, bytes: &[u8; 20]) -> Result<ChunkHeader, Fault> {
        let standard = match dialect {
            Dialect::Standard => fixed::<Standard>(bytes),
            Dialect::PyRecordIo => {
                let PyRecordIo { magic, records, checksum, compressor, compressed_size } =
                    fixed(bytes);
                Standard { magic, checksum, compressor, compressed_size, records }
            }
        };
        let Standard { magic, checksum, compressor, compressed_size, records } = standard;
        if magic != MAGIC {
            return Err(Fault::Magic(magic));
        }
        let compression = match compressor.wrapping_sub(dialect.first_code()) {
            0 => Compression::None,
            1 => Compression::Snappy,
            2 => Compression::Gzip,
            _ => {
                let limit = dialect.first_code() + 2;
                return Err(Fault::Compressor { code: compressor, limit });
            }
        };
        Ok(ChunkHeader { checksum, compression, compressed_size, records })
    }

    /// Writes the header of a dialect.
    pub(crate) fn encode(self, dialect: Dialect) -> [u8; 20] {
        let ChunkHeader { checksum, compression, compressed_size, records } = self;
        let compressor = dialect.first_code()
            + match compression {
                Compression::None => 0,
                Compression::Snappy => 1,
                Compression::Gzip => 2,
            };
        let magic = MAGIC;
        let mut bytes = [0; 20];
        let mut cursor = Cursor::new(&mut bytes[..]);
        let written = match dialect {
            Dialect::Standard => Standard { magic, checksum, compressor, compressed_size, records }
                .write(&mut cursor),
            Dialect::PyRecordIo => {
                PyRecordIo { magic, records, checksum, compressor, compressed_size }
                    .write(&mut cursor)
            }
        };
        written.expect("five u32 fit into 20 bytes");
        bytes
    }

    /// Bytes of the whole chunk in the file.
    pub(crate) fn chunk_bytes(&self) -> u64 {
        HEADER_BYTES + u64::from(self.compressed_size)
    }
}

fn fixed<T: for<'a> BinRead<Args<'a> = ()> + binrw::meta::ReadEndian>(bytes: &[u8; 20]) -> T {
    T::read(&mut Cursor::new(&bytes[..])).expect("any 20 bytes are five u32")
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
        check(Dialect::Standard, bytes, Fault::Magic(9));
        bytes[..4].copy_from_slice(&[4, 3, 2, 1]);
        check(Dialect::PyRecordIo, bytes, Fault::Compressor { code: 0, limit: 3 });
        bytes[8] = 3;
        check(Dialect::Standard, bytes, Fault::Compressor { code: 3, limit: 2 });
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
