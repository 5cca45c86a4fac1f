//! The exchange over a ring of workers: generations come from the master, gradients go round the ring.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use salamander_core::elastic::{
    Activation, Begun, CheckpointMark, Ending, FromMember, Generation, MemberReport, Participant,
    Peer, ReportQueue, StartFrom, Work, WorkerId,
};
use salamander_core::environment;
use salamander_core::progress::StepCount;
use salamander_core::report::{EndReport, Report};
use salamander_net::{Cancel, Endpoint, Fold, Listener, Ring};
use salamander_proto::client::{Role, Sender, Session};

use super::reports::Reports;
use super::shared::{SessionHandler, SharedMember};
use super::{WorkerConnection, WorkerOptions};
use crate::Error;
use crate::exchange::{Applying, Begin, Entered, Exchange, Place, TrainedOn};
use crate::tables::{RemoteRows, Servers, StagedRows};

/// The largest state that a joiner takes.
const LARGEST_STATE: u64 = 64 << 30;
/// How long the last messages may take.
const FAREWELL: Duration = Duration::from_secs(5);

/// An exchange with other workers.
pub(crate) struct Group {
    id: WorkerId,
    options: WorkerOptions,
    member: Arc<SharedMember>,
    reports: Reports,
    listener: Listener,
    /// For a bench.
    sums_by_rank: bool,
    data: TrainedOn,
    session: Option<Session>,
    joined: Option<Joined>,
    servers: Servers,
    /// Checkpoints that are being written.
    marks: HashMap<String, CheckpointMark>,
}

/// The generation that this worker exchanges in.
struct Joined {
    generation: Generation,
    place: Place,
    ring: Ring,
    /// What came with the state that this worker receives.
    received: Option<ReportQueue<Report>>,
}

impl Group {
    pub(super) fn new(
        id: WorkerId,
        options: WorkerOptions,
        member: Arc<SharedMember>,
        reports: Reports,
    ) -> Result<Self, Error> {
        let address = SocketAddr::new(options.listen, 0);
        let listener = Listener::bind(address, options.connection.keys.clone())
            .map_err(|error| Error::Invalid(format!("cannot listen on {address}: {error}")))?;
        Ok(Self {
            id,
            options,
            member,
            reports,
            listener,
            sums_by_rank: std::env::var_os(environment::SUMS_BY_RANK).is_some(),
            data: TrainedOn::default(),
            session: None,
            joined: None,
            servers: Servers::default(),
            marks: HashMap::new(),
        })
    }

    fn sender(&mut self) -> Result<Sender, Error> {
        if let Some(session) = &self.session {
            return Ok(session.sender());
        }
        let (connection, endpoint) = (&self.options.connection, self.listener.endpoint());
        let role = Role::Member(self.data);
        let registration = connection.registration(self.id, endpoint.to_string(), role);
        let member = Arc::clone(&self.member);
        let handler = |sender| SessionHandler::new(member, sender);
        let session = Session::open_with(&connection.session(), registration, handler)
            .map_err(|error| Error::Invalid(error.to_string()))?;
        Ok(self.session.insert(session).sender())
    }

    fn joined(&mut self) -> Result<&mut Joined, Error> {
        let none = || Error::Broken("this worker is in no generation".to_string());
        self.joined.as_mut().ok_or_else(none)
    }

    fn connect(
        &self,
        activation: &Activation,
        rank: usize,
        cancel: &Cancel,
    ) -> Result<Ring, salamander_net::Error> {
        let members = activation.members.iter().map(|peer| Endpoint::from_str(&peer.endpoint));
        let members = members.collect::<Result<Vec<_>, _>>();
        let members = members.map_err(|error| salamander_net::Error::Refused(error.to_string()))?;
        let options = salamander_net::RingOptions {
            transport: self.options.transport,
            bf16: self.options.connection.bf16,
            ..Default::default()
        };
        let generation = activation.generation.to_u64();
        Ring::connect(&self.listener, generation, rank, &members, &options, cancel)
    }

    /// The state is being changed; the master hears nothing of it until that is done.
    fn applying(&self) -> Applying {
        let member = Arc::clone(&self.member);
        Applying::new(move || member.with(Participant::applied))
    }

    /// An exchange failed: the master is told, unless it knows, and the generation is over for this member.
    fn broken(&mut self, error: &salamander_net::Error) -> Error {
        self.joined = None;
        let accused = match error {
            salamander_net::Error::Lost { rank, .. } => Some(*rank),
            _ => None,
        };
        if !matches!(error, salamander_net::Error::Cancelled) {
            self.member.with(|machine| machine.broken(accused));
        }
        Error::Broken(error.to_string())
    }

    fn entered(
        &self,
        activation: Activation,
        place: Place,
        part: StartFrom,
        cancel: Cancel,
    ) -> Entered {
        let begin = match part {
            StartFrom::Keep => Begin::Keep,
            StartFrom::Receive { .. } => Begin::Receive,
            StartFrom::Load(Some(mark)) => Begin::Load(Some(mark.id)),
            StartFrom::Load(None) => Begin::Load(self.options.start.clone()),
        };
        let transfer = activation.transfer.then(|| activation.source.rank());
        let endpoints = |servers: &[Peer]| {
            servers.iter().map(|server| server.endpoint.clone()).collect::<Vec<_>>()
        };
        let destination = endpoints(&activation.destination);
        let moves = (!destination.is_empty()).then(|| activation.generation.into());
        self.servers.set(endpoints(&activation.servers), destination, cancel);
        Entered { place, begin, transfer, rows: activation.rows.into(), moves }
    }

    /// A worker that has to go says so before it would take part again.
    fn heed_leave(&mut self) -> Result<(), Error> {
        if !self.options.connection.has_to_leave() {
            return Ok(());
        }
        self.part(|session| session.send(FromMember::Leave));
        self.joined = None;
        Err(Error::Leaving)
    }

    /// Ends the session with a last word.
    fn part(&mut self, say: impl FnOnce(&Session)) {
        if let Some(session) = self.session.take() {
            say(&session);
            session.close(FAREWELL);
        }
    }
}

impl Exchange for Group {
    fn introduce(&mut self, data: &mut dyn FnMut() -> TrainedOn) {
        self.data = data();
    }

    fn name(&self, rank: usize) -> String {
        let id = self.member.with(|machine| {
            machine.activation().and_then(|members| Some(members.members.get(rank)?.id))
        });
        id.map_or_else(|| format!("the worker of rank {rank}"), |id| format!("worker {id}"))
    }

    fn rows(&mut self, _seed: u64) -> Result<Box<dyn StagedRows>, Error> {
        if !self.options.with_servers {
            let reason =
                "a model with tables needs parameter servers to train with several workers";
            return Err(Error::Invalid(format!("{reason}: add --strategy hybrid")));
        }
        let WorkerConnection { keys, bf16, .. } = &self.options.connection;
        Ok(Box::new(RemoteRows::new(self.servers.clone(), keys.clone(), *bf16)))
    }

    fn enter(&mut self) -> Result<Entered, Error> {
        self.joined = None;
        self.options.connection.meter.waits();
        self.sender()?;
        loop {
            let begun = self.member.begin(&self.options.connection.leave);
            let (begun, cancel) = begun.or_else(|error| self.heed_leave().and(Err(error)))?;
            let Begun { activation, rank, part } = begun;
            let (generation, size) = (activation.generation, activation.members.len());
            let place = Place { rank, size };
            match self.connect(&activation, rank, &cancel) {
                Ok(ring) => {
                    let transport = ring.transport();
                    tracing::info!(%generation, rank, size, transport, ?part, "begins");
                    self.joined = Some(Joined { generation, place, ring, received: None });
                }
                Err(error) => {
                    let error = self.broken(&error);
                    tracing::info!(%error, %generation, "did not connect");
                    continue;
                }
            }
            if matches!(part, StartFrom::Load(_)) {
                self.reports.queue().forget();
            }
            return Ok(self.entered(activation, place, part, cancel));
        }
    }

    fn transfer(&mut self, source: usize, mut state: Vec<u8>) -> Result<Vec<u8>, Error> {
        let is_source = self.joined()?.place.rank == source;
        if is_source {
            self.reports.append(&mut state)?;
        }
        let sent = self.joined()?.ring.broadcast(source, state, LARGEST_STATE);
        let mut state = sent.map_err(|error| self.broken(&error))?;
        let reports = Reports::split(&mut state)?;
        self.joined()?.received = Some(reports).filter(|_| !is_source);
        Ok(state)
    }

    fn replace(&mut self) -> Result<Applying, Error> {
        let generation = self.joined()?.generation;
        self.member.within(|machine| machine.replace(generation))?;
        Ok(self.applying())
    }

    fn adopt(&mut self, digest: u64) -> Result<(), Error> {
        let Joined { generation, place, received, .. } = self.joined()?;
        let (generation, place, received) = (*generation, *place, received.take());
        let identity = self.member.within(|machine| machine.adopt(generation, digest))?;
        let sender = self.sender()?;
        let mut queue = self.reports.queue();
        if let Some(received) = received {
            *queue = received;
        }
        queue.follow(identity, generation);
        if place.leads() {
            queue.repeated().for_each(|told| sender.report(told.clone()));
        }
        Ok(())
    }

    fn gather(&mut self, side: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        self.heed_leave()?;
        let generation = self.joined()?.generation;
        let identity = self.member.within(|machine| machine.ready(generation))?;
        let mut bytes = Vec::with_capacity(16 + side.len());
        bytes.extend(identity.version.0.to_le_bytes());
        bytes.extend(identity.lineage.0.to_le_bytes());
        bytes.extend(side);
        let gathered = self.joined()?.ring.all_gather(&bytes);
        let mut all = gathered.map_err(|error| self.broken(&error))?;
        for (rank, theirs) in all.iter_mut().enumerate() {
            // Never sum over states that differ: this would be a fault of the membership itself.
            if theirs.get(..16) != bytes.get(..16) {
                let holder = self.name(rank);
                return Err(Error::Differs(format!("{holder} holds another state")));
            }
            theirs.drain(..16);
        }
        Ok(all)
    }

    fn sum(
        &mut self,
        len: usize,
        fold: &Fold,
        fill: &mut dyn FnMut(usize, &mut [f32]),
    ) -> Result<&[f32], Error> {
        let by_rank = self.sums_by_rank;
        let Joined { ring, place, .. } = self.joined()?;
        let parts = fold.parts(place.rank);
        let filled = ring.bucket(fold.bucket_len(len)).map(|bucket| {
            (0..parts).for_each(|part| fill(part, &mut bucket[Fold::part(len, part)]));
        });
        let reduced = filled.and_then(|()| match by_rank {
            true => ring.fold_by_rank(len, fold).map(drop),
            false => ring.fold(len, fold).map(drop),
        });
        reduced.map_err(|error| self.broken(&error))?;
        let bucket = self.joined()?.ring.bucket(len);
        bucket.map(|sums| &*sums).map_err(|error| Error::Broken(error.to_string()))
    }

    fn commit(&mut self, digest: u64) -> Result<Applying, Error> {
        self.heed_leave()?;
        let Joined { generation, place, .. } = *self.joined()?;
        let (identity, common) = self.member.within(|machine| {
            let identity = machine.commit(generation, digest)?;
            Ok((identity, machine.common()))
        })?;
        let (applying, sender) = (self.applying(), self.sender()?);
        let mut queue = self.reports.queue();
        let released = queue.release(common.unwrap_or_default());
        queue.follow(identity, generation);
        drop(queue);
        if place.leads() {
            released.into_iter().for_each(|told| sender.report(told));
        }
        Ok(applying)
    }

    fn moved(&mut self) {
        if let (Some(joined), Some(session)) = (&self.joined, &self.session) {
            session.send(FromMember::Moved(joined.generation));
        }
    }

    fn give_up(&mut self, reason: &str) {
        tracing::warn!(reason, "the rows of tables cannot be reached");
        // Said before neighbours find out and tell it their way.
        self.member.with(Participant::gave_up);
        self.joined = None;
    }

    fn working(&mut self, work: Work, records: u64) {
        self.member.working(work, records);
        self.options.connection.meter.worked(self.member.beat());
    }

    fn waited(&mut self, time: Duration) {
        self.member.waited(time);
    }

    fn wants_stop(&self) -> bool {
        self.member.with(|machine| machine.wants_stop())
    }

    fn wants_save(&mut self) -> bool {
        self.member.with(|machine| machine.take_save())
    }

    fn hold(&mut self, saved: bool) -> Result<(), Error> {
        let generation = self.joined()?.generation;
        tracing::info!(%generation, saved, "waits for a parameter server to leave");
        if let Some(session) = self.session.as_ref().filter(|_| saved) {
            session.send(FromMember::Holds(generation));
        }
        let over = self.member.await_end(generation, &self.options.connection.leave);
        over.or_else(|error| self.heed_leave().and(Err(error)))?;
        // Not this generation alone, but the run.
        Err(Error::Leaving)
    }

    fn checkpoint_id(&mut self, steps: StepCount) -> String {
        let id = crate::checkpoint::id(steps);
        let Some(Joined { generation, .. }) = self.joined else { return id };
        // A worker that was dropped may be writing the same step of another lineage.
        let id = format!("{id}-g{generation}");
        let common = self.member.with(|machine| machine.common());
        let version = common.unwrap_or_default();
        self.marks.insert(id.clone(), CheckpointMark { id: id.clone(), version, generation });
        id
    }

    fn wrote(&mut self, id: &str) {
        if let (Some(mark), Some(session)) = (self.marks.remove(id), &self.session) {
            session.send(FromMember::Wrote(mark));
        }
    }

    fn conclude(&mut self, ending: Ending, report: EndReport) -> Result<(), Error> {
        let Joined { generation, place, .. } = *self.joined()?;
        let held = self.member.with(|machine| machine.holding().identity);
        let version = held.map(|identity| identity.version).unwrap_or_default();
        if place.leads() {
            let sender = self.sender()?;
            let mut told = self.reports.queue().release(version);
            let report = Report::End(Box::new(report));
            told.push(MemberReport { version, generation, report });
            told.into_iter().for_each(|told| sender.report(told));
            sender.send(FromMember::Reached(generation, ending));
        }
        self.member.await_end(generation, &self.options.connection.leave)?;
        self.part(|_| {});
        Ok(())
    }

    fn failed(&mut self, error: &Error) {
        self.part(|session| match error.is_of_the_run() {
            true => session.failed(error.to_string()),
            // The others go on at once; the platform starts another, and counts how often.
            false => session.send(FromMember::Leave),
        });
    }
}
