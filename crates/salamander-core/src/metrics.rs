//! Metrics that can be merged: sums weighted by records, so that any split of the data over workers,
//! batches or checkpoints gives the same value.

pub mod number;
pub mod numbers;
mod ranking;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use ranking::{Histogram, area, average_precision, entries, histogram};

/// One metric's accumulated state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Metric {
    /// Sum over records divided by their number.
    Mean {
        /// Sum over records.
        #[serde(with = "number")]
        sum: f64,
        /// Number of records.
        #[serde(with = "number")]
        records: f64,
    },
    /// A plain sum.
    Sum {
        /// The sum.
        #[serde(with = "number")]
        value: f64,
    },
    /// The greatest value seen.
    Max {
        /// The value.
        #[serde(with = "number")]
        value: f64,
    },
    /// The smallest value seen.
    Min {
        /// The value.
        #[serde(with = "number")]
        value: f64,
    },
    /// Counts of (truth, prediction); its value is the accuracy.
    Confusion {
        /// Number of classes.
        classes: usize,
        /// Row-major counts, one row per true class.
        counts: Vec<u64>,
    },
    /// Histograms of scores in `[0, 1]`; its value is the area under the ROC curve.
    Auc {
        /// Bucket to (negatives, positives).
        #[serde(with = "entries")]
        buckets: Histogram,
    },
    /// Histograms of scores in `[0, 1]`; its value is the average precision, the area under the precision-recall curve.
    PrAuc {
        /// Bucket to (negatives, positives).
        #[serde(with = "entries")]
        buckets: Histogram,
    },
    /// The square root of a sum over records divided by their number.
    RootMean {
        /// Sum over records.
        #[serde(with = "number")]
        sum: f64,
        /// Number of records.
        #[serde(with = "number")]
        records: f64,
    },
    /// Counts by class. With two classes its value is that of the second, else the mean over all classes that occur.
    PerClass {
        /// What is computed from them.
        measure: Measure,
        /// Records of the class that were predicted to be of it.
        right: Vec<u64>,
        /// Records predicted to be of the class.
        predicted: Vec<u64>,
        /// Records of the class.
        actual: Vec<u64>,
    },
}

/// What is computed from the counts of a class; 0 where it would be divided by 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// The share of predictions of the class that are right.
    Precision,
    /// The share of records of the class that are found.
    Recall,
    /// The harmonic mean of the two.
    F1,
}

impl Measure {
    fn of(self, right: u64, predicted: u64, actual: u64) -> f64 {
        let (above, below) = match self {
            Measure::Precision => (right, predicted),
            Measure::Recall => (right, actual),
            Measure::F1 => (2 * right, predicted + actual),
        };
        if below == 0 { 0.0 } else { above as f64 / below as f64 }
    }
}

impl Metric {
    /// A mean over records.
    pub fn mean(sum: f64, records: f64) -> Self {
        Metric::Mean { sum, records }
    }

    /// An area under the ROC curve from scores in `[0, 1]` and truths.
    pub fn auc(scores: impl IntoIterator<Item = (f64, bool)>) -> Self {
        Metric::Auc { buckets: histogram(scores) }
    }

    /// An average precision from scores in `[0, 1]` and truths.
    pub fn pr_auc(scores: impl IntoIterator<Item = (f64, bool)>) -> Self {
        Metric::PrAuc { buckets: histogram(scores) }
    }

    /// The metric's value; NaN while nothing was counted.
    pub fn value(&self) -> f64 {
        match self {
            Metric::Mean { sum, records } => sum / records,
            Metric::Sum { value } | Metric::Max { value } | Metric::Min { value } => *value,
            Metric::Confusion { classes, counts } => {
                let right: u64 = counts.iter().step_by(classes + 1).sum();
                right as f64 / counts.iter().sum::<u64>() as f64
            }
            Metric::Auc { buckets } => area(buckets),
            Metric::PrAuc { buckets } => average_precision(buckets),
            Metric::RootMean { sum, records } => (sum / records).sqrt(),
            Metric::PerClass { measure, right, predicted, actual } => {
                if actual.iter().all(|count| *count == 0) {
                    return f64::NAN;
                }
                let classes = right.iter().zip(predicted).zip(actual);
                let wanted = classes.skip(usize::from(right.len() == 2));
                let occurring =
                    wanted.filter(|((_, predicted), actual)| **predicted + **actual > 0);
                let values: Vec<f64> = occurring
                    .map(|((right, all), actual)| measure.of(*right, *all, *actual))
                    .collect();
                values.iter().sum::<f64>() / values.len().max(1) as f64
            }
        }
    }

    /// The same value as a mean over records.
    fn to_mean(&self) -> Self {
        match self {
            Metric::Confusion { classes, counts } => {
                let right: u64 = counts.iter().step_by(classes + 1).sum();
                Metric::mean(right as f64, counts.iter().sum::<u64>() as f64)
            }
            other => other.clone(),
        }
    }

    /// Adds another part of the same metric; parts of different kinds are replaced by the newer.
    fn merge(&mut self, other: &Metric) {
        match (&mut *self, other) {
            (Metric::Mean { sum, records }, Metric::Mean { sum: s, records: r })
            | (Metric::RootMean { sum, records }, Metric::RootMean { sum: s, records: r }) => {
                *sum += s;
                *records += r;
            }
            (Metric::Sum { value }, Metric::Sum { value: v }) => *value += v,
            (Metric::Max { value }, Metric::Max { value: v }) => *value = value.max(*v),
            (Metric::Min { value }, Metric::Min { value: v }) => *value = value.min(*v),
            (
                Metric::Confusion { classes, counts },
                Metric::Confusion { classes: c, counts: other },
            ) if classes == c => add(counts, other),
            (
                Metric::PerClass { measure, right, predicted, actual },
                Metric::PerClass { measure: m, right: r, predicted: p, actual: a },
            ) if measure == m && right.len() == r.len() => {
                add(right, r);
                add(predicted, p);
                add(actual, a);
            }
            (Metric::Auc { buckets }, Metric::Auc { buckets: other })
            | (Metric::PrAuc { buckets }, Metric::PrAuc { buckets: other }) => {
                for (at, (negative, positive)) in other {
                    let entry = buckets.entry(*at).or_default();
                    entry.0 += negative;
                    entry.1 += positive;
                }
            }
            // A batch with a label that is no class counts no confusions: what is left is the share that is right.
            (Metric::Confusion { .. }, Metric::Mean { .. })
            | (Metric::Mean { .. }, Metric::Confusion { .. }) => {
                let (mut sum, more) = (self.to_mean(), other.to_mean());
                sum.merge(&more);
                *self = sum;
            }
            (mine, other) => *mine = other.clone(),
        }
    }
}

fn add(counts: &mut [u64], more: &[u64]) {
    counts.iter_mut().zip(more).for_each(|(count, more)| *count += more);
}

/// Named metrics in the order of their names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Metrics(BTreeMap<String, Metric>);

impl Metrics {
    /// No metrics.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same with one more.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, metric: Metric) -> Self {
        self.0.insert(name.into(), metric);
        self
    }

    /// Both together: `accuracy(..).and(top_k(..))`.
    #[must_use]
    pub fn and(mut self, other: Metrics) -> Self {
        self.merge(&other);
        self
    }

    /// Adds what another batch, worker or checkpoint counted.
    pub fn merge(&mut self, other: &Metrics) {
        for (name, metric) in &other.0 {
            match self.0.get_mut(name) {
                Some(mine) => mine.merge(metric),
                None => {
                    self.0.insert(name.clone(), metric.clone());
                }
            }
        }
    }

    /// Names and values.
    pub fn values(&self) -> BTreeMap<String, f64> {
        self.0.iter().map(|(name, metric)| (name.clone(), metric.value())).collect()
    }

    /// The metrics themselves, for reports.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Metric)> {
        self.0.iter().map(|(name, metric)| (name.as_str(), metric))
    }

    /// Whether nothing was counted.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
