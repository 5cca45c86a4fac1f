//! `salamander worker`: a process that trains together with others, as the master says.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Result, bail};
use salamander_core::elastic::Ending;
use salamander_core::experiment::{Experiment, Strategy, Transport};
use salamander_net::Keys;
use salamander_train::asynchronous::Line;
use salamander_train::model::Models;
use salamander_train::trainer::Setup;
use salamander_train::worker::{self, Options, join};
use salamander_train::{Error, device};

use super::experiment::load;
use super::keys::KeyArgs;
use super::roles::folder_for;
use super::signals::{LEFT, leave_on_signals};
use crate::run::find;

#[derive(clap::Args)]
#[command(after_help = "\
On several hosts, with the run's folder on storage that all of them share:
  host1$ salamander master runs/mnist --listen 10.0.0.1:4455
  host1$ salamander worker runs/mnist --master 10.0.0.1:4455 --listen 10.0.0.1
  host2$ salamander worker runs/mnist --master 10.0.0.1:4455 --listen 10.0.0.2")]
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
    /// Where other workers reach this one
    #[arg(long, value_name = "IP", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    listen: IpAddr,
    /// This worker's place among those of its platform
    #[arg(long, default_value_t = 0)]
    slot: u32,
    /// The checkpoint that a resumed run begins with
    #[arg(long, value_name = "ID")]
    start: Option<String>,
    /// End together with this process
    #[arg(long, value_name = "PID", hide = true)]
    parent: Option<u32>,
    /// Do the tasks of an evaluation or a prediction, which this folder describes
    #[arg(long, value_name = "DIR", hide = true)]
    tasks: Option<PathBuf>,
    /// Train the demonstration's model
    #[arg(long, hide = true)]
    demo: bool,
    #[command(flatten)]
    folder: super::RunsFolder,
}

pub(super) fn run(args: Args, models: &Models) -> Result<ExitCode> {
    if let Some(parent) = args.parent {
        salamander_master::local::die_with_parent(parent)?;
    }
    super::roles::log_to_stderr("worker", args.slot);
    if let Some(scratch) = &args.tasks {
        return super::tasks::worker::run(scratch, &args.master, args.slot, models);
    }
    let folder = match &args.experiment {
        Some(file) => folder_for(&args.run, file)?,
        None => find(&args.run, &args.folder.runs)?,
    };
    let keys = args.keys.read(&folder, args.listen)?;
    let file = folder.join("experiment.yaml");
    let experiment = load(&file, &[])?;
    let demo = args.demo.then(crate::demo::models);
    let model = demo.as_ref().unwrap_or(models).find(experiment.model())?;
    let leave = leave_on_signals()?;
    if experiment.strategy == Strategy::Ps {
        let line = line(&args, keys, &experiment, leave);
        let setup = Setup {
            device: device::select_for(&experiment.device.0, args.slot as usize)?,
            experiment,
            folder,
            stop: Arc::new(AtomicBool::new(false)),
        };
        return match model.push(setup, line) {
            Ok(()) => Ok(ExitCode::SUCCESS),
            Err(Error::Leaving) => Ok(ExitCode::from(LEFT)),
            Err(error) => Err(error.into()),
        };
    }
    let membership = join(options(&args, keys, &experiment, Arc::clone(&leave)))?;
    let handle = membership.handle.clone();
    let setup = Setup {
        device: device::select_for(&experiment.device.0, args.slot as usize)?,
        experiment,
        folder,
        stop: Arc::new(AtomicBool::new(false)),
    };
    let outcome = model.take_part(setup, membership);
    finish(outcome.err(), &handle)
}

fn options(args: &Args, keys: Keys, experiment: &Experiment, leave: Arc<AtomicBool>) -> Options {
    Options {
        master: args.master.clone(),
        keys,
        listen: args.listen,
        slot: args.slot,
        transport: match experiment.elastic.transport {
            Transport::Auto => salamander_net::Transport::Auto,
            Transport::Shm => salamander_net::Transport::Shm,
            Transport::Tcp => salamander_net::Transport::Tcp,
        },
        bf16: experiment.optimizations.gradient_compression,
        with_servers: experiment.strategy.has_servers(),
        beat_every: beat_every(experiment),
        leave,
        start: args.start.clone(),
    }
}

fn line(args: &Args, keys: Keys, experiment: &Experiment, leave: Arc<AtomicBool>) -> Line {
    Line {
        master: args.master.clone(),
        keys,
        slot: args.slot,
        bf16: experiment.optimizations.gradient_compression,
        beat_every: beat_every(experiment),
        leave,
    }
}

/// Several beats must be lost before a worker counts as silent.
fn beat_every(experiment: &Experiment) -> Duration {
    Duration::from_secs_f64((experiment.elastic.silence / 8.0).clamp(0.02, 1.0))
}

fn finish(error: Option<Error>, handle: &worker::Handle) -> Result<ExitCode> {
    match (handle.ending(), error) {
        (Some(Ending::Failed(reason)), Some(Error::Leaving) | None) => bail!("{reason}"),
        (Some(_), Some(Error::Leaving)) | (_, None) => Ok(ExitCode::SUCCESS),
        (None, Some(Error::Leaving)) => Ok(ExitCode::from(LEFT)),
        (_, Some(error)) => Err(error.into()),
    }
}
