//! Partitions on their way: to and from files, and between servers.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::MutexGuard;

use salamander_core::asynchronous::StepOrder;
use salamander_core::progress::StepCount;

use super::split::thread_of;
use super::{Engine, EngineState};
use crate::checkpoint::Catalog;
use crate::image::{self, Header, TableImage};
use crate::section::Section;
use crate::shard::Encoded;
use crate::{EngineOptions, Error, Mode, PARTITIONS, Shard, Snapshot, TableId, TableSpec};

impl Engine {
    /// A copy of everything, of one moment between two changes. Rows are copied when they are written or, if they
    /// change before that, then; so training hardly waits, and memory is taken for what changes meanwhile.
    pub fn snapshot(&self) -> Result<Snapshot, Error> {
        let mut order = self.order();
        order.copies += 1;
        let (copy, header) = (order.copies, self.header(&order));
        let here = order.here.clone();
        let partitions = (0..PARTITIONS as u16).filter(|p| here[usize::from(*p)]).collect();
        let snapshot = Snapshot { engine: self.clone(), copy, header, partitions };
        self.on_all(order, |shard| shard.begin_copy(copy))?;
        Ok(snapshot)
    }

    /// A partition of a copy, once.
    pub(crate) fn section(&self, copy: u64, partition: u16) -> Result<Encoded, Error> {
        let owners = &self.inner.owners;
        let job = |shard: &mut Shard| shard.encode_copy(copy, partition);
        let sections = owners.run(vec![(thread_of(partition, owners.count()), job)], ())?;
        sections.into_iter().flatten().next().ok_or(Error::Replaced)
    }

    /// A copy is of no use any more.
    pub(crate) fn end_copy(&self, copy: u64) {
        // Whoever asks a thread that has ended is told so.
        let _ = self.on_all(self.order(), |shard| shard.end_copy(copy));
    }

    /// Forgets everything and holds these partitions from now on, empty and after so many steps.
    pub fn begin(&self, partitions: &[Range<u16>], steps: StepCount) -> Result<(), Error> {
        self.start_empty(self.order(), places(partitions)?, steps)
    }

    /// Forgets everything and holds what is here, empty and after so many steps.
    pub(super) fn start_empty(
        &self,
        mut order: MutexGuard<'_, EngineState>,
        here: Vec<bool>,
        steps: StepCount,
    ) -> Result<(), Error> {
        let shards = empty_shards(&self.inner.options, &here, &order.tables, steps.0);
        (order.here, order.steps) = (here, StepOrder::at(steps));
        order.change();
        self.swap(order, shards)
    }

    /// Replaces everything by what files hold of the partitions that are here, whoever wrote them.
    /// Tables that are not declared yet are declared. On an error the engine is as it was.
    pub fn restore(&self, files: &[PathBuf]) -> Result<(), Error> {
        let here = self.order().here.clone();
        self.restore_places(files, here)
    }

    /// Like [`restore`](Engine::restore), for other partitions than those that are here.
    pub fn restore_to(&self, files: &[PathBuf], partitions: &[Range<u16>]) -> Result<(), Error> {
        self.restore_places(files, places(partitions)?)
    }

    fn restore_places(&self, files: &[PathBuf], here: Vec<bool>) -> Result<(), Error> {
        let catalog = Catalog::open(files)?;
        let mut order = self.order();
        let header = catalog.header();
        self.check_header(&order, &header)?;
        let mut tables = order.tables.clone();
        let missing = |spec: &&TableSpec| order.tables.iter().all(|known| known.name != spec.name);
        tables.extend(header.tables.iter().filter(missing).cloned());
        let counter = order.counter + 1;
        let mut shards = empty_shards(&self.inner.options, &here, &tables, 0);
        let loading = |shard: &mut Shard| {
            let own = shard.partitions();
            load(shard, &own, &catalog, &tables, counter)
        };
        // One thread for each shard: reading, checking and filling are all work of the processor.
        std::thread::scope(|scope| {
            let threads: Vec<_> =
                shards.iter_mut().map(|shard| scope.spawn(move || loading(shard))).collect();
            let joined =
                threads.into_iter().map(|thread| thread.join().unwrap_or(Err(Error::Gone)));
            joined.collect::<Result<(), Error>>()
        })?;
        let copies = order.copies;
        *order =
            EngineState { steps: StepOrder::at(header.version), counter, copies, tables, here };
        self.swap(order, shards)
    }

    /// Adds partitions that are not here from files of as many steps. On an error some of them may be here.
    pub fn load(&self, files: &[PathBuf], partitions: &[u16]) -> Result<(), Error> {
        let catalog = Catalog::open(files)?;
        let header = catalog.header();
        for spec in &header.tables {
            self.declare(spec.clone())?;
        }
        let mut order = self.order();
        self.check_arrival(&order, &header)?;
        partitions.iter().try_for_each(|partition| order.check_elsewhere(*partition))?;
        partitions.iter().for_each(|partition| order.here[usize::from(*partition)] = true);
        let (counter, tables) = (order.change(), order.tables.clone());
        let own = self.by_thread(partitions.iter().copied(), |partition| *partition);
        let loads =
            self.on_each(order, own, |shard, own| load(shard, &own, &catalog, &tables, counter));
        loads?.into_iter().collect()
    }

    /// Drops what is staged for the current version.
    pub fn unstage(&self) -> Result<(), Error> {
        let mut order = self.order();
        order.steps.unstage();
        self.on_all(order, Shard::unstage).map(drop)
    }

    /// Takes partitions out of this engine, as bytes for [`put`](Engine::put). Nothing may be staged:
    /// a move happens between two steps.
    pub fn take(&self, partitions: &[u16]) -> Result<Vec<u8>, Error> {
        let mut order = self.order();
        order.check_moving()?;
        let elsewhere = |p: &&u16| !order.here.get(usize::from(**p)).is_some_and(|here| *here);
        if let Some(partition) = partitions.iter().find(elsewhere) {
            return Err(Error::NotHere(*partition));
        }
        order.change();
        partitions.iter().for_each(|partition| order.here[usize::from(*partition)] = false);
        let header = self.header(&order);
        let taken = self.on_all(order, |shard| {
            let encoded: Vec<_> = partitions.iter().filter_map(|p| shard.encode(*p)).collect();
            encoded.iter().for_each(|section| shard.remove(section.partition));
            encoded
        })?;
        let mut bytes = Vec::new();
        match image::write(&mut bytes, &header, taken.into_iter().flatten()) {
            Ok(_) => Ok(bytes),
            Err(error) => Err(Error::Request(format!("cannot encode partitions: {error}"))),
        }
    }

    /// Puts partitions into this engine that [`take`](Engine::take) took out of another, at the same
    /// version. Partitions that are here already are an error.
    pub fn put(&self, bytes: &[u8]) -> Result<(), Error> {
        let image = TableImage::of_bytes(bytes)?;
        let mut moved = Vec::new();
        for place in &image.index {
            moved.push((place.partition, image.section(place)?));
        }
        for spec in &image.header.tables {
            self.declare(spec.clone())?;
        }
        let mut order = self.order();
        self.check_arrival(&order, &image.header)?;
        let tables = numbers(&order.tables, &image.header.tables);
        let mut sections = Vec::new();
        for (partition, bytes) in &moved {
            order.check_elsewhere(*partition)?;
            let section = Section::decode(bytes, *partition, &image.header.tables)
                .map_err(|reason| image.damaged(*partition, reason))?;
            sections.push((*partition, section));
        }
        sections.iter().for_each(|(partition, _)| order.here[usize::from(*partition)] = true);
        let counter = order.change();
        let arrivals = self.by_thread(sections, |(partition, _)| *partition);
        let install = |shard: &mut Shard, arrivals| {
            for (partition, section) in arrivals {
                shard.install(partition, section, &tables, counter);
            }
        };
        self.on_each(order, arrivals, install).map(drop)
    }

    /// Things by the threads that own their partitions.
    fn by_thread<T>(
        &self,
        all: impl IntoIterator<Item = T>,
        partition: impl Fn(&T) -> u16,
    ) -> Vec<Vec<T>> {
        let threads = self.inner.owners.count();
        let mut own: Vec<Vec<T>> = (0..threads).map(|_| Vec::new()).collect();
        for thing in all {
            own[thread_of(partition(&thing), threads)].push(thing);
        }
        own
    }

    /// Puts other shards in the place of all that is here.
    fn swap(&self, order: MutexGuard<'_, EngineState>, shards: Vec<Shard>) -> Result<(), Error> {
        self.on_each(order, shards, |shard, fresh| *shard = fresh).map(drop)
    }

    /// Refuses partitions of another version or of other tables.
    fn check_arrival(&self, order: &EngineState, header: &Header) -> Result<(), Error> {
        order.check_moving()?;
        self.check_header(order, header)?;
        Ok(order.steps.must_be(header.version)?)
    }

    fn header(&self, order: &EngineState) -> Header {
        Header {
            version: order.steps.done(),
            seed: self.inner.options.seed,
            slices: self.inner.options.slices,
            tables: order.tables.clone(),
        }
    }

    /// Refuses what was written by an engine with other first values, names or tables.
    fn check_header(&self, order: &EngineState, header: &Header) -> Result<(), Error> {
        let EngineOptions { seed, slices, mode, .. } = self.inner.options;
        // Without names of micro-batches it does not matter how a step is cut.
        let other_names = mode == Mode::Immediate && header.slices != slices;
        if header.seed != seed || other_names {
            return Err(Error::Restore(format!(
                "the files were written with seed {} and {} slices, and this server has seed \
                 {seed} and {slices} slices; use the experiment that they come from",
                header.seed, header.slices
            )));
        }
        for spec in &header.tables {
            spec.validate()?;
            let known = order.tables.iter().find(|known| known.name == spec.name);
            known.map_or(Ok(()), |known| known.check_same(spec))?;
        }
        Ok(())
    }
}

impl EngineState {
    fn check_elsewhere(&self, partition: u16) -> Result<(), Error> {
        match self.here.get(usize::from(partition)) {
            Some(false) => Ok(()),
            _ => {
                let reason = format!("partition {partition} is here already, or is none");
                Err(Error::Request(reason))
            }
        }
    }

    fn check_moving(&self) -> Result<(), Error> {
        match self.steps.has_staged() {
            false => Ok(()),
            true => Err(Error::Request(
                "gradients are staged; move partitions after the step has advanced".to_string(),
            )),
        }
    }
}

/// Which partitions there are.
pub(super) fn places(partitions: &[Range<u16>]) -> Result<Vec<bool>, Error> {
    let mut here = vec![false; PARTITIONS];
    for partition in partitions.iter().cloned().flatten() {
        let Some(place) = here.get_mut(usize::from(partition)) else {
            let reason = format!("there is no partition {partition}, only {PARTITIONS}");
            return Err(Error::Request(reason));
        };
        *place = true;
    }
    Ok(here)
}

/// Shards for the partitions that are here, with empty tables.
pub(super) fn empty_shards(
    options: &EngineOptions,
    here: &[bool],
    tables: &[TableSpec],
    age: u64,
) -> Vec<Shard> {
    let shard = |thread| {
        let own = (0..here.len()).filter(|p| here[*p]).map(|p| p as u16);
        let own = own.filter(|p| thread_of(*p, options.threads) == thread).collect();
        let mut shard = Shard::new(options.seed, options.slices, own, age);
        tables.iter().for_each(|spec| {
            shard.declare(spec.clone());
        });
        shard
    };
    (0..options.threads).map(shard).collect()
}

/// Fills partitions of a shard from files.
fn load(
    shard: &mut Shard,
    partitions: &[u16],
    catalog: &Catalog,
    tables: &[TableSpec],
    counter: u64,
) -> Result<(), Error> {
    for partition in partitions {
        catalog.read(*partition, |section, specs| {
            shard.install(*partition, section, &numbers(tables, specs), counter);
        })?;
    }
    Ok(())
}

/// The numbers here of tables that all are here.
fn numbers(here: &[TableSpec], named: &[TableSpec]) -> Vec<TableId> {
    let number = |spec: &TableSpec| here.iter().position(|known| known.name == spec.name);
    named.iter().filter_map(number).map(|at| TableId(at as u32)).collect()
}
