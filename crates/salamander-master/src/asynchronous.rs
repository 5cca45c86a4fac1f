//! What asynchronous training does outside of the master's thread: a thread for each server, one that makes the folders
//! of checkpoints, and the files that servers write.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};

use salamander_core::asynchronous::{PartitionSource, Placement, Process, ServerCheckpoint};
use salamander_core::elastic::{Generation, Peer, Term};
use salamander_net::{Cancel, Keys};
use salamander_ps::wire::{Before, HistoryStart, Reset};

use crate::config::Keeping;
use crate::inbox::{MasterHandle, MasterInput};
use crate::server_calls::{ServerCall, ServerCaller, ServerCalls};

/// Something that is to be done about parameter servers.
pub(crate) enum ServerTask {
    /// Talk to a process of a server from now on.
    Meet { process: Process, endpoint: String },
    /// A process has ended.
    Forget(Process),
    /// Ask a process for something, unless another took its place.
    Tell { process: Process, call: ServerCall },
    /// Make the folder of a checkpoint, after those that were asked for before.
    Keep(Keeping),
    /// Remove what servers wrote in a folder, but for some.
    Sweep { folder: PathBuf, keep: Vec<PathBuf> },
}

/// The threads.
pub(crate) struct ServerThreads {
    keys: Keys,
    /// The master's term.
    term: Term,
    slices: u32,
    handle: MasterHandle,
    /// Whom servers are reached by, by their numbers.
    calls: BTreeMap<u32, ServerCalls>,
    keeper: Option<Sender<Keeping>>,
}

impl ServerThreads {
    pub(crate) fn new(keys: Keys, term: Term, slices: u32, handle: MasterHandle) -> Self {
        Self { keys, term, slices, handle, calls: BTreeMap::new(), keeper: None }
    }

    /// Does something, or says why the run cannot go on.
    pub(crate) fn perform(&mut self, task: ServerTask) -> Result<(), String> {
        let thread = |error: io::Error| format!("cannot start a thread: {error}");
        match task {
            ServerTask::Meet { process, endpoint } => {
                if self.calls(process).is_none() {
                    let talk = ServerCaller {
                        process,
                        endpoint,
                        keys: self.keys.clone(),
                        term: self.term,
                        slices: self.slices,
                        cancel: Cancel::new(),
                        client: None,
                    };
                    let calls = ServerCalls::start(talk, self.handle.clone()).map_err(thread)?;
                    self.calls.insert(process.server, calls);
                }
                self.tell(process, ServerCall::Look)
            }
            ServerTask::Forget(process) => {
                if self.calls(process).is_some() {
                    self.calls.remove(&process.server);
                }
                Ok(())
            }
            ServerTask::Tell { process, call } => self.tell(process, call),
            ServerTask::Keep(keeping) => self.keep(keeping).map_err(thread),
            ServerTask::Sweep { folder, keep } => {
                sweep(&folder, &keep);
                Ok(())
            }
        }
    }

    /// Whom a process is reached by, unless another took its place.
    fn calls(&self, process: Process) -> Option<&ServerCalls> {
        self.calls.get(&process.server).filter(|calls| calls.process == process)
    }

    fn tell(&self, process: Process, call: ServerCall) -> Result<(), String> {
        let Some(calls) = self.calls(process) else { return Ok(()) };
        if let ServerCall::Save { path, .. } = &call
            && let Some(folder) = path.parent()
        {
            std::fs::create_dir_all(folder)
                .map_err(|error| format!("{}: {error}", folder.display()))?;
        }
        calls.send(call);
        Ok(())
    }

    fn keep(&mut self, keeping: Keeping) -> io::Result<()> {
        let keeper = match &mut self.keeper {
            Some(keeper) => keeper,
            none => {
                let (sender, folders) = channel::<Keeping>();
                let handle = self.handle.clone();
                std::thread::Builder::new().name("keeper".to_string()).spawn(move || {
                    // A master that is gone is followed by one that makes the last folder again.
                    folders.iter().all(|keep| handle.give_blocking(MasterInput::Folder(keep())))
                })?;
                none.insert(sender)
            }
        };
        // The thread ends only when there is no master to hear of it.
        let _ = keeper.send(keeping);
        Ok(())
    }
}

/// Where servers write and read their rows.
#[derive(Clone, Debug)]
pub(crate) struct RowFiles {
    /// The rows that the run begins with.
    pub(crate) initial: PathBuf,
    /// The folder of the run's checkpoints.
    pub(crate) checkpoints: PathBuf,
}

impl RowFiles {
    /// Where a server gets its partitions of a map: from the servers of the map before that are known, and what
    /// those lack from files of the newest checkpoint that can be read.
    pub(crate) fn placing<'a>(
        &self,
        to: Process,
        placement: Placement,
        checkpoints: &[ServerCheckpoint],
        known: impl Iterator<Item = (u32, &'a Peer)>,
    ) -> Reset {
        let from = match placement.source {
            PartitionSource::Checkpoint => None,
            PartitionSource::Servers(before) => {
                let known = known.map(|(server, peer)| (server as usize, peer.endpoint.clone()));
                Some(Before::new(before.number.into(), before.servers as usize, known))
            }
        };
        // The newest first; whatever is damaged, the run can begin anew.
        let kept = checkpoints.iter().map(|kept| self.files(kept.id, kept.map.servers));
        let mut all = kept.chain([vec![self.initial.clone()]]);
        let files = all.next().unwrap_or_default();
        let servers = placement.map.servers as usize;
        let start =
            HistoryStart { servers, files, older: all.collect(), from, ..HistoryStart::default() };
        start.reset(to.server as usize)
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
        self.checkpoints.join(format!(".rows-{}-{}", id.term, id.number))
    }
}

fn sweep(folder: &Path, keep: &[PathBuf]) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_rows = entry.file_name().to_string_lossy().starts_with(".rows-");
        if is_rows && !keep.contains(&path) {
            // A folder that cannot be removed is only a waste of room.
            let _ = std::fs::remove_dir_all(&path);
        }
    }
}
