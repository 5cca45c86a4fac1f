//! A worker: a process that trains together with others, as the master says.

use std::sync::Arc;
use std::time::Duration;

use salamander_core::elastic::Ending;
use salamander_core::experiment::{Experiment, Strategy, Transport};
use salamander_train::model::Models;
use salamander_train::trainer::Setup;
use salamander_train::worker::{self, Meter, WorkerConnection, join};
use salamander_train::{Error as TrainError, device};

use super::{Exit, MemberOptions, leave_on_signals};
use crate::Error;
use crate::experiment::load;

/// Trains to the end of the run; a resumed run begins with the checkpoint `start`.
pub fn run(options: &MemberOptions, start: Option<String>, models: &Models) -> Result<Exit, Error> {
    let keys = options.keys.read(&options.run, options.listen)?;
    let experiment = load(&options.run.experiment(), &[])?;
    let model = models.find(experiment.model())?;
    let meter = Meter::default();
    #[cfg(feature = "kube")]
    let _health = super::health::of_worker(options, &meter)?;
    let connection = WorkerConnection {
        master: options.master.clone(),
        keys,
        slot: options.place,
        bf16: experiment.optimizations.gradient_compression,
        beat_every: beat_every(&experiment),
        leave: leave_on_signals()?,
        meter,
    };
    let setup = |experiment: Experiment| {
        Ok::<Setup, Error>(Setup {
            device: device::select_for(&experiment.device.0, options.device as usize)?,
            experiment,
            folder: options.run.folder().to_path_buf(),
            stop: Arc::default(),
            kept_data: Default::default(),
        })
    };
    if experiment.strategy == Strategy::Ps {
        return match model.train_asynchronously(setup(experiment)?, connection) {
            Ok(()) => Ok(Exit::Done),
            Err(TrainError::Leaving) => Ok(Exit::Left),
            Err(error) => Err(error.into()),
        };
    }
    let membership = join(membership(options, start, connection, &experiment))?;
    let handle = membership.handle.clone();
    let outcome = model.take_part(setup(experiment)?, membership);
    finish(outcome.err(), &handle)
}

fn membership(
    options: &MemberOptions,
    start: Option<String>,
    connection: WorkerConnection,
    experiment: &Experiment,
) -> worker::WorkerOptions {
    worker::WorkerOptions {
        connection,
        listen: options.listen,
        transport: match experiment.elastic.transport {
            Transport::Auto => salamander_net::Transport::Auto,
            Transport::Shm => salamander_net::Transport::Shm,
            Transport::Tcp => salamander_net::Transport::Tcp,
        },
        with_servers: experiment.strategy.has_servers(),
        start,
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
