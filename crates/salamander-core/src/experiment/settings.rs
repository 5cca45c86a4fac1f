//! The fields of an experiment file, as serde sees them: Determined's names and defaults, and ours.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::data::Data;
use super::limits::{Budget, QueueResources, RetentionPolicy};
use super::searcher::Searcher;
use super::shapes::Workers;
use super::strategy::{Ps, Strategy};
use super::tracking::Tracking;
use crate::loss_scale::LossScale;
use crate::schedule::Schedule;
use crate::watch::EarlyStop;

/// Everything but the hyperparameters, which belong to the model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// A name for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What the experiment is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Words to find it by.
    pub labels: Vec<String>,
    /// The model: its name, or `module:Name` as in Determined's files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entrypoint: Option<String>,
    /// The records to train on.
    pub data: Data,
    /// Where gradients meet.
    pub strategy: Strategy,
    /// How many workers: a number, or `{min: 1, max: 4}`; one by default.
    pub workers: Workers,
    /// Parameter servers, for the strategies `ps` and `hybrid`.
    pub ps: Ps,
    /// `auto`, `cpu`, `wgpu[:i]` or `cuda[:i]`.
    pub device: Device,
    /// Threads that a worker computes with on the CPU; by default its share of the host's cores. No result depends on
    /// it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<usize>,
    /// Slices of a batch that are computed one by one; by default the most workers allowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub micro_batches: Option<u32>,
    /// What is searched for and for how long to train.
    pub searcher: Searcher,
    /// For how long to train, when the searcher does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_length: Option<Length>,
    /// Accepted from Determined's files: an epoch here is a pass over the data, whatever this says.
    pub records_per_epoch: u64,
    /// Batches of one of Determined's steps.
    pub scheduling_unit: SchedulingUnit,
    /// How often to validate, besides the end; `{batches: 0}` is the end of each epoch.
    pub min_validation_period: Period,
    /// How often to write a checkpoint, besides those of the policy.
    pub min_checkpoint_period: Period,
    /// Validate once before training.
    pub perform_initial_validation: bool,
    /// Which validations write a checkpoint.
    pub checkpoint_policy: CheckpointPolicy,
    /// Seconds after which there is a checkpoint to recover from, whatever the policy says; 0: none besides the others.
    pub recovery_period: RecoveryPeriod,
    /// Which checkpoints are kept.
    pub checkpoint_storage: CheckpointStorage,
    /// A learning-rate schedule that replaces the model's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<Schedule>,
    /// Gradient clipping that replaces the model's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clip: Option<Clip>,
    /// Stop when the watched metric no longer improves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub early_stop: Option<EarlyStop>,
    /// Weights to start from: a `.safetensors` or PyTorch `.pt` file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_from: Option<PathBuf>,
    /// Seeds.
    pub reproducibility: Reproducibility,
    /// Aggregation and precision.
    pub optimizations: Optimizations,
    /// Tolerated failures.
    pub max_restarts: MaxRestarts,
    /// What a loss that is not a number, or a gradient that is not finite, does.
    pub on_nan: OnNan,
    /// How a distributed run notices trouble.
    pub elastic: Elastic,
    /// Where a run is written down besides its folder.
    #[serde(skip_serializing_if = "Tracking::is_default")]
    pub tracking: Tracking,
    /// How much it may use before its hub ends it.
    #[serde(skip_serializing_if = "Budget::is_default")]
    pub budget: Budget,
    /// How long a hub keeps its logs.
    #[serde(skip_serializing_if = "RetentionPolicy::is_default")]
    pub retention_policy: RetentionPolicy,
    /// What a queue is asked for.
    #[serde(skip_serializing_if = "QueueResources::is_default")]
    pub resources: QueueResources,
    /// Accepted from Determined's files, without effect here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profiling: Option<serde_json::Value>,
    /// Accepted from Determined's files, without effect here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub environment: Option<serde_json::Value>,
    /// Accepted from Determined's files, without effect here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bind_mounts: Option<serde_json::Value>,
    /// Accepted from Determined's files, without effect here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// Accepted from Determined's files, without effect here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
}

/// What a loss that is not a number, or a gradient that is not finite, does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnNan {
    /// Ends the run with an error that names the step.
    #[default]
    Fail,
    /// Leaves the micro-batch out and counts its records as skipped.
    Skip,
}

/// How a distributed run notices trouble.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Elastic {
    /// A worker that was not heard for so many seconds is dropped.
    pub silence: f64,
    /// A worker that the others have waited for so many seconds is replaced.
    pub hang: f64,
    /// How gradients travel: `auto` is shared memory between workers of one host, TCP otherwise.
    pub transport: Transport,
}

impl Default for Elastic {
    fn default() -> Self {
        Self { silence: 5.0, hang: 120.0, transport: Transport::Auto }
    }
}

/// How gradients travel between workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// Shared memory between workers of one host, TCP otherwise.
    #[default]
    Auto,
    /// Shared memory; all workers must be on one host.
    Shm,
    /// TCP.
    Tcp,
}

/// A device's name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Device(pub String);

impl Default for Device {
    fn default() -> Self {
        Self("auto".to_string())
    }
}

/// A length of training.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Length {
    /// Batches of the global batch size.
    Batches(u64),
    /// Records.
    Records(u64),
    /// Passes over the data.
    Epochs(u64),
}

/// A time between two actions; zero of anything means the end of each epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Period(pub Length);

impl Default for Period {
    fn default() -> Self {
        Self(Length::Batches(0))
    }
}

/// Seconds between checkpoints to recover from.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct RecoveryPeriod(pub f64);

impl Default for RecoveryPeriod {
    fn default() -> Self {
        Self(60.0)
    }
}

/// Which validations write a checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CheckpointPolicy {
    /// Those that are the best so far.
    #[default]
    Best,
    /// Every one.
    All,
    /// None.
    None,
}

/// Which checkpoints are kept; a run always keeps its last two, so that a broken one can be replaced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CheckpointStorage {
    /// `shared_fs` or `directory`: the run's folder.
    pub r#type: StorageKind,
    /// Accepted from Determined's files; checkpoints live in the run's folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_path: Option<String>,
    /// An object store that checkpoints are put into as well, as in `s3://bucket/prefix`; credentials come from the
    /// environment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store: Option<String>,
    /// Seconds that the end of a run waits for a store that does not answer.
    pub store_patience: u64,
    /// Best checkpoints of all trials of an experiment that its hub keeps, beside those of each trial.
    pub save_experiment_best: u64,
    /// Best checkpoints of a trial that are kept.
    pub save_trial_best: u64,
    /// Latest checkpoints of a trial that are kept.
    pub save_trial_latest: u64,
}

impl Default for CheckpointStorage {
    fn default() -> Self {
        Self {
            r#type: StorageKind::Directory,
            host_path: None,
            store: None,
            store_patience: 300,
            save_experiment_best: 0,
            save_trial_best: 1,
            save_trial_latest: 1,
        }
    }
}

/// Where checkpoints go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StorageKind {
    /// The run's folder.
    Directory,
    /// The run's folder.
    SharedFs,
}

/// Gradient clipping.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Clip {
    /// Scales all gradients together so that their norm is at most this.
    Norm(f64),
    /// Cuts each value to this magnitude.
    Value(f64),
}

impl Clip {
    /// The bound for a part of the gradients: where all parts keep theirs, their sum keeps this one.
    ///
    /// ```
    /// use salamander_core::experiment::Clip;
    ///
    /// assert_eq!(Clip::Norm(2.0).of_part(0.25), Clip::Norm(0.5));
    /// ```
    pub fn of_part(self, share: f64) -> Self {
        match self {
            Self::Norm(limit) => Self::Norm(limit * share),
            Self::Value(limit) => Self::Value(limit * share),
        }
    }
}

/// Seeds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Reproducibility {
    /// The seed of everything random; chosen and shown when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub experiment_seed: Option<u32>,
}

/// Aggregation and precision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Optimizations {
    /// Batches whose gradients are summed before the optimizer steps.
    pub aggregation_frequency: u64,
    /// Divide the sum by the number of batches.
    pub average_aggregated_gradients: bool,
    /// bf16 on the wire between workers.
    pub gradient_compression: bool,
    /// `O0` and `f32` are f32; `O1`, `O2` and `bf16` compute in bf16, `f16` in f16 with a scaled loss. Parameters and
    /// optimizer state are f32 in any case.
    pub mixed_precision: MixedPrecision,
    /// How the loss is scaled: for f16 always, for bf16 if written here. Steps whose gradients overflow are skipped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_scale: Option<LossScale>,
    /// Accepted from Determined's files: all gradients of a pass travel in one bucket, in pieces.
    pub tensor_fusion_threshold: u64,
    /// Accepted from Determined's files, without effect here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tensor_fusion_cycle_time: Option<u64>,
    /// Accepted from Determined's files, without effect here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_tune_tensor_fusion: Option<bool>,
    /// Accepted from Determined's files: training metrics are always averaged over records.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub average_training_metrics: Option<bool>,
}

impl Optimizations {
    /// How the loss is scaled, if it is.
    pub fn scaling(&self) -> Option<LossScale> {
        match self.mixed_precision {
            MixedPrecision::F16 => Some(self.loss_scale.unwrap_or_default()),
            _ => self.loss_scale,
        }
    }
}

impl Default for Optimizations {
    fn default() -> Self {
        Self {
            aggregation_frequency: 1,
            average_aggregated_gradients: true,
            gradient_compression: false,
            mixed_precision: MixedPrecision::O0,
            loss_scale: None,
            tensor_fusion_threshold: 64,
            tensor_fusion_cycle_time: None,
            auto_tune_tensor_fusion: None,
            average_training_metrics: None,
        }
    }
}

/// The type that forward and backward compute in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MixedPrecision {
    /// f32.
    O0,
    /// bf16.
    O1,
    /// bf16.
    O2,
    /// bf16.
    #[serde(rename = "bf16")]
    Bf16,
    /// f16, whose range is so small that the loss is scaled.
    #[serde(rename = "f16")]
    F16,
    /// f32.
    #[serde(rename = "f32")]
    F32,
}

impl MixedPrecision {
    /// Whether nothing is computed in a smaller type.
    pub fn is_full(self) -> bool {
        matches!(self, Self::O0 | Self::F32)
    }
}

/// Batches of one of Determined's steps, 100 by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct SchedulingUnit(pub u64);

impl Default for SchedulingUnit {
    fn default() -> Self {
        Self(100)
    }
}

/// Tolerated failures, 5 by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct MaxRestarts(pub u64);

impl Default for MaxRestarts {
    fn default() -> Self {
        Self(5)
    }
}
