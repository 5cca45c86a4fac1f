//! What is kept of a text file so that a record far into it is found: columns, and where every so many records begin.

use std::ops::Range;
use std::sync::Arc;

use crate::index_cache::{Cut, Save};
use crate::{Error, reader};

/// Records between two places that are kept, at most.
const BLOCK_RECORDS: u64 = 1024;
/// Bytes after which a place is kept even earlier, so that a block of large records takes little memory.
const BLOCK_BYTES: u64 = 1 << 20;

/// Columns, blocks and the number of records.
#[derive(Debug, PartialEq)]
pub(crate) struct TextIndex {
    pub(crate) names: Vec<String>,
    /// Where each block begins.
    pub(crate) marks: Vec<TextMark>,
    pub(crate) records: u64,
}

/// Where a record begins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct TextMark {
    pub(crate) record: u64,
    pub(crate) byte: u64,
    pub(crate) line: u64,
}

impl TextIndex {
    /// An index without records yet.
    pub(crate) fn new(names: Vec<String>) -> TextIndex {
        TextIndex { names, marks: Vec::new(), records: 0 }
    }

    /// Adds the next record, which begins here.
    pub(crate) fn add(&mut self, byte: u64, line: u64) {
        let due = self.marks.last().is_none_or(|last| {
            self.records - last.record >= BLOCK_RECORDS || byte - last.byte >= BLOCK_BYTES
        });
        if due {
            self.marks.push(TextMark { record: self.records, byte, line });
        }
        self.records += 1;
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
    pub(crate) fn block_of(&self, record: u64) -> usize {
        self.marks.partition_point(|mark| mark.record <= record).saturating_sub(1)
    }

    /// The records of a block.
    pub(crate) fn block(&self, block: usize) -> Range<u64> {
        let end = self.marks.get(block + 1).map_or(self.records, |mark| mark.record);
        self.marks[block].record..end
    }

    /// Calls `each` with records in their order, as the blocks that hold them were parsed.
    pub(crate) fn read<T>(
        &self,
        records: Range<u64>,
        parsed: impl Fn(usize) -> Result<Arc<Vec<T>>, Error>,
        mut each: impl FnMut(u64, &T) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut next = records.start;
        while next < records.end {
            let block = self.block_of(next);
            let range = self.block(block);
            let parsed = parsed(block)?;
            for record in next..range.end.min(records.end) {
                each(record, &parsed[(record - range.start) as usize])?;
            }
            next = range.end;
        }
        Ok(())
    }
}
