//! What the master's process is told of the model: its first parameters, and how a checkpoint becomes a folder.

use std::sync::Arc;

use burn::tensor::TensorData;
use salamander_core::asynchronous::{Consistency, Numbering, Settings};
use salamander_core::course::LeasePlan;
use salamander_core::elastic::Millis;
use salamander_core::layout::COURSE;
use salamander_ps::{Engine, EngineOptions, Mode, TableRows};

use super::dense::Dense;
use super::folder::CheckpointFolders;
use super::{PreparedTrial, prepare};
use crate::Error;
use crate::evaluate::{self, Over};
use crate::params;
use crate::trainer::Setup;
use crate::trial::Trial;

/// The file with the rows that a run begins with.
const INITIAL: &str = "initial.rows";
/// A lease is over after this time without a report, or twice the time in which its holder would hang: that is told
/// before.
const LEASE_MS: Millis = 120_000;

/// What the master leads by. Checks the experiment, and writes the first rows unless they are there.
pub(crate) fn lease_plan<T: Trial>(setup: Setup) -> Result<LeasePlan, Error> {
    let (job, callbacks) = prepare::<T>(setup)?;
    let PreparedTrial { prepared, course, model, .. } = &job;
    let experiment = &prepared.setup.experiment;
    let names = Numbering::of(course.plan());
    let dense = Dense::of(model);
    let first = params::read(model);
    let initial = prepared.setup.folder.join(INITIAL);
    if !initial.exists() {
        write_first_rows(&job, &dense, &first, names.slices())?.write(&initial)?;
    }
    let batch = Over::new(experiment, true).batch;
    let batches = |dataset: &Arc<_>| evaluate::batches(dataset, batch);
    let epochs = course.extent().epochs;
    let hang = (experiment.elastic.hang * 1000.0) as Millis;
    let settings = Settings {
        names: names.clone(),
        epochs,
        consistency: Consistency::of(&experiment.ps),
        servers: experiment.ps.servers.max(1),
        lease: LEASE_MS.max(hang.saturating_mul(2)),
    };
    let folders = CheckpointFolders {
        keeping: prepared.setup.keeping(),
        experiment: prepared.experiment_text.clone(),
        assets: prepared.assets.files().clone(),
        model: first,
        dense,
        plan: *course.plan(),
        names,
        epochs,
    };
    let make_folder = move |kept| folders.keep(kept).map_err(|error| error.to_string());
    Ok(LeasePlan {
        callbacks,
        settings,
        hang,
        parameters: params::trainable(model),
        validation_batches: prepared.validation.as_ref().map_or(0, batches),
        initial,
        checkpoints: prepared.setup.checkpoints(),
        file: prepared.setup.folder.join(COURSE),
        make_folder: Arc::new(make_folder),
        course: job.course,
    })
}

/// The rows that the run begins with: the model's first parameters.
fn write_first_rows<T: Trial>(
    job: &PreparedTrial<T>,
    dense: &Dense,
    model: &[(String, TensorData)],
    slices: u32,
) -> Result<salamander_ps::Snapshot, Error> {
    let seed = job.course.seed();
    let options = EngineOptions { mode: Mode::Immediate, seed, slices, ..EngineOptions::default() };
    let engine = Engine::new(options)?;
    let table = engine.declare(dense.spec(job.pass.optimizer))?;
    let (ids, values): (Vec<u64>, Vec<f32>) =
        ((0..dense.blocks() as u64).collect(), dense.gather(model));
    if !ids.is_empty() {
        engine.set(TableRows { table, ids: &ids, values: &values })?;
    }
    Ok(engine.snapshot()?)
}
