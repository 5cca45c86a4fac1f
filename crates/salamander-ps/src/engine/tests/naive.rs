//! Tables in maps, one formula after the other: slow, and plainly right. The engine's tests compare
//! the fast tables with it.

use std::collections::BTreeMap;

use salamander_core::asynchronous::OutOfStep;
use salamander_core::optimizer::Update;
use salamander_core::progress::StepCount;
use salamander_core::seed::mix;

use crate::init::FirstValues;
use crate::{
    Applied, Changed, EngineOptions, Error, Held, Mode, Pages, Push, Read, Storage, TableId,
    TableRows, TableSpec, TableStats, partition_of,
};

#[derive(Debug)]
pub(crate) struct Naive {
    options: EngineOptions,
    pub(crate) tables: Vec<TableSpec>,
    pub(crate) parts: BTreeMap<u16, Part>,
    stage: BTreeMap<u32, Vec<Staged>>,
    pub(crate) version: StepCount,
    counter: u64,
    stats: Vec<TableStats>,
}

type Staged = (TableId, Vec<u64>, Vec<f32>);

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Part {
    age: u64,
    applied: Applied,
    pages: Pages,
    tables: Vec<PartTable>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct PartTable {
    /// By the mixed id, the order in which the hand of the clock goes round.
    rows: BTreeMap<u64, Row>,
    waiting: BTreeMap<u64, (u32, u64)>,
    hand: u64,
}

#[derive(Clone, Debug, PartialEq)]
struct Row {
    id: u64,
    values: Vec<f32>,
    slots: Vec<Vec<f32>>,
    step: u64,
    used: u64,
    referenced: bool,
    changed: u64,
}

/// Counted into the statistics of a table.
#[derive(Default)]
struct Events {
    admitted: u64,
    evicted: u64,
}

impl Naive {
    pub(crate) fn new(options: EngineOptions) -> Result<Self, Error> {
        let mut naive = Self {
            options,
            tables: Vec::new(),
            parts: BTreeMap::new(),
            stage: BTreeMap::new(),
            version: StepCount(0),
            counter: 0,
            stats: Vec::new(),
        };
        naive.parts = naive.empty(0);
        Ok(naive)
    }

    fn empty(&self, age: u64) -> BTreeMap<u16, Part> {
        let part = Part {
            age,
            applied: Applied::new(self.options.slices),
            pages: Pages::new(),
            tables: vec![PartTable::default(); self.tables.len()],
        };
        let here = self.options.partitions.iter().cloned().flatten();
        here.map(|partition| (partition, part.clone())).collect()
    }

    pub(crate) fn declare(&mut self, spec: TableSpec) -> Result<TableId, Error> {
        spec.validate()?;
        if let Some(at) = self.tables.iter().position(|there| there.name == spec.name) {
            return self.tables[at].check_same(&spec).map(|()| TableId(at as u32));
        }
        self.stats.push(TableStats { name: spec.name.clone(), ..TableStats::default() });
        self.tables.push(spec);
        self.parts.values_mut().for_each(|part| part.tables.push(PartTable::default()));
        Ok(TableId(self.tables.len() as u32 - 1))
    }

    fn spec(&self, table: TableId) -> Result<&TableSpec, Error> {
        self.tables.get(table.0 as usize).ok_or(Error::UnknownTable(table.0))
    }

    fn check(&self, table: TableId, ids: &[u64], floats: usize) -> Result<(), Error> {
        let dim = self.spec(table)?.dim;
        if ids.len().checked_mul(dim) != Some(floats) {
            let reason = format!("{} ids of dimension {dim} have {floats} floats", ids.len());
            return Err(Error::Request(reason));
        }
        let elsewhere =
            ids.iter().map(|id| partition_of(*id)).find(|p| !self.parts.contains_key(p));
        elsewhere.map_or(Ok(()), |partition| Err(Error::NotHere(partition)))
    }

    fn first(&self, table: TableId, id: u64) -> Vec<f32> {
        let spec = &self.tables[table.0 as usize];
        let mut row = vec![0.0; spec.dim];
        FirstValues::new(spec.init, self.options.seed, &spec.name).draw(id, &mut row);
        round(spec.storage, &mut row);
        row
    }

    pub(crate) fn pull(
        &mut self,
        table: TableId,
        ids: &[u64],
        read: Read,
        out: &mut [f32],
    ) -> Result<(), Error> {
        self.check(table, ids, out.len())?;
        let dim = self.spec(table)?.dim;
        for (id, out) in ids.iter().zip(out.chunks_mut(dim)) {
            let there = &self.parts[&partition_of(*id)].tables[table.0 as usize];
            match there.rows.get(&mix(*id)) {
                Some(row) => out.copy_from_slice(&row.values),
                None => out.copy_from_slice(&self.first(table, *id)),
            }
        }
        if read == Read::Train {
            self.stats[table.0 as usize].lookups += ids.len() as u64;
        }
        Ok(())
    }

    pub(crate) fn set(&mut self, rows: TableRows<'_>) -> Result<(), Error> {
        self.check(rows.table, rows.ids, rows.values.len())?;
        self.counter += 1;
        let dim = self.spec(rows.table)?.dim;
        for (id, values) in rows.ids.iter().zip(rows.values.chunks(dim)) {
            let (counter, storage) = (self.counter, self.spec(rows.table)?.storage);
            if let Some(row) = self.row(rows.table, *id, false) {
                row.values.copy_from_slice(values);
                round(storage, &mut row.values);
                row.changed = counter;
            }
        }
        Ok(())
    }

    pub(crate) fn stage(
        &mut self,
        version: StepCount,
        k: u32,
        rows: &[TableRows<'_>],
    ) -> Result<(), Error> {
        self.must_be(Mode::Staged)?;
        for rows in rows {
            self.check(rows.table, rows.ids, rows.values.len())?;
        }
        if version > self.version {
            return Err(OutOfStep { current: self.version, asked: version }.into());
        }
        if version == self.version {
            let own = rows.iter().map(|rows| (rows.table, rows.ids.to_vec(), rows.values.to_vec()));
            self.stage.insert(k, own.collect());
        }
        Ok(())
    }

    pub(crate) fn advance(&mut self, to: StepCount, factor: f64, scale: f32) -> Result<(), Error> {
        self.must_be(Mode::Staged)?;
        if to == self.version {
            return Ok(());
        }
        if to != self.version.next() {
            return Err(OutOfStep { current: self.version, asked: to }.into());
        }
        self.counter += 1;
        self.version = to;
        self.parts.values_mut().for_each(|part| part.age += 1);
        let stage = std::mem::take(&mut self.stage);
        for table in (0..self.tables.len() as u32).map(TableId) {
            let dim = self.tables[table.0 as usize].dim;
            let mut order = Vec::new();
            let mut sums: BTreeMap<u64, Vec<f32>> = BTreeMap::new();
            for (_, ids, values) in stage.values().flatten().filter(|rows| rows.0 == table) {
                for (id, values) in ids.iter().zip(values.chunks(dim)) {
                    match sums.get_mut(id) {
                        Some(sum) => sum.iter_mut().zip(values).for_each(|(s, v)| *s += v),
                        None => {
                            order.push(*id);
                            sums.insert(*id, values.to_vec());
                        }
                    }
                }
            }
            for id in order {
                let gradient: Vec<f32> = sums[&id].iter().map(|sum| sum * scale).collect();
                self.update(table, id, &gradient, factor);
            }
        }
        let all: Vec<u16> = self.parts.keys().copied().collect();
        self.sweep(&all);
        Ok(())
    }

    pub(crate) fn push(&mut self, push: &Push<'_>) -> Result<(), Error> {
        self.must_be(Mode::Immediate)?;
        for rows in push.rows {
            self.check(rows.table, rows.ids, rows.values.len())?;
        }
        if Applied::new(self.options.slices).number(push.name).is_none() {
            let reason = format!("{:?} does not fit {} slices", push.name, self.options.slices);
            return Err(Error::Request(reason));
        }
        self.counter += 1;
        let mut fresh = Vec::new();
        for (partition, part) in &mut self.parts {
            if part.applied.insert(push.name) {
                part.age += 1;
                part.pages.entry(push.name.epoch).or_default().add(&push.tally);
                fresh.push(*partition);
            }
        }
        for rows in push.rows {
            let dim = self.spec(rows.table)?.dim;
            for (id, values) in rows.ids.iter().zip(rows.values.chunks(dim)) {
                if fresh.binary_search(&partition_of(*id)).is_ok() {
                    let gradient: Vec<f32> = values.iter().map(|sum| sum * push.scale).collect();
                    self.update(rows.table, *id, &gradient, push.factor);
                }
            }
        }
        self.sweep(&fresh);
        Ok(())
    }

    fn must_be(&self, mode: Mode) -> Result<(), Error> {
        match self.options.mode == mode {
            true => Ok(()),
            false => Err(Error::Request(format!("the engine is not made for {mode:?}"))),
        }
    }

    fn update(&mut self, table: TableId, id: u64, gradient: &[f32], factor: f64) {
        let (counter, spec) = (self.counter, self.tables[table.0 as usize].clone());
        let Some(row) = self.row(table, id, true) else { return };
        row.step += 1;
        row.changed = counter;
        let update = Update {
            learning_rate: spec.optimizer.learning_rate() * factor,
            step: row.step,
            param: &mut row.values,
            grad: gradient,
        };
        spec.optimizer.update(update, &mut row.slots);
        round(spec.storage, &mut row.values);
    }

    /// The row of an id, created where there is none; none while it has to wait.
    fn row(&mut self, table: TableId, id: u64, wait: bool) -> Option<&mut Row> {
        let first = self.first(table, id);
        let at = table.0 as usize;
        let spec = &self.tables[at];
        let share = spec.max_rows.map_or(u64::MAX, |rows| rows.div_ceil(1024));
        let slots = vec![vec![0.0; spec.dim]; spec.optimizer.slots().len()];
        let part = self.parts.get_mut(&partition_of(id))?;
        let (age, there) = (part.age, &mut part.tables[at]);
        if let Some(row) = there.rows.get_mut(&mix(id)) {
            row.used = age;
            row.referenced = true;
        } else {
            if wait && !there.admit(id, age, spec.admit_after) {
                return None;
            }
            there.waiting.remove(&id);
            let mut events = Events { admitted: 1, ..Events::default() };
            while there.rows.len() as u64 >= share {
                there.evict();
                events.evicted += 1;
            }
            let row =
                Row { id, values: first, slots, step: 0, used: age, referenced: false, changed: 0 };
            there.rows.insert(mix(id), row);
            self.stats[at].admitted += events.admitted;
            self.stats[at].evicted += events.evicted;
        }
        there.rows.get_mut(&mix(id))
    }

    fn sweep(&mut self, partitions: &[u16]) {
        for (at, spec) in self.tables.iter().enumerate() {
            let Some(limit) = spec.expire_after else { continue };
            let period = (limit / 8).max(1);
            for partition in partitions {
                let Some(part) = self.parts.get_mut(partition) else { continue };
                if (part.age + u64::from(*partition)) % period != 0 {
                    continue;
                }
                let (age, there) = (part.age, &mut part.tables[at]);
                let before = there.rows.len();
                there.rows.retain(|_, row| age - row.used <= limit);
                there.waiting.retain(|_, (_, used)| age - *used <= limit);
                self.stats[at].expired += (before - there.rows.len()) as u64;
            }
        }
    }

    pub(crate) fn changed(&self, table: TableId, since: u64) -> Result<Changed, Error> {
        self.spec(table)?;
        let mut changed = Changed { counter: self.counter, ..Changed::default() };
        for part in self.parts.values() {
            for row in part.tables[table.0 as usize].rows.values() {
                if since == 0 || row.changed > since {
                    changed.ids.push(row.id);
                    changed.values.extend(&row.values);
                }
            }
        }
        Ok(changed)
    }

    pub(crate) fn applied(&self) -> Vec<Held> {
        let mut groups: Vec<Held> = Vec::new();
        for (partition, part) in &self.parts {
            let same = |held: &&mut Held| held.applied == part.applied && held.pages == part.pages;
            match groups.iter_mut().find(same) {
                Some(held) => held.partitions.push(*partition),
                None => groups.push(Held {
                    partitions: vec![*partition],
                    applied: part.applied.clone(),
                    pages: part.pages.clone(),
                }),
            }
        }
        groups
    }

    pub(crate) fn prune(&mut self, below: u64) {
        self.parts.values_mut().for_each(|part| part.applied.prune(below));
    }

    pub(crate) fn counter(&self) -> u64 {
        self.counter
    }

    pub(crate) fn stats(&self) -> Vec<TableStats> {
        let mut tables = self.stats.clone();
        for (at, stats) in tables.iter_mut().enumerate() {
            let width = self.tables[at].dim * (1 + self.tables[at].optimizer.slots().len()) * 4;
            let all = || self.parts.values().map(|part| &part.tables[at]);
            stats.rows = all().map(|table| table.rows.len() as u64).sum();
            stats.waiting = all().map(|table| table.waiting.len() as u64).sum();
            stats.bytes = stats.rows * width as u64;
        }
        tables
    }
}

impl PartTable {
    /// Counts a use of an id without a row; tells whether the row may be created.
    fn admit(&mut self, id: u64, age: u64, after: u32) -> bool {
        if after == 0 {
            return true;
        }
        let seen = self.waiting.entry(id).or_insert((0, age));
        *seen = (seen.0 + 1, age);
        seen.0 > after
    }

    /// Drops the first row from the hand on that was not used since the hand passed it.
    fn evict(&mut self) {
        loop {
            let next = self.rows.range(self.hand..).next().or_else(|| self.rows.iter().next());
            let Some((&key, row)) = next else { return };
            let referenced = row.referenced;
            self.hand = key.wrapping_add(1);
            if !referenced {
                self.rows.remove(&key);
                return;
            }
            if let Some(row) = self.rows.get_mut(&key) {
                row.referenced = false;
            }
        }
    }
}

fn round(storage: Storage, row: &mut [f32]) {
    for value in row {
        *value = match storage {
            Storage::F32 => *value,
            Storage::F16 => half::f16::from_f32(*value).to_f32(),
            Storage::Bf16 => half::bf16::from_f32(*value).to_f32(),
        };
    }
}
