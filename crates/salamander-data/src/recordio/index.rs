//! Finds the chunks of a file by hopping from header to header, so that opening never decompresses.

use super::MAX_CHUNK_BYTES;
use super::chunk::{Buffers, Chunk, most_records};
use super::header::{ChunkHeader, Dialect, HEADER_BYTES, HeaderFault};
use crate::{Blob, BlobHandle, ChunkPlace, Error, reader};

/// One chunk of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkInfo {
    /// Byte offset of its header.
    pub offset: u64,
    /// Number of its first record in the file.
    pub first_record: u64,
    pub(crate) header: ChunkHeader,
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
}

/// Where everything is in a file.
#[derive(Debug)]
pub(crate) struct ChunkIndex {
    pub(crate) dialect: Dialect,
    pub(crate) chunks: Vec<ChunkInfo>,
    pub(crate) records: u64,
}

impl reader::FileIndex for ChunkIndex {
    /// What each header says: offsets and record numbers follow from that.
    fn save(&self) -> Vec<u8> {
        let mut saved = vec![matches!(self.dialect, Dialect::PyRecordIo).into()];
        for ChunkInfo { header, .. } in &self.chunks {
            saved.extend_from_slice(&header.encode(self.dialect));
        }
        saved
    }

    /// Leads from header to header to the end of the file, or is none.
    fn restore(saved: &[u8], size: u64) -> Option<ChunkIndex> {
        let (&dialect, headers) = saved.split_first()?;
        let dialect = *Dialect::ALL.get(usize::from(dialect))?;
        let (headers, rest) = headers.as_chunks::<{ HEADER_BYTES as usize }>();
        let mut chunks = Vec::with_capacity(headers.len());
        let (mut offset, mut records) = (0_u64, 0);
        for bytes in headers {
            let header = ChunkHeader::decode(dialect, bytes).ok()?;
            let most = most_records(header.compression, header.compressed_size);
            let size = u64::from(header.compressed_size);
            if size > MAX_CHUNK_BYTES || u64::from(header.records) > most {
                return None;
            }
            chunks.push(ChunkInfo { offset, first_record: records, header });
            offset = offset.checked_add(header.chunk_bytes())?;
            records += u64::from(header.records);
        }
        (offset == size && rest.is_empty()).then_some(ChunkIndex { dialect, chunks, records })
    }
}

impl ChunkIndex {
    /// A file without bytes has no records.
    pub(crate) fn build(blob: &Blob) -> Result<ChunkIndex, Error> {
        let walk = Walk { file: blob.handle()?, blob };
        if blob.size() == 0 {
            return Ok(ChunkIndex { dialect: Dialect::Standard, chunks: Vec::new(), records: 0 });
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

    /// The chunk that holds a record below `self.records`.
    pub(crate) fn chunk_of(&self, record: u64) -> usize {
        self.chunks.partition_point(|chunk| chunk.first_record <= record).saturating_sub(1)
    }
}

/// Bytes whose checksum is taken at a time, where a chunk is not needed otherwise.
const PIECE_BYTES: usize = 64 << 10;

const COMPRESSOR: &str = "compressor";

struct Walk<'a> {
    file: BlobHandle,
    blob: &'a Blob,
}

impl Walk<'_> {
    fn index(&self, dialect: Dialect) -> Result<ChunkIndex, Error> {
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
        Ok(ChunkIndex { dialect, chunks, records })
    }

    fn header(&self, dialect: Dialect, place: &ChunkPlace) -> Result<ChunkHeader, Error> {
        let available = self.blob.size() - place.offset;
        self.require(place, HEADER_BYTES)?;
        let mut bytes = [0; HEADER_BYTES as usize];
        self.file.read_exact_at(&mut bytes, place.offset).map_err(Error::io(self.blob.path()))?;
        let header = ChunkHeader::decode(dialect, &bytes).map_err(|fault| match fault {
            HeaderFault::Magic(found) => Error::BadMagic { place: place.clone(), found },
            HeaderFault::Compressor { code, limit } => {
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
    fn require(&self, place: &ChunkPlace, needed: u64) -> Result<(), Error> {
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
    fn payload(&self, header: &ChunkHeader, offset: u64) -> Result<Vec<u8>, Error> {
        let mut payload = vec![0; header.compressed_size as usize];
        self.file
            .read_exact_at(&mut payload, offset + HEADER_BYTES)
            .map_err(Error::io(self.blob.path()))?;
        Ok(payload)
    }

    fn place(&self, offset: u64, chunk: usize) -> ChunkPlace {
        ChunkPlace { path: self.blob.path().to_owned(), offset, chunk }
    }
}

fn length(place: &ChunkPlace, what: &'static str, value: u64, limit: u64) -> Error {
    Error::Length { place: place.clone(), what, value, limit }
}

#[cfg(test)]
mod tests;
