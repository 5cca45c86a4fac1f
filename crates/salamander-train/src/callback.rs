//! Who is told about the course of training: the progress bar, the metrics file, and users' code.
//!
//! In a distributed run a model's callbacks are called in every worker, with the same values, and must come to the same
//! decisions; [`Start::leads`] tells the one that may write files.

use std::path::Path;

use salamander_core::metrics::{Metrics, number};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::progress::Progress;

/// Told about the course of training; every method may be left out.
pub trait Callback: Send {
    /// While the data is opened, before all else: so many of its files are indexed.
    fn indexing(&mut self, _files: u64, _of: u64) {}
    /// Before the first step (again after a resume).
    fn training_start(&mut self, _start: &Start) {}
    /// Before an epoch's first step.
    fn epoch_start(&mut self, _epoch: u64) {}
    /// After the optimizer has stepped.
    fn step_end(&mut self, _step: &StepReport, _control: &mut Control) {}
    /// Before a validation of so many batches.
    fn validation_start(&mut self, _batches: u64) {}
    /// After each batch of it.
    fn validation_batch(&mut self) {}
    /// After a validation.
    fn validation_end(&mut self, _metrics: &Metrics, _control: &mut Control) {}
    /// After an epoch, or a validation within it.
    fn epoch_end(&mut self, _epoch: &EpochReport) {}
    /// When a checkpoint is safely on disk.
    fn checkpoint_saved(&mut self, _path: &Path) {}
    /// After the last step.
    fn training_end(&mut self, _progress: &Progress) {}
    /// State of its own for checkpoints; a callback that has some also has a name.
    fn state(&self) -> Option<(&'static str, Value)> {
        None
    }
    /// Takes the state back on resume.
    fn restore(&mut self, _state: &Value) {}
}

/// What a callback can ask for.
#[derive(Debug, Default)]
pub struct Control {
    pub(crate) stop: bool,
}

impl Control {
    /// Ends training after this step, as if its length were reached.
    pub fn stop(&mut self) {
        self.stop = true;
    }
}

/// Where training starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Start {
    /// Steps done before, on resume.
    pub done: u64,
    /// Steps in all.
    pub total: u64,
    /// Batches in all.
    pub total_batches: u64,
    /// Steps of an epoch.
    pub steps_per_epoch: u64,
    /// Epochs begun at the end.
    pub epochs: u64,
    /// Records of an epoch.
    pub records: u64,
    /// Parameters of the model.
    pub parameters: u64,
    /// Workers that take part.
    pub workers: u64,
    /// Whether this worker speaks for all of them.
    pub leads: bool,
}

/// One optimizer step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepReport {
    /// The epoch, from 0.
    pub epoch: u64,
    /// The step within the epoch, from 0.
    pub step: u64,
    /// Steps done in all.
    pub steps: u64,
    /// Batches done in all.
    pub batches: u64,
    /// Records of this step.
    pub records: u64,
    /// The mean loss of this step.
    #[serde(with = "number")]
    pub loss: f64,
    /// The learning rate that was used.
    pub learning_rate: f64,
    /// The gradients' norm before clipping, when clipping needed it.
    pub gradient_norm: Option<f64>,
    /// Whether it was skipped because its gradients overflowed; it has no records then.
    #[serde(default)]
    pub skipped: bool,
    /// What the loss was multiplied by, in mixed precision.
    #[serde(default)]
    pub loss_scale: Option<f64>,
}

/// An epoch so far, and its validation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EpochReport {
    /// The epoch, from 0.
    pub epoch: u64,
    /// Whether it is complete.
    pub complete: bool,
    /// Steps done in all.
    pub steps: u64,
    /// Over the records trained in this epoch.
    pub training: Metrics,
    /// Over the validation data, if there was a validation.
    pub validation: Option<Metrics>,
    /// Seconds since the epoch began (or training resumed).
    pub seconds: f64,
    /// Whether the validation is the best so far.
    pub best: bool,
}
