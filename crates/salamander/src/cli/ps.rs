//! `salamander ps`: a parameter server, which holds rows of tables for the workers of a run.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use salamander_core::elastic::{Beat, Ending, SERVER_SLOTS, ToMember, Work, WorkerId};
use salamander_core::experiment::{Experiment, Strategy};
use salamander_net::Cancel;
use salamander_proto::client::{Handler, Session, SessionOptions};
use salamander_proto::v1;
use salamander_ps::{EngineOptions, Mode, role};
use salamander_train::worker::process_number;

use super::experiment::load;
use super::keys::KeyArgs;
use super::roles::folder_for;
use super::signals::{LEFT, leave_on_signals};
use crate::run::find;

/// How often signals are looked at.
const LOOK: Duration = Duration::from_millis(50);

#[derive(clap::Args)]
#[command(after_help = "\
On several hosts, with the run's folder on storage that all of them share:
  host1$ salamander master runs/deepfm --listen 10.0.0.1:4455
  host2$ salamander ps runs/deepfm --master 10.0.0.1:4455 --listen 10.0.0.2 --seat 0")]
pub(super) struct Args {
    /// The run, by its folder or id
    run: String,
    /// Make the run's folder from this file, if it is not there, as in a pod
    #[arg(long, value_name = "FILE")]
    experiment: Option<PathBuf>,
    /// The master's address
    #[arg(long, value_name = "HOST:PORT")]
    master: String,
    #[command(flatten)]
    keys: KeyArgs,
    /// Where workers reach this server
    #[arg(long, value_name = "IP", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    listen: IpAddr,
    /// This server's place among all, from 0
    #[arg(long, default_value_t = 0)]
    seat: u32,
    /// End together with this process
    #[arg(long, value_name = "PID", hide = true)]
    parent: Option<u32>,
    #[command(flatten)]
    folder: super::RunsFolder,
}

pub(super) fn run(args: Args) -> Result<ExitCode> {
    if let Some(parent) = args.parent {
        salamander_master::local::die_with_parent(parent)?;
    }
    super::roles::log_to_stderr("ps", args.seat);
    let folder = match &args.experiment {
        Some(file) => folder_for(&args.run, file)?,
        None => find(&args.run, &args.folder.runs)?,
    };
    let keys = args.keys.read(&folder, args.listen)?;
    let experiment = load(&folder.join("experiment.yaml"), &[])?;
    let leave = leave_on_signals()?;
    let config = role::Config::new(engine(&experiment))?;
    let (listener, endpoint) = role::bind(SocketAddr::new(args.listen, 0), keys.clone())?;
    println!("listening on {}", listener.endpoint().tcp);
    let shutdown = Cancel::new();
    let (ended, refusal) = (Arc::new(AtomicBool::new(false)), Arc::new(OnceLock::new()));
    let voice = Voice {
        id: WorkerId(config.incarnation),
        endpoint,
        seat: args.seat,
        ended: Arc::clone(&ended),
        refusal: Arc::clone(&refusal),
        started: Instant::now(),
    };
    let session = Session::open(&SessionOptions::of(&args.master, &keys), voice)?;
    let watching = (shutdown.clone(), Arc::clone(&leave), Arc::clone(&ended));
    let watch = std::thread::spawn(move || {
        let (shutdown, leave, ended) = watching;
        while !leave.load(Ordering::Relaxed) && !ended.load(Ordering::Relaxed) {
            std::thread::sleep(LOOK);
        }
        shutdown.cancel();
    });
    let served = role::run(&config, &listener, &shutdown);
    // Also when serving failed: the thread that looks at signals ends.
    ended.fetch_or(served.is_err(), Ordering::Relaxed);
    let _ = watch.join();
    drop(session);
    served?;
    if let Some(reason) = refusal.get() {
        bail!("the master at {} refuses this server: {reason}", args.master);
    }
    Ok(if leave.load(Ordering::Relaxed) { ExitCode::from(LEFT) } else { ExitCode::SUCCESS })
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

/// What this server tells the master, and hears from it.
struct Voice {
    id: WorkerId,
    endpoint: String,
    seat: u32,
    ended: Arc<AtomicBool>,
    refusal: Arc<OnceLock<String>>,
    started: Instant,
}

impl Handler for Voice {
    fn hello(&mut self) -> v1::Hello {
        v1::Hello {
            peer: Some(v1::Peer { id: self.id.0, endpoint: self.endpoint.clone() }),
            active: None,
            slot: SERVER_SLOTS + self.seat,
            pid: process_number(),
            records: 0,
            fingerprint: 0,
            tasks_only: false,
            server: true,
        }
    }

    fn welcome(&mut self, _epoch: u32) -> Result<(), String> {
        Ok(())
    }

    fn message(&mut self, message: ToMember) {
        if let ToMember::Ended(ending) = message {
            match ending {
                Ending::Failed(reason) => tracing::warn!(reason, "the run is over"),
                ending => tracing::info!(?ending, "the run is over"),
            }
            self.ended.store(true, Ordering::Relaxed);
        }
    }

    fn beat(&mut self) -> Beat {
        let for_ms = self.started.elapsed().as_millis() as u64;
        Beat { work: Work::Idle, for_ms, records: 0, compute_ms: 0 }
    }

    fn refused(&mut self, reason: &str) {
        // The first reason is the one that ends it.
        let _ = self.refusal.set(reason.to_string());
        self.ended.store(true, Ordering::Relaxed);
    }
}
