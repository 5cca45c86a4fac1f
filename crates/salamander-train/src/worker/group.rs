//! The exchange over a ring of workers: generations come from the master, gradients go round the ring.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use salamander_core::elastic::{
    Activation, CheckpointMark, Ending, FromMember, Generation, Identity, Part, Peer, Source, Work,
};
use salamander_net::{Cancel, Endpoint, Listener, Ring};
use salamander_proto::client::{Sender, Session, SessionOptions};
use serde_json::{Value, json};

use super::Options;
use super::desk::{Desk, Voice};
use super::reports::Queue;
use crate::Error;
use crate::exchange::{About, Begin, Entered, Exchange, Place};
use crate::tables::{RemoteRows, RowStore, Servers};

/// The largest state that a joiner takes.
const LARGEST_STATE: u64 = 64 << 30;
/// How long the last messages may take.
const FAREWELL: Duration = Duration::from_secs(5);
/// The place of the last report, after all others of its version.
const END: u32 = 9;

/// An exchange with other workers.
pub struct Group {
    options: Options,
    desk: Arc<Desk>,
    queue: Arc<Mutex<Queue>>,
    listener: Listener,
    about: About,
    session: Option<Session>,
    ring: Option<Ring>,
    activation: Option<Activation>,
    servers: Servers,
    place: Place,
    /// Checkpoints that are being written.
    marks: HashMap<String, CheckpointMark>,
}

impl Group {
    pub(super) fn new(
        options: Options,
        desk: Arc<Desk>,
        queue: Arc<Mutex<Queue>>,
    ) -> Result<Self, Error> {
        let address = SocketAddr::new(options.listen, 0);
        let listener = Listener::bind(address, options.keys.clone())
            .map_err(|error| Error::Invalid(format!("cannot listen on {address}: {error}")))?;
        Ok(Self {
            options,
            desk,
            queue,
            listener,
            about: About::default(),
            session: None,
            ring: None,
            activation: None,
            servers: Servers::default(),
            place: Place::ALONE,
            marks: HashMap::new(),
        })
    }

    fn sender(&mut self) -> Result<Sender, Error> {
        if let Some(session) = &self.session {
            return Ok(session.sender());
        }
        let mut options = SessionOptions::of(&self.options.master, &self.options.keys);
        options.beat_every = self.options.beat_every;
        let (desk, about) = (Arc::clone(&self.desk), self.about);
        let endpoint = self.listener.endpoint().to_string();
        let slot = self.options.slot;
        let voice = |sender| Voice { desk, sender, endpoint, slot, about };
        let session = Session::open_with(&options, voice)
            .map_err(|error| Error::Invalid(error.to_string()))?;
        Ok(self.session.insert(session).sender())
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn generation(&self) -> Result<Generation, Error> {
        let activation = self.activation.as_ref();
        let none = || Error::Broken("this worker is in no generation".to_string());
        activation.map(|activation| activation.generation).ok_or_else(none)
    }

    fn connect(
        &self,
        activation: &Activation,
        rank: usize,
        cancel: &Cancel,
    ) -> Result<Ring, salamander_net::Error> {
        let mut members = Vec::new();
        for peer in &activation.members {
            let endpoint = Endpoint::from_str(&peer.endpoint)
                .map_err(|error| salamander_net::Error::Refused(error.to_string()))?;
            members.push(endpoint);
        }
        let options = salamander_net::Options {
            transport: self.options.transport,
            bf16: self.options.bf16,
            ..Default::default()
        };
        let generation = activation.generation.to_u64();
        Ring::connect(&self.listener, generation, rank, &members, &options, cancel)
    }

    /// An exchange failed: the master is told, unless it knows, and the generation is over for this member.
    fn broken(&mut self, error: &salamander_net::Error) -> Error {
        self.ring = None;
        if let (Some(activation), Some(session)) = (&self.activation, &self.session)
            && !matches!(error, salamander_net::Error::Cancelled)
        {
            let accused = match error {
                salamander_net::Error::Lost { rank, .. } => activation.members.get(*rank),
                _ => None,
            };
            let accused = accused.map(|peer| peer.id);
            session.send(FromMember::Broken(activation.generation, accused));
        }
        Error::Broken(error.to_string())
    }

    fn ring(&mut self) -> Result<&mut Ring, Error> {
        let none = || Error::Broken("this worker is in no generation".to_string());
        self.ring.as_mut().ok_or_else(none)
    }

    /// A worker that has to go says so before it would take part again.
    fn heed_leave(&mut self) -> Result<(), Error> {
        if !self.options.leave.load(Ordering::Relaxed) {
            return Ok(());
        }
        if let Some(session) = self.session.take() {
            session.send(FromMember::Leave);
            session.close(FAREWELL);
        }
        self.ring = None;
        Err(Error::Leaving)
    }
}

impl Exchange for Group {
    fn introduce(&mut self, about: About) {
        self.about = about;
    }

    fn rows(&mut self, _seed: u64) -> Result<Box<dyn RowStore>, Error> {
        if !self.options.with_servers {
            let reason =
                "a model with tables needs parameter servers to train with several workers";
            return Err(Error::Invalid(format!("{reason}: add --strategy hybrid")));
        }
        let (keys, bf16) = (self.options.keys.clone(), self.options.bf16);
        Ok(Box::new(RemoteRows::new(self.servers.clone(), keys, bf16)))
    }

    fn enter(&mut self) -> Result<Entered, Error> {
        self.ring = None;
        let sender = self.sender()?;
        loop {
            let begun = self.desk.begin(&self.options.leave);
            let begun = match begun {
                Err(Error::Leaving) => {
                    self.heed_leave()?;
                    return Err(Error::Leaving);
                }
                begun => begun?,
            };
            let activation = begun.activation;
            let me = self.listener.endpoint().to_string();
            let rank = activation.members.iter().position(|peer| peer.endpoint == me);
            let place = Place { rank: rank.unwrap_or(0), size: activation.members.len() };
            self.activation = Some(activation.clone());
            match self.connect(&activation, place.rank, &begun.cancel) {
                Ok(ring) => {
                    let (generation, transport) = (activation.generation, ring.transport());
                    let (rank, size) = (place.rank, place.size);
                    tracing::info!(%generation, rank, size, transport, part = ?begun.part, "begins");
                    self.ring = Some(ring);
                    self.place = place;
                }
                Err(error) => {
                    let error = self.broken(&error);
                    tracing::info!(%error, generation = %activation.generation, "did not connect");
                    continue;
                }
            }
            if place.leads() {
                self.queue().repeat(&sender);
            }
            if begun.part != Part::Keep {
                self.queue().forget();
            }
            let begin = match begun.part {
                Part::Keep => Begin::Keep,
                Part::Receive { .. } => Begin::Receive,
                Part::Load(Some(mark)) => Begin::Load(Some(mark.id)),
                Part::Load(None) => Begin::Load(self.options.start.clone()),
            };
            let transfer = activation.transfer.then(|| activation.source.rank());
            let endpoints = |servers: &[Peer]| {
                servers.iter().map(|server| server.endpoint.clone()).collect::<Vec<_>>()
            };
            let destination = endpoints(&activation.destination);
            let moves = !destination.is_empty();
            self.servers.set(endpoints(&activation.servers), destination, begun.cancel);
            let (generation, rows) = (activation.generation.to_u64(), activation.rows.to_u64());
            return Ok(Entered { place, begin, transfer, generation, rows, moves });
        }
    }

    fn transfer(&mut self, source: usize, state: Vec<u8>) -> Result<Vec<u8>, Error> {
        let sent = self.ring()?.broadcast(source, state, LARGEST_STATE);
        sent.map_err(|error| self.broken(&error))
    }

    fn adopt(&mut self, digest: u64) -> Result<(), Error> {
        let generation = self.generation()?;
        let source = self.activation.as_ref().map(|activation| activation.source.clone());
        let identity = match source {
            Some(Source::Member { identity, .. }) => identity,
            Some(Source::Checkpoint { mark, .. }) => {
                Identity::begin(mark.map_or(0, |mark| mark.version), generation, digest)
            }
            None => return Err(Error::Broken("this worker is in no generation".to_string())),
        };
        self.desk.adopt(generation, identity)?;
        self.queue().version = identity.version;
        self.sender()?.send(FromMember::Confirmed(generation));
        Ok(())
    }

    fn gather(&mut self, side: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        self.heed_leave()?;
        let identity = self.desk.ready(self.generation()?)?;
        let mut bytes = Vec::with_capacity(16 + side.len());
        bytes.extend(identity.version.to_le_bytes());
        bytes.extend(identity.lineage.to_le_bytes());
        bytes.extend(side);
        let gathered = self.ring()?.all_gather(&bytes);
        let mut all = gathered.map_err(|error| self.broken(&error))?;
        for (rank, theirs) in all.iter_mut().enumerate() {
            // Never sum over states that differ: this would be a fault of the membership itself.
            if theirs.get(..16) != bytes.get(..16) {
                return Err(Error::Invalid(format!("worker {rank} holds another state")));
            }
            theirs.drain(..16);
        }
        Ok(all)
    }

    fn sum(&mut self, len: usize, fill: &mut dyn FnMut(&mut [f32])) -> Result<&[f32], Error> {
        let ring = self.ring()?;
        let reduced = ring.bucket(len).map(fill).and_then(|()| ring.all_reduce(len).map(drop));
        reduced.map_err(|error| self.broken(&error))?;
        let bucket = self.ring()?.bucket(len);
        bucket.map(|sums| &*sums).map_err(|error| Error::Broken(error.to_string()))
    }

    fn commit(&mut self, digest: u64) -> Result<(), Error> {
        self.heed_leave()?;
        let identity = self.desk.commit(self.generation()?, digest)?;
        let common = self.desk.common().unwrap_or(0);
        let sender = self.sender()?;
        let leads = self.place.leads();
        let mut queue = self.queue();
        queue.release(common, leads.then_some(&sender));
        queue.version = identity.version;
        Ok(())
    }

    fn applied(&mut self) {
        if let Some(session) = &self.session {
            self.desk.applied(&session.sender());
        }
    }

    fn moved(&mut self) {
        if let (Some(activation), Some(session)) = (&self.activation, &self.session) {
            session.send(FromMember::Moved(activation.generation));
        }
    }

    fn give_up(&mut self, reason: &str) {
        tracing::warn!(reason, "the rows of tables cannot be reached");
        self.ring = None;
        if let (Some(activation), Some(session)) = (&self.activation, &self.session) {
            session.send(FromMember::Broken(activation.generation, None));
        }
    }

    fn working(&mut self, work: Work, records: u64) {
        self.desk.working(work, records);
    }

    fn wants_stop(&self) -> bool {
        self.desk.wants_stop()
    }

    fn checkpoint_id(&mut self, steps: u64) -> String {
        let id = crate::checkpoint::id(steps);
        let Ok(generation) = self.generation() else { return id };
        // A worker that was dropped may be writing the same step of another lineage.
        let id = format!("{id}-g{generation}");
        let version = self.desk.common().unwrap_or(0);
        self.marks.insert(id.clone(), CheckpointMark { id: id.clone(), version, generation });
        id
    }

    fn wrote(&mut self, id: &str) {
        if let (Some(mark), Some(session)) = (self.marks.remove(id), &self.session) {
            session.send(FromMember::Wrote(mark));
        }
    }

    fn conclude(&mut self, ending: Ending, report: Value) -> Result<(), Error> {
        let generation = self.generation()?;
        let version = self.desk.version();
        if self.place.leads() {
            let sender = self.sender()?;
            self.queue().release(version, Some(&sender));
            sender.report(version, END, json!({"end": report}).to_string());
            sender.send(FromMember::Reached(generation, ending));
        }
        self.desk.await_end(generation, &self.options.leave)?;
        if let Some(session) = self.session.take() {
            session.close(FAREWELL);
        }
        Ok(())
    }

    fn failed(&mut self, error: &Error) {
        if let Some(session) = self.session.take() {
            session.failed(error.to_string());
            session.close(FAREWELL);
        }
    }
}
