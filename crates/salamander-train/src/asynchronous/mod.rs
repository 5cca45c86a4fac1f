//! Asynchronous training: everything lives on parameter servers, and workers compute micro-batches by name, as the
//! master leases them.
//!
//! # What a push means
//! The gradients of a micro-batch are divided by the records of its whole step, so that the pushes of a step together
//! have the size of one synchronous step; they are applied one by one, each with the optimizer's state as it then is.
//! A bound on gradients is divided among them likewise, by records.
//! The schedule's factor is that of the name's own step.
//!
//! # Layout
//! - `dense`: dense parameters as rows of a table
//! - `worker`: a worker's loop; `session`: the master; `servers`: the rows
//! - `lease_plan`: what the master's process is told of the model; `folder`: a checkpoint's folder from the files of
//!   servers
//! - `refused`: models that cannot be trained so

mod dense;
mod folder;
mod lease_plan;
mod refused;
mod servers;
mod session;
mod worker;

use salamander_core::callback::Callbacks;
use salamander_core::course::Course;

use crate::Error;
use crate::tables::Tables;
use crate::trainer::{Prepared, Setup};
use crate::trial::{Pass, Trial};

pub use dense::TABLE as DENSE_TABLE;
pub(crate) use lease_plan::lease_plan;
pub(crate) use refused::{check_running, only_pass};
pub(crate) use worker::work;

/// What follows from the experiment, the same in all processes.
pub(crate) struct PreparedTrial<T> {
    pub(crate) prepared: Prepared,
    pub(crate) course: Course,
    pub(crate) model: T,
    pub(crate) tables: Tables,
    pub(crate) pass: Pass,
}

/// Checks the experiment, opens the data and builds the model. Callbacks are for the master's process alone.
pub(crate) fn prepare<T: Trial>(setup: Setup) -> Result<(PreparedTrial<T>, Callbacks), Error> {
    let (prepared, course, callbacks) = Prepared::new::<T>(setup, Vec::new())?;
    let pass = only_pass::<T>(&prepared.passes)?.clone();
    let (model, tables) = prepared.setup.fresh::<T>()?;
    Ok((PreparedTrial { prepared, course, model, tables, pass }, callbacks))
}
