//! What a run told on its way, made small: what it has to do, how its last epochs went, and what its ledger says.
//! It goes with the progress, so that a command shows the same bar and table as for a run on one machine.

use std::collections::BTreeMap;

use salamander_core::ledger::{Ledger, Line};
use salamander_core::metrics::Metrics;
use serde::{Deserialize, Serialize};
use serde_json::Value;

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
    pub plan: Option<Plan>,
    /// Its last epochs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub epochs: Vec<Epoch>,
    /// How often each epoch's records were applied, once the run is over.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ledger: Vec<Line>,
}

/// What a run has to do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Plan {
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
    pub steps: u64,
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

    /// Takes a report of a worker. What another version of the program tells is left out.
    pub fn take(&mut self, report: &str) {
        let Ok(report) = serde_json::from_str::<Value>(report) else { return };
        if let Ok(plan) = serde_json::from_value(report["start"].clone()) {
            self.plan = Some(plan);
        }
        if let Some(epoch) = read_epoch(&report["epoch"]) {
            // A run that went back to a checkpoint tells epochs again.
            self.epochs.retain(|known| known.steps < epoch.steps);
            self.epochs.push(epoch);
            let surplus = self.epochs.len().saturating_sub(EPOCHS);
            self.epochs.drain(..surplus);
        }
        let ledger = report["end"]["progress"]["ledger"].clone();
        if let Ok(ledger) = serde_json::from_value::<Ledger>(ledger) {
            self.ledger = ledger.lines();
            self.ledger.truncate(LINES);
        }
    }
}

fn read_epoch(report: &Value) -> Option<Epoch> {
    let metrics = |value: &Value| serde_json::from_value::<Metrics>(value.clone()).ok();
    Some(Epoch {
        epoch: report["epoch"].as_u64()?,
        complete: report["complete"].as_bool()?,
        steps: report["steps"].as_u64()?,
        seconds: report["seconds"].as_f64().unwrap_or(0.0),
        training: finite(&metrics(&report["training"])?),
        validation: metrics(&report["validation"]).map(|metrics| finite(&metrics)),
    })
}

fn finite(metrics: &Metrics) -> Values {
    let finite = |value: f64| Some(value).filter(|value| value.is_finite());
    metrics.values().into_iter().map(|(name, value)| (name, finite(value))).collect()
}

#[cfg(test)]
mod tests {
    use salamander_core::metrics::Metric;
    use serde_json::json;

    use super::*;

    fn epoch(epoch: u64, steps: u64, loss: f64) -> String {
        let metrics = Metrics::new().with("loss", Metric::mean(loss, 1.0));
        let report = json!({
            "epoch": epoch, "complete": true, "steps": steps, "seconds": 2.0, "best": true,
            "training": metrics, "validation": null,
        });
        json!({"epoch": report}).to_string()
    }

    #[test]
    fn reports_become_small_and_a_step_back_is_one() {
        let mut told = Milestones::default();
        assert!(told.is_empty());
        told.take(r#"{"start": {"done": 0, "total": 40, "steps_per_epoch": 20, "epochs": 2, "leads": true}}"#);
        let plan = told.plan.clone().expect("a plan");
        assert_eq!((plan.total, plan.steps_per_epoch, plan.epochs), (40, 20, 2));
        told.take(&epoch(0, 20, 0.5));
        told.take(&epoch(1, 40, f64::NAN));
        told.take("{");
        told.take(r#"{"step": {"steps": 41}}"#);
        assert_eq!(told.epochs.len(), 2);
        assert_eq!(told.epochs[0].training["loss"], Some(0.5));
        assert_eq!((told.epochs[1].training["loss"], &told.epochs[1].validation), (None, &None));
        told.take(&epoch(0, 20, 0.25));
        assert_eq!(told.epochs.len(), 1, "what came after it is told again");
        for number in 1..100 {
            told.take(&epoch(number, 20 + number, 0.1));
        }
        assert_eq!((told.epochs.len(), told.epochs[EPOCHS - 1].epoch), (EPOCHS, 99));
        let text = serde_json::to_string(&told).expect("written");
        assert_eq!(serde_json::from_str::<Milestones>(&text).expect("read"), told);
    }
}
