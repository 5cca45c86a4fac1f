//! What a parameter server is told by the master, on a thread of its own for each server: a server that takes long
//! holds nobody else up.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use salamander_core::elastic::Generation;
use salamander_core::push::{Applied, Placed, Process, ServerState};
use salamander_net::{Cancel, Keys};
use salamander_ps::client::{Client, Directory, Error, Options};
use salamander_ps::wire::Reset;
use tracing::{debug, warn};

use crate::inbox::{Handle, Input};

/// How long a server may take to answer,
const PATIENCE: Duration = Duration::from_secs(10);
/// and the pause after it did not.
const PAUSE: Duration = Duration::from_millis(200);

/// Something that a server is asked for.
#[derive(Clone, Debug)]
pub(crate) enum Errand {
    /// Say what you have.
    Look,
    /// Get your partitions of a map, then say what you have.
    Place { map: Generation, reset: Reset },
    /// All servers of a map have their partitions.
    Release { map: Generation },
    /// Write everything to a file.
    Save { map: Generation, id: Generation, path: PathBuf },
    /// Names of epochs below may be forgotten.
    Prune { map: Generation, below: u64 },
}

/// What came of it.
#[derive(Debug)]
pub(crate) enum News {
    /// What the server has.
    State(ServerState),
    /// It has written its part of a checkpoint.
    Saved(Generation),
    /// It has not done what it was asked for.
    Trouble,
}

/// Reaches one process of a server; dropping it leaves the process alone.
pub(crate) struct Courier {
    pub(crate) process: Process,
    pub(crate) endpoint: String,
    errands: Sender<Errand>,
    cancel: Cancel,
}

impl Courier {
    /// Starts the thread.
    pub(crate) fn start(
        process: Process,
        endpoint: String,
        keys: Keys,
        slices: u32,
        handle: Handle,
    ) -> std::io::Result<Self> {
        let (errands, inbox) = channel();
        let cancel = Cancel::new();
        let route = Route {
            process,
            endpoint: endpoint.clone(),
            keys,
            slices,
            cancel: cancel.clone(),
            client: None,
        };
        std::thread::Builder::new()
            .name(format!("courier-{}", process.server))
            .spawn(move || route.run(&inbox, &handle))?;
        Ok(Self { process, endpoint, errands, cancel })
    }

    pub(crate) fn send(&self, errand: Errand) {
        // A thread that is gone had no master to talk to any more.
        let _ = self.errands.send(errand);
    }
}

impl Drop for Courier {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

struct Route {
    process: Process,
    endpoint: String,
    keys: Keys,
    slices: u32,
    cancel: Cancel,
    client: Option<Client>,
}

impl Route {
    fn run(mut self, errands: &Receiver<Errand>, handle: &Handle) {
        for errand in errands {
            let news = match self.attend(errand.clone()) {
                Ok(news) => news,
                Err(_) if self.cancel.is_cancelled() => return,
                Err(error) => {
                    warn!(server = self.process.server, %error, ?errand, "a server did not obey");
                    self.client = None;
                    std::thread::sleep(PAUSE);
                    Some(News::Trouble)
                }
            };
            if let Some(news) = news
                && !handle.give_blocking(Input::Server(self.process, news))
            {
                return;
            }
        }
    }

    fn attend(&mut self, errand: Errand) -> Result<Option<News>, Error> {
        debug!(server = self.process.server, ?errand, "asks a server");
        match errand {
            Errand::Look => self.look().map(Some),
            Errand::Place { map, reset } => {
                let gives_all = reset.partitions.iter().flatten().all(|range| range.is_empty());
                self.client()?.reset_each(map.to_u64(), &[reset])?;
                // One that only gives has nothing that the map counts on.
                if gives_all { Ok(None) } else { self.look().map(Some) }
            }
            Errand::Release { map } => {
                self.client()?.set_lineage(map.to_u64());
                self.client()?.release()?;
                Ok(None)
            }
            Errand::Save { map, id, path } => {
                self.client()?.set_lineage(map.to_u64());
                self.client()?.save(&[path])?;
                Ok(Some(News::Saved(id)))
            }
            Errand::Prune { map, below } => {
                self.client()?.set_lineage(map.to_u64());
                self.client()?.prune(below)?;
                Ok(None)
            }
        }
    }

    /// What the server has. One that was just started has the lineage 0, and one that is getting its partitions has
    /// nothing that counts.
    fn look(&mut self) -> Result<News, Error> {
        let (slices, incarnation) = (self.slices, self.process.incarnation);
        let client = self.client()?;
        let info = client.info()?;
        let placed = info.first().filter(|info| info.is_placed && !info.partitions.is_empty());
        let lineage = placed.map_or(0, |info| info.lineage);
        if lineage == 0 {
            return Ok(News::State(ServerState { incarnation, placed: None }));
        }
        client.set_lineage(lineage);
        let held = client.applied()?.into_iter().map(|held| held.applied);
        let applied = held.reduce(|both, applied| both.intersect(&applied));
        let applied = applied.unwrap_or_else(|| Applied::new(slices));
        let placed = Placed { map: Generation::from_u64(lineage), applied, version: 0 };
        Ok(News::State(ServerState { incarnation, placed: Some(placed) }))
    }

    /// A connection to this process and no other: one that took its place has another endpoint.
    fn client(&mut self) -> Result<&mut Client, Error> {
        match &mut self.client {
            Some(client) => Ok(client),
            none => {
                let options = Options {
                    patience: PATIENCE,
                    cancel: self.cancel.clone(),
                    ..Options::default()
                };
                let directory = Directory::new(vec![self.endpoint.clone()]);
                Ok(none.insert(Client::connect(directory, self.keys.clone(), options)?))
            }
        }
    }
}
