//! A trial, as the search knows it.

use std::sync::Arc;

use serde_json::Value as Json;

use crate::machine::{Ending, TrialId};
use crate::space::{LocatedPoint, Space, SpacePoint};

/// Where a trial stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrialState {
    /// It trains, or could.
    Running,
    /// It waits with its checkpoint.
    Paused,
    /// It is over, as the search decided.
    Stopped,
    /// It ended by itself.
    Ended(Ending),
}

impl TrialState {
    /// In a word, for tables and files.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Stopped | Self::Ended(Ending::Completed) => "completed",
            Self::Ended(Ending::Failed) => "failed",
            Self::Ended(Ending::Invalid) => "invalid",
        }
    }

    /// Whether nothing more becomes of it.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Stopped | Self::Ended(_))
    }
}

/// A trial, as the search knows it.
#[derive(Clone, Debug)]
pub struct Trial {
    /// Its number.
    pub id: TrialId,
    /// Where it stands.
    pub state: TrialState,
    /// The next length at which it is measured.
    pub until: u64,
    /// Lengths and what was measured there.
    pub reports: Vec<(u64, f64)>,
    /// Why it stands where it stands.
    pub reason: String,
    /// How many of the reports were decided on. In the order `fixed` it depends on arrival which others there are yet.
    pub(crate) heard: usize,
    pub(crate) source: ValueSource,
    /// Where the point lies, for TPE, which learns from it; else nothing.
    pub(crate) at: LocatedPoint,
}

/// What a trial's hyperparameters follow from: a search of a hundred thousand keeps the few numbers of each, and no
/// tree of names.
#[derive(Clone, Debug)]
pub(crate) enum ValueSource {
    /// A point that was drawn.
    Drawn(Arc<Space>, SpacePoint),
    /// A point of a grid.
    Given(Box<Json>),
}

impl Trial {
    /// Its hyperparameters, nested as in the file.
    pub fn hparams(&self) -> Json {
        match &self.source {
            ValueSource::Drawn(space, point) => space.values(point),
            ValueSource::Given(values) => (**values).clone(),
        }
    }

    /// Where they were drawn, if they were.
    pub(crate) fn point(&self) -> Option<&SpacePoint> {
        match &self.source {
            ValueSource::Drawn(_, point) => Some(point),
            ValueSource::Given(_) => None,
        }
    }

    /// How far it has come.
    pub fn length(&self) -> u64 {
        self.reports.last().map_or(0, |(length, _)| *length)
    }

    /// The best of what it measured, if that was a number.
    pub fn best(&self, smaller_is_better: bool) -> Option<f64> {
        let metrics = self.reports.iter().map(|(_, metric)| *metric);
        metrics
            .filter(|metric| !metric.is_nan())
            .reduce(|a, b| if smaller_is_better { a.min(b) } else { a.max(b) })
    }

    /// What it measured last.
    pub fn metric(&self) -> Option<f64> {
        self.reports.last().map(|(_, metric)| *metric)
    }
}
