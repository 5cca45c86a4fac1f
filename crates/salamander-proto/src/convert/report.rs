//! Reports and what workers measure.

use std::collections::BTreeMap;
use std::time::Duration;

use salamander_core::ledger::Tally;
use salamander_core::metrics::{Metric, Metrics};
use salamander_core::report;
use salamander_core::schedule::Plateau;

use super::{Error, need, same_fields};
use crate::v1;

impl v1::Report {
    /// A report about a version.
    pub fn new(version: u64, report: report::Report) -> Self {
        use v1::report::Report as R;
        let report = match report {
            report::Report::Start(start) => R::Start(start.into()),
            report::Report::Step(step) => R::Step(step.into()),
            report::Report::Epoch(epoch) => R::Epoch(epoch.into()),
            report::Report::End(end) => R::End((*end).into()),
        };
        Self { version, report: Some(report) }
    }
}

impl TryFrom<v1::Report> for report::Report {
    type Error = Error;

    fn try_from(report: v1::Report) -> Result<Self, Error> {
        use v1::report::Report as R;
        Ok(match need(report.report, "Report", "report")? {
            R::Start(start) => Self::Start(start.into()),
            R::Step(step) => Self::Step(step.into()),
            R::Epoch(epoch) => Self::Epoch(epoch.try_into()?),
            R::End(end) => Self::End(Box::new(end.try_into()?)),
        })
    }
}

same_fields!(
    report::Start,
    v1::Start {
        done,
        total,
        total_batches,
        steps_per_epoch,
        epochs,
        records,
        parameters,
        workers,
        leads,
    }
);
same_fields!(
    report::StepReport,
    v1::Step {
        epoch,
        step,
        steps,
        batches,
        records,
        loss,
        learning_rate,
        gradient_norm,
        skipped,
        loss_scale,
    }
);
same_fields!(report::TaskResult, v1::TaskResult { file, skipped });
same_fields!(Plateau, v1::Plateau { factor, best, waited });

impl From<report::EpochReport> for v1::Epoch {
    fn from(epoch: report::EpochReport) -> Self {
        let report::EpochReport { epoch, complete, steps, training, validation, seconds, best } =
            epoch;
        let (training, validation) = (Some(training.into()), validation.map(Into::into));
        Self { epoch, complete, steps, training, validation, seconds, best }
    }
}

impl TryFrom<v1::Epoch> for report::EpochReport {
    type Error = Error;

    fn try_from(epoch: v1::Epoch) -> Result<Self, Error> {
        let v1::Epoch { epoch, complete, steps, training, validation, seconds, best } = epoch;
        let training = metrics(training, "Epoch", "training")?;
        let validation = validation.map(TryInto::try_into).transpose()?;
        Ok(Self { epoch, complete, steps, training, validation, seconds, best })
    }
}

impl From<report::EndReport> for v1::End {
    fn from(end: report::EndReport) -> Self {
        // Numbers that JSON has not are written as text, and all keys are text.
        let progress = serde_json::to_value(&end.progress).unwrap_or_default();
        let ranks = end.ranks.into_iter().map(Into::into).collect();
        Self { progress: Some(progress.into()), ranks }
    }
}

impl TryFrom<v1::End> for report::EndReport {
    type Error = Error;

    fn try_from(end: v1::End) -> Result<Self, Error> {
        let progress = need(end.progress, "End", "progress")?;
        let progress = serde_json::from_value(progress.into())
            .map_err(|error| Error::Progress(error.to_string()))?;
        Ok(Self { progress, ranks: end.ranks.into_iter().map(Into::into).collect() })
    }
}

impl From<report::Timings> for v1::Timings {
    fn from(timings: report::Timings) -> Self {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let report::Timings { compute, exchange, data, test, wall } = timings;
        Self {
            compute: nanos(compute),
            exchange: nanos(exchange),
            data: nanos(data),
            test: nanos(test),
            wall: nanos(wall),
        }
    }
}

impl From<v1::Timings> for report::Timings {
    fn from(timings: v1::Timings) -> Self {
        let v1::Timings { compute, exchange, data, test, wall } = timings;
        let [compute, exchange, data, test, wall] =
            [compute, exchange, data, test, wall].map(Duration::from_nanos);
        Self { compute, exchange, data, test, wall }
    }
}

impl From<Metrics> for v1::Metrics {
    fn from(metrics: Metrics) -> Self {
        use v1::metric::Kind;
        let metric = |(name, metric): (&str, &Metric)| {
            let kind = match metric {
                Metric::Mean { sum, records } => {
                    Kind::Mean(v1::Mean { sum: *sum, records: *records })
                }
                Metric::Sum { value } => Kind::Sum(*value),
                Metric::Max { value } => Kind::Max(*value),
                Metric::Min { value } => Kind::Min(*value),
                Metric::Confusion { classes, counts } => {
                    let (classes, counts) = (*classes as u64, counts.clone());
                    Kind::Confusion(v1::Confusion { classes, counts })
                }
                Metric::Auc { buckets } => Kind::Auc(v1::Auc {
                    buckets: buckets.keys().copied().collect(),
                    negatives: buckets.values().map(|(negatives, _)| *negatives).collect(),
                    positives: buckets.values().map(|(_, positives)| *positives).collect(),
                }),
            };
            v1::Metric { name: name.to_string(), kind: Some(kind) }
        };
        Self { metrics: metrics.iter().map(metric).collect() }
    }
}

impl TryFrom<v1::Metrics> for Metrics {
    type Error = Error;

    fn try_from(metrics: v1::Metrics) -> Result<Self, Error> {
        use v1::metric::Kind;
        let mut all = Metrics::new();
        for v1::Metric { name, kind } in metrics.metrics {
            let metric = match need(kind, "Metric", "kind")? {
                Kind::Mean(v1::Mean { sum, records }) => Metric::Mean { sum, records },
                Kind::Sum(value) => Metric::Sum { value },
                Kind::Max(value) => Metric::Max { value },
                Kind::Min(value) => Metric::Min { value },
                Kind::Confusion(v1::Confusion { classes, counts }) => {
                    Metric::Confusion { classes: classes as usize, counts }
                }
                Kind::Auc(v1::Auc { buckets, negatives, positives }) => {
                    let counts = negatives.into_iter().zip(positives);
                    Metric::Auc { buckets: buckets.into_iter().zip(counts).collect() }
                }
            };
            all = all.with(name, metric);
        }
        Ok(all)
    }
}

fn metrics(
    metrics: Option<v1::Metrics>,
    message: &'static str,
    field: &'static str,
) -> Result<Metrics, Error> {
    need(metrics, message, field)?.try_into()
}

impl From<report::Measured> for v1::Measured {
    fn from(measured: report::Measured) -> Self {
        let report::Measured { tally, loss, metrics, rate, gradient_norm, timings } = measured;
        Self {
            tally: Some(tally.into()),
            loss,
            metrics: Some(metrics.into()),
            rate,
            gradient_norm,
            timings: Some(timings.into()),
        }
    }
}

impl TryFrom<v1::Measured> for report::Measured {
    type Error = Error;

    fn try_from(measured: v1::Measured) -> Result<Self, Error> {
        Ok(Self {
            tally: need(measured.tally, "Measured", "tally")?.into(),
            loss: measured.loss,
            metrics: metrics(measured.metrics, "Measured", "metrics")?,
            rate: measured.rate,
            gradient_norm: measured.gradient_norm,
            timings: need(measured.timings, "Measured", "timings")?.into(),
        })
    }
}

impl From<Tally> for v1::Tally {
    fn from(tally: Tally) -> Self {
        let Tally { applied, skipped, overflowed, digest, positions } = tally;
        let range = |range: std::ops::Range<u64>| v1::Range { start: range.start, end: range.end };
        let positions = positions.into_iter().map(range).collect();
        Self { applied, skipped, overflowed, digest, positions }
    }
}

impl From<v1::Tally> for Tally {
    fn from(tally: v1::Tally) -> Self {
        let v1::Tally { applied, skipped, overflowed, digest, positions } = tally;
        let positions = positions.into_iter().map(|range| range.start..range.end).collect();
        Self { applied, skipped, overflowed, digest, positions }
    }
}

impl From<report::EvaluationPart> for v1::EvaluationPart {
    fn from(part: report::EvaluationPart) -> Self {
        let report::EvaluationPart { loss, metrics, records, skipped } = part;
        Self { loss, metrics: Some(metrics.into()), records, skipped }
    }
}

impl TryFrom<v1::EvaluationPart> for report::EvaluationPart {
    type Error = Error;

    fn try_from(part: v1::EvaluationPart) -> Result<Self, Error> {
        let metrics = metrics(part.metrics, "EvaluationPart", "metrics")?;
        Ok(Self { loss: part.loss, metrics, records: part.records, skipped: part.skipped })
    }
}

impl From<serde_json::Value> for v1::Value {
    fn from(value: serde_json::Value) -> Self {
        use serde_json::Value as J;
        use v1::value::Value as V;
        let value = match value {
            J::Null => None,
            J::Bool(value) => Some(V::Boolean(value)),
            J::Number(number) => Some(match (number.as_u64(), number.as_i64()) {
                (Some(unsigned), _) => V::Unsigned(unsigned),
                (None, Some(signed)) => V::Signed(signed),
                (None, None) => V::Number(number.as_f64().unwrap_or(f64::NAN)),
            }),
            J::String(text) => Some(V::Text(text)),
            J::Array(values) => {
                Some(V::List(v1::List { values: values.into_iter().map(Into::into).collect() }))
            }
            J::Object(fields) => {
                let fields = fields.into_iter().map(|(key, value)| (key, value.into())).collect();
                Some(V::Object(v1::Object { fields }))
            }
        };
        Self { value }
    }
}

impl From<v1::Value> for serde_json::Value {
    fn from(value: v1::Value) -> Self {
        use v1::value::Value as V;
        match value.value {
            None => Self::Null,
            Some(V::Boolean(value)) => value.into(),
            Some(V::Unsigned(value)) => value.into(),
            Some(V::Signed(value)) => value.into(),
            Some(V::Number(value)) => value.into(),
            Some(V::Text(text)) => text.into(),
            Some(V::List(list)) => list.values.into_iter().map(Self::from).collect(),
            Some(V::Object(object)) => {
                let fields: BTreeMap<String, v1::Value> = object.fields.into_iter().collect();
                fields.into_iter().map(|(key, value)| (key, Self::from(value))).collect()
            }
        }
    }
}
