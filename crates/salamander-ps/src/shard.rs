//! What one owner thread owns: its partitions of all tables, their histories and what is staged.

use std::collections::BTreeMap;

use salamander_core::plan::MicroBatch;

use crate::names::PartitionHistories;
use crate::section::{PartitionHistory, Section};
use crate::sum::{SentRows, sum};
use crate::table::{Gradients, Table};
use crate::{
    Changed, Error, Held, LedgerPage, PARTITIONS, Read, TableId, TableSpec, TableStats,
    partition_of,
};

/// Tables of some partitions without threads and locks. An [`Engine`](crate::Engine) is a set of
/// these, each owned by a thread; a program with one thread can use one directly.
#[derive(Debug)]
pub struct Shard {
    seed: u64,
    slices: u32,
    tables: Vec<Table>,
    names: PartitionHistories,
    /// Which partitions are here, and whether all are.
    here: Vec<bool>,
    whole: bool,
    /// Copies that are being written, by their numbers.
    copies: BTreeMap<u64, ShardCopy>,
    /// Gradient sums by slice and table.
    stage: BTreeMap<u32, Vec<(TableId, SentRows<'static>)>>,
}

/// How gradients of a step or push are applied.
#[derive(Clone, Copy, Debug)]
pub struct Apply {
    /// The schedule's factor on each table's learning rate.
    pub factor: f64,
    /// What gradients are multiplied by.
    pub scale: f32,
    /// The number of the change, for those who ask what changed.
    pub counter: u64,
}

/// What a copy has besides the rows, which the tables know.
#[derive(Debug)]
struct ShardCopy {
    names: PartitionHistories,
    /// Partitions that have left since the copy was begun.
    early: BTreeMap<u16, Encoded>,
}

/// A partition as bytes.
#[derive(Debug)]
pub(crate) struct Encoded {
    pub(crate) partition: u16,
    pub(crate) bytes: Vec<u8>,
    /// Rows of each table.
    pub(crate) rows: Vec<u64>,
}

impl Shard {
    /// Empty partitions that have seen `age` advances.
    pub fn new(seed: u64, slices: u32, partitions: Vec<u16>, age: u64) -> Self {
        let mut here = vec![false; PARTITIONS];
        partitions.iter().for_each(|partition| here[usize::from(*partition)] = true);
        let names = PartitionHistories::new(slices, partitions, age);
        let whole = !here.contains(&false);
        let (tables, copies, stage) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
        Self { seed, slices, tables, names, here, whole, copies, stage }
    }

    /// Adds a table that was checked.
    pub fn declare(&mut self, spec: TableSpec) -> TableId {
        self.tables.push(Table::new(spec, self.seed));
        TableId(self.tables.len() as u32 - 1)
    }

    /// Reads rows, in the order of the ids.
    pub fn pull(
        &mut self,
        table: TableId,
        ids: &[u64],
        read: Read,
        out: &mut [f32],
    ) -> Result<(), Error> {
        self.check(table, ids, out.len())?;
        let table = &mut self.tables[table.0 as usize];
        table.pull(ids, out);
        if read == Read::Train {
            table.count_lookups(ids.len());
        }
        Ok(())
    }

    /// Moves rows by their gradients.
    pub fn update(
        &mut self,
        table: TableId,
        ids: &[u64],
        values: &[f32],
        apply: Apply,
    ) -> Result<(), Error> {
        self.check(table, ids, values.len())?;
        self.apply(table, &Gradients { ids, values, apply });
        Ok(())
    }

    /// Figures of the tables here.
    pub fn stats(&self) -> Vec<TableStats> {
        self.tables.iter().map(Table::stats).collect()
    }

    // What follows is only asked for what was checked: the engine has the tables and knows what is here.

    /// Writes values as they are.
    pub(crate) fn set(&mut self, rows: &[(TableId, SentRows<'_>)], counter: u64) {
        for (table, SentRows { ids, values }) in rows {
            self.tables[table.0 as usize].set(ids, values, counter, self.names.ages());
        }
    }

    /// Keeps a slice of the current step, in place of what was kept for it.
    pub(crate) fn stage(&mut self, k: u32, rows: Vec<(TableId, SentRows<'_>)>) {
        let kept = rows.into_iter().map(|(table, rows)| (table, rows.into_owned()));
        self.stage.insert(k, kept.collect());
    }

    /// Drops what is staged.
    pub(crate) fn unstage(&mut self) {
        self.stage.clear();
    }

    /// Applies what is staged; drops it when it is multiplied by nothing, which an update with zeros would not be.
    pub(crate) fn advance(&mut self, apply: Apply) {
        self.names.advance();
        let mut slices: Vec<Vec<SentRows<'static>>> =
            self.tables.iter().map(|_| Vec::new()).collect();
        for (table, sent) in std::mem::take(&mut self.stage).into_values().flatten() {
            slices[table.0 as usize].push(sent);
        }
        let applied = if apply.scale == 0.0 { Vec::new() } else { slices };
        for (table, slices) in self.tables.iter_mut().zip(applied) {
            let SentRows { ids, values } = sum(slices, table.spec().dim);
            let gradients = Gradients { ids: &ids, values: &values, apply };
            table.update(&gradients, self.names.ages());
        }
        let partitions: Vec<u16> = self.names.partitions().collect();
        self.sweep(&partitions);
    }

    /// Applies a micro-batch on the partitions that have not had it.
    pub(crate) fn push(
        &mut self,
        name: MicroBatch,
        tally: &LedgerPage,
        rows: Vec<(TableId, SentRows<'_>)>,
        apply: Apply,
    ) {
        let fresh = self.names.mark(name, tally);
        let all = fresh.len() == self.names.partitions().count();
        for (table, rows) in rows {
            let dim = self.tables[table.0 as usize].spec().dim;
            let SentRows { ids, values } = if all { rows } else { only(rows, &fresh, dim) };
            self.apply(table, &Gradients { ids: &ids, values: &values, apply });
        }
        self.sweep(&fresh);
    }

    pub(crate) fn changed(&mut self, table: TableId, since: u64, counter: u64) -> Changed {
        let mut changed = Changed { counter, ..Changed::default() };
        if let Some(table) = self.tables.get_mut(table.0 as usize) {
            table.changed(since, &mut changed);
        }
        changed
    }

    pub(crate) fn held(&self) -> Vec<Held> {
        self.names.held()
    }

    pub(crate) fn prune(&mut self, below: u64) {
        self.names.prune(below);
    }

    /// The partitions here.
    pub(crate) fn partitions(&self) -> Vec<u16> {
        self.names.partitions().collect()
    }

    /// Begins a copy of everything as it is now.
    pub(crate) fn begin_copy(&mut self, copy: u64) {
        let (names, early) = (self.names.clone(), BTreeMap::new());
        for table in &mut self.tables {
            table.begin_copy(copy, self.names.partitions());
        }
        self.copies.insert(copy, ShardCopy { names, early });
    }

    pub(crate) fn end_copy(&mut self, copy: u64) {
        self.tables.iter_mut().for_each(|table| table.end_copy(copy));
        self.copies.remove(&copy);
    }

    /// A partition of a copy as bytes, once; none if everything was replaced since the copy was begun.
    pub(crate) fn encode_copy(&mut self, copy: u64, partition: u16) -> Option<Encoded> {
        let ShardCopy { names, early } = self.copies.get_mut(&copy)?;
        if let Some(encoded) = early.remove(&partition) {
            return Some(encoded);
        }
        let (mut bytes, mut rows) = (Vec::new(), Vec::new());
        names.history(partition)?.encode(&mut bytes);
        names.remove(partition);
        for table in &mut self.tables {
            rows.extend(table.encode_copy(copy, partition, &mut bytes));
        }
        Some(Encoded { partition, bytes, rows })
    }

    #[cfg(test)]
    pub(crate) fn kept_apart(&self) -> usize {
        self.tables.iter().map(Table::kept_apart).sum()
    }

    /// A partition as bytes, unless it is elsewhere.
    pub(crate) fn encode(&self, partition: u16) -> Option<Encoded> {
        let mut bytes = Vec::new();
        self.names.history(partition)?.encode(&mut bytes);
        let rows = self.tables.iter().map(|table| table.encode(partition, &mut bytes)).collect();
        Some(Encoded { partition, bytes, rows })
    }

    pub(crate) fn remove(&mut self, partition: u16) {
        // Copies that have not written it yet do without the table.
        for copy in self.copies.keys().copied().collect::<Vec<_>>() {
            let encoded = self.encode_copy(copy, partition);
            if let (Some(known), Some(encoded)) = (self.copies.get_mut(&copy), encoded) {
                known.early.insert(partition, encoded);
            }
        }
        self.here[usize::from(partition)] = false;
        self.whole = false;
        self.names.remove(partition);
        self.tables.iter_mut().for_each(|table| table.remove(partition));
    }

    /// Adds a partition; `tables` are the numbers here of the section's tables.
    pub(crate) fn install(
        &mut self,
        partition: u16,
        section: Section<'_>,
        tables: &[TableId],
        counter: u64,
    ) {
        self.here[usize::from(partition)] = true;
        self.whole = !self.here.contains(&false);
        for (table, view) in tables.iter().zip(&section.tables) {
            self.tables[table.0 as usize].install(partition, view, counter);
        }
        let PartitionHistory { age, mut applied, pages } = section.history;
        if applied.is_empty() {
            applied = crate::Applied::new(self.slices);
        }
        self.names.install(partition, PartitionHistory { age, applied, pages });
    }

    fn apply(&mut self, table: TableId, gradients: &Gradients<'_>) {
        self.tables[table.0 as usize].update(gradients, self.names.ages());
    }

    fn check(&self, table: TableId, ids: &[u64], floats: usize) -> Result<(), Error> {
        let known = self.tables.get(table.0 as usize).ok_or(Error::UnknownTable(table.0))?;
        known.spec().check_rows(ids.len(), floats)?;
        if self.whole {
            return Ok(());
        }
        let elsewhere = |id: &u64| !self.here[usize::from(partition_of(*id))];
        match ids.iter().find(|id| elsewhere(id)) {
            None => Ok(()),
            Some(id) => Err(Error::NotHere(partition_of(*id))),
        }
    }

    fn sweep(&mut self, partitions: &[u16]) {
        let expiring = self.tables.iter_mut().filter(|table| table.spec().expire_after.is_some());
        for table in expiring {
            for partition in partitions {
                table.sweep(*partition, self.names.ages()[usize::from(*partition)]);
            }
        }
    }
}

/// The rows of some partitions.
fn only<'a>(rows: SentRows<'a>, partitions: &[u16], dim: usize) -> SentRows<'a> {
    let mut wanted = [false; PARTITIONS];
    partitions.iter().for_each(|partition| wanted[usize::from(*partition)] = true);
    let mut kept = SentRows::default();
    for (id, row) in rows.ids.iter().zip(rows.values.chunks_exact(dim)) {
        if wanted[usize::from(partition_of(*id))] {
            kept.ids.to_mut().push(*id);
            kept.values.to_mut().extend_from_slice(row);
        }
    }
    kept
}
