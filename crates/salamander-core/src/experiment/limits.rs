//! What a hub lets an experiment have: time, slots, and how long its logs stay.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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

#[cfg(test)]
mod tests {
    use crate::experiment::{Experiment, TrialSource};

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
