//! What a parameter server is told by the master, on a thread of its own for each server: a server that takes long
//! holds nobody else up.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use salamander_core::asynchronous::{Applied, Lineage, MapVersion, Placed, Process, ServerState};
use salamander_core::elastic::{Generation, Term};
use salamander_net::{Cancel, Keys};
use salamander_ps::client::{Client, ClientOptions, Error};
use salamander_ps::wire::Reset;
use tracing::{debug, warn};

use crate::inbox::{MasterHandle, MasterInput};

/// How long a server may take to answer,
const PATIENCE: Duration = Duration::from_secs(10);
/// and the pause after it did not.
const PAUSE: Duration = Duration::from_millis(200);

/// Something that a server is asked for.
#[derive(Clone, Debug)]
pub(crate) enum ServerCall {
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
pub(crate) enum ServerAnswer {
    /// What the server has.
    State(ServerState),
    /// It has written its part of a checkpoint.
    Saved(Generation),
    /// Partitions that it was to get from others are as in a checkpoint, for this reason.
    Fallback(String),
    /// It has not done what it was asked for.
    Trouble,
}

/// Reaches one process of a server; dropping it leaves the process alone.
pub(crate) struct ServerCalls {
    pub(crate) process: Process,
    calls: Sender<ServerCall>,
    cancel: Cancel,
}

impl ServerCalls {
    /// Starts the thread.
    pub(crate) fn start(talk: ServerCaller, handle: MasterHandle) -> std::io::Result<Self> {
        let (calls, inbox) = channel();
        let (process, cancel) = (talk.process, talk.cancel.clone());
        std::thread::Builder::new()
            .name(format!("calls-{}", process.server))
            .spawn(move || talk.run(&inbox, &handle))?;
        Ok(Self { process, calls, cancel })
    }

    pub(crate) fn send(&self, call: ServerCall) {
        // A thread that is gone had no master to talk to any more.
        let _ = self.calls.send(call);
    }
}

impl Drop for ServerCalls {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

/// How a process of a server is reached, and by whom.
pub(crate) struct ServerCaller {
    pub(crate) process: Process,
    pub(crate) endpoint: String,
    pub(crate) keys: Keys,
    /// The master's term.
    pub(crate) term: Term,
    pub(crate) slices: u32,
    pub(crate) cancel: Cancel,
    /// The connection, if there is one.
    pub(crate) client: Option<Client>,
}

impl ServerCaller {
    fn run(mut self, calls: &Receiver<ServerCall>, handle: &MasterHandle) {
        for call in calls {
            let news = match self.attend(call.clone()) {
                Ok(news) => news,
                Err(_) if self.cancel.is_cancelled() => return,
                Err(error) => {
                    warn!(server = self.process.server, %error, ?call, "a server did not obey");
                    self.client = None;
                    std::thread::sleep(PAUSE);
                    vec![ServerAnswer::Trouble]
                }
            };
            let heard = |news| handle.give_blocking(MasterInput::Server(self.process, news));
            if !news.into_iter().all(heard) {
                return;
            }
        }
    }

    fn attend(&mut self, call: ServerCall) -> Result<Vec<ServerAnswer>, Error> {
        debug!(server = self.process.server, ?call, "asks a server");
        let mut news = Vec::new();
        match call {
            ServerCall::Look => {}
            ServerCall::Place { map, reset } => {
                let gives_all = reset.partitions.is_empty();
                let outcomes = self.client()?.reset_each(map.into(), &[reset])?;
                let fallbacks = outcomes.into_iter().filter_map(|outcome| outcome.fallback);
                news.extend(fallbacks.map(ServerAnswer::Fallback));
                // One that only gives has nothing that the map counts on.
                if gives_all {
                    return Ok(news);
                }
            }
            ServerCall::Release { map } => return self.of(map)?.release().map(|_| news),
            ServerCall::Prune { map, below } => return self.of(map)?.prune(below).map(|_| news),
            ServerCall::Save { map, id, path } => {
                self.of(map)?.save(&[path])?;
                return Ok(vec![ServerAnswer::Saved(id)]);
            }
        }
        news.push(self.look()?);
        Ok(news)
    }

    /// A connection for orders about a map.
    fn of(&mut self, map: MapVersion) -> Result<&mut Client, Error> {
        let client = self.client()?;
        client.set_lineage(map.into());
        Ok(client)
    }

    /// What the server has. One that was just started has the lineage 0, and one that is getting its partitions has
    /// nothing that counts.
    fn look(&mut self) -> Result<ServerAnswer, Error> {
        let (slices, incarnation) = (self.slices, self.process.incarnation);
        let client = self.client()?;
        let info = client.info()?;
        if let Some(other) = info.iter().find(|info| info.incarnation != incarnation) {
            let reason = format!("another process answers: {:016x}", other.incarnation);
            return Err(Error::Answer { server: 0, reason });
        }
        let placed = info.first().filter(|info| info.is_placed && !info.partitions.is_empty());
        let lineage = placed.map_or(Lineage::default(), |info| info.lineage);
        if lineage == Lineage::default() {
            return Ok(ServerAnswer::State(ServerState { incarnation, placed: None }));
        }
        client.set_lineage(lineage);
        let held = client.applied()?.into_iter().map(|held| held.applied);
        let applied = held.reduce(|both, applied| both.intersect(&applied));
        let applied = applied.unwrap_or_else(|| Applied::new(slices));
        let placed = Placed { map: lineage.map(), applied };
        Ok(ServerAnswer::State(ServerState { incarnation, placed: Some(placed) }))
    }

    /// A connection to this process: one that took its place refuses its orders.
    fn client(&mut self) -> Result<&mut Client, Error> {
        match &mut self.client {
            Some(client) => Ok(client),
            none => {
                let options = ClientOptions {
                    patience: PATIENCE,
                    term: self.term,
                    processes: vec![self.process.incarnation],
                    cancel: self.cancel.clone(),
                    ..ClientOptions::default()
                };
                let endpoints = vec![self.endpoint.clone()];
                Ok(none.insert(Client::connect(endpoints, self.keys.clone(), options)?))
            }
        }
    }
}
