//! A worker: a process that trains together with others, as the master says.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use salamander_core::elastic::Ending;
use salamander_core::experiment::{Experiment, Strategy, Transport};
use salamander_core::layout::RunLayout;
use salamander_train::model::Models;
use salamander_train::trainer::Setup;
use salamander_train::worker::{self, WorkerConnection, join};
use salamander_train::{Error as TrainError, device};

use super::{Exit, leave_on_signals};
use crate::Error;
use crate::experiment::load;
use crate::keys::KeyFiles;

/// What a worker is told.
#[derive(Clone, Debug)]
pub struct Options {
    /// The run's folder.
    pub run: RunLayout,
    /// The master's address.
    pub master: String,
    /// Where its secrets are.
    pub keys: KeyFiles,
    /// Where other workers reach this one.
    pub listen: IpAddr,
    /// This worker's place among those of its platform.
    pub slot: u32,
    /// The checkpoint that a resumed run begins with.
    pub start: Option<String>,
}

/// Trains to the end of the run.
pub fn run(options: &Options, models: &Models) -> Result<Exit, Error> {
    let keys = options.keys.read(&options.run, options.listen)?;
    let experiment = load(&options.run.experiment(), &[])?;
    let model = models.find(experiment.model())?;
    let connection = WorkerConnection {
        master: options.master.clone(),
        keys,
        slot: options.slot,
        bf16: experiment.optimizations.gradient_compression,
        beat_every: beat_every(&experiment),
        leave: leave_on_signals()?,
    };
    let setup = |experiment: Experiment| {
        Ok::<Setup, Error>(Setup {
            device: device::select_for(&experiment.device.0, options.slot as usize)?,
            experiment,
            folder: options.run.folder().to_path_buf(),
            stop: Arc::new(AtomicBool::new(false)),
        })
    };
    if experiment.strategy == Strategy::Ps {
        return match model.push(setup(experiment)?, connection) {
            Ok(()) => Ok(Exit::Done),
            Err(TrainError::Leaving) => Ok(Exit::Left),
            Err(error) => Err(error.into()),
        };
    }
    let membership = join(membership(options, connection, &experiment))?;
    let handle = membership.handle.clone();
    let outcome = model.take_part(setup(experiment)?, membership);
    finish(outcome.err(), &handle)
}

fn membership(
    args: &Options,
    connection: WorkerConnection,
    experiment: &Experiment,
) -> worker::Options {
    worker::Options {
        connection,
        listen: args.listen,
        transport: match experiment.elastic.transport {
            Transport::Auto => salamander_net::Transport::Auto,
            Transport::Shm => salamander_net::Transport::Shm,
            Transport::Tcp => salamander_net::Transport::Tcp,
        },
        with_servers: experiment.strategy.has_servers(),
        start: args.start.clone(),
    }
}

/// Several beats must be lost before a worker counts as silent.
fn beat_every(experiment: &Experiment) -> Duration {
    Duration::from_secs_f64((experiment.elastic.silence / 8.0).clamp(0.02, 1.0))
}

fn finish(error: Option<TrainError>, handle: &worker::Handle) -> Result<Exit, Error> {
    match (handle.ending(), error) {
        (Some(Ending::Failed(reason)), Some(TrainError::Leaving) | None) => {
            Err(Error::Failed(reason))
        }
        (Some(_), Some(TrainError::Leaving)) | (_, None) => Ok(Exit::Done),
        (None, Some(TrainError::Leaving)) => Ok(Exit::Left),
        (_, Some(error)) => Err(error.into()),
    }
}
