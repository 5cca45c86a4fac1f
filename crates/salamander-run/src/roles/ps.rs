//! A parameter server, which holds rows of tables for the workers of a run.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use salamander_core::elastic::{FromMember, SERVER_SLOTS, WorkerId};
use salamander_core::environment;
use salamander_core::experiment::{Experiment, Strategy};
use salamander_net::Cancel;
use salamander_proto::client::{NonMember, Registration, Role, RunEnd, Sender, SessionOptions};
use salamander_ps::{Engine, EngineOptions, Mode, role};
use salamander_train::profile::Profiler;
use salamander_train::worker::process_number;

use super::{Exit, MemberOptions, leave_on_signals};
use crate::Error;
use crate::experiment::load;

/// How often signals are looked at,
const LOOK: Duration = Duration::from_millis(50);
/// and how often the master is told what tables hold.
const TELL: Duration = Duration::from_secs(2);
/// How long a server that is told to leave waits for a checkpoint that has its rows, if nothing else is said.
const GRACE: Duration = Duration::from_secs(20);

/// Serves to the end of the run. `listening` is told the address.
pub fn run(options: &MemberOptions, listening: impl FnOnce(SocketAddr)) -> Result<Exit, Error> {
    let keys = options.keys.read(&options.run, options.listen)?;
    let experiment = load(&options.run.experiment(), &[])?;
    let leave = leave_on_signals()?;
    let config = role::Config::new(engine(&experiment))?;
    let (listener, endpoint) = role::bind(SocketAddr::new(options.listen, 0), keys.clone())?;
    listening(listener.endpoint().tcp);
    let shutdown = Cancel::new();
    let registration = Registration {
        id: WorkerId(config.incarnation),
        endpoint,
        slot: SERVER_SLOTS + options.place,
        process: process_number(),
        role: Role::Server,
    };
    let master = SessionOptions::of(&options.master, &keys);
    let session = NonMember::open(&master, registration, shutdown.clone())?;
    let process = format!("ps-{}", options.place);
    let _profiler = Profiler::start(options.run.folder(), &process, Arc::default());
    let engine = Engine::new(config.engine.clone()).map_err(role::Error::from)?;
    #[cfg(feature = "kube")]
    let _health = super::health::of_server(options, &engine)?;
    let watch = Watch {
        engine: engine.clone(),
        leave: Arc::clone(&leave),
        shutdown: shutdown.clone(),
        master: session.sender(),
        grace: grace(),
    };
    let watch = std::thread::spawn(move || watch.run());
    let served = role::serve(&engine, &config, &listener, &shutdown);
    // Also when serving failed: the thread that looks at signals ends.
    shutdown.cancel();
    let _ = watch.join();
    let end = session.end();
    drop(session);
    served?;
    if let Some(RunEnd::Refused(reason)) = end {
        let master = &options.master;
        return Err(Error::Failed(format!("the master at {master} refuses this server: {reason}")));
    }
    Ok(if leave.load(Ordering::Relaxed) { Exit::Left } else { Exit::Done })
}

/// What a server does besides serving.
struct Watch {
    engine: Engine,
    leave: Arc<AtomicBool>,
    shutdown: Cancel,
    master: Sender,
    /// How long it waits to hand over.
    grace: Duration,
}

impl Watch {
    /// Tells the master what tables hold, and when this process is told to leave. The master then says when it may.
    fn run(self) {
        let mut told = Instant::now();
        let mut leaving: Option<Instant> = None;
        while !self.shutdown.is_cancelled() {
            if leaving.is_none() && self.leave.load(Ordering::Relaxed) {
                tracing::info!("told to leave; waits for a checkpoint");
                self.master.send(FromMember::Leave);
                leaving = Some(Instant::now());
            }
            if leaving.is_some_and(|since| since.elapsed() > self.grace) {
                tracing::warn!("leaves without a checkpoint of its rows");
                self.shutdown.cancel();
            }
            if told.elapsed() > TELL {
                told = Instant::now();
                // A broken engine ends the server by itself.
                self.engine.stats().into_iter().for_each(|tables| self.master.tables(tables));
            }
            std::thread::sleep(LOOK);
        }
    }
}

/// How long this process may take to leave.
fn grace() -> Duration {
    let given = std::env::var(environment::GRACE.name).ok().and_then(|text| text.parse().ok());
    given.map_or(GRACE, Duration::from_secs)
}

/// Tables without partitions: which ones a server holds it is told, and from whom it gets them.
fn engine(experiment: &Experiment) -> EngineOptions {
    let (mode, batches) = match experiment.strategy {
        // Names count the slices of a whole step.
        Strategy::Ps => (Mode::Immediate, experiment.optimizations.aggregation_frequency),
        _ => (Mode::Staged, 1),
    };
    EngineOptions {
        mode,
        seed: u64::from(experiment.reproducibility.experiment_seed.unwrap_or_default()),
        threads: experiment.ps.threads.max(1) as usize,
        partitions: Vec::new(),
        slices: experiment.slices() * batches as u32,
    }
}
