//! The `searcher` of an experiment file: which trials there are and how far each of them goes.
//!
//! Only the fields are here; what they mean together is decided in `salamander-search`.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Length, TrialSource};

/// What is searched for, by what method, and for how long to train.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Searcher {
    /// The algorithm that proposes hyperparameters; a scheduler's name stands for random draws with it.
    pub name: SearcherName,
    /// How far each trial goes; without one all go to the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<SchedulerName>,
    /// The validation metric that decides what is best; `val_` or `validation_` in front is allowed.
    pub metric: String,
    /// Whether less of it is better.
    pub smaller_is_better: bool,
    /// Length in steps of `scheduling_unit` batches (oldest dialect).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_steps: Option<u64>,
    /// Length in batches, records or epochs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_length: Option<Length>,
    /// Length in units of `time_metric` (newest dialect).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_time: Option<u64>,
    /// `batches`, `records` or `epochs`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_metric: Option<TimeMetric>,
    /// A search's number of trials.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_trials: Option<u64>,
    /// A search's trials at a time, 16 by default; 0 is as many as the method likes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_concurrent_trials: Option<u64>,
    /// Halving: only one of so many trials of a rung goes on, 4 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub divisor: Option<f64>,
    /// async_halving and pasha: how many rungs there are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub num_rungs: Option<u64>,
    /// The most rungs where their number is worked out, 5 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_rungs: Option<u64>,
    /// adaptive_asha: how early most trials are stopped, `standard` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<HalvingMode>,
    /// adaptive_asha: the rungs of each bracket, instead of the mode's.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub bracket_rungs: Vec<u64>,
    /// Halving: whether bad trials are stopped (the default) or good ones promoted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub form: Option<HalvingForm>,
    /// Determined's older name for the form: `true` is `stopping`, `false` is `promotion`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_once: Option<bool>,
    /// median and pbt: the length between two looks at a trial, a tenth of the whole by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<u64>,
    /// median: no trial is stopped before this length, `interval` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace: Option<u64>,
    /// median: no trial is stopped before so many others came as far, 3 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_samples: Option<u64>,
    /// pbt: the part of the trials that is replaced by copies of as many best ones, 0.25 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quantile: Option<f64>,
    /// tpe: trials that are drawn at random before it begins to learn, 10 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub startup_trials: Option<u64>,
    /// The order in which reports of trials count: `arrival`, or `fixed` for a search that its seed reproduces.
    pub order: ReportOrder,
    /// The search ends when a trial measures this or better.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<f64>,
    /// The search ends after so many seconds; what runs then is stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_seconds: Option<f64>,
    /// Idle slots widen the trials that train, and give way to new ones.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub elastic_trials: bool,
    /// A trial of a search: validates, writes a checkpoint and pauses at this length.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause_at: Option<Length>,
    /// A trial whose latest weights to start from: of a hub, by its number (`"12.3"`), or a run, by its id or folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_trial_id: Option<TrialSource>,
    /// A checkpoint to start from: `RUN/NAME` as in `"12.3/step-00000100"`, `model:NAME@ALIAS` of a hub, its folder,
    /// or its name alone beside `source_trial_id`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_checkpoint_uuid: Option<String>,
}

impl Default for Searcher {
    fn default() -> Self {
        Self {
            name: SearcherName::Single,
            scheduler: None,
            metric: "loss".to_string(),
            smaller_is_better: true,
            max_steps: None,
            max_length: None,
            max_time: None,
            time_metric: None,
            max_trials: None,
            max_concurrent_trials: None,
            divisor: None,
            num_rungs: None,
            max_rungs: None,
            mode: None,
            bracket_rungs: Vec::new(),
            form: None,
            stop_once: None,
            interval: None,
            grace: None,
            min_samples: None,
            quantile: None,
            startup_trials: None,
            order: ReportOrder::Arrival,
            target: None,
            max_seconds: None,
            elastic_trials: false,
            pause_at: None,
            source_trial_id: None,
            source_checkpoint_uuid: None,
        }
    }
}

/// What proposes hyperparameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SearcherName {
    /// One trial.
    Single,
    /// Random draws.
    Random,
    /// All combinations.
    Grid,
    /// The tree-structured Parzen estimator: draws near what was good.
    Tpe,
    /// Random draws with asynchronous halving.
    AsyncHalving,
    /// Random draws with several halvings at once.
    AdaptiveAsha,
    /// Random draws with progressive halving.
    Pasha,
    /// Random draws with the median rule.
    Median,
    /// Population based training.
    Pbt,
}

impl fmt::Display for SearcherName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// What decides how far a trial goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SchedulerName {
    /// All trials go to the end.
    None,
    /// Asynchronous halving.
    AsyncHalving,
    /// Several halvings at once.
    AdaptiveAsha,
    /// Halving whose rungs grow while the order of the best changes.
    Pasha,
    /// Trials below the median of the others are stopped.
    Median,
    /// Bad trials go on as copies of good ones with other hyperparameters.
    Pbt,
}

impl fmt::Display for SchedulerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// The two forms of asynchronous halving.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HalvingForm {
    /// A trial goes on at once unless it is worse than most.
    Stopping,
    /// A trial waits at its rung until it is among the best.
    Promotion,
}

/// How early adaptive halving stops most trials.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HalvingMode {
    /// Brackets of every number of rungs, down to one that stops nothing.
    Conservative,
    /// The upper half of the brackets.
    Standard,
    /// Only the bracket that stops earliest.
    Aggressive,
}

/// The order in which reports count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReportOrder {
    /// As they come.
    #[default]
    Arrival,
    /// By length and trial, whatever their arrival.
    Fixed,
}

/// What `max_time` counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TimeMetric {
    /// Batches.
    Batches,
    /// Records.
    Records,
    /// Epochs.
    Epochs,
}
