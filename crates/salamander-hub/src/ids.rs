//! Numbers that must not be swapped, as types; all of them come back from a rebuild as they were.

use std::fmt::{self, Display};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::Error;

/// Trials that an experiment may have.
const MAX_TRIALS: i64 = 1 << 20;

/// An experiment's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ExperimentId(pub i64);

impl Display for ExperimentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for ExperimentId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let number =
            text.parse().ok().filter(|number| (1..=i64::MAX / MAX_TRIALS).contains(number));
        let wrong = || Error::Invalid(format!("{text:?} is no experiment's number"));
        number.map(Self).ok_or_else(wrong)
    }
}

/// A run: the trial of an experiment, written `12.3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunId(i64);

impl RunId {
    /// The trial of an experiment, counted from 1; `None`: no experiment has so many.
    pub fn new(experiment: i64, trial: i64) -> Option<Self> {
        let fits = (1..MAX_TRIALS).contains(&trial);
        (fits && (1..=i64::MAX / MAX_TRIALS).contains(&experiment))
            .then(|| Self(experiment * MAX_TRIALS + trial))
    }

    /// What belongs to an experiment as a whole, such as what its command printed: no trial.
    pub fn whole(experiment: ExperimentId) -> Self {
        Self(experiment.0.saturating_mul(MAX_TRIALS))
    }

    /// The number of its row.
    pub(crate) fn number(self) -> i64 {
        self.0
    }

    pub(crate) fn from_number(number: i64) -> Self {
        Self(number)
    }

    /// The experiment.
    pub fn experiment(self) -> ExperimentId {
        ExperimentId(self.0 / MAX_TRIALS)
    }

    /// The trial's number within it, from 1.
    pub fn trial(self) -> i64 {
        self.0 % MAX_TRIALS
    }
}

impl Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.experiment(), self.trial())
    }
}

impl FromStr for RunId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let parts = text.split_once('.').unwrap_or((text, "1"));
        let number = |text: &str| text.parse::<i64>().ok();
        let id = number(parts.0).zip(number(parts.1)).and_then(|(experiment, trial)| match trial {
            // What belongs to the experiment as a whole.
            0 => experiment.to_string().parse().ok().map(Self::whole),
            trial => Self::new(experiment, trial),
        });
        let wrong =
            || Error::Invalid(format!("{text:?} is no run: write EXPERIMENT.TRIAL, as 12.1"));
        id.ok_or_else(wrong)
    }
}

impl Serialize for RunId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for RunId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_named_by_experiment_and_trial() {
        let run: RunId = "12.3".parse().expect("a run");
        assert_eq!((run.experiment().0, run.trial(), run.to_string().as_str()), (12, 3, "12.3"));
        assert_eq!("7".parse::<RunId>().expect("a run").to_string(), "7.1");
        assert_eq!("7.0".parse::<RunId>().expect("all of it"), RunId::whole(ExperimentId(7)));
        for wrong in ["", "0.0", "0.1", "x", "1.2.3", "../etc", "99999999999999999999", "-1.1"] {
            assert!(wrong.parse::<RunId>().is_err(), "{wrong}");
        }
        assert!("0".parse::<ExperimentId>().is_err());
    }
}
