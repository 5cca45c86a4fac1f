//! Training on Burn: what a model fills in, the loop that trains it, and what is left on disk.
//!
//! # Layout
//! - [`trial`]: the [`Trial`] trait, which a model implements; [`Output`]: what its `forward` gives;
//!   [`context`]: what it is built from
//! - [`example`]: records to examples to batches; [`metrics`]: values computed from outputs
//! - [`loss`]: losses with one value per record
//! - [`loader`]: batches, decoded ahead on a thread of their own
//! - `groups`: parameters with other numbers of an optimizer
//! - [`step`]: forward, loss and backward of a step; [`gradients`], [`optimize`]: sum and apply
//! - `arithmetic`: what the bits of a process depend on
//! - `exchange`: where the parts of a step meet; `bucket`: a step's sums as one run of numbers
//! - [`table`]: embedding tables as fields of a model; `tables`: where their rows come from
//! - [`worker`]: a member of a distributed run; `asynchronous`: training on parameter servers
//! - [`trainer`]: the loop; [`progress`]: where it stands; [`callback`]: who is told
//! - `preflight`: a model tried on two records before a run; `caught`: its panics as errors
//! - [`evaluate`], [`predict`]: a trained model on other data; [`inference`]: one that is asked
//! - [`checkpoint`]: what is kept; [`weights`]: import and export; [`params`]: parameters by path
//! - [`profile`]: where a process's time goes
//! - [`model`]: models by name, without their types; [`device`]: devices by name; [`threads`]: who computes

mod arithmetic;
mod asynchronous;
mod bucket;
mod caught;
pub mod checkpoint;
pub mod context;
pub mod device;
mod error;
pub mod evaluate;
pub mod example;
mod exchange;
#[doc(hidden)]
pub mod fuzzing;
pub mod gradients;
mod groups;
pub mod inference;
pub mod loader;
pub mod loss;
pub mod metrics;
pub mod model;
pub mod optimize;
mod output;
pub mod params;
pub mod predict;
mod preflight;
pub mod profile;
pub mod step;
pub mod table;
mod tables;
#[cfg(test)]
mod testing;
pub mod threads;
pub mod trainer;
pub mod trial;
pub mod weights;
pub mod worker;

pub use asynchronous::DENSE_TABLE;
pub use error::Error;
pub use groups::ParamGroup;
pub use output::Output;
pub use salamander_core::{callback, progress};
pub use trial::{BatchLoss, BatchOf, BuildError, DataPaths, Pass, Trial};
