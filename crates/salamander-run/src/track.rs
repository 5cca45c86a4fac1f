//! Tells TensorBoard, MLflow and hubs of runs that are over, or that nobody tells of.

use std::fs;
use std::time::Duration;

use salamander_core::experiment::{Mlflow, Tracking};
use salamander_core::layout::RunLayout;
use salamander_track::about::About;
use salamander_track::traces::Collector;
use salamander_track::{Patience, Sinks, Tracker};

use crate::Error;

/// Somebody waits for it, so that a server has more time than at the end of a training.
const PATIENCE: Patience =
    Patience { silent: Duration::from_secs(10), longest: Duration::from_secs(3600) };

/// Tells of a run, or of a search and its trials: what is not there yet is written and sent, as the run's experiment
/// says and as is asked for here. Returns what people should know; nothing: everything was told.
pub fn track(run: &RunLayout, also: &Tracking) -> Result<Vec<String>, Error> {
    let about = About::read(run).map_err(|error| Error::Invalid(error.to_string()))?;
    let own = &about.experiment.tracking;
    let mlflow = match (&own.mlflow, &also.mlflow) {
        // The experiment's name is the run's, unless another one is asked for.
        (Some(own), Some(also)) => Some(Mlflow {
            uri: also.uri.clone(),
            experiment: also.experiment.clone().or_else(|| own.experiment.clone()),
            checkpoint: also.checkpoint || own.checkpoint,
        }),
        (own, also) => also.clone().or_else(|| own.clone()),
    };
    let hub = also.hub.clone().or_else(|| own.hub.clone());
    let (tensorboard, traces) =
        (own.tensorboard || also.tensorboard, Collector::from_environment());
    let sinks = Sinks { tensorboard, mlflow, hub, traces };
    if sinks == Sinks::default() {
        return Err(Error::Invalid(format!(
            "{}: its experiment names nobody to tell: add --tensorboard, --mlflow URI or --hub URL",
            run.folder().display()
        )));
    }
    // A search comes before its trials, which stand below it.
    let mut notes = Tracker::start(run, &sinks).finish(PATIENCE);
    for trial in trials(run) {
        notes.extend(Tracker::start(&trial, &sinks).finish(PATIENCE));
    }
    Ok(notes)
}

fn trials(search: &RunLayout) -> Vec<RunLayout> {
    let entries = fs::read_dir(search.trials()).into_iter().flatten().flatten();
    let mut trials: Vec<RunLayout> = entries
        .map(|entry| RunLayout::new(entry.path()))
        .filter(|trial| trial.experiment().is_file())
        .collect();
    trials.sort_by(|a, b| a.folder().cmp(b.folder()));
    trials
}
