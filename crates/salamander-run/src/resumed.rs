//! What a run goes on from, and whether what is `--set` fits it.

use std::path::Path;

use salamander_core::experiment::{Experiment, Strategy};
use salamander_core::layout::RunLayout;
use salamander_core::progress::StepCount;
use salamander_train::checkpoint::Checkpoint;
use salamander_train::device;
use salamander_train::model::Model;
use salamander_train::trainer::Setup;

use crate::Error;
use crate::event::{Event, Forward};
use crate::experiment::{Overrides, in_file, load, wrong};
use crate::metrics_log::cut_after;

/// Whether what is set is tried before it is written down: not where servers hold the state, and not where records may
/// have to be waited for.
pub(crate) fn is_tried(experiment: &Experiment, overrides: &Overrides) -> bool {
    let is_known = experiment.strategy != Strategy::Ps && !experiment.data.stream;
    is_known && !overrides.sets.is_empty()
}

/// Whether anything is left to train with these settings; an error where the newest checkpoint does not fit them.
pub(crate) fn has_steps(
    model: &dyn Model,
    experiment: &Experiment,
    run: &RunLayout,
    file: &Path,
) -> Result<bool, Error> {
    let setup = Setup {
        experiment: experiment.clone(),
        folder: run.folder().to_path_buf(),
        device: device::select("cpu")?,
        stop: Default::default(),
        kept_data: Default::default(),
    };
    // What cannot be read is told when the run goes on.
    let Ok(Some(checkpoint)) = setup.newest_checkpoint(&mut |_| {}) else { return Ok(true) };
    model.has_steps_after(checkpoint, setup).map_err(|error| match error {
        error @ salamander_train::Error::Checkpoint { .. } => Error::Invalid(format!(
            "{error}; the run stays as it is: resume it with what it was trained with"
        )),
        other => in_file(file, other),
    })
}

/// The slices that a run began with; asking for others is a mistake.
pub(crate) fn kept_slices(file: &Path, sets: &[String]) -> Result<u32, Error> {
    let kept = load(file, &[])?.slices();
    let asked = load(file, sets)?.micro_batches.unwrap_or(kept);
    if asked != kept {
        let reason = format!(
            "micro_batches: the run began with {kept}, and other slices add up to other bits: leave it out, or \
             start another run with {asked}"
        );
        return Err(wrong(file, reason));
    }
    Ok(kept)
}

/// The newest checkpoint that is intact; broken ones are named and passed over.
pub(crate) fn newest(
    setup: &Setup,
    run: &RunLayout,
    events: &Forward,
) -> Result<Option<Checkpoint>, Error> {
    let note = |text: String| events.send(Event::Note(text));
    let checkpoint = setup.newest_checkpoint(&mut |error| {
        note(format!("warning: {error}; trying the one before it"));
    })?;
    let steps =
        checkpoint.as_ref().map_or(StepCount(0), |checkpoint| checkpoint.state.progress.steps);
    cut_after(&run.metrics(), steps)?;
    note(match &checkpoint {
        Some(found) => format!("resuming from {}", found.path.display()),
        None => "no usable checkpoint: starting from the beginning".to_string(),
    });
    Ok(checkpoint)
}
