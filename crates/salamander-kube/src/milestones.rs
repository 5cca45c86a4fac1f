//! What a run told on its way, made small: what it has to do, how its last epochs went, and what its ledger says.
//! It goes with the progress, so that a command shows the same bar and table as for a run on one machine.

use std::collections::BTreeMap;

use salamander_core::ledger::LedgerLine;
use salamander_core::metrics::{Metric, Metrics};
use salamander_core::progress::StepCount;
use salamander_core::report::{EpochReport, Report, Start};
use serde::{Deserialize, Serialize};

/// So many epochs are told: whoever follows looks more often than they end, mostly.
const EPOCHS: usize = 16;
/// Longer ledgers are left to `salamander ledger`: an annotation has a limit.
const LINES: usize = 200;

/// What a run told so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Milestones {
    /// What it has to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<Start>,
    /// Its last epochs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub epochs: Vec<Epoch>,
    /// How often each epoch's records were applied, once the run is over.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ledger: Vec<LedgerLine>,
}

/// Values by their names; what is no number is missing.
pub type Values = BTreeMap<String, Option<f64>>;

/// How an epoch, or a part of it, went.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Epoch {
    /// The epoch, from 0.
    pub epoch: u64,
    /// Whether it is complete.
    pub complete: bool,
    /// Steps done in all.
    pub steps: StepCount,
    /// How long it took.
    pub seconds: f64,
    /// Over the records that were trained.
    pub training: Values,
    /// Over the validation data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validation: Option<Values>,
}

impl Milestones {
    /// Whether nothing was told.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The last validation's metrics.
    pub fn last_validation(&self) -> Option<&Values> {
        self.epochs.iter().rev().find_map(|epoch| epoch.validation.as_ref())
    }

    /// The last validation's metrics in one line.
    pub fn validation(&self) -> Option<String> {
        let values = self.last_validation()?;
        let shown = |(name, value): (&String, &Option<f64>)| match value {
            Some(value) => format!("{name} {value:.4}"),
            None => format!("{name} nan"),
        };
        Some(values.iter().map(shown).collect::<Vec<_>>().join(", "))
    }

    /// Takes a report of the run.
    pub fn take(&mut self, report: Report) {
        match report {
            Report::Start(start) => self.plan = Some(start),
            Report::Epoch(epoch) => {
                // A run that went back to a checkpoint tells epochs again.
                self.epochs.retain(|known| known.steps < epoch.steps);
                self.epochs.push(epoch.into());
                let surplus = self.epochs.len().saturating_sub(EPOCHS);
                self.epochs.drain(..surplus);
            }
            Report::End(end) => {
                self.ledger = end.progress.ledger.lines();
                self.ledger.truncate(LINES);
            }
            Report::Step(_) => {}
        }
    }
}

impl From<EpochReport> for Epoch {
    fn from(report: EpochReport) -> Self {
        Self {
            epoch: report.epoch,
            complete: report.complete,
            steps: report.steps,
            seconds: report.seconds,
            training: finite(&report.training),
            validation: report.validation.as_ref().map(finite),
        }
    }
}

impl From<&Epoch> for EpochReport {
    fn from(epoch: &Epoch) -> Self {
        Self {
            epoch: epoch.epoch,
            complete: epoch.complete,
            steps: epoch.steps,
            training: metrics(&epoch.training),
            validation: epoch.validation.as_ref().map(metrics),
            seconds: epoch.seconds,
            best: false,
        }
    }
}

/// Values whose parts nobody needs any more.
fn metrics(values: &Values) -> Metrics {
    let add = |all: Metrics, (name, value): (&String, &Option<f64>)| {
        all.with(name, Metric::mean(value.unwrap_or(f64::NAN), 1.0))
    };
    values.iter().fold(Metrics::new(), add)
}

fn finite(metrics: &Metrics) -> Values {
    let finite = |value: f64| Some(value).filter(|value| value.is_finite());
    metrics.values().into_iter().map(|(name, value)| (name, finite(value))).collect()
}

#[cfg(test)]
mod tests {
    use salamander_core::report::StepReport;

    use super::*;

    fn epoch(epoch: u64, steps: u64, loss: f64) -> Report {
        let training = Metrics::new().with("loss", Metric::mean(loss, 1.0));
        Report::Epoch(EpochReport {
            epoch,
            complete: true,
            steps: StepCount(steps),
            training,
            ..Default::default()
        })
    }

    #[test]
    fn reports_become_small_and_a_step_back_is_one() {
        let mut told = Milestones::default();
        assert!(told.is_empty());
        let start =
            Start { total: StepCount(40), steps_per_epoch: 20, epochs: 2, ..Start::default() };
        told.take(Report::Start(start));
        let plan = told.plan.clone().expect("a plan");
        assert_eq!((plan.total.0, plan.steps_per_epoch, plan.epochs), (40, 20, 2));
        told.take(epoch(0, 20, 0.5));
        told.take(epoch(1, 40, f64::NAN));
        told.take(Report::Step(StepReport { steps: StepCount(41), ..StepReport::default() }));
        assert_eq!(told.epochs.len(), 2);
        assert_eq!(told.epochs[0].training["loss"], Some(0.5));
        assert_eq!(EpochReport::from(&told.epochs[0]).training.values()["loss"], 0.5);
        assert_eq!((told.epochs[1].training["loss"], &told.epochs[1].validation), (None, &None));
        told.take(epoch(0, 20, 0.25));
        assert_eq!(told.epochs.len(), 1, "what came after it is told again");
        for number in 1..100 {
            told.take(epoch(number, 20 + number, 0.1));
        }
        assert_eq!((told.epochs.len(), told.epochs[EPOCHS - 1].epoch), (EPOCHS, 99));
        let text = serde_json::to_string(&told).expect("written");
        assert_eq!(serde_json::from_str::<Milestones>(&text).expect("read"), told);
    }
}
