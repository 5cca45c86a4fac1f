//! One partition as bytes: what files and moves are made of. Reading checks everything that could
//! make a table wrong, whoever wrote the bytes.

use std::collections::BTreeMap;

use salamander_core::seed::mix;

use crate::{Applied, LedgerPage, Pages, TableSpec, partition_of};

/// Bytes of an entry of the waiting ids.
const WAITING: usize = 16;

/// What a partition knows about itself, ahead of its tables.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PartitionHistory {
    /// Advances or pushes that it has seen.
    pub(crate) age: u64,
    pub(crate) applied: Applied,
    pub(crate) pages: Pages,
}

impl PartitionHistory {
    /// Appends it as [`Section::decode`] reads it.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let names = self.applied.encode();
        for number in [self.age, names.len() as u64, self.pages.len() as u64] {
            out.extend(number.to_le_bytes());
        }
        out.extend(names);
        for (epoch, page) in &self.pages {
            for number in [*epoch, page.applied, page.skipped, page.digest] {
                out.extend(number.to_le_bytes());
            }
        }
    }
}

/// A partition in bytes.
#[derive(Debug)]
pub(crate) struct Section<'a> {
    pub(crate) history: PartitionHistory,
    /// In the order of the tables that the file names.
    pub(crate) tables: Vec<TableView<'a>>,
}

/// A partition of one table in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TableView<'a> {
    ids: &'a [[u8; 8]],
    meta: &'a [[u8; 8]],
    values: &'a [u8],
    state: &'a [u8],
    waiting: &'a [[u8; WAITING]],
    pub(crate) hand: u64,
    value_len: usize,
    state_len: usize,
}

/// A row in bytes.
#[derive(Debug)]
pub(crate) struct RowView<'a> {
    pub(crate) meta: u64,
    pub(crate) values: &'a [u8],
    pub(crate) state: &'a [u8],
}

impl<'a> Section<'a> {
    /// Reads a partition of these tables; the error says what is wrong.
    pub(crate) fn decode(
        bytes: &'a [u8],
        partition: u16,
        specs: &[TableSpec],
    ) -> Result<Self, String> {
        let mut bytes = Bytes(bytes);
        let (age, names, pages) = (bytes.number()?, bytes.number()?, bytes.number()?);
        let applied = Applied::decode(bytes.take(names, 1)?).ok_or("its names make no sense")?;
        let mut history = PartitionHistory { age, applied, pages: BTreeMap::new() };
        for _ in 0..pages {
            let epoch = bytes.number()?;
            let (applied, skipped) = (bytes.number()?, bytes.number()?);
            let page = LedgerPage { applied, skipped, digest: bytes.number()? };
            history.pages.insert(epoch, page);
        }
        let mut tables = Vec::new();
        for spec in specs {
            let table = TableView::decode(&mut bytes, partition, spec)
                .map_err(|reason| format!("table \"{}\": {reason}", spec.name))?;
            tables.push(table);
        }
        match bytes.0 {
            [] => Ok(Self { history, tables }),
            rest => Err(format!("{} bytes too many", rest.len())),
        }
    }
}

impl<'a> TableView<'a> {
    fn decode(bytes: &mut Bytes<'a>, partition: u16, spec: &TableSpec) -> Result<Self, String> {
        let (rows, waiting, hand) = (bytes.number()?, bytes.number()?, bytes.number()?);
        let value_len = spec.dim * spec.storage.width();
        let state_len = spec.dim * spec.optimizer.slots().len() * size_of::<f32>();
        let view = Self {
            ids: bytes.take(rows, 8)?.as_chunks().0,
            meta: bytes.take(rows, 8)?.as_chunks().0,
            values: bytes.take(rows, value_len)?,
            state: bytes.take(rows, state_len)?,
            waiting: bytes.take(waiting, WAITING)?.as_chunks().0,
            hand,
            value_len,
            state_len,
        };
        let ids = || view.ids().chain(view.waiting().map(|(id, _, _)| id));
        if let Some(stray) = ids().find(|id| partition_of(*id) != partition) {
            return Err(format!("id {stray} is of another partition"));
        }
        if !view.ids().map(mix).is_sorted_by(|left, right| left < right) {
            return Err("its ids are not in order".to_string());
        }
        Ok(view)
    }

    /// Bytes of so many rows.
    pub(crate) fn byte_len(spec: &TableSpec, rows: usize, waiting: usize) -> usize {
        let state = spec.dim * spec.optimizer.slots().len() * size_of::<f32>();
        24 + rows * (16 + spec.dim * spec.storage.width() + state) + waiting * WAITING
    }

    /// Where its ids and its values are in the bytes that it was decoded from.
    pub(crate) fn places(&self, bytes: &[u8]) -> (usize, usize) {
        let begin = bytes.as_ptr() as usize;
        (self.ids.as_ptr() as usize - begin, self.values.as_ptr() as usize - begin)
    }

    pub(crate) fn ids(&self) -> impl ExactSizeIterator<Item = u64> + Clone + 'a {
        self.ids.iter().map(|id| u64::from_le_bytes(*id))
    }

    pub(crate) fn rows(&self) -> impl Iterator<Item = RowView<'a>> + 'a {
        let Self { values, state, value_len, state_len, .. } = *self;
        self.meta.iter().enumerate().map(move |(at, meta)| RowView {
            meta: u64::from_le_bytes(*meta),
            values: &values[at * value_len..(at + 1) * value_len],
            state: &state[at * state_len..(at + 1) * state_len],
        })
    }

    /// Id, count and age of the last use of each id that waits.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = (u64, u32, u32)> + 'a {
        self.waiting.iter().map(|entry| {
            let [id, rest] = bytemuck::cast::<[u8; WAITING], [[u8; 8]; 2]>(*entry);
            let [count, used] = bytemuck::cast::<[u8; 8], [[u8; 4]; 2]>(rest);
            (u64::from_le_bytes(id), u32::from_le_bytes(count), u32::from_le_bytes(used))
        })
    }
}

/// Bytes yet to be read.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn number(&mut self) -> Result<u64, String> {
        let (number, rest) = self.0.split_first_chunk().ok_or("it is cut short")?;
        self.0 = rest;
        Ok(u64::from_le_bytes(*number))
    }

    /// The next `count` items of `width` bytes. Nothing is allocated for a count that lies.
    fn take(&mut self, count: u64, width: usize) -> Result<&'a [u8], String> {
        let length = usize::try_from(count).ok().and_then(|count| count.checked_mul(width));
        let split = length.and_then(|length| self.0.split_at_checked(length));
        let (taken, rest) = split.ok_or("it is cut short")?;
        self.0 = rest;
        Ok(taken)
    }
}
