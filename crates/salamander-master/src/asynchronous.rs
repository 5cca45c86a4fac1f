//! Asynchronous training as the master sees it: names that are leased, servers that get and save their partitions, the
//! ends of epochs. The rules are in `salamander_core::push`; the program's books know what names mean.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::mpsc::{Sender, channel};

use salamander_core::elastic::{Ending, Generation, Millis, TaskQueue};
use salamander_core::push::{self, Checkpoint, Dispatcher, History, Placement, Process, Source};
use salamander_net::Keys;
use salamander_ps::client::Map;
use salamander_ps::wire::{Before, Owner, Reset};
use serde_json::Value;

use crate::config::{Books, Keeping, NamesPlan};
use crate::courier::{Courier, Errand};
use crate::inbox::{Handle, Input};

/// Batches of a validation task: few, so that a slow worker does not hold up the end.
const BATCHES: u64 = 4;
/// How long a worker may hold one. Only the last resort: who dies or falls silent is noticed at once.
const LEASE: Millis = 600_000;

/// Everything about names.
pub(crate) struct Asynchronous {
    pub(crate) dispatcher: Dispatcher,
    pub(crate) books: Box<dyn Books>,
    pub(crate) slices: u32,
    pub(crate) keys: Keys,
    pub(crate) handle: Handle,
    /// Whom servers are reached by, by their numbers.
    pub(crate) couriers: BTreeMap<u32, Courier>,
    pub(crate) validating: Option<Validating>,
    /// An epoch that is validated and begins the next one when its checkpoint counts.
    pub(crate) closing: Option<Saving<u64>>,
    /// How the run ends when its last checkpoint counts.
    pub(crate) leaving: Option<Saving<Ending>>,
    /// Folders of checkpoints that are being made, one after the other.
    pub(crate) keeping: usize,
    keeper: Option<Sender<Keeping>>,
    initial: PathBuf,
    checkpoints: PathBuf,
    validation: u64,
    validations: u64,
}

/// Something that waits for a checkpoint.
pub(crate) struct Saving<T> {
    pub(crate) then: T,
    pub(crate) since: Millis,
    /// The checkpoint was begun after it was wanted.
    pub(crate) asked: bool,
    pub(crate) saved: bool,
}

impl<T> Saving<T> {
    pub(crate) fn new(now: Millis, then: T) -> Self {
        Self { then, since: now, asked: false, saved: false }
    }
}

/// A validation that is under way.
pub(crate) struct Validating {
    pub(crate) epoch: u64,
    pub(crate) tasks: TaskQueue,
    pub(crate) parts: BTreeMap<u64, Value>,
}

impl Asynchronous {
    pub(crate) fn open(plan: NamesPlan, history: History, keys: Keys, handle: Handle) -> Self {
        let NamesPlan { settings, validation, initial, checkpoints, books } = plan;
        Self {
            slices: settings.names.slices(),
            dispatcher: Dispatcher::open(history, settings),
            books,
            keys,
            handle,
            couriers: BTreeMap::new(),
            validating: None,
            closing: None,
            leaving: None,
            keeping: 0,
            keeper: None,
            initial,
            checkpoints,
            validation,
            validations: 0,
        }
    }

    /// Talks to a process of a server from now on.
    pub(crate) fn meet(&mut self, process: Process, endpoint: String) -> std::io::Result<()> {
        let known = self.couriers.get(&process.server);
        if known.is_none_or(|courier| courier.process != process) {
            let (keys, handle) = (self.keys.clone(), self.handle.clone());
            let courier = Courier::start(process, endpoint, keys, self.slices, handle)?;
            self.couriers.insert(process.server, courier);
        }
        self.send(process, Errand::Look);
        Ok(())
    }

    /// Asks a process for something, unless another took its place.
    pub(crate) fn send(&self, to: Process, errand: Errand) {
        if let Some(courier) = self.courier(to) {
            courier.send(errand);
        }
    }

    pub(crate) fn courier(&self, process: Process) -> Option<&Courier> {
        self.couriers.get(&process.server).filter(|courier| courier.process == process)
    }

    /// The process has ended. Returns whether it was a server that is known.
    pub(crate) fn lost(&mut self, incarnation: u64) -> bool {
        let of = |courier: &&Courier| courier.process.incarnation == incarnation;
        let Some(process) = self.couriers.values().find(of).map(|courier| courier.process) else {
            return false;
        };
        self.couriers.remove(&process.server);
        self.dispatcher.server_lost(process);
        // What is validated is not what it was.
        self.validating = None;
        true
    }

    /// Begins a validation; false if there is nothing to validate.
    pub(crate) fn validate(&mut self, epoch: u64) -> bool {
        if self.validation == 0 {
            return false;
        }
        self.validations += 1;
        // Leases of earlier validations and masters count for nothing.
        let fence = u64::from(self.dispatcher.epoch()) << 40 | self.validations << 20;
        let tasks = TaskQueue::new(self.validation, BATCHES, LEASE, fence);
        self.validating = Some(Validating { epoch, tasks, parts: BTreeMap::new() });
        true
    }

    /// Has the folder of a checkpoint made on a thread of its own, in the order of the calls.
    pub(crate) fn keep(&mut self, keeping: Keeping) -> std::io::Result<()> {
        let keeper = match &mut self.keeper {
            Some(keeper) => keeper,
            none => {
                let (sender, folders) = channel::<Keeping>();
                let handle = self.handle.clone();
                std::thread::Builder::new().name("keeper".to_string()).spawn(move || {
                    // A master that is gone is followed by one that makes the last folder again.
                    folders.iter().all(|keep| handle.give_blocking(Input::Folder(keep())))
                })?;
                none.insert(sender)
            }
        };
        self.keeping += usize::from(keeper.send(keeping).is_ok());
        Ok(())
    }

    /// Where a server gets its partitions of a map: from the servers of the map before that are known, and what
    /// those lack from files.
    pub(crate) fn placing(
        &self,
        to: Process,
        placement: Placement,
        checkpoint: Option<&Checkpoint>,
    ) -> Reset {
        let share = |map: push::Map, server: u32| {
            let map = Map { epoch: 0, servers: map.servers as usize };
            map.partitions(server as usize)
        };
        let from = match placement.source {
            Source::Checkpoint => None,
            Source::Servers(before) => {
                let known = self.couriers.range(..before.servers);
                let owners = known.map(|(server, courier)| Owner {
                    endpoint: courier.endpoint.clone(),
                    partitions: share(before, *server),
                });
                Some(Before { lineage: before.number.to_u64(), owners: owners.collect() })
            }
        };
        let partitions = Some(share(placement.map, to.server));
        Reset { partitions, version: 0, files: self.source(checkpoint), from }
    }

    /// The files that servers begin with.
    fn source(&self, checkpoint: Option<&Checkpoint>) -> Vec<PathBuf> {
        match checkpoint {
            Some(checkpoint) => self.files(checkpoint.id, checkpoint.map.servers),
            None => vec![self.initial.clone()],
        }
    }

    /// The files of a checkpoint.
    pub(crate) fn files(&self, id: Generation, servers: u32) -> Vec<PathBuf> {
        (0..servers).map(|server| self.file(id, server, servers)).collect()
    }

    /// A server's file of a checkpoint.
    pub(crate) fn file(&self, id: Generation, server: u32, servers: u32) -> PathBuf {
        self.rows(id).join(format!("tables-{server}-of-{servers}.rows"))
    }

    /// The folder that servers write a checkpoint to. It is kept as long as servers may have to begin with it.
    pub(crate) fn rows(&self, id: Generation) -> PathBuf {
        self.checkpoints.join(format!(".rows-{}-{}", id.epoch, id.number))
    }

    /// Removes what servers wrote for checkpoints that are not the last one.
    pub(crate) fn sweep(&self) {
        let last = self.dispatcher.history().checkpoint.map(|last| self.rows(last.id));
        let saving = self.dispatcher.saving().map(|id| self.rows(id));
        for entry in std::fs::read_dir(&self.checkpoints).into_iter().flatten().flatten() {
            let path = entry.path();
            let is_rows = entry.file_name().to_string_lossy().starts_with(".rows-");
            if is_rows && Some(&path) != last.as_ref() && Some(&path) != saving.as_ref() {
                // A folder that cannot be removed is only a waste of room.
                let _ = std::fs::remove_dir_all(&path);
            }
        }
    }
}
