//! The containers of the tests: copies of this program that take the arguments of a pod. The master and the
//! platform are the shipped ones; a worker is a member without a model, which does what files in the run's
//! folder say.

use std::path::{Path, PathBuf};
use std::process::exit;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use salamander_core::elastic::{
    Begun, Effect, Ending, FromMember, Generation, MemberReport, Participant, Term, Timeouts,
    ToMember, Version, WorkerId,
};
use salamander_core::experiment::Experiment;
use salamander_core::metrics::{Metric, Metrics};
use salamander_core::progress::StepCount;
use salamander_core::report::{EpochReport, Report, StepReport};
use salamander_kube::health::Health;
use salamander_kube::job::Job;
use salamander_kube::names::{EXIT_LOCKED, EXIT_MISTAKE};
use salamander_kube::platform;
use salamander_master::{Config, PlatformKind};
use salamander_net::{Keys, Tls, Token};
use salamander_proto::client::{
    Handler, Registration, Role, Sender, Session, SessionOptions, TrainedOn,
};
use tokio::signal::unix::{SignalKind, signal};

use crate::server;
use fake_cluster::ROLE;

/// Not a test: a container of one.
#[test]
fn as_a_container() {
    let Ok(args) = std::env::var(ROLE) else { return };
    let args: Vec<&str> = args.split('\n').collect();
    let filter = tracing_subscriber::EnvFilter::new("info");
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(false)
        .with_writer(std::io::stderr)
        .init();
    let args = Args { words: &args };
    exit(match args.words[0] {
        "master" => master(&args),
        "worker" => worker(&args),
        "ps" => server::run(&args),
        other => panic!("there is no role {other}"),
    })
}

pub(crate) struct Args<'a> {
    words: &'a [&'a str],
}

impl Args<'_> {
    pub(crate) fn get(&self, name: &str) -> Option<String> {
        let at = self.words.iter().position(|word| *word == name)?;
        self.words.get(at + 1).map(|word| word.to_string())
    }

    fn has(&self, name: &str) -> bool {
        self.words.contains(&name)
    }

    pub(crate) fn folder(&self) -> PathBuf {
        let folder = PathBuf::from(self.words[1]);
        std::fs::create_dir_all(&folder).expect("a folder");
        folder
    }

    pub(crate) fn keys(&self) -> Keys {
        let file = self.get("--token-file").expect("a token file");
        let token = std::fs::read_to_string(file).expect("a token");
        let token = Token::from_hex(token.trim()).expect("a token");
        let certificates = self.get("--tls").expect("certificates");
        let tls = Tls::load(certificates.as_ref()).expect("certificates");
        Keys { token, tls: Some(tls) }
    }
}

fn master(args: &Args<'_>) -> i32 {
    let folder = args.folder();
    for (file, words, code) in [
        ("crash-master", "the journal is on fire", 101),
        ("mistake-master", "error: experiment: there is no model mnist_conv17", EXIT_MISTAKE),
        ("locked-master", "another master still holds the journal", EXIT_LOCKED),
    ] {
        if std::fs::remove_file(folder.join(file)).is_ok() {
            eprintln!("{{\"level\":\"INFO\",\"fields\":{{\"message\":\"starts\"}}}}\n{words}");
            return code;
        }
    }
    let job = std::fs::read_to_string(args.get("--job").expect("a job")).expect("a job");
    let job: Job = serde_json::from_str(&job).expect("a job");
    let workers = &job.spec.workers;
    let keys = args.keys();
    let mut config = Config::new(&folder, keys.token.to_hex(), workers.max as usize);
    config.tls = keys.tls.clone();
    config.min_workers = workers.min as usize;
    let experiment = std::fs::read_to_string(args.get("--experiment").expect("a file"));
    let experiment = Experiment::parse(&experiment.expect("an experiment"), &[]).expect("right");
    if experiment.strategy.has_servers() {
        config.servers = experiment.ps.servers as usize;
    }
    config.max_restarts = 1;
    config.timeouts =
        Timeouts { silence: 2_000, promise: 1_000, join: 50, first: 5_000, ..Timeouts::default() };
    config.platform = PlatformKind::Served;
    config.resume = args.has("--resume");
    let listen = args.get("--listen").expect("an address");
    let session = SessionOptions::of(&listen, &keys);
    let mut options =
        platform::PlatformOptions::new(job, std::env::var("POD_NAME").expect("a pod"), session);
    options.poll_every = Duration::from_millis(50);
    options.write_every = Duration::from_millis(100);
    let metrics = options.metrics.clone();
    let endpoints = Health::new(move || metrics.encode());
    options.health = Some(endpoints.clone());
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let health = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = health.local_addr().expect("bound").to_string();
        std::fs::write(folder.join("health"), address).expect("written");
        tokio::spawn(endpoints.serve(health));
        let client = kube::Client::try_default().await.expect("a cluster");
        let listener = tokio::net::TcpListener::bind(&listen).await.expect("the port");
        let terminated = || {
            let mut terminate = signal(SignalKind::terminate()).expect("a signal");
            async move {
                terminate.recv().await;
            }
        };
        let master = tokio::spawn(salamander_master::run(config, listener, terminated()));
        let ending = platform::run(options, client, terminated()).await;
        eprintln!("{ending:?}, {:?}", master.await);
        match ending {
            Ok(ending) => platform::exit_code(&ending),
            Err(platform::Error::Shutdown) => 75,
            Err(error) => {
                eprintln!("error: {error}");
                1
            }
        }
    })
}

struct Seen {
    member: Participant,
    /// Whether it is the first member of its generation.
    first: bool,
}

fn worker(args: &Args<'_>) -> i32 {
    let folder = args.folder();
    let number = |text: String| text.parse::<u32>().expect("a number");
    let slot = number(args.get("--slot").expect("a slot"));
    let pid = number(std::env::var("SALAMANDER_PROCESS").expect("a number"));
    let id = WorkerId((u64::from(slot) << 32) | u64::from(pid));
    let leave = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGTERM, leave.clone()).expect("a signal");
    let seen = Seen { member: Participant::new(id), first: false };
    let seen = Arc::new(Mutex::new(seen));
    let mut options = SessionOptions::of(args.get("--master").expect("a master"), &args.keys());
    options.beat_every = Duration::from_millis(100);
    options.longest_wait = Duration::from_millis(100);
    let handler_seen = seen.clone();
    let make = |sender| MemberSession { sender, seen: handler_seen };
    let registration = Registration {
        id,
        endpoint: format!("host-{slot}"),
        slot,
        process: pid,
        role: Role::Member(TrainedOn { records: 100, fingerprint: 7, ..TrainedOn::default() }),
    };
    let session = Session::open_with(&options, registration, make).expect("a session");
    let mut reached = None;
    loop {
        std::thread::sleep(Duration::from_millis(20));
        if leave.load(Ordering::Relaxed) {
            session.send(FromMember::Leave);
            session.close(Duration::from_secs(2));
            return 75;
        }
        if folder.join("mistake").exists() {
            eprintln!("error: /data/train.recordio: no such file");
            return EXIT_MISTAKE;
        }
        if std::fs::remove_file(folder.join(format!("crash-{slot}"))).is_ok() {
            eprintln!("no such file: shard-1");
            return 3;
        }
        let seen = seen.lock().expect("not poisoned");
        if let Some(ending) = seen.member.ending() {
            eprintln!("ended: {ending:?}");
            return 0;
        }
        let Some(generation) = seen.member.generation() else { continue };
        if seen.first {
            step(&folder, &session, generation);
        }
        let finish = folder.join("finish").exists();
        // The first one's word is enough, and comes after what it tells of the run.
        let stops = seen.first && (finish || seen.member.wants_stop());
        if stops && reached != Some(generation) {
            reached = Some(generation);
            validate(&folder, &session, generation);
            let ending = if finish { Ending::Completed } else { Ending::Interrupted };
            session.send(FromMember::Reached(generation, ending));
        }
    }
}

fn steps_done(folder: &Path) -> u64 {
    let done = std::fs::read_to_string(folder.join("steps")).unwrap_or_default();
    done.trim().parse().unwrap_or(0)
}

/// One step of a training that learns nothing; how many there were is kept in the run's folder, as by a checkpoint.
fn step(folder: &Path, session: &Session, generation: Generation) {
    let file = folder.join("steps");
    let steps = steps_done(folder) + 1;
    let beside = folder.join("steps.new");
    std::fs::write(&beside, steps.to_string()).expect("written");
    std::fs::rename(beside, file).expect("renamed");
    let loss = 1.0 / steps as f64;
    let step =
        StepReport { steps: StepCount(steps), epoch: steps / 100, loss, ..StepReport::default() };
    let (version, report) = (Version(steps), Report::Step(step));
    session.sender().report(MemberReport { version, generation, report });
}

/// What the run tells of its last epoch.
fn validate(folder: &Path, session: &Session, generation: Generation) {
    let steps = steps_done(folder);
    let validation = Some(Metrics::new().with("accuracy", Metric::mean(0.75, 1.0)));
    let epoch = EpochReport {
        complete: true,
        steps: StepCount(steps),
        validation,
        ..EpochReport::default()
    };
    let (version, report) = (Version(epoch.steps.0), Report::Epoch(epoch));
    session.sender().report(MemberReport { version, generation, report });
}

struct MemberSession {
    sender: Sender,
    seen: Arc<Mutex<Seen>>,
}

impl Handler for MemberSession {
    fn active(&mut self) -> Option<Generation> {
        self.seen.lock().expect("not poisoned").member.generation()
    }

    fn welcome(&mut self, term: Term) -> Result<(), String> {
        let mut seen = self.seen.lock().expect("not poisoned");
        seen.member.welcome(term).map_err(|fenced| fenced.to_string())
    }

    fn message(&mut self, message: ToMember) {
        let mut seen = self.seen.lock().expect("not poisoned");
        seen.member.message(message);
        if let Some(Begun { activation, rank, .. }) = seen.member.begin() {
            seen.member.adopt(activation.generation, 0).expect("it has begun");
            if rank == 0 && !activation.destination.is_empty() {
                // Its servers have no rows that could move.
                self.sender.send(FromMember::Moved(activation.generation));
            }
            seen.first = rank == 0;
        }
        for effect in seen.member.take_effects() {
            if let Effect::Send(message) = effect {
                self.sender.send(message);
            }
        }
    }

    fn refused(&mut self, reason: &str) {
        eprintln!("refused: {reason}");
    }
}
