//! What a parameter server is told by the master, on a thread of its own for each server: a server that takes long
//! holds nobody else up.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use salamander_core::elastic::Generation;
use salamander_core::push::{Applied, Lineage, MapVersion, Placed, Process, ServerState};
use salamander_net::{Cancel, Keys};
use salamander_ps::client::{Client, Error, Options};
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
    Place { map: MapVersion, reset: Reset },
    /// All servers of a map have their partitions.
    Release { map: MapVersion },
    /// Write everything to a file.
    Save { map: MapVersion, id: Generation, path: PathBuf },
    /// Names of epochs below may be forgotten.
    Prune { map: MapVersion, below: u64 },
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
    errands: Sender<Errand>,
    cancel: Cancel,
}

impl Courier {
    /// Starts the thread.
    pub(crate) fn start(route: Route, handle: Handle) -> std::io::Result<Self> {
        let (errands, inbox) = channel();
        let (process, cancel) = (route.process, Cancel::new());
        let talk = Talk { route, cancel: cancel.clone(), client: None };
        std::thread::Builder::new()
            .name(format!("courier-{}", process.server))
            .spawn(move || talk.run(&inbox, &handle))?;
        Ok(Self { process, errands, cancel })
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

/// How a process of a server is reached, and by whom.
pub(crate) struct Route {
    pub(crate) process: Process,
    pub(crate) endpoint: String,
    pub(crate) keys: Keys,
    /// The master's term.
    pub(crate) term: u32,
    pub(crate) slices: u32,
}

struct Talk {
    route: Route,
    cancel: Cancel,
    client: Option<Client>,
}

impl Talk {
    fn run(mut self, errands: &Receiver<Errand>, handle: &Handle) {
        for errand in errands {
            let news = match self.attend(errand.clone()) {
                Ok(news) => news,
                Err(_) if self.cancel.is_cancelled() => return,
                Err(error) => {
                    warn!(server = self.route.process.server, %error, ?errand, "a server did not obey");
                    self.client = None;
                    std::thread::sleep(PAUSE);
                    Some(News::Trouble)
                }
            };
            if let Some(news) = news
                && !handle.give_blocking(Input::Server(self.route.process, news))
            {
                return;
            }
        }
    }

    fn attend(&mut self, errand: Errand) -> Result<Option<News>, Error> {
        debug!(server = self.route.process.server, ?errand, "asks a server");
        match errand {
            Errand::Look => self.look().map(Some),
            Errand::Place { map, reset } => {
                let gives_all = reset.partitions.is_empty();
                self.client()?.reset_each(map.into(), &[reset])?;
                // One that only gives has nothing that the map counts on.
                if gives_all { Ok(None) } else { self.look().map(Some) }
            }
            Errand::Release { map } => {
                self.client()?.set_lineage(map.into());
                self.client()?.release()?;
                Ok(None)
            }
            Errand::Save { map, id, path } => {
                self.client()?.set_lineage(map.into());
                self.client()?.save(&[path])?;
                Ok(Some(News::Saved(id)))
            }
            Errand::Prune { map, below } => {
                self.client()?.set_lineage(map.into());
                self.client()?.prune(below)?;
                Ok(None)
            }
        }
    }

    /// What the server has. One that was just started has the lineage 0, and one that is getting its partitions has
    /// nothing that counts.
    fn look(&mut self) -> Result<News, Error> {
        let (slices, incarnation) = (self.route.slices, self.route.process.incarnation);
        let client = self.client()?;
        let info = client.info()?;
        if let Some(other) = info.iter().find(|info| info.incarnation != incarnation) {
            let reason = format!("another process answers: {:016x}", other.incarnation);
            return Err(Error::Answer { server: 0, reason });
        }
        let placed = info.first().filter(|info| info.is_placed && !info.partitions.is_empty());
        let lineage = placed.map_or(Lineage::default(), |info| info.lineage);
        if lineage == Lineage::default() {
            return Ok(News::State(ServerState { incarnation, placed: None }));
        }
        client.set_lineage(lineage);
        let held = client.applied()?.into_iter().map(|held| held.applied);
        let applied = held.reduce(|both, applied| both.intersect(&applied));
        let applied = applied.unwrap_or_else(|| Applied::new(slices));
        let placed = Placed { map: lineage.map(), applied };
        Ok(News::State(ServerState { incarnation, placed: Some(placed) }))
    }

    /// A connection to this process: one that took its place refuses its orders.
    fn client(&mut self) -> Result<&mut Client, Error> {
        match &mut self.client {
            Some(client) => Ok(client),
            none => {
                let Route { process, endpoint, keys, term, .. } = &self.route;
                let options = Options {
                    patience: PATIENCE,
                    term: *term,
                    processes: vec![process.incarnation],
                    cancel: self.cancel.clone(),
                    ..Options::default()
                };
                let endpoints = vec![endpoint.clone()];
                Ok(none.insert(Client::connect(endpoints, keys.clone(), options)?))
            }
        }
    }
}
