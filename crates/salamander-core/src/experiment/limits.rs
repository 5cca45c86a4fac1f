//! What a hub lets an experiment have: time, slots, and how long its logs stay.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How much an experiment may use before its hub ends it, with a checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Budget {
    /// Hours that its process may run, pauses left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hours: Option<f64>,
    /// The same times the slots that it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slot_hours: Option<f64>,
}

impl Budget {
    /// Whether nothing is said.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// What is wrong with it, if anything is.
    pub(super) fn mistake(&self) -> Option<(&'static str, String)> {
        let wrong = |hours: Option<f64>| hours.is_some_and(|h| !(h.is_finite() && h > 0.0));
        let message = || "write hours above 0".to_string();
        match () {
            () if wrong(self.hours) => Some(("budget.hours", message())),
            () if wrong(self.slot_hours) => Some(("budget.slot_hours", message())),
            () => None,
        }
    }
}

/// How long a hub keeps what an experiment leaves, as in Determined's files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RetentionPolicy {
    /// Days that logs stay after the end; -1: for ever. The hub's own number where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_retention_days: Option<i64>,
}

impl RetentionPolicy {
    /// Whether nothing is said.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// What is wrong with it, if anything is.
    pub(super) fn mistake(&self) -> Option<(&'static str, String)> {
        let fits = self.log_retention_days.is_none_or(|days| (-1..=36_500).contains(&days));
        let message = "write days from 0 to 36500, or -1 for ever";
        (!fits).then(|| ("retention_policy.log_retention_days", message.to_string()))
    }
}

/// What a queue is asked for, in the words of Determined's files.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct QueueResources {
    /// Workers of a trial, where `workers` does not say it; two and more train with `strategy: allreduce`, where no
    /// other is named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots_per_trial: Option<u32>,
    /// The most slots that a search has at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_slots: Option<u32>,
    /// Its place in a hub's queue, 1 (first) to 99.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i64>,
    /// Accepted from Determined's files, without effect here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<Value>,
    /// Accepted from Determined's files, without effect here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_pool: Option<Value>,
    /// Accepted from Determined's files, without effect here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_manager: Option<Value>,
    /// Accepted from Determined's files, without effect here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_label: Option<Value>,
    /// Accepted from Determined's files, without effect here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shm_size: Option<Value>,
    /// Accepted from Determined's files, without effect here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub devices: Option<Value>,
    /// Accepted from Determined's files, without effect here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub native_parallel: Option<Value>,
    /// Accepted from Determined's files, without effect here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is_single_node: Option<Value>,
}

impl QueueResources {
    /// Whether nothing is said.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// What is wrong with it, if anything is.
    pub(super) fn mistake(&self) -> Option<(&'static str, String)> {
        let fits = |number: Option<i64>| number.is_none_or(|number| (1..=99).contains(&number));
        match () {
            () if !fits(self.priority) => {
                Some(("resources.priority", "write a number from 1 (first) to 99".to_string()))
            }
            () if self.max_slots == Some(0) => {
                Some(("resources.max_slots", "must be at least 1".to_string()))
            }
            () => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::experiment::{Experiment, Strategy, TrialSource};

    #[test]
    fn limits_are_read_and_nonsense_is_refused_by_name() {
        let text = "budget: {hours: 1.5}\nretention_policy: {log_retention_days: -1}\n";
        let read = Experiment::parse(text, &[]).expect("an experiment");
        assert_eq!((read.budget.hours, read.budget.slot_hours), (Some(1.5), None));
        assert_eq!(read.retention_policy.log_retention_days, Some(-1));
        let check = |text: &str, expected: &str| {
            let error = Experiment::parse(text, &[]).expect_err(text).to_string();
            assert!(error.contains(expected), "{text}: {error}");
        };
        check("budget: {hours: 0}", "budget.hours: write hours above 0");
        check("budget: {slot_hours: -3}", "budget.slot_hours: write hours above 0");
        check("budget: {days: 1}", "unknown field \"days\"");
        check("retention_policy: {log_retention_days: -2}", "or -1 for ever");
        check("tracking: {hub: there}", "tracking.hub: \"there\" is no address");
        check("searcher: {source_trial_id: 12.10}", "write a trial in quotes, as in \"12.3\"");
    }

    #[test]
    fn slots_of_a_trial_are_workers_where_nothing_else_is_said() {
        let check = |text: &str, strategy: Strategy, most: u32| {
            let read = Experiment::parse(text, &[]).expect("an experiment");
            assert_eq!((read.strategy, read.workers.max), (strategy, most), "{text}");
            // What is in force says it in our words, and is read as it was.
            let again = Experiment::parse(&read.to_yaml(&serde_json::json!({})), &[]);
            assert_eq!(again.expect("an experiment").workers, read.workers);
        };
        check("resources: {slots_per_trial: 4}", Strategy::Allreduce, 4);
        check("resources: {slots_per_trial: 4}\nworkers: 2", Strategy::Local, 2);
        check("resources: {slots_per_trial: 4}\nstrategy: hybrid", Strategy::Hybrid, 4);
        check("resources: {slots_per_trial: 1, resource_pool: gpus}", Strategy::Local, 1);
        check("resources: {slots_per_trial: 0, weight: 2}", Strategy::Local, 1);
        check("resources: {max_slots: 8, priority: 3}", Strategy::Local, 1);
        let wrong = |text: &str, expected: &str| {
            let error = Experiment::parse(text, &[]).expect_err(text).to_string();
            assert!(error.contains(expected), "{text}: {error}");
        };
        wrong("resources: {slots_per_trail: 4}", "did you mean \"slots_per_trial\"");
        wrong("resources: {priority: 100}", "resources.priority: write a number from 1");
        wrong("resources: {max_slots: 0}", "resources.max_slots: must be at least 1");
    }

    #[test]
    fn a_trial_is_a_number_or_a_name() {
        let source = |text: &str| {
            let text = format!("searcher: {{source_trial_id: {text}}}");
            let read = Experiment::parse(&text, &[]).expect("an experiment");
            read.searcher.source_trial_id.clone().map(|TrialSource(text)| text)
        };
        assert_eq!(source("12").as_deref(), Some("12"));
        assert_eq!(source("\"12.10\"").as_deref(), Some("12.10"));
        assert_eq!(source("runs/mnist-1").as_deref(), Some("runs/mnist-1"));
    }
}
