//! The memory of a table: arenas of rows and of what is known about them, handed out to partitions in
//! small chunks.

use bytemuck::Pod;
use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};
use half::{bf16, f16};

use crate::arena::Arena;
use crate::memory::{prefetch, prefetch_row};
use crate::meta::Meta;
use crate::{PARTITIONS, Storage, TableSpec};

/// A chunk has at most this many rows and about this many bytes, so that a partition wastes little.
const CHUNK_ROWS: usize = 64;
const CHUNK_BYTES: usize = 64 << 10;

/// All rows of a table on one thread, by number.
#[derive(Debug)]
pub(crate) struct RowStore {
    pub(crate) rows: RowArena,
    meta: Arena<u64>,
    /// When each row last changed, once somebody has asked.
    changes: Option<Arena<u64>>,
    /// A chunk has `2^shift` rows.
    shift: u32,
    /// The chunks of each partition, side by side: `stride` places for each, and how many it has.
    table: Vec<u32>,
    stride: usize,
    counts: Vec<u32>,
    /// Chunks that were handed back.
    free: Vec<u32>,
    /// Chunks that were ever handed out.
    chunks: u32,
    row_bytes: usize,
    storage: Storage,
    dim: usize,
}

/// Values and optimizer state.
#[derive(Debug)]
pub(crate) enum RowArena {
    /// A row's values and its state behind them: an update touches one place in memory.
    Whole(Arena<f32>),
    /// Values in 16 bits, and the state elsewhere.
    Halves(Arena<u16>, Arena<f32>),
}

impl RowStore {
    pub(crate) fn new(spec: &TableSpec) -> Self {
        let state_width = spec.dim * spec.optimizer.slots().len();
        let row_bytes = spec.dim * spec.storage.width() + 4 * state_width + size_of::<u64>();
        let rows = (CHUNK_BYTES / row_bytes).clamp(1, CHUNK_ROWS);
        Self {
            rows: match spec.storage {
                Storage::F32 => RowArena::Whole(Arena::new(spec.dim + state_width)),
                Storage::F16 | Storage::Bf16 => {
                    RowArena::Halves(Arena::new(spec.dim), Arena::new(state_width))
                }
            },
            storage: spec.storage,
            dim: spec.dim,
            meta: Arena::new(1),
            changes: None,
            shift: rows.ilog2(),
            table: vec![0; PARTITIONS],
            stride: 1,
            counts: vec![0; PARTITIONS],
            free: Vec::new(),
            chunks: 0,
            row_bytes,
        }
    }

    /// The number of a partition's row, which gets a chunk if it lies beyond those that are there.
    pub(crate) fn cover(&mut self, partition: usize, row: u32) -> u32 {
        let count = self.counts[partition] as usize;
        if (row >> self.shift) as usize >= count {
            if count == self.stride {
                self.widen_table();
            }
            self.table[partition * self.stride + count] = self.take_chunk();
            self.counts[partition] += 1;
        }
        self.number(partition, row)
    }

    /// Doubles the places for chunks. Partitions are of about the same size, so few stay empty.
    fn widen_table(&mut self) {
        let mut wider = vec![0; 2 * self.table.len()];
        for (wider, chunks) in wider.chunks_mut(2 * self.stride).zip(self.table.chunks(self.stride))
        {
            wider[..self.stride].copy_from_slice(chunks);
        }
        self.table = wider;
        self.stride *= 2;
    }

    fn take_chunk(&mut self) -> u32 {
        if let Some(chunk) = self.free.pop() {
            return chunk;
        }
        let chunk = self.chunks;
        self.chunks += 1;
        let rows = (self.chunks as usize) << self.shift;
        match &mut self.rows {
            RowArena::Whole(arena) => arena.cover(rows),
            RowArena::Halves(values, state) => {
                values.cover(rows);
                state.cover(rows);
            }
        }
        self.meta.cover(rows);
        if let Some(changes) = &mut self.changes {
            changes.cover(rows);
        }
        chunk
    }

    /// Takes back the chunks of a partition.
    pub(crate) fn clear(&mut self, partition: usize) {
        let count = std::mem::take(&mut self.counts[partition]) as usize;
        self.free.extend_from_slice(&self.table[partition * self.stride..][..count]);
    }

    /// The number of a partition's row that is there.
    #[inline(always)]
    pub(crate) fn number(&self, partition: usize, row: u32) -> u32 {
        let chunk = self.table[partition * self.stride + (row >> self.shift) as usize];
        (chunk << self.shift) | (row & ((1 << self.shift) - 1))
    }

    /// Fetches what [`number`](Self::number) asks for; harmless for a row that is not there.
    #[inline(always)]
    pub(crate) fn prefetch_chunk(&self, partition: usize, row: u32) {
        prefetch(&self.table, partition * self.stride + (row >> self.shift) as usize);
    }

    #[inline(always)]
    pub(crate) fn meta(&self, row: u32) -> Meta {
        Meta(self.meta.row(row)[0])
    }

    #[inline(always)]
    pub(crate) fn set_meta(&mut self, row: u32, meta: Meta) {
        self.meta.row_mut(row)[0] = meta.0;
    }

    /// When a row last changed; always, as long as nobody has asked.
    pub(crate) fn changed(&self, row: u32) -> u64 {
        self.changes.as_ref().map_or(u64::MAX, |changes| changes.row(row)[0])
    }

    #[inline(always)]
    pub(crate) fn set_changed(&mut self, row: u32, counter: u64) {
        if let Some(changes) = &mut self.changes {
            changes.row_mut(row)[0] = counter;
        }
    }

    /// Remembers from now on when rows change.
    pub(crate) fn track_changes(&mut self, counter: u64) {
        if self.changes.is_none() {
            let mut changes = Arena::new(1);
            let rows = self.chunks << self.shift;
            changes.cover(rows as usize);
            (0..rows).for_each(|row| changes.row_mut(row)[0] = counter);
            self.changes = Some(changes);
        }
    }

    /// Fetches a row to be moved, if it is there, and what is known about it if that will be asked for.
    #[inline(always)]
    pub(crate) fn prefetch(&self, row: u32, facts: bool) {
        match &self.rows {
            RowArena::Whole(arena) => arena.get(row).iter().for_each(|row| prefetch_row(row)),
            RowArena::Halves(values, state) => {
                values.get(row).iter().for_each(|row| prefetch_row(row));
                state.get(row).iter().for_each(|row| prefetch_row(row));
            }
        }
        if facts {
            self.meta.get(row).iter().for_each(|row| prefetch_row(row));
        }
    }

    /// Copies a row's values out.
    pub(crate) fn read(&self, row: u32, out: &mut [f32]) {
        match &self.rows {
            RowArena::Whole(arena) => out.copy_from_slice(&arena.row(row)[..self.dim]),
            RowArena::Halves(values, _) => widen(self.storage, values.row(row), out),
        }
    }

    /// Replaces a row's values.
    pub(crate) fn write(&mut self, row: u32, values: &[f32]) {
        match &mut self.rows {
            RowArena::Whole(arena) => arena.row_mut(row)[..self.dim].copy_from_slice(values),
            RowArena::Halves(kept, _) => narrow(self.storage, values, kept.row_mut(row)),
        }
    }

    /// A row's values as they are kept.
    pub(crate) fn value_bytes(&self, row: u32) -> &[u8] {
        match &self.rows {
            RowArena::Whole(arena) => bytemuck::cast_slice(&arena.row(row)[..self.dim]),
            RowArena::Halves(values, _) => bytemuck::cast_slice(values.row(row)),
        }
    }

    /// Where a row's values are kept.
    pub(crate) fn value_bytes_mut(&mut self, row: u32) -> &mut [u8] {
        match &mut self.rows {
            RowArena::Whole(arena) => bytemuck::cast_slice_mut(&mut arena.row_mut(row)[..self.dim]),
            RowArena::Halves(values, _) => bytemuck::cast_slice_mut(values.row_mut(row)),
        }
    }

    /// A row's optimizer state.
    pub(crate) fn state(&self, row: u32) -> &[f32] {
        match &self.rows {
            RowArena::Whole(arena) => &arena.row(row)[self.dim..],
            RowArena::Halves(_, state) => state.row(row),
        }
    }

    pub(crate) fn state_mut(&mut self, row: u32) -> &mut [f32] {
        match &mut self.rows {
            RowArena::Whole(arena) => &mut arena.row_mut(row)[self.dim..],
            RowArena::Halves(_, state) => state.row_mut(row),
        }
    }

    /// Memory of the chunks that were ever handed out, and of the table that finds them.
    pub(crate) fn bytes(&self) -> usize {
        let tracked = if self.changes.is_some() { size_of::<u64>() } else { 0 };
        ((self.chunks as usize) << self.shift) * (self.row_bytes + tracked)
            + self.table.capacity() * size_of::<u32>()
    }
}

/// What values are kept as.
pub(crate) trait StoredFloat: Pod {
    /// Copies a row's values out.
    fn copy(storage: Storage, row: &[Self], out: &mut [f32]);
}

impl StoredFloat for f32 {
    #[inline(always)]
    fn copy(_: Storage, row: &[Self], out: &mut [f32]) {
        out.copy_from_slice(row);
    }
}

impl StoredFloat for u16 {
    #[inline(always)]
    fn copy(storage: Storage, row: &[Self], out: &mut [f32]) {
        widen(storage, row, out);
    }
}

/// Widens values that are kept in 16 bits.
#[inline(always)]
pub(crate) fn widen(storage: Storage, kept: &[u16], out: &mut [f32]) {
    match storage {
        Storage::F16 => kept.reinterpret_cast::<f16>().convert_to_f32_slice(out),
        _ => kept.reinterpret_cast::<bf16>().convert_to_f32_slice(out),
    }
}

/// Rounds values to 16 bits, to the nearest and ties to even.
#[inline(always)]
pub(crate) fn narrow(storage: Storage, values: &[f32], kept: &mut [u16]) {
    match storage {
        Storage::F16 => kept.reinterpret_cast_mut::<f16>().convert_from_f32_slice(values),
        _ => kept.reinterpret_cast_mut::<bf16>().convert_from_f32_slice(values),
    }
}
