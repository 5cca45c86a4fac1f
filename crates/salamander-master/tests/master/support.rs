//! A master on its own runtime, which can be killed, and workers that are only members.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use salamander_core::elastic::{
    Activation, Beat, Begun, Effect, Ending, Generation, MemberReport, Participant, Term, Timeouts,
    ToMember, Version, WorkerId,
};
use salamander_core::progress::StepCount;
use salamander_core::report::{Report, StepReport, TaskResult};
use salamander_master::journal::Journal;
use salamander_master::record::Record;
use salamander_master::{Config, Error, Sink};
use salamander_net::Tls;
use salamander_proto::client::{
    Admin, Handler, Registration, Role, Sender, Session, SessionOptions, TrainedOn,
};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

pub(crate) const TOKEN: &str = "c0ffee00c0ffee00";
const PATIENCE: Duration = Duration::from_secs(20);

/// Short, so that tests take no longer than they must.
pub(crate) const TIMEOUTS: Timeouts =
    Timeouts { silence: 600, promise: 400, apply: 30_000, join: 50, first: 5_000 };

/// How often a worker sends a heartbeat.
pub(crate) const BEAT_EVERY: Duration = Duration::from_millis(50);

/// Waits for a condition, not for a time.
pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "waited too long: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The report of a step.
fn step(steps: u64) -> Report {
    Report::Step(StepReport { steps: StepCount(steps), ..StepReport::default() })
}

/// What the master told its sink.
#[derive(Clone, Default)]
pub(crate) struct RecordingSink(Arc<Mutex<(Vec<u64>, Vec<String>)>>);

impl RecordingSink {
    pub(crate) fn reports(&self) -> Vec<u64> {
        self.0.lock().expect("not poisoned").0.clone()
    }

    pub(crate) fn has_note(&self, part: &str) -> bool {
        self.0.lock().expect("not poisoned").1.iter().any(|note| note.contains(part))
    }
}

impl Sink for RecordingSink {
    fn report(&mut self, version: Version, _report: &Report) {
        self.0.lock().expect("not poisoned").0.push(version.0);
    }

    fn result(&mut self, task: u64, _result: &TaskResult) {
        self.0.lock().expect("not poisoned").0.push(task);
    }

    fn note(&mut self, text: &str) {
        self.0.lock().expect("not poisoned").1.push(text.to_string());
    }
}

/// A run's folder and its masters, one after the other, all on one address.
pub(crate) struct Run {
    pub(crate) folder: TempDir,
    pub(crate) address: SocketAddr,
    pub(crate) told: RecordingSink,
    tls: Option<Tls>,
    workers: usize,
    master: Option<(Runtime, JoinHandle<Result<Ending, Error>>)>,
}

impl Run {
    pub(crate) fn new(workers: usize) -> Self {
        Self::with(workers, |_| {})
    }

    pub(crate) fn with(workers: usize, change: impl FnOnce(&mut Config)) -> Self {
        Self::open(workers, None, change)
    }

    /// With certificates.
    pub(crate) fn encrypted(workers: usize, tls: &Tls) -> Self {
        Self::open(workers, Some(tls.clone()), |_| {})
    }

    fn open(workers: usize, tls: Option<Tls>, change: impl FnOnce(&mut Config)) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let mut run =
            Self { folder, address, told: RecordingSink::default(), tls, workers, master: None };
        run.launch(listener, change);
        run
    }

    /// How clients of the run connect.
    pub(crate) fn session(&self) -> SessionOptions {
        SessionOptions { tls: self.tls.clone(), ..SessionOptions::new(self.master(), TOKEN) }
    }

    pub(crate) fn master(&self) -> String {
        self.address.to_string()
    }

    /// As a kill would: every task and connection is gone at once.
    pub(crate) fn kill(&mut self) {
        if let Some((runtime, _)) = self.master.take() {
            runtime.shutdown_background();
        }
        let path = self.folder.path().join("journal");
        wait_until("the journal is free", || is_free(&path));
    }

    pub(crate) fn start(&mut self, change: impl FnOnce(&mut Config)) {
        let mut listener = None;
        wait_until("the port is free", || {
            listener = TcpListener::bind(self.address).ok();
            listener.is_some()
        });
        self.launch(listener.expect("bound"), change);
    }

    pub(crate) fn admin(&self) -> Admin {
        let mut admin = None;
        wait_until("the master answers", || {
            admin = Admin::connect(&self.session(), Duration::from_secs(5)).ok();
            admin.is_some()
        });
        admin.expect("connected")
    }

    pub(crate) fn status(&self) -> serde_json::Value {
        let status = self.admin().status().expect("a status");
        serde_json::to_value(status).expect("JSON")
    }

    /// Waits for the master to end by itself.
    pub(crate) fn finish(&mut self) -> Result<Ending, Error> {
        let (runtime, master) = self.master.take().expect("running");
        let ended = async { tokio::time::timeout(PATIENCE, master).await };
        let result = runtime.block_on(ended).expect("in time").expect("no panic");
        runtime.shutdown_background();
        result
    }

    fn launch(&mut self, listener: TcpListener, change: impl FnOnce(&mut Config)) {
        let mut config = Config::new(self.folder.path(), TOKEN, self.workers);
        config.timeouts = TIMEOUTS;
        config.tls = self.tls.clone();
        config.sink = Box::new(self.told.clone());
        change(&mut config);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        listener.set_nonblocking(true).expect("a socket");
        let master = runtime.spawn(async move {
            let listener = tokio::net::TcpListener::from_std(listener).expect("a socket");
            salamander_master::run(config, listener, std::future::pending()).await
        });
        self.master = Some((runtime, master));
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if let Some((runtime, _)) = self.master.take() {
            runtime.shutdown_background();
        }
    }
}

fn is_free(path: &Path) -> bool {
    Journal::<Record>::open(path).is_ok()
}

/// What a worker has seen.
pub(crate) struct Seen {
    pub(crate) member: Participant,
    pub(crate) activations: Vec<Activation>,
    pub(crate) ended: Option<Ending>,
    pub(crate) stop: bool,
    pub(crate) kept: Vec<String>,
    pub(crate) connected: bool,
    pub(crate) refused: Option<String>,
    /// Masters that were replaced, and that it met nevertheless.
    pub(crate) old_masters: u64,
    frozen: bool,
    /// How many heartbeats it has sent.
    pub(crate) beats: u64,
}

/// A worker without a model.
pub(crate) struct Worker {
    pub(crate) id: WorkerId,
    pub(crate) session: Option<Session>,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Clone, Copy)]
pub(crate) struct Birth {
    pub(crate) id: u64,
    pub(crate) slot: u32,
    pub(crate) pid: u32,
    pub(crate) records: u64,
    /// What it computes with: instruction set, program.
    pub(crate) arithmetic: (u64, u64),
    /// What it trains with: settings, files.
    pub(crate) training: (u64, u64),
    pub(crate) tasks_only: bool,
}

impl Birth {
    pub(crate) fn new(id: u64) -> Self {
        let (slot, pid) = (id as u32, 1_000 + id as u32);
        let (arithmetic, training) = ((5, 6), (3, 4));
        Self { id, slot, pid, records: 100, arithmetic, training, tasks_only: false }
    }
}

impl Worker {
    pub(crate) fn join(run: &Run, id: u64) -> Self {
        Self::born(run, Birth::new(id))
    }

    pub(crate) fn born(run: &Run, birth: Birth) -> Self {
        let id = WorkerId(birth.id);
        let seen = Arc::new(Mutex::new(Seen {
            member: Participant::new(id),
            activations: Vec::new(),
            ended: None,
            stop: false,
            kept: Vec::new(),
            connected: false,
            refused: None,
            old_masters: 0,
            frozen: false,
            beats: 0,
        }));
        let mut options = run.session();
        options.beat_every = BEAT_EVERY;
        // Within the silence that a master bears, also when it was away for long.
        options.longest_wait = Duration::from_millis(100);
        let handler_seen = seen.clone();
        let make = |sender| Fake { sender, seen: handler_seen };
        let ((instructions, program), (settings, files)) = (birth.arithmetic, birth.training);
        let data = TrainedOn {
            records: birth.records,
            fingerprint: 7,
            instructions,
            program,
            settings,
            files,
            ..TrainedOn::default()
        };
        let registration = Registration {
            id,
            endpoint: format!("host-{}", birth.id),
            slot: birth.slot,
            process: birth.pid,
            role: if birth.tasks_only { Role::Tasks(data) } else { Role::Member(data) },
        };
        let session = Session::open_with(&options, registration, make).expect("a session");
        Self { id, session: Some(session), seen }
    }

    pub(crate) fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().expect("not poisoned")
    }

    pub(crate) fn sender(&self) -> Sender {
        self.session.as_ref().expect("alive").sender()
    }

    /// Tells of a step, as a member of the generation that it is in.
    pub(crate) fn report(&self, version: u64) {
        let generation = self.seen().member.generation().expect("it is a member");
        let (report, version) = (step(version), Version(version));
        self.sender().report(MemberReport { version, generation, report });
    }

    /// As SIGSTOP would: nothing of the session goes on.
    pub(crate) fn freeze(&self, frozen: bool) {
        self.seen().frozen = frozen;
    }

    /// The size of the generation that it takes part in now.
    pub(crate) fn members(&self) -> usize {
        let seen = self.seen();
        let newest =
            seen.activations.last().filter(|a| seen.member.generation() == Some(a.generation));
        newest.map_or(0, |activation| activation.members.len())
    }
}

/// Waits until all of them are in one generation, which has nobody else.
pub(crate) fn together(workers: &[&Worker]) {
    wait_until("one generation of all", || {
        let active: Vec<_> =
            workers.iter().map(|worker| worker.seen().member.generation()).collect();
        active.iter().all(|generation| generation.is_some() && *generation == active[0])
            && workers.iter().all(|worker| worker.members() == workers.len())
    });
}

struct Fake {
    sender: Sender,
    seen: Arc<Mutex<Seen>>,
}

impl Handler for Fake {
    fn active(&mut self) -> Option<Generation> {
        self.seen.lock().expect("not poisoned").member.generation()
    }

    fn welcome(&mut self, term: Term) -> Result<(), String> {
        let mut seen = self.seen.lock().expect("not poisoned");
        let welcomed = seen.member.welcome(term);
        seen.old_masters += u64::from(welcomed.is_err());
        welcomed.map_err(|fenced| fenced.to_string())
    }

    fn message(&mut self, message: ToMember) {
        let mut seen = self.seen.lock().expect("not poisoned");
        if let ToMember::Kept(mark) = &message {
            seen.kept.push(mark.id.clone());
        }
        seen.member.message(message);
        if let Some(Begun { activation, .. }) = seen.member.begin() {
            seen.member.adopt(activation.generation, 0).expect("it has begun");
            seen.activations.push(activation);
        }
        (seen.stop, seen.ended) = (seen.member.wants_stop(), seen.member.ending().cloned());
        for effect in seen.member.take_effects() {
            if let Effect::Send(message) = effect {
                self.sender.send(message);
            }
        }
    }

    fn beat(&mut self) -> Beat {
        while self.seen.lock().expect("not poisoned").frozen {
            std::thread::sleep(Duration::from_millis(5));
        }
        self.seen.lock().expect("not poisoned").beats += 1;
        Beat::default()
    }

    fn connection(&mut self, up: bool) {
        self.seen.lock().expect("not poisoned").connected = up;
    }

    fn refused(&mut self, reason: &str) {
        self.seen.lock().expect("not poisoned").refused = Some(reason.to_string());
    }
}
