//! CSV, TSV and headerless text files as shards: the place of every 1,024th record is kept, so that a range far into a
//! file is found without reading all before it, and blocks parsed lately are kept for shuffled reading.

use std::io::{Read, SeekFrom};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use csv::{ByteRecord, Position};

use crate::dialect::{ColumnNames, Dialect};
use crate::open::{Opened, Opening};
use crate::part_cache::PartCache;
use crate::reader::{Each, Extent, OneShard};
use crate::text_index::TextIndex;
use crate::{Blob, BlobReader, ColumnInfo, ColumnKind, Error, Row, Value};

mod index;
mod looks;

/// Bytes read at once.
const BUFFER_BYTES: usize = 64 << 10;

/// What to do about text in another encoding, which old spreadsheets write: UTF-16 begins with a mark, all others are
/// most often those of Windows.
fn other_text(field: &[u8]) -> &'static str {
    match field {
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => {
            " (write the file as UTF-8: iconv -f UTF-16 -t UTF-8)"
        }
        _ => " (write the file as UTF-8: iconv -f LATIN1 -t UTF-8)",
    }
}

/// Parsed blocks, shared by files.
type DecodedRecords = PartCache<Vec<ByteRecord>>;

/// An indexed file whose values are text. A file without bytes has no records.
#[derive(Debug)]
struct Delimited {
    blob: Blob,
    dialect: Dialect,
    index: TextIndex,
    cache: Arc<DecodedRecords>,
    /// The file's number in the cache.
    number: u64,
}

/// Opens a file of a dialect.
pub(crate) fn open(opening: Opening<'_>, dialect: Dialect) -> Result<Opened, Error> {
    let rows = opening.shared::<DecodedRecords>();
    let build = |blob: &Blob| index::build(&dialect, blob);
    opening.indexed(build, |blob, index| Delimited::new(blob, dialect.clone(), index, rows))
}

impl Delimited {
    /// The file of an index.
    fn new(
        blob: Blob,
        dialect: Dialect,
        index: TextIndex,
        cache: Arc<DecodedRecords>,
    ) -> Delimited {
        let number = cache.next_file();
        Delimited { blob, dialect, index, cache, number }
    }

    /// The records of a block, with the memory they take.
    fn load(&self, block: usize) -> Result<(Vec<ByteRecord>, usize), Error> {
        let path = self.blob.path();
        let failed = |error| failed(path, error);
        let (mark, range) = (self.index.marks[block], self.index.block(block));
        let mut source = source(&self.blob, &self.dialect)?;
        let mut position = Position::new();
        position.set_byte(mark.byte).set_line(mark.line).set_record(mark.record);
        source.seek_raw(SeekFrom::Start(mark.byte), position).map_err(failed)?;
        let (mut records, mut bytes) = (Vec::new(), 0);
        for _ in range {
            let mut record = ByteRecord::new();
            if !source.read_byte_record(&mut record).map_err(failed)? {
                return Err(Error::Changed { path: path.to_owned() });
            }
            bytes += record.as_slice().len() + 8 * record.len() + 128;
            records.push(record);
        }
        Ok((records, bytes))
    }

    fn row<'a>(&'a self, fields: &'a ByteRecord, record: u64) -> Result<Row<'a>, Error> {
        let (path, names, dialect) = (self.blob.path(), &self.index.names, &self.dialect);
        let found = fields.len().div_ceil(dialect.step());
        if found != names.len() {
            let (line, wanted) = (self.line(fields), names.len());
            let by = match dialect.names {
                ColumnNames::FirstRow { .. } => "the header has",
                ColumnNames::Fixed(_) => "the format has",
                ColumnNames::Given(_) => "the names given are",
                ColumnNames::Numbered => "the first record has",
            };
            let reason = format!("line {line}: {found} fields, but {by} {wanted}");
            return Err(Error::Rejected(reason).at(path, None, record));
        }
        let between = fields.iter().skip(1).step_by(2);
        let separated = fields.len() % 2 == 1 && between.into_iter().all(<[u8]>::is_empty);
        if dialect.step() == 2 && !separated {
            let reason = format!("line {}: write two colons between two fields", self.line(fields));
            return Err(Error::Rejected(reason).at(path, None, record));
        }
        let mut columns = Vec::with_capacity(names.len());
        for (name, field) in names.iter().zip(fields.iter().step_by(dialect.step())) {
            let text = std::str::from_utf8(field).map_err(|error| {
                let reason = format!("line {}: {error}{}", self.line(fields), other_text(field));
                Error::column(name, reason).at(path, None, record)
            })?;
            columns.push((name.as_str().into(), Value::Text(dialect.read(name, text))));
        }
        Ok(Row::new(columns))
    }

    /// Adds line, file and record to what was said of a row.
    fn placed(&self, error: Error, fields: &ByteRecord, record: u64) -> Error {
        error.on_line(|| self.line(fields)).at(self.blob.path(), None, record)
    }

    /// The line a record begins in, for messages. The csv crate's position is where the record before
    /// ended, so the rest of a line end, blank lines and remarks are counted here.
    fn line(&self, fields: &ByteRecord) -> u64 {
        let Some(position) = fields.position() else { return 0 };
        let mut start = [0; 4096];
        let read = self.blob.handle().map(|file| file.reader(position.byte()).read(&mut start));
        let start = &start[..read.ok().and_then(Result::ok).unwrap_or(0)];
        let (mut line, mut in_remark) = (position.line(), false);
        for byte in start {
            in_remark = *byte != b'\n' && (in_remark || *byte == self.dialect.remark);
            match byte {
                b'\n' => line += 1,
                b'\r' => {}
                _ if in_remark => {}
                _ => break,
            }
        }
        line
    }
}

impl OneShard for Delimited {
    fn extent(&self) -> Extent<'_> {
        Extent { path: self.blob.path(), records: self.index.records }
    }

    fn columns(&self) -> Option<Vec<ColumnInfo>> {
        let column = |name: &String| ColumnInfo {
            name: name.clone(),
            kind: ColumnKind::Untyped,
            list: false,
        };
        Some(self.index.names.iter().map(column).collect())
    }

    fn fingerprint(&self) -> Option<String> {
        Some(format!("{} {:?} {:?}", self.blob.fingerprint(), self.dialect, self.index.names))
    }

    fn read_range(&self, records: Range<u64>, each: &mut Each<'_>) -> Result<(), Error> {
        self.blob.verify()?;
        let parsed =
            |block: usize| self.cache.get_or_load((self.number, block as u64), || self.load(block));
        self.index.read(records, parsed, |record, fields| {
            let row = self.row(fields, record)?;
            each(record, row).map_err(|error| self.placed(error, fields, record))
        })
    }
}

fn source(blob: &Blob, dialect: &Dialect) -> Result<csv::Reader<BlobReader>, Error> {
    let reader = blob.handle()?.reader(0);
    Ok(dialect.reader().buffer_capacity(BUFFER_BYTES).from_reader(reader))
}

fn failed(path: &Path, error: csv::Error) -> Error {
    match error.into_kind() {
        csv::ErrorKind::Io(source) => Error::io(path)(source),
        other => Error::form(path, format!("{other:?}")),
    }
}

#[cfg(test)]
mod tests;
