//! A table's rows on one thread: batch look-ups and updates, with what comes next fetched ahead.

mod saving;
#[cfg(test)]
mod tests;
mod upkeep;

use std::collections::BTreeMap;

use salamander_core::seed::mix;

use crate::arena::Arena;
use crate::fused::{Fused, Move};
use crate::index::Index;
use crate::init::FirstValues;
use crate::memory::prefetch_row;
use crate::meta::Meta;
use crate::search::{LineSearch, Plain, WithSearch, dispatch};
use crate::store::{RowArena, RowStore, StoredFloat, narrow, widen};
use crate::{Apply, PARTITIONS, Storage, TableSpec, TableStats};
use saving::Saving;

/// Ids that are looked up before the first of their rows is used. Both are a loop of their own: in
/// one loop the memory was kept less busy.
const BLOCK: usize = 1024;
/// Slots that are fetched ahead of their search, and rows that are fetched ahead of their use: enough to
/// cover the memory's latency, and few enough to stay in the first and the second cache.
const SLOTS_AHEAD: usize = 64;
const ROWS_AHEAD: usize = 64;
/// So many ids of a partition wait for their rows; then the half that was used least recently starts anew.
const WAITING: usize = 4096;
/// No row.
const NONE: u32 = u32::MAX;

/// The rows of one table that one thread owns.
#[derive(Debug)]
pub(crate) struct Table {
    spec: TableSpec,
    first: FirstValues,
    fused: Fused,
    index: Index,
    store: RowStore,
    parts: Vec<PartitionExtras>,
    /// The most rows of a partition.
    share: usize,
    stats: TableStats,
    /// A row in `f32`, for tables that keep less.
    wide: Vec<f32>,
    /// Copies that are being written.
    savings: Vec<Saving>,
}

/// What a table keeps for a partition besides its rows.
#[derive(Debug, Default)]
struct PartitionExtras {
    /// Rows that were dropped.
    free: Vec<u32>,
    /// How often and when ids were used that have no row yet.
    waiting: BTreeMap<u64, PendingId>,
    /// The tail where the clock's hand stands.
    hand: u64,
}

/// A block of ids, mixed, and their rows.
struct FoundRows {
    mixed: [u64; BLOCK],
    rows: [u32; BLOCK],
}

impl FoundRows {
    fn new() -> Self {
        Self { mixed: [0; BLOCK], rows: [NONE; BLOCK] }
    }
}

/// An id on its way to a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct PendingId {
    count: u32,
    used: u32,
}

/// Gradients for rows, each id once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gradients<'a> {
    pub(crate) ids: &'a [u64],
    pub(crate) values: &'a [f32],
    pub(crate) apply: Apply,
}

impl Table {
    pub(crate) fn new(spec: TableSpec, seed: u64) -> Self {
        Self {
            first: FirstValues::new(spec.init, seed, &spec.name),
            fused: Fused::new(spec.optimizer),
            index: Index::new(),
            store: RowStore::new(&spec),
            parts: (0..PARTITIONS).map(|_| PartitionExtras::default()).collect(),
            share: spec.max_rows.map_or(usize::MAX, |rows| rows.div_ceil(1024) as usize),
            stats: TableStats { name: spec.name.clone(), ..TableStats::default() },
            wide: vec![0.0; spec.dim],
            savings: Vec::new(),
            spec,
        }
    }

    pub(crate) fn spec(&self) -> &TableSpec {
        &self.spec
    }

    /// Counts rows that were read to train on.
    pub(crate) fn count_lookups(&mut self, rows: usize) {
        self.stats.lookups += rows as u64;
    }

    /// Reads rows, in the order of the ids.
    pub(crate) fn pull(&self, ids: &[u64], out: &mut [f32]) {
        match (&self.store.rows, self.spec.dim) {
            (RowArena::Whole(arena), 16) => {
                dispatch(Pull::<_, 16> { table: self, arena, ids, out })
            }
            (RowArena::Whole(arena), 32) => {
                dispatch(Pull::<_, 32> { table: self, arena, ids, out })
            }
            (RowArena::Whole(arena), 64) => {
                dispatch(Pull::<_, 64> { table: self, arena, ids, out })
            }
            (RowArena::Whole(arena), 128) => {
                dispatch(Pull::<_, 128> { table: self, arena, ids, out })
            }
            (RowArena::Whole(arena), _) => dispatch(Pull::<_, 0> { table: self, arena, ids, out }),
            (RowArena::Halves(arena, _), _) => {
                dispatch(Pull::<_, 0> { table: self, arena, ids, out })
            }
        }
    }

    /// Finds the rows of at most a block of ids.
    #[inline(always)]
    fn find_all(&self, ids: &[u64], found: &mut FoundRows, search: impl LineSearch) {
        let mixed = &mut found.mixed[..ids.len()];
        mixed.iter_mut().zip(ids).for_each(|(mixed, id)| *mixed = mix(*id));
        mixed.iter().take(SLOTS_AHEAD).for_each(|mixed| self.index.prefetch(*mixed));
        let rows = &mut found.rows[..mixed.len()];
        for (at, row) in rows.iter_mut().enumerate() {
            if let Some(next) = mixed.get(at + SLOTS_AHEAD) {
                self.index.prefetch(*next);
            }
            *row = self.index.find(mixed[at], search).unwrap_or(NONE);
            // Rows on their way through the caches have pushed out much of this table as well.
            self.store.prefetch_chunk(partition_of_mixed(mixed[at]), *row);
        }
        for (row, mixed) in rows.iter_mut().zip(mixed).filter(|(row, _)| **row != NONE) {
            *row = self.store.number(partition_of_mixed(*mixed), *row);
        }
    }

    /// Moves rows by their gradients; ids that are not admitted yet are counted. `ages` are those
    /// of the partitions.
    pub(crate) fn update(&mut self, gradients: &Gradients<'_>, ages: &[u64]) {
        dispatch(Moves { table: self, gradients, ages });
    }

    #[inline(always)]
    fn move_row(&mut self, row: u32, gradient: &[f32], all: &Gradients<'_>) {
        let mut step = 0;
        if self.fused.counts_steps() {
            let meta = self.store.meta(row).moved();
            self.store.set_meta(row, meta);
            step = meta.step();
        }
        let Apply { factor, scale, counter } = all.apply;
        self.store.set_changed(row, counter);
        let rate = self.spec.optimizer.learning_rate() * factor;
        match &mut self.store.rows {
            RowArena::Whole(arena) => {
                let (values, state) = arena.row_mut(row).split_at_mut(self.spec.dim);
                self.fused.apply(Move { rate, step, scale, values, gradient, state });
            }
            RowArena::Halves(arena, state) => {
                let (values, state) = (&mut self.wide[..], state.row_mut(row));
                widen(self.spec.storage, arena.row(row), values);
                self.fused.apply(Move { rate, step, scale, values, gradient, state });
                narrow(self.spec.storage, &self.wide, arena.row_mut(row));
            }
        }
    }

    /// Writes values as they are, creating rows where there are none.
    pub(crate) fn set(&mut self, ids: &[u64], values: &[f32], counter: u64, ages: &[u64]) {
        for (id, values) in ids.iter().zip(values.chunks_exact(self.spec.dim)) {
            let mixed = mix(*id);
            let row = self.resolve(mixed, *id, ages[partition_of_mixed(mixed)], false);
            self.store.write(row, values);
            self.store.set_changed(row, counter);
        }
    }

    /// The row of an id for use, created where there is none; none while it has to wait.
    #[inline(never)]
    fn resolve(&mut self, mixed: u64, id: u64, age: u64, wait: bool) -> u32 {
        if let Some(row) = self.index.find(mixed, Plain) {
            let row = self.store.number(partition_of_mixed(mixed), row);
            if !self.savings.is_empty() {
                self.preserve(mixed, Some(row));
            }
            self.store.set_meta(row, self.store.meta(row).used(age));
            return row;
        }
        let admit_after = if wait { self.spec.admit_after } else { 0 };
        if !self.parts[partition_of_mixed(mixed)].admit(id, age, admit_after) {
            return NONE;
        }
        self.create(mixed, id, age)
    }

    fn create(&mut self, mixed: u64, id: u64, age: u64) -> u32 {
        let at = partition_of_mixed(mixed);
        while self.index.len(at) >= self.share {
            self.evict(at);
        }
        if !self.savings.is_empty() {
            self.preserve(mixed, None);
        }
        let row = self.parts[at].free.pop().unwrap_or(self.index.len(at) as u32);
        self.index.insert(mixed, row);
        let row = self.store.cover(at, row);
        let mut values = std::mem::take(&mut self.wide);
        self.first.draw(id, &mut values);
        self.store.write(row, &values);
        self.wide = values;
        self.fused.begin(self.store.state_mut(row));
        self.store.set_meta(row, Meta::new(age));
        self.stats.admitted += 1;
        row
    }

    /// What a row that is not there reads as: the values that it would be created with.
    #[cold]
    #[inline(never)]
    fn draw(&self, id: u64, out: &mut [f32]) {
        self.first.draw(id, out);
        if self.spec.storage != Storage::F32 {
            let mut kept = vec![0; out.len()];
            narrow(self.spec.storage, out, &mut kept);
            widen(self.spec.storage, &kept, out);
        }
    }
}

/// A batch to be read; `DIM` is the rows' length where the compiler knows it, so that they are copied
/// without a call.
struct Pull<'a, T, const DIM: usize> {
    table: &'a Table,
    arena: &'a Arena<T>,
    ids: &'a [u64],
    out: &'a mut [f32],
}

impl<T: StoredFloat, const DIM: usize> WithSearch for Pull<'_, T, DIM> {
    #[inline(always)]
    fn run(self, search: impl LineSearch) {
        let Self { table, arena, ids, out } = self;
        let (dim, storage) = (table.spec.dim, table.spec.storage);
        let fetch = |row: u32| match arena.first::<DIM>(row) {
            Some(row) if DIM > 0 => prefetch_row(row),
            _ => arena.get(row).iter().for_each(|row| prefetch_row(&row[..dim])),
        };
        let mut found = FoundRows::new();
        for (ids, out) in ids.chunks(BLOCK).zip(out.chunks_mut(BLOCK * dim)) {
            table.find_all(ids, &mut found, search);
            let rows = &found.rows[..ids.len()];
            rows.iter().take(ROWS_AHEAD).for_each(|row| fetch(*row));
            for (at, out) in out.chunks_exact_mut(dim).enumerate() {
                if let Some(next) = rows.get(at + ROWS_AHEAD) {
                    fetch(*next);
                }
                match (arena.first::<DIM>(rows[at]), out.first_chunk_mut::<DIM>()) {
                    (Some(row), Some(out)) if DIM > 0 => T::copy(storage, row, out),
                    _ => match arena.get(rows[at]) {
                        Some(row) => T::copy(storage, &row[..dim], out),
                        None => table.draw(ids[at], out),
                    },
                }
            }
        }
    }
}

/// A batch of moves.
struct Moves<'a> {
    table: &'a mut Table,
    gradients: &'a Gradients<'a>,
    ages: &'a [u64],
}

impl WithSearch for Moves<'_> {
    #[inline(always)]
    fn run(self, search: impl LineSearch) {
        let Self { table, gradients, ages } = self;
        let dim = table.spec.dim;
        // Rows of a bounded table may be dropped between the search and the use.
        let stable = table.spec.max_rows.is_none();
        let tracked = table.spec.expire_after.is_some();
        let facts = tracked || !stable || table.fused.counts_steps();
        let saving = !table.savings.is_empty();
        let mut found = FoundRows::new();
        let blocks = gradients.ids.chunks(BLOCK).zip(gradients.values.chunks(BLOCK * dim));
        for (ids, values) in blocks {
            table.find_all(ids, &mut found, search);
            let rows = &found.rows[..ids.len()];
            rows.iter().take(ROWS_AHEAD).for_each(|row| table.store.prefetch(*row, facts));
            for (at, gradient) in values.chunks_exact(dim).enumerate() {
                if let Some(next) = rows.get(at + ROWS_AHEAD) {
                    table.store.prefetch(*next, facts);
                }
                let age = ages[partition_of_mixed(found.mixed[at])];
                let row = match rows[at] {
                    row if stable && row != NONE => {
                        if saving {
                            table.preserve(found.mixed[at], Some(row));
                        }
                        if tracked {
                            table.store.set_meta(row, table.store.meta(row).used(age));
                        }
                        row
                    }
                    _ => table.resolve(found.mixed[at], ids[at], age, true),
                };
                if row != NONE {
                    table.move_row(row, gradient, gradients);
                }
            }
        }
    }
}

/// The partition of a mixed id.
#[inline(always)]
fn partition_of_mixed(mixed: u64) -> usize {
    (mixed >> 54) as usize
}

impl PartitionExtras {
    /// Counts a use of an id without a row; tells whether the row may be created.
    fn admit(&mut self, id: u64, age: u64, after: u32) -> bool {
        if after > 0 {
            let seen = self.waiting.entry(id).or_default();
            *seen = PendingId { count: seen.count + 1, used: age as u32 };
            if seen.count <= after {
                self.bound_waiting(age);
                return false;
            }
        }
        self.waiting.remove(&id);
        true
    }

    /// Forgets ids that wait, if they are too many: by what the partition has seen alone, so that any placement
    /// forgets the same ones.
    fn bound_waiting(&mut self, age: u64) {
        if self.waiting.len() <= WAITING {
            return;
        }
        let idle = |pending: &PendingId| (age as u32).wrapping_sub(pending.used);
        let fresh = |(id, pending): (&u64, &PendingId)| {
            (idle(pending), std::cmp::Reverse(pending.count), mix(*id))
        };
        let mut order: Vec<_> = self.waiting.iter().map(fresh).collect();
        let (_, last, _) = order.select_nth_unstable(WAITING / 2 - 1);
        let last = *last;
        self.waiting.retain(|id, pending| fresh((id, pending)) <= last);
    }
}
