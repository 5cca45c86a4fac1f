//! `salamander master`: leads a distributed run; workers and commands talk to it.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use salamander_core::elastic::{Ending, Timeouts};
use salamander_core::experiment::{Experiment, Strategy};
use salamander_master::{Config, PlatformKind, Sink};
use salamander_net::Keys;
use salamander_train::callback::{Callback, Control};
use salamander_train::checkpoint::{COUNTED, Vault, write_atomic};
use salamander_train::model::Models;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use super::experiment::load;
use super::keys::KeyArgs;
use super::roles::{folder_for, log_to_stderr, note_address};
use super::signals::LEFT;
use super::stored::{Clerk, bring_back_patiently};
use crate::run::find;
use crate::ui::{MetricsLog, cut_after};

#[derive(clap::Args)]
pub(super) struct Args {
    /// The run, by its folder or id; `salamander train --prepare` makes one
    run: String,
    /// Make the run's folder from this file, if it is not there, as in a pod
    #[arg(long, value_name = "FILE")]
    experiment: Option<PathBuf>,
    /// Where to listen
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    #[command(flatten)]
    keys: KeyArgs,
    /// Another process starts and ends workers as this master says
    #[arg(long)]
    served: bool,
    /// Go on with a run that has ended
    #[arg(long)]
    resume: bool,
    /// End together with this process
    #[arg(long, value_name = "PID", hide = true)]
    parent: Option<u32>,
    #[cfg(feature = "kube")]
    #[command(flatten)]
    pod: super::kube::PodArgs,
    #[command(flatten)]
    folder: super::RunsFolder,
}

pub(super) fn run(args: Args, models: &Models) -> Result<ExitCode> {
    if let Some(parent) = args.parent {
        salamander_master::local::die_with_parent(parent)?;
    }
    log_to_stderr("master", 0);
    let folder = match &args.experiment {
        Some(file) => folder_for(&args.run, file)?,
        None => find(&args.run, &args.folder.runs)?,
    };
    let folder = fs::canonicalize(folder)?;
    let experiment = load(&folder.join("experiment.yaml"), &[])?;
    let keys = args.keys.read(&folder, args.listen.ip())?;
    let vault = Vault::of_run(&experiment.checkpoint_storage, &folder)?;
    let mut brought = false;
    if let Some(vault) = vault.as_ref().filter(|_| !folder.join("journal").exists()) {
        brought = bring_back_patiently(vault, &folder, &experiment)?;
    }
    let mut config = config(&folder, &experiment, &keys)?;
    let storage = &experiment.checkpoint_storage;
    let clerk = vault.map(|vault| Clerk::start(vault, &folder, storage)).transpose()?;
    config.sink = Box::new(Books::open(&folder, clerk)?);
    if experiment.strategy == Strategy::Ps {
        config.names = Some(super::books::plan(&folder, &experiment, models)?);
    }
    // Processes of a master whose journal was lost may still be there; what they hold is not known to be of use.
    config.resume = args.resume || brought;
    if args.served {
        config.platform = PlatformKind::Served;
    }
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    #[cfg(feature = "kube")]
    if args.pod.is_asked() {
        config.platform = PlatformKind::Served;
        let led = super::kube::lead(config, args.listen, &args.pod, &keys);
        return runtime.block_on(led);
    }
    match runtime.block_on(lead(config, args.listen, &folder))? {
        Ending::Completed => Ok(ExitCode::SUCCESS),
        Ending::Interrupted => Ok(ExitCode::from(LEFT)),
        Ending::Failed(reason) => bail!("{reason}"),
    }
}

async fn lead(config: Config, listen: SocketAddr, folder: &Path) -> Result<Ending> {
    let listener = TcpListener::bind(listen).await.with_context(|| format!("{listen}"))?;
    let address = listener.local_addr()?;
    note_address(folder, address)?;
    println!("listening on {address}");
    let mut terminate = signal(SignalKind::terminate())?;
    // Ctrl-C is meant for the parent, which hears it too and decides.
    let _interrupt = signal(SignalKind::interrupt())?;
    let shutdown = async move {
        terminate.recv().await;
    };
    Ok(salamander_master::run(config, listener, shutdown).await?)
}

fn config(folder: &Path, experiment: &Experiment, keys: &Keys) -> Result<Config> {
    let workers = experiment.workers;
    let mut config = Config::new(folder, keys.token.to_hex(), workers.max as usize);
    config.tls = keys.tls.clone();
    let silence = (experiment.elastic.silence * 1000.0) as u64;
    config.min_workers = workers.min as usize;
    if experiment.strategy.has_servers() {
        config.servers = experiment.ps.servers.max(1) as usize;
    }
    config.max_restarts = experiment.max_restarts.0;
    let promise = (silence / 2).clamp(100, 2_000);
    config.timeouts = Timeouts { silence, promise, ..Timeouts::default() };
    config.hang = Duration::from_secs_f64(experiment.elastic.hang);
    Ok(config)
}

/// The run's files that the master keeps: metrics, the list of checkpoints that count, how it ended.
struct Books {
    folder: PathBuf,
    metrics: PathBuf,
    log: MetricsLog,
    /// Keeps them in the run's store, too.
    clerk: Option<Clerk>,
}

impl Books {
    fn open(folder: &Path, clerk: Option<Clerk>) -> Result<Self> {
        let metrics = folder.join("metrics.jsonl");
        let log = MetricsLog::open(&metrics)?;
        fs::create_dir_all(folder.join("checkpoints"))?;
        Ok(Self { folder: folder.to_path_buf(), metrics, log, clerk })
    }

    fn take(&mut self, json: &Value) -> Result<()> {
        if let Some(step) = json.get("step") {
            self.log.step_end(&serde_json::from_value(step.clone())?, &mut Control::default());
        } else if let Some(epoch) = json.get("epoch") {
            self.log.epoch_end(&serde_json::from_value(epoch.clone())?);
        } else if let Some(steps) = json["start"]["done"].as_u64() {
            // A run that was restored from a checkpoint goes through the steps after it again.
            cut_after(&self.metrics, steps)?;
            self.log = MetricsLog::open(&self.metrics)?;
        } else if let Some(end) = json.get("end") {
            write_atomic(&self.folder.join("end.json"), end.to_string().as_bytes())?;
        }
        Ok(())
    }

    fn count(&self, id: &str) -> Result<()> {
        let path = self.folder.join("checkpoints").join(COUNTED);
        let mut list = fs::read_to_string(&path).unwrap_or_default();
        if !list.lines().any(|line| line == id) {
            list.push_str(id);
            list.push('\n');
            write_atomic(&path, list.as_bytes())?;
        }
        Ok(())
    }
}

impl Sink for Books {
    fn report(&mut self, version: u64, json: &Value) {
        if let Err(error) = self.take(json) {
            tracing::warn!(version, %error, "a report could not be kept");
        }
    }

    /// The master logs its notes itself.
    fn note(&mut self, _text: &str) {}

    fn kept(&mut self, id: &str) {
        if let Err(error) = self.count(id) {
            tracing::error!(id, %error, "a checkpoint could not be counted");
        }
        self.clerk.iter().for_each(Clerk::note);
    }

    /// Before anybody hears of this master: one that finds nothing but the store must not take its number again.
    fn opened(&mut self) {
        self.clerk.iter().for_each(Clerk::put);
    }
}
