//! Metrics that can be merged: sums weighted by records, so that any split of the data over workers,
//! batches or checkpoints gives the same value.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Buckets of the score histogram behind [`Metric::Auc`]: the error is below 1e-4 even when all
/// scores lie within a hundredth.
const AUC_BUCKETS: usize = 1 << 16;

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
        buckets: BTreeMap<u32, (u64, u64)>,
    },
    /// Histograms of scores in `[0, 1]`; its value is the average precision, the area under the precision-recall curve.
    PrAuc {
        /// Bucket to (negatives, positives).
        #[serde(with = "entries")]
        buckets: BTreeMap<u32, (u64, u64)>,
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

/// Numbers in JSON, which has no NaN and no infinity: those are written as text.
pub mod number {
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum JsonNumber {
        Number(f64),
        Text(String),
    }

    /// For `#[serde(with = "number")]`.
    pub fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        let finite = value.is_finite();
        let written =
            if finite { JsonNumber::Number(*value) } else { JsonNumber::Text(value.to_string()) };
        written.serialize(serializer)
    }

    /// For `#[serde(with = "number")]`.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        match JsonNumber::deserialize(deserializer)? {
            JsonNumber::Number(value) => Ok(value),
            JsonNumber::Text(text) => text.parse().map_err(D::Error::custom),
        }
    }
}

/// Values by name, of which each may be NaN or infinite; see [`number`]. `null`, which was written for those, is NaN.
pub mod numbers {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    #[serde(transparent)]
    struct Number(#[serde(with = "super::number")] f64);

    type Values = BTreeMap<String, f64>;

    /// For `#[serde(with = "numbers")]`.
    pub fn serialize<S: Serializer>(values: &Values, out: S) -> Result<S::Ok, S::Error> {
        out.collect_map(values.iter().map(|(name, value)| (name, Number(*value))))
    }

    /// For `#[serde(with = "numbers")]`.
    pub fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<Values, D::Error> {
        let values = BTreeMap::<String, Option<Number>>::deserialize(input)?;
        let value = |number: Option<Number>| number.map_or(f64::NAN, |Number(value)| value);
        Ok(values.into_iter().map(|(name, number)| (name, value(number))).collect())
    }
}

/// Buckets as a list of (bucket, negatives, positives): the keys of JSON's objects are text, which a tagged enum
/// does not read as numbers again.
mod entries {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serializer};

    type Buckets = BTreeMap<u32, (u64, u64)>;

    pub(super) fn serialize<S: Serializer>(buckets: &Buckets, out: S) -> Result<S::Ok, S::Error> {
        out.collect_seq(
            buckets.iter().map(|(at, (negatives, positives))| (at, negatives, positives)),
        )
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<Buckets, D::Error> {
        let list = Vec::<(u32, u64, u64)>::deserialize(input)?;
        Ok(list
            .into_iter()
            .map(|(at, negatives, positives)| (at, (negatives, positives)))
            .collect())
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

fn histogram(scores: impl IntoIterator<Item = (f64, bool)>) -> BTreeMap<u32, (u64, u64)> {
    let mut buckets = BTreeMap::<u32, (u64, u64)>::new();
    for (score, truth) in scores {
        let at = (score.clamp(0.0, 1.0) * (AUC_BUCKETS - 1) as f64).round() as u32;
        let entry = buckets.entry(at).or_default();
        *(if truth { &mut entry.1 } else { &mut entry.0 }) += 1;
    }
    buckets
}

/// The mean over positives of the precision among all that score at least as high.
fn average_precision(buckets: &BTreeMap<u32, (u64, u64)>) -> f64 {
    let (mut seen, mut found, mut sum) = (0u64, 0u64, 0.0);
    for (negative, positive) in buckets.values().rev() {
        seen += negative + positive;
        found += positive;
        sum += *positive as f64 * (found as f64 / seen as f64);
    }
    sum / found as f64
}

/// The probability that a positive scores above a negative, ties counted half.
fn area(buckets: &BTreeMap<u32, (u64, u64)>) -> f64 {
    let (mut negatives, mut positives, mut wins) = (0.0, 0.0, 0.0);
    for (negative, positive) in buckets.values() {
        let (negative, positive) = (*negative as f64, *positive as f64);
        wins += positive * (negatives + negative / 2.0);
        negatives += negative;
        positives += positive;
    }
    wins / (negatives * positives)
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

#[cfg(test)]
mod tests {
    #[test]
    fn every_metric_survives_json() {
        let metrics = super::Metrics::new()
            .with("loss", super::Metric::mean(f64::INFINITY, 2.0))
            .with("accuracy", super::Metric::Confusion { classes: 2, counts: vec![3, 1, 2, 4] })
            .with("auc", super::Metric::auc([(0.3, false), (0.7, true), (0.2, true)]))
            .with("pr_auc", super::Metric::pr_auc([(0.3, false), (0.7, true)]))
            .with("rmse", super::Metric::RootMean { sum: 8.0, records: 2.0 })
            .with(
                "f1",
                super::Metric::PerClass {
                    measure: super::Measure::F1,
                    right: vec![1, 2],
                    predicted: vec![2, 3],
                    actual: vec![2, 3],
                },
            );
        let text = serde_json::to_string(&metrics).expect("JSON");
        assert_eq!(serde_json::from_str::<super::Metrics>(&text).expect("read"), metrics);
    }

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Schedules and the best checkpoint depend on the last digit of what a resumed run reads.
        #[test]
        fn metrics_keep_every_bit_in_json(bits: u64, records in 1u64..1 << 40) {
            let sum = f64::from_bits(bits);
            let metrics = Metrics::new().with("loss", Metric::mean(sum, records as f64));
            let text = serde_json::to_string(&metrics).expect("JSON");
            let read: Metrics = serde_json::from_str(&text).expect("read");
            let Some((_, Metric::Mean { sum: read, .. })) = read.iter().next() else {
                return Err(TestCaseError::fail("it is a mean"));
            };
            prop_assert!(read.to_bits() == bits || read.is_nan() && sum.is_nan(), "{text}");
        }

        #[test]
        fn reports_keep_every_bit_in_json(loss: u64, rate: u64) {
            let number = |bits: u64| Some(f64::from_bits(bits)).filter(|value| value.is_finite());
            let (loss, rate) = (number(loss).unwrap_or(0.1), number(rate).unwrap_or(0.2));
            let step = crate::report::StepReport { loss, learning_rate: rate, ..Default::default() };
            let text = serde_json::to_vec(&step).expect("JSON");
            let read: crate::report::StepReport = serde_json::from_slice(&text).expect("read");
            prop_assert_eq!(read.loss.to_bits(), loss.to_bits());
            prop_assert_eq!(read.learning_rate.to_bits(), rate.to_bits());
        }
    }

    #[test]
    fn means_are_weighted_by_records() {
        let mut a = Metrics::new().with("loss", Metric::mean(64.0, 64.0));
        a.merge(&Metrics::new().with("loss", Metric::mean(6.0, 2.0)));
        assert_eq!(a.values()["loss"], 70.0 / 66.0);
    }

    #[test]
    fn batches_with_an_unknown_label_take_nothing_from_the_others() {
        let clean = Metric::Confusion { classes: 2, counts: vec![3, 1, 2, 4] };
        let mut all = Metrics::new().with("accuracy", clean.clone());
        all.merge(&Metrics::new().with("accuracy", Metric::mean(1.0, 2.0)));
        all.merge(&Metrics::new().with("accuracy", clean));
        assert_eq!(all.values()["accuracy"], 15.0 / 22.0);
    }

    #[test]
    fn values_that_are_no_numbers_survive_json() {
        #[derive(Serialize, Deserialize)]
        struct Values(#[serde(with = "numbers")] BTreeMap<String, f64>);
        let values = [("auc", f64::NAN), ("loss", f64::INFINITY), ("f1", 0.5)];
        let values = Values(values.map(|(name, value)| (name.to_string(), value)).into());
        let text = serde_json::to_string(&values).expect("JSON");
        let Values(read) = serde_json::from_str(&text).expect("read");
        assert!(read["auc"].is_nan() && read["loss"] == f64::INFINITY && read["f1"] == 0.5);
        let Values(old) = serde_json::from_str(r#"{"auc": null}"#).expect("read");
        assert!(old["auc"].is_nan());
    }

    #[test]
    fn confusion_gives_accuracy() {
        let metric = Metric::Confusion { classes: 2, counts: vec![3, 1, 2, 4] };
        assert_eq!(metric.value(), 0.7);
    }

    #[test]
    fn classes_are_measured_as_scikit_learn_does() {
        let per_class = |measure, right: &[u64], predicted: &[u64], actual: &[u64]| {
            let [right, predicted, actual] = [right, predicted, actual].map(<[u64]>::to_vec);
            Metric::PerClass { measure, right, predicted, actual }.value()
        };
        // truth 1 1 1 0 0, predicted 1 1 0 1 0
        assert_eq!(per_class(Measure::Precision, &[1, 2], &[2, 3], &[2, 3]), 2.0 / 3.0);
        assert_eq!(per_class(Measure::Recall, &[1, 2], &[2, 3], &[2, 3]), 2.0 / 3.0);
        // truth 0 1 2 2, predicted 0 2 2 2; macro averages of 1, 0, 2/3 and of 1, 0, 4/5
        let counts = [[1, 0, 2], [1, 0, 3], [1, 1, 2]];
        let [right, predicted, actual] = &counts;
        let precision = per_class(Measure::Precision, right, predicted, actual);
        assert!((precision - (5.0 / 3.0) / 3.0).abs() < 1e-12);
        let f1 = per_class(Measure::F1, right, predicted, actual);
        assert!((f1 - (1.0 + 0.8) / 3.0).abs() < 1e-12);
        // Nobody was of the class and nobody was taken for it.
        assert_eq!(per_class(Measure::F1, &[4, 0], &[4, 0], &[4, 0]), 0.0);
        assert!(per_class(Measure::F1, &[0, 0], &[0, 0], &[0, 0]).is_nan());
    }

    #[test]
    fn average_precision_goes_by_the_ranks_of_positives() {
        // scikit-learn's example: 0.8333 for these four.
        let scores = [(0.1, false), (0.4, false), (0.35, true), (0.8, true)];
        assert!((Metric::pr_auc(scores).value() - (1.0 + 2.0 / 3.0) / 2.0).abs() < 1e-12);
    }

    fn exact_auc(scores: &[(f64, bool)]) -> f64 {
        let (mut wins, mut pairs) = (0.0, 0.0);
        for (p, _) in scores.iter().filter(|(_, truth)| *truth) {
            for (n, _) in scores.iter().filter(|(_, truth)| !*truth) {
                pairs += 1.0;
                wins += if p > n {
                    1.0
                } else if p == n {
                    0.5
                } else {
                    0.0
                };
            }
        }
        wins / pairs
    }

    proptest! {
        #[test]
        fn auc_is_the_share_of_ordered_pairs(
            scores in prop::collection::vec((0u32..200, any::<bool>()), 2..80),
        ) {
            let scores: Vec<(f64, bool)> =
                scores.into_iter().map(|(s, t)| (f64::from(s) / 200.0, t)).collect();
            prop_assume!(scores.iter().any(|(_, t)| *t) && scores.iter().any(|(_, t)| !*t));
            let (left, right) = scores.split_at(scores.len() / 2);
            let mut merged = Metrics::new().with("auc", Metric::auc(left.iter().copied()));
            merged.merge(&Metrics::new().with("auc", Metric::auc(right.iter().copied())));
            prop_assert!((merged.values()["auc"] - exact_auc(&scores)).abs() < 1e-9);
        }
    }
}
