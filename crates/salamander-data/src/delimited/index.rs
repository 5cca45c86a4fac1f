//! What is kept of a text file so that a record far into it is found: columns, and where every so many records begin.

use std::ops::Range;
use std::path::Path;

use csv::ByteRecord;

use super::{failed, source};
use crate::dialect::Dialect;
use crate::index_cache::{Cut, Save};
use crate::{Blob, Error, reader};

/// Records between two places that are kept, at most.
const BLOCK_RECORDS: u64 = 1024;
/// Bytes after which a place is kept even earlier, so that a block of large records takes little memory.
const BLOCK_BYTES: u64 = 1 << 20;

/// Columns, blocks and the number of records.
#[derive(Debug, PartialEq)]
pub(crate) struct TextIndex {
    pub(super) names: Vec<String>,
    /// Where each block begins.
    pub(super) marks: Vec<TextMark>,
    pub(super) records: u64,
}

/// Where a record begins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct TextMark {
    pub(super) record: u64,
    pub(super) byte: u64,
    pub(super) line: u64,
}

impl TextIndex {
    /// Goes through a file of this dialect.
    pub(super) fn build(dialect: &Dialect, blob: &Blob) -> Result<TextIndex, Error> {
        let path = blob.path();
        let failed = |error| failed(path, error);
        let mut source = source(blob, dialect)?;
        let mut names = match dialect.columns {
            Some(columns) => columns.iter().map(|name| (*name).to_owned()).collect(),
            None => column_names(path, source.byte_headers().map_err(failed)?)?,
        };
        let (mut marks, mut records): (Vec<TextMark>, u64) = (Vec::new(), 0);
        let mut fields = ByteRecord::new();
        loop {
            let (byte, line) = (source.position().byte(), source.position().line());
            if !source.read_byte_record(&mut fields).map_err(failed)? {
                break;
            }
            let due = marks.last().is_none_or(|last| {
                records - last.record >= BLOCK_RECORDS || byte - last.byte >= BLOCK_BYTES
            });
            if due {
                marks.push(TextMark { record: records, byte, line });
            }
            if records == 0 && dialect.may_lack_first && fields.len() + 1 == names.len() {
                // Records to predict: without the label, which comes first.
                names.remove(0);
            }
            records += 1;
        }
        Ok(TextIndex { names, marks, records })
    }
}

impl reader::FileIndex for TextIndex {
    fn save(&self) -> Vec<u8> {
        let mut saved = Vec::new();
        saved.put(self.names.len() as u64);
        for name in &self.names {
            saved.put_bytes(name.as_bytes());
        }
        saved.put(self.records);
        for mark in &self.marks {
            saved.put(mark.record);
            saved.put(mark.byte);
            saved.put(mark.line);
        }
        saved
    }

    /// Has all its places in the file, in order, or is none.
    fn restore(saved: &[u8], size: u64) -> Option<TextIndex> {
        let mut cut = Cut(saved);
        let mut names = Vec::new();
        for _ in 0..cut.number()? {
            names.push(String::from_utf8(cut.bytes()?.to_vec()).ok()?);
        }
        let records = cut.number()?;
        let mut marks: Vec<TextMark> = Vec::new();
        while !cut.0.is_empty() {
            let mark = TextMark { record: cut.number()?, byte: cut.number()?, line: cut.number()? };
            let follows = match marks.last() {
                Some(last) => {
                    let block = last.record + 1..=last.record.saturating_add(BLOCK_RECORDS);
                    block.contains(&mark.record) && mark.byte > last.byte
                }
                None => mark.record == 0,
            };
            if !follows || mark.byte >= size || mark.record >= records {
                return None;
            }
            marks.push(mark);
        }
        let last = marks.last().map_or(0, |last| last.record + BLOCK_RECORDS);
        (records <= last).then_some(TextIndex { names, marks, records })
    }
}

impl TextIndex {
    /// The block that holds a record below `self.records`.
    pub(super) fn block_of(&self, record: u64) -> usize {
        self.marks.partition_point(|mark| mark.record <= record).saturating_sub(1)
    }

    /// The records of a block.
    pub(super) fn block(&self, block: usize) -> Range<u64> {
        let end = self.marks.get(block + 1).map_or(self.records, |mark| mark.record);
        self.marks[block].record..end
    }
}

fn column_names(path: &Path, headers: &ByteRecord) -> Result<Vec<String>, Error> {
    let wrong = |reason: String| Error::form(path, reason);
    let mut names = Vec::with_capacity(headers.len());
    for (column, name) in headers.iter().enumerate() {
        let name = std::str::from_utf8(name)
            .map_err(|error| wrong(format!("header row: column {column}: {error}")))?;
        if names.iter().any(|earlier| earlier == name) {
            return Err(wrong(format!("header row: column {name:?} occurs twice")));
        }
        names.push(name.to_owned());
    }
    Ok(names)
}
