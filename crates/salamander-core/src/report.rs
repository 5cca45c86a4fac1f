//! What a run tells about itself: its start, steps, epochs and end; what its workers measured on the way.
//!
//! All of it is typed here once, for callbacks, files, wires and screens.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::ledger::Tally;
use crate::metrics::{Metric, Metrics, number};
use crate::progress::{Progress, StepCount};
use crate::schedule::Plateau;

/// A report of a run. As JSON it is an object with one key: `{"step": {..}}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    /// Training starts, or goes on.
    Start(Start),
    /// A step is done.
    Step(StepReport),
    /// An epoch, or a validation within it, is done.
    Epoch(EpochReport),
    /// The run has ended.
    End(Box<EndReport>),
}

impl Report {
    /// Its place among the reports of the same version.
    pub fn part(&self) -> u32 {
        match self {
            Report::Start(_) => 0,
            Report::Step(_) => 1,
            Report::Epoch(_) => 2,
            Report::End(_) => 9,
        }
    }
}

/// Where training starts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Start {
    /// Steps done before, on resume.
    pub done: StepCount,
    /// Steps in all.
    pub total: StepCount,
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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepReport {
    /// The epoch, from 0.
    pub epoch: u64,
    /// The step within the epoch, from 0.
    pub step: u64,
    /// Steps done in all.
    pub steps: StepCount,
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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EpochReport {
    /// The epoch, from 0.
    pub epoch: u64,
    /// Whether it is complete.
    pub complete: bool,
    /// Steps done in all.
    pub steps: StepCount,
    /// Over the records trained in this epoch.
    pub training: Metrics,
    /// Over the validation data, if there was a validation.
    pub validation: Option<Metrics>,
    /// Seconds since the epoch began (or training resumed).
    pub seconds: f64,
    /// Whether the validation is the best so far.
    pub best: bool,
}

/// How a run ended; also the content of its `end.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EndReport {
    /// Where training stands.
    pub progress: Progress,
    /// Where each worker's time went.
    pub ranks: Vec<Timings>,
}

/// Time by kind of work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timings {
    /// Forward, backward and optimizer.
    pub compute: Duration,
    /// Between workers.
    pub exchange: Duration,
    /// Waiting for records.
    pub data: Duration,
    /// Validation.
    pub test: Duration,
    /// Everything.
    pub wall: Duration,
}

impl Timings {
    /// In seconds, under the names of the command line's contract.
    pub fn to_json(&self) -> Value {
        json!({
            "compute_s": self.compute.as_secs_f64(),
            "exchange_s": self.exchange.as_secs_f64(),
            "data_s": self.data.as_secs_f64(),
            "test_s": self.test.as_secs_f64(),
            "wall_s": self.wall.as_secs_f64(),
        })
    }

    /// Adds the time of other work; what the clock on the wall says is not a sum.
    pub fn add(&mut self, more: &Timings) {
        self.compute += more.compute;
        self.exchange += more.exchange;
        self.data += more.data;
        self.test += more.test;
    }
}

/// What a worker of asynchronous training measured while it computed a micro-batch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Its records.
    pub tally: Tally,
    /// The sum of their losses.
    #[serde(with = "number")]
    pub loss: f64,
    /// The loss and the model's metrics.
    pub metrics: Metrics,
    /// The learning rate.
    pub rate: f64,
    /// The gradients' norm before clipping, when clipping needed it.
    pub gradient_norm: Option<f64>,
    /// Where the time went.
    pub timings: Timings,
}

/// What workers of asynchronous training are told with each lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Brief {
    /// The state of an on-plateau schedule.
    pub plateau: Plateau,
}

/// What was found on a part of the data; parts add up to an [`Evaluation`], each record once.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EvaluationPart {
    /// The sum of the losses.
    #[serde(with = "number")]
    pub loss: f64,
    /// The model's metrics.
    pub metrics: Metrics,
    /// Records evaluated.
    pub records: u64,
    /// Records that could not be decoded.
    pub skipped: u64,
}

impl EvaluationPart {
    /// Adds another part.
    pub fn merge(&mut self, other: &EvaluationPart) {
        self.loss += other.loss;
        self.metrics.merge(&other.metrics);
        self.records += other.records;
        self.skipped += other.skipped;
    }

    /// This part plus another one, in this order.
    #[must_use]
    pub fn join(mut self, right: Self) -> Self {
        self.merge(&right);
        self
    }

    /// The whole, when all parts are in.
    pub fn finish(self) -> Evaluation {
        let Self { loss, mut metrics, records, skipped } = self;
        metrics.merge(&Metrics::new().with("loss", Metric::mean(loss, records as f64)));
        Evaluation { metrics, records, skipped }
    }
}

/// What an evaluation found.
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluation {
    /// The loss and the model's metrics.
    pub metrics: Metrics,
    /// Records evaluated.
    pub records: u64,
    /// Records that could not be decoded.
    pub skipped: u64,
}

/// The result of a task of a distributed evaluation or prediction: the file that it is in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskResult {
    /// The file's name in the folder of the job.
    pub file: String,
    /// Records that could not be decoded.
    pub skipped: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_objects_with_one_key() {
        let check = |report: Report, key: &str, part: u32| {
            let json = serde_json::to_value(&report).expect("JSON");
            let keys: Vec<&String> = json.as_object().expect("an object").keys().collect();
            assert_eq!(keys, [key]);
            assert_eq!(report.part(), part);
            assert_eq!(serde_json::from_value::<Report>(json).expect("read"), report);
        };
        check(Report::Start(Start { done: StepCount(3), ..Start::default() }), "start", 0);
        let step = StepReport { loss: f64::INFINITY, ..StepReport::default() };
        check(Report::Step(step), "step", 1);
        check(Report::Epoch(EpochReport::default()), "epoch", 2);
        check(Report::End(Box::default()), "end", 9);
    }

    #[test]
    fn parts_of_an_evaluation_add_up_to_a_mean() {
        let part = |loss, records| EvaluationPart { loss, records, ..EvaluationPart::default() };
        let mut all = part(3.0, 2);
        all.merge(&part(1.0, 2));
        let found = all.finish();
        assert_eq!((found.metrics.values()["loss"], found.records), (1.0, 4));
    }
}
