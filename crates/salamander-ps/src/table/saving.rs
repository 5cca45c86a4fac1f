//! A table as it was when a copy was asked for, while it goes on: of a row that changes before it was written, the
//! old one is kept apart. So a copy takes memory for what changes while it is written, and not for the whole table.

use std::collections::BTreeMap;

use super::{PendingId, Table, partition_of_mixed};
use crate::index::{id_of, tail_of};
use crate::memory::prefetch_row;
use crate::section::TableView;
use crate::store::RowStore;

/// A copy that is being written.
#[derive(Debug)]
pub(super) struct Saving {
    copy: u64,
    /// By partition; none for those that were written, or are elsewhere.
    parts: Vec<Option<SavedPart>>,
}

/// What a partition was.
#[derive(Debug, Default)]
struct SavedPart {
    /// Rows that changed since, by their tails: what they were, or nothing where they were not there.
    old: BTreeMap<u64, Option<OldRow>>,
    waiting: BTreeMap<u64, PendingId>,
    hand: u64,
}

/// A row that has changed since.
#[derive(Debug)]
struct OldRow {
    meta: u64,
    values: Vec<u8>,
    state: Vec<f32>,
}

/// Where a row is that belongs to a copy.
#[derive(Clone, Copy)]
enum RowPlace<'a> {
    /// In the table, under this number.
    Here(u32),
    /// Apart.
    Old(&'a OldRow),
}

impl Table {
    /// Begins a copy of some partitions.
    pub(crate) fn begin_copy(&mut self, copy: u64, partitions: impl Iterator<Item = u16>) {
        let mut parts: Vec<Option<SavedPart>> = Vec::new();
        parts.resize_with(self.parts.len(), || None);
        for at in partitions.map(usize::from) {
            let (waiting, hand) = (self.parts[at].waiting.clone(), self.parts[at].hand);
            parts[at] = Some(SavedPart { old: BTreeMap::new(), waiting, hand });
        }
        self.savings.push(Saving { copy, parts });
    }

    /// Ends a copy, whether all of it was written or not.
    pub(crate) fn end_copy(&mut self, copy: u64) {
        self.savings.retain(|saving| saving.copy != copy);
    }

    /// Keeps apart what a row is, for copies that have not written it: before it changes, goes or, with no row, comes.
    #[cold]
    #[inline(never)]
    pub(super) fn preserve(&mut self, mixed: u64, row: Option<u32>) {
        let Self { savings, store, .. } = self;
        for saving in savings {
            if let Some(part) = &mut saving.parts[partition_of_mixed(mixed)] {
                let old = || row.map(|row| OldRow::of(store, row));
                part.old.entry(tail_of(mixed)).or_insert_with(old);
            }
        }
    }

    /// Appends a partition as it was when a copy was begun, as [`TableView`] reads it. Returns its rows; none if the
    /// copy does not have the table.
    pub(crate) fn encode_copy(
        &mut self,
        copy: u64,
        partition: u16,
        out: &mut Vec<u8>,
    ) -> Option<u64> {
        let at = usize::from(partition);
        let saving = self.savings.iter_mut().find(|saving| saving.copy == copy)?;
        let part = saving.parts[at].take()?;
        Some(self.encode_part(partition, &part, out))
    }

    #[cfg(test)]
    pub(crate) fn kept_apart(&self) -> usize {
        let parts = self.savings.iter().flat_map(|saving| &saving.parts);
        parts.flatten().map(|part| part.old.len()).sum()
    }

    /// Appends a partition as it is, as [`TableView`] reads it. Returns its rows.
    pub(crate) fn encode(&self, partition: u16, out: &mut Vec<u8>) -> u64 {
        let now = &self.parts[usize::from(partition)];
        let (waiting, hand) = (now.waiting.clone(), now.hand);
        self.encode_part(partition, &SavedPart { old: BTreeMap::new(), waiting, hand }, out)
    }

    fn encode_part(&self, partition: u16, part: &SavedPart, out: &mut Vec<u8>) -> u64 {
        let rows = self.rows_of(partition, part);
        out.reserve_exact(TableView::byte_len(&self.spec, rows.len(), part.waiting.len()));
        for count in [rows.len(), part.waiting.len()] {
            out.extend((count as u64).to_le_bytes());
        }
        out.extend(part.hand.to_le_bytes());
        out.extend(rows.iter().flat_map(|(tail, _)| id_of(partition, *tail).to_le_bytes()));
        let meta = |place: RowPlace<'_>| match place {
            RowPlace::Here(row) => self.store.meta(row).0,
            RowPlace::Old(old) => old.meta,
        };
        out.extend(rows.iter().flat_map(|(_, place)| meta(*place).to_le_bytes()));
        for (at, (_, place)) in rows.iter().enumerate() {
            if let Some((_, RowPlace::Here(next))) = rows.get(at + 8) {
                prefetch_row(self.store.value_bytes(*next));
            }
            out.extend_from_slice(match place {
                RowPlace::Here(row) => self.store.value_bytes(*row),
                RowPlace::Old(old) => &old.values,
            });
        }
        for (at, (_, place)) in rows.iter().enumerate() {
            if let Some((_, RowPlace::Here(next))) = rows.get(at + 8) {
                prefetch_row(self.store.state(*next));
            }
            out.extend_from_slice(bytemuck::cast_slice(match place {
                RowPlace::Here(row) => self.store.state(*row),
                RowPlace::Old(old) => &old.state,
            }));
        }
        for (id, waiting) in &part.waiting {
            out.extend(id.to_le_bytes());
            out.extend(waiting.count.to_le_bytes());
            out.extend(waiting.used.to_le_bytes());
        }
        rows.len() as u64
    }

    /// The rows of a partition by their tails.
    fn rows_of<'a>(&self, partition: u16, part: &'a SavedPart) -> Vec<(u64, RowPlace<'a>)> {
        let at = usize::from(partition);
        let here = self.index.entries(at).filter(|entry| !part.old.contains_key(&entry.tail));
        let here = here.map(|entry| (entry.tail, RowPlace::Here(self.store.number(at, entry.row))));
        let old = part.old.iter();
        let old = old.filter_map(|(tail, old)| Some((*tail, RowPlace::Old(old.as_ref()?))));
        let mut rows: Vec<_> = here.chain(old).collect();
        rows.sort_by_key(|(tail, _)| *tail);
        rows
    }
}

impl OldRow {
    fn of(store: &RowStore, row: u32) -> Self {
        let (values, state) = (store.value_bytes(row).to_vec(), store.state(row).to_vec());
        Self { meta: store.meta(row).0, values, state }
    }
}
