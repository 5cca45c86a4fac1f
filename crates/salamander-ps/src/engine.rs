//! The handle on the tables of a server.

mod moving;
mod split;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use salamander_core::asynchronous::StepOrder;
use salamander_core::progress::StepCount;
use split::{split, split_rows};

use crate::owners::Owners;
use crate::shard::Apply;
use crate::{
    Applied, Changed, EngineOptions, Error, Held, Mode, PARTITIONS, Push, Read, Shard, TableId,
    TableRows, TableSpec, TableStats,
};

/// The tables of a server: a handle that is cheap to clone and can be used from many threads. Every
/// call blocks until it is done.
#[derive(Clone, Debug)]
pub struct Engine {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    options: EngineOptions,
    owners: Owners,
    /// Held while changes are sent to the threads, so that all see them in the same order.
    order: Mutex<EngineState>,
}

#[derive(Debug, Default)]
struct EngineState {
    steps: StepOrder,
    /// Changes so far.
    counter: u64,
    /// Copies so far.
    copies: u64,
    tables: Vec<TableSpec>,
    /// Which partitions are here.
    here: Vec<bool>,
}

/// The rows that a pull is for.
#[derive(Clone, Copy, Debug)]
pub struct PullRows<'a> {
    /// Of this table.
    pub table: TableId,
    /// In any order; they may repeat.
    pub ids: &'a [u64],
    /// Why they are read.
    pub read: Read,
}

impl Engine {
    /// An engine without tables.
    pub fn new(options: EngineOptions) -> Result<Self, Error> {
        let here = moving::places(&options.partitions)?;
        if !(1..=PARTITIONS).contains(&options.threads) {
            let reason = format!("threads must lie in 1..={PARTITIONS}, not {}", options.threads);
            return Err(Error::Request(reason));
        }
        let owners = Owners::start(moving::empty_shards(&options, &here, &[], 0))?;
        let order = EngineState { here, ..EngineState::default() };
        Ok(Self { inner: Arc::new(Inner { options, owners, order: Mutex::new(order) }) })
    }

    /// Makes a table known. The same again gives the same number; another one under the name is an
    /// error that tells the field.
    pub fn declare(&self, spec: TableSpec) -> Result<TableId, Error> {
        spec.validate()?;
        let mut order = self.order();
        let known = order.tables.iter().position(|there| there.name == spec.name);
        if let Some(at) = known {
            return order.tables[at].check_same(&spec).map(|()| TableId(at as u32));
        }
        order.tables.push(spec.clone());
        let table = TableId(order.tables.len() as u32 - 1);
        self.on_all(order, |shard| shard.declare(spec.clone()))?;
        Ok(table)
    }

    /// The tables, in the order of their numbers.
    pub fn tables(&self) -> Vec<TableSpec> {
        self.order().tables.clone()
    }

    /// The partitions that are here, in order.
    pub fn partitions(&self) -> Vec<u16> {
        let order = self.order();
        (0..PARTITIONS as u16).filter(|partition| order.here[usize::from(*partition)]).collect()
    }

    /// Reads rows into `out`. Ids come in any order and may repeat.
    pub fn pull(
        &self,
        table: TableId,
        ids: &[u64],
        read: Read,
        out: &mut [f32],
    ) -> Result<(), Error> {
        self.pull_of(None, &PullRows { table, ids, read }, out)
    }

    /// Like [`pull`](Engine::pull), of rows after so many steps alone, where that is said.
    pub fn pull_of(
        &self,
        after: Option<StepCount>,
        wanted: &PullRows<'_>,
        out: &mut [f32],
    ) -> Result<(), Error> {
        let PullRows { table, ids, read } = *wanted;
        let order = self.order();
        let dim = order.check(table, ids.len(), out.len())?;
        after.map_or(Ok(()), |after| order.steps.must_be(after))?;
        // No step may be completed before all threads have been asked for rows of the one that is wanted.
        let until_sent = after.map(|_| order);
        if self.inner.owners.count() == 1 {
            let job = |shard: &mut Shard| shard.pull(table, ids, read, out);
            return self.inner.owners.run(vec![(0, job)], until_sent)?.into_iter().collect();
        }
        let pieces = split(self.inner.owners.count(), ids);
        let mut buffers: Vec<Vec<f32>> =
            pieces.iter().map(|piece| vec![0.0; piece.ids.len() * dim]).collect();
        let job = |((thread, piece), out)| {
            let piece: &split::Piece = piece;
            let out: &mut Vec<f32> = out;
            (thread, move |shard: &mut Shard| shard.pull(table, &piece.ids, read, out))
        };
        let busy = pieces.iter().enumerate().zip(&mut buffers).filter(|((_, p), _)| !p.is_empty());
        let jobs = busy.map(job).collect();
        self.inner.owners.run(jobs, until_sent)?.into_iter().collect::<Result<(), Error>>()?;
        for (piece, rows) in pieces.iter().zip(&buffers) {
            for (row, at) in rows.chunks_exact(dim).zip(&piece.positions) {
                out[*at as usize * dim..][..dim].copy_from_slice(row);
            }
        }
        Ok(())
    }

    /// Writes values as they are, creating rows where there are none. Optimizer state stays.
    pub fn set(&self, rows: TableRows<'_>) -> Result<(), Error> {
        let mut order = self.order();
        let pieces = self.pieces(&order, &[rows])?;
        let counter = order.change();
        self.on_each(order, pieces, |shard, rows| shard.set(&rows, counter)).map(drop)
    }

    /// Keeps the gradient sum of slice `k` of the optimizer step after so many, in place of what was staged
    /// for it before. A step that was applied already is acknowledged and ignored.
    pub fn stage(&self, after: StepCount, k: u32, rows: &[TableRows<'_>]) -> Result<(), Error> {
        self.must_be(Mode::Staged)?;
        let mut order = self.order();
        let is_wanted = order.steps.accepts(after)?;
        let pieces = self.pieces(&order, rows)?;
        if !is_wanted {
            return Ok(());
        }
        order.steps.stage();
        self.on_each(order, pieces, |shard, rows| shard.stage(k, rows)).map(drop)
    }

    /// Applies what is staged: sums added in the order of `k` and multiplied by `scale`, each
    /// table's learning rate multiplied by `factor`. Advancing to the steps that are done does nothing, and with a
    /// `scale` of 0 what is staged is dropped: the step was skipped.
    pub fn advance(&self, to: StepCount, factor: f64, scale: f32) -> Result<(), Error> {
        self.must_be(Mode::Staged)?;
        let mut order = self.order();
        if !order.steps.advance(to)? {
            return Ok(());
        }
        let apply = Apply { factor, scale, counter: order.change() };
        self.on_all(order, |shard| shard.advance(apply)).map(drop)
    }

    /// Whether an owner thread has ended early, with what it held.
    pub fn is_broken(&self) -> bool {
        self.inner.owners.is_broken()
    }

    /// What a bug in a table would do.
    #[cfg(test)]
    pub(crate) fn panic_in_a_thread(&self) {
        let job = |_: &mut Shard| -> () { panic!("on purpose") };
        self.inner.owners.run(vec![(0, job)], ()).expect_err("the thread is gone");
    }

    /// Rows that are kept apart for copies.
    #[cfg(test)]
    pub(crate) fn kept_apart(&self) -> usize {
        self.on_all(self.order(), |shard| shard.kept_apart()).expect("alive").into_iter().sum()
    }

    /// How gradients are applied.
    pub fn mode(&self) -> Mode {
        self.inner.options.mode
    }

    /// Optimizer steps that were applied, or are being applied.
    pub fn version(&self) -> StepCount {
        self.order().steps.done()
    }

    /// Applies the gradients of a micro-batch on each partition that has not yet had it.
    pub fn push(&self, push: Push<'_>) -> Result<(), Error> {
        self.must_be(Mode::Immediate)?;
        let slices = self.inner.options.slices;
        if Applied::new(slices).number(push.name).is_none() {
            let reason = format!("{:?} is not one of {slices} slices of a step", push.name);
            return Err(Error::Request(reason));
        }
        let mut order = self.order();
        let pieces = self.pieces(&order, push.rows)?;
        let changes = push.seen.map_or(0, |seen| order.counter.saturating_sub(seen));
        let factor = push.factor / (changes as f64 + 1.0);
        let apply = Apply { factor, scale: push.scale, counter: order.change() };
        let Push { name, tally, .. } = push;
        self.on_each(order, pieces, |shard, rows| shard.push(name, &tally, rows, apply)).map(drop)
    }

    /// The rows that changed after the moment `since`; all of them for 0 and for the first who
    /// asks about a table. Rows that were dropped are not told.
    pub fn changed(&self, table: TableId, since: u64) -> Result<Changed, Error> {
        let order = self.order();
        order.check(table, 0, 0)?;
        let counter = order.counter;
        let mut all = Changed { counter, ..Changed::default() };
        for part in self.on_all(order, |shard| shard.changed(table, since, counter))? {
            all.ids.extend(part.ids);
            all.values.extend(part.values);
        }
        Ok(all)
    }

    /// What the partitions here have applied, those with the same history together.
    pub fn applied(&self) -> Result<Vec<Held>, Error> {
        let held = self.on_all(self.order(), |shard| shard.held())?;
        Ok(Held::joined(held.into_iter().flatten()))
    }

    /// Forgets the applied names of epochs below, which count as applied from then on.
    pub fn prune(&self, below_epoch: u64) -> Result<(), Error> {
        self.on_all(self.order(), |shard| shard.prune(below_epoch)).map(drop)
    }

    /// Figures of all tables, in the order of their numbers.
    pub fn stats(&self) -> Result<Vec<TableStats>, Error> {
        let mut shards = self.on_all(self.order(), |shard| shard.stats())?.into_iter();
        let mut tables = shards.next().unwrap_or_default();
        for shard in shards {
            tables.iter_mut().zip(shard).for_each(|(sum, more)| sum.add(&more));
        }
        Ok(tables)
    }

    /// Forgets all rows, staged gradients and applied names, and starts after so many steps.
    pub fn clear(&self, steps: StepCount) -> Result<(), Error> {
        let order = self.order();
        let here = order.here.clone();
        self.start_empty(order, here, steps)
    }

    fn order(&self) -> MutexGuard<'_, EngineState> {
        // Nothing that holds the lock leaves the order half changed.
        self.inner.order.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn must_be(&self, mode: Mode) -> Result<(), Error> {
        let made_for = self.inner.options.mode;
        match made_for == mode {
            true => Ok(()),
            false => Err(Error::Request(format!("the engine is {made_for:?}, not {mode:?}"))),
        }
    }

    /// Has every thread do the same.
    fn on_all<R: Send>(
        &self,
        order: MutexGuard<'_, EngineState>,
        job: impl Fn(&mut Shard) -> R + Sync,
    ) -> Result<Vec<R>, Error> {
        self.on_each(order, vec![(); self.inner.owners.count()], |shard, ()| job(shard))
    }

    /// Has every thread do something with its part.
    fn on_each<T: Send, R: Send>(
        &self,
        order: MutexGuard<'_, EngineState>,
        parts: Vec<T>,
        job: impl Fn(&mut Shard, T) -> R + Sync,
    ) -> Result<Vec<R>, Error> {
        let job = &job;
        let each = |(thread, part)| (thread, move |shard: &mut Shard| job(shard, part));
        self.inner.owners.run(parts.into_iter().enumerate().map(each).collect(), order)
    }

    /// Checks rows and splits them by thread.
    fn pieces<'a>(
        &self,
        order: &EngineState,
        rows: &[TableRows<'a>],
    ) -> Result<Vec<split::Pieces<'a>>, Error> {
        let mut all: Vec<split::Pieces<'a>> = Vec::new();
        all.resize_with(self.inner.owners.count(), Vec::new);
        for rows in rows {
            let dim = order.check(rows.table, rows.ids.len(), rows.values.len())?;
            order.check_here(rows.ids)?;
            split_rows(&mut all, rows, dim);
        }
        Ok(all)
    }
}

impl EngineState {
    /// The number of the next change.
    fn change(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }

    /// The dimension of a table, if so many ids have so many floats.
    fn check(&self, table: TableId, ids: usize, floats: usize) -> Result<usize, Error> {
        let spec = self.tables.get(table.0 as usize).ok_or(Error::UnknownTable(table.0))?;
        spec.check_rows(ids, floats).map(|()| spec.dim)
    }

    fn check_here(&self, ids: &[u64]) -> Result<(), Error> {
        let partitions = ids.iter().map(|id| crate::partition_of(*id));
        let elsewhere = partitions.into_iter().find(|p| !self.here[usize::from(*p)]);
        elsewhere.map_or(Ok(()), |partition| Err(Error::NotHere(partition)))
    }
}
