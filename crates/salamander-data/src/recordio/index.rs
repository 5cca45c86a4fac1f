//! Finds the chunks of a file by hopping from header to header, so that opening never decompresses.

use super::MAX_CHUNK_BYTES;
use super::chunk::{Buffers, Chunk, most_records};
use super::header::{Compression, Dialect, Fault, HEADER_BYTES, Header};
use crate::{Blob, Error, Handle, Place, reader};

/// One chunk of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkInfo {
    /// Byte offset of its header.
    pub offset: u64,
    /// Number of its first record in the file.
    pub first_record: u64,
    pub(crate) header: Header,
}

impl ChunkInfo {
    /// How many records it has.
    pub fn records(&self) -> u32 {
        self.header.records
    }

    /// Bytes of its payload in the file.
    pub fn compressed_size(&self) -> u32 {
        self.header.compressed_size
    }

    /// How its payload is compressed.
    pub fn compression(&self) -> Compression {
        self.header.compression
    }
}

/// Where everything is in a file.
#[derive(Debug)]
pub(crate) struct Index {
    pub(crate) dialect: Dialect,
    pub(crate) chunks: Vec<ChunkInfo>,
    pub(crate) records: u64,
}

impl reader::Index for Index {
    /// A file without bytes has no records.
    fn build(blob: &Blob) -> Result<Index, Error> {
        let walk = Walk { file: blob.handle()?, blob };
        if blob.size() == 0 {
            return Ok(Index { dialect: Dialect::Standard, chunks: Vec::new(), records: 0 });
        }
        for dialect in Dialect::ALL {
            if walk.first_checksum_validates(dialect)? {
                return walk.index(dialect);
            }
        }
        // The first chunk is damaged or this is no RecordIO. If one dialect leads from header to header
        // exactly to the end, the other chunks can still be read and the first names its own damage.
        walk.index(Dialect::Standard).or_else(|error| {
            walk.index(Dialect::PyRecordIo).map_err(|second| match error {
                Error::Length { what: COMPRESSOR, .. } => second,
                first => first,
            })
        })
    }

    /// What each header says: offsets and record numbers follow from that.
    fn save(&self) -> Vec<u8> {
        let mut saved = vec![matches!(self.dialect, Dialect::PyRecordIo).into()];
        for ChunkInfo { header, .. } in &self.chunks {
            saved.extend_from_slice(&header.encode(self.dialect));
        }
        saved
    }

    /// Leads from header to header to the end of the file, or is none.
    fn restore(saved: &[u8], size: u64) -> Option<Index> {
        let (&dialect, headers) = saved.split_first()?;
        let dialect = *Dialect::ALL.get(usize::from(dialect))?;
        let (headers, rest) = headers.as_chunks::<{ HEADER_BYTES as usize }>();
        let mut chunks = Vec::with_capacity(headers.len());
        let (mut offset, mut records) = (0_u64, 0);
        for bytes in headers {
            let header = Header::decode(dialect, bytes).ok()?;
            let most = most_records(header.compression, header.compressed_size);
            let size = u64::from(header.compressed_size);
            if size > MAX_CHUNK_BYTES || u64::from(header.records) > most {
                return None;
            }
            chunks.push(ChunkInfo { offset, first_record: records, header });
            offset = offset.checked_add(header.chunk_bytes())?;
            records += u64::from(header.records);
        }
        (offset == size && rest.is_empty()).then_some(Index { dialect, chunks, records })
    }
}

impl Index {
    /// The chunk that holds a record below `self.records`.
    pub(crate) fn chunk_of(&self, record: u64) -> usize {
        self.chunks.partition_point(|chunk| chunk.first_record <= record).saturating_sub(1)
    }
}

/// Bytes whose checksum is taken at a time, where a chunk is not needed otherwise.
const PIECE_BYTES: usize = 64 << 10;

const COMPRESSOR: &str = "compressor";

struct Walk<'a> {
    file: Handle,
    blob: &'a Blob,
}

impl Walk<'_> {
    fn index(&self, dialect: Dialect) -> Result<Index, Error> {
        let mut chunks = Vec::new();
        let (mut offset, mut records) = (0, 0);
        while offset < self.blob.size() {
            let place = self.place(offset, chunks.len());
            let header = self.header(dialect, &place)?;
            if header.records == 0 {
                // Nobody would ever ask for its records, so damage to the count must be found now.
                let compressed = self.payload(&header, offset)?;
                let mut buffers = Buffers { compressed, ..Buffers::default() };
                Chunk::decode(dialect, &header, &mut buffers, &place, records)?;
            }
            chunks.push(ChunkInfo { offset, first_record: records, header });
            offset += header.chunk_bytes();
            records += u64::from(header.records);
        }
        Ok(Index { dialect, chunks, records })
    }

    fn header(&self, dialect: Dialect, place: &Place) -> Result<Header, Error> {
        let available = self.blob.size() - place.offset;
        self.require(place, HEADER_BYTES)?;
        let mut bytes = [0; HEADER_BYTES as usize];
        self.file.read_exact_at(&mut bytes, place.offset).map_err(Error::io(self.blob.path()))?;
        let header = Header::decode(dialect, &bytes).map_err(|fault| match fault {
            Fault::Magic(found) => Error::BadMagic { place: place.clone(), found },
            Fault::Compressor { code, limit } => {
                length(place, COMPRESSOR, code.into(), limit.into())
            }
        })?;
        let size = u64::from(header.compressed_size);
        if size > MAX_CHUNK_BYTES && header.chunk_bytes() > available {
            return Err(length(place, "compressed size", size, available - HEADER_BYTES));
        }
        if size > MAX_CHUNK_BYTES {
            return Err(length(place, "compressed size", size, MAX_CHUNK_BYTES));
        }
        self.require(place, header.chunk_bytes())?;
        let most = most_records(header.compression, header.compressed_size);
        if u64::from(header.records) > most {
            return Err(length(place, "number of records", header.records.into(), most));
        }
        Ok(header)
    }

    /// Refuses a chunk that needs more bytes than the file has left.
    fn require(&self, place: &Place, needed: u64) -> Result<(), Error> {
        let available = self.blob.size() - place.offset;
        if needed <= available {
            return Ok(());
        }
        Err(Error::Truncated { place: place.clone(), needed, available })
    }

    fn first_checksum_validates(&self, dialect: Dialect) -> Result<bool, Error> {
        let header = match self.header(dialect, &self.place(0, 0)) {
            Ok(header) => header,
            Err(error @ Error::Io { .. }) => return Err(error),
            Err(_) => return Ok(false),
        };
        let mut checksum = 0;
        let mut piece = vec![0; PIECE_BYTES];
        let end = header.chunk_bytes();
        for start in (HEADER_BYTES..end).step_by(PIECE_BYTES) {
            let piece = &mut piece[..PIECE_BYTES.min((end - start) as usize)];
            self.file.read_exact_at(piece, start).map_err(Error::io(self.blob.path()))?;
            checksum = dialect.append(checksum, piece);
        }
        Ok(checksum == header.checksum)
    }

    /// The compressed payload of a chunk that the file is known to hold.
    fn payload(&self, header: &Header, offset: u64) -> Result<Vec<u8>, Error> {
        let mut payload = vec![0; header.compressed_size as usize];
        self.file
            .read_exact_at(&mut payload, offset + HEADER_BYTES)
            .map_err(Error::io(self.blob.path()))?;
        Ok(payload)
    }

    fn place(&self, offset: u64, chunk: usize) -> Place {
        Place { path: self.blob.path().to_owned(), offset, chunk }
    }
}

fn length(place: &Place, what: &'static str, value: u64, limit: u64) -> Error {
    Error::Length { place: place.clone(), what, value, limit }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::chunk;
    use super::*;
    use crate::reader::Index as _;

    fn build(bytes: &[u8]) -> Result<Index, Error> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        std::fs::write(&path, bytes).unwrap();
        Index::build(&Blob::open(&path).unwrap())
    }

    fn chunk(records: u32) -> Vec<u8> {
        chunk::encode(&vec![0; 4 * records as usize], records, Compression::None, 0).unwrap()
    }

    #[test]
    fn chunks_are_numbered_through() {
        let index = build(&[chunk(2), chunk(0), chunk(3)].concat()).unwrap();
        assert_eq!(index.records, 5);
        let found: Vec<_> =
            index.chunks.iter().map(|c| (c.offset, c.first_record, c.records())).collect();
        assert_eq!(found, [(0, 0, 2), (28, 2, 0), (48, 2, 3)]);
        let check = |record, expected| assert_eq!(index.chunk_of(record), expected);
        check(0, 0);
        check(1, 0);
        check(2, 2);
        check(4, 2);
    }

    #[test]
    fn headers_that_cannot_be_true_are_refused() {
        let check = |bytes: &[u8], expected: &str| {
            let message = build(bytes).unwrap_err().to_string();
            assert_eq!(&message[message.rfind('/').unwrap() + 1..], expected);
        };
        let good = chunk(2);
        let with = |at: usize, value: u32| {
            let mut bytes = good.clone();
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
            bytes
        };
        check(
            &with(0, 7),
            "f: chunk 0 at byte 0: found 0x00000007 where a recordio chunk begins with 0x01020304",
        );
        check(
            &with(12, u32::MAX),
            "f: chunk 0 at byte 0: compressed size is 4294967295, but at most 8 is possible here",
        );
        check(
            &with(16, u32::MAX),
            "f: chunk 0 at byte 0: number of records is 4294967295, but at most 2 is possible here",
        );
        check(
            &with(12, 9),
            "f: chunk 0 at byte 0: needs 29 bytes, but the file ends after 28: truncated file",
        );
        check(&with(16, 0), "f: chunk 0 record 0: the header says 0 records");
        check(
            &[&good[..], &[4, 3]].concat(),
            "f: chunk 1 at byte 28: needs 20 bytes, but the file ends after 2: truncated file",
        );
        check(
            &[&good[..], &[0; 20]].concat(),
            "f: chunk 1 at byte 28: found 0x00000000 where a recordio chunk begins with 0x01020304",
        );
    }

    #[test]
    fn a_damaged_first_chunk_does_not_hide_the_others() {
        let mut bytes = [chunk(2), chunk(3)].concat();
        bytes[20] ^= 1;
        let index = build(&bytes).unwrap();
        assert_eq!((index.dialect, index.records), (Dialect::Standard, 5));
    }

    #[test]
    fn a_saved_index_is_restored_for_the_same_size_only() {
        let bytes = [chunk(2), chunk(0), chunk(3)].concat();
        let index = build(&bytes).unwrap();
        let (saved, size) = (index.save(), bytes.len() as u64);
        let restored = Index::restore(&saved, size).unwrap();
        assert_eq!((restored.chunks, restored.records), (index.chunks, 5));
        let check = |saved: &[u8], size: u64| assert!(Index::restore(saved, size).is_none());
        check(&saved, size + 1);
        check(&saved[..saved.len() - 1], size);
        check(&saved[..21], size);
        check(&[&saved[..], &saved[1..]].concat(), size);
        check(&[], size);
        check(&[2], 0);
        let mut records = saved.clone();
        records[17..21].fill(0xff);
        check(&records, size);
    }

    proptest! {
        #[test]
        fn any_saved_bytes_restore_or_not(saved: Vec<u8>, size: u64) {
            let _ = Index::restore(&saved, size);
        }

        #[test]
        fn any_bytes_index_or_fail(mut bytes: Vec<u8>, magic: bool) {
            if magic && bytes.len() >= 4 {
                bytes[..4].copy_from_slice(&[4, 3, 2, 1]);
            }
            let _ = build(&bytes);
        }
    }
}
