//! Metrics merge, keep every bit in JSON, and are what other libraries call them.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use super::*;

#[test]
fn every_metric_survives_json() {
    let metrics = Metrics::new()
        .with("loss", Metric::mean(f64::INFINITY, 2.0))
        .with("accuracy", Metric::Confusion { classes: 2, counts: vec![3, 1, 2, 4] })
        .with("auc", Metric::auc([(0.3, false), (0.7, true), (0.2, true)]))
        .with("pr_auc", Metric::pr_auc([(0.3, false), (0.7, true)]))
        .with("rmse", Metric::RootMean { sum: 8.0, records: 2.0 })
        .with(
            "f1",
            Metric::PerClass {
                measure: Measure::F1,
                right: vec![1, 2],
                predicted: vec![2, 3],
                actual: vec![2, 3],
            },
        );
    let text = serde_json::to_string(&metrics).expect("JSON");
    assert_eq!(serde_json::from_str::<Metrics>(&text).expect("read"), metrics);
}

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
    struct NumbersOnly(#[serde(with = "numbers")] BTreeMap<String, f64>);
    let values = [("auc", f64::NAN), ("loss", f64::INFINITY), ("f1", 0.5)];
    let values = NumbersOnly(values.map(|(name, value)| (name.to_string(), value)).into());
    let text = serde_json::to_string(&values).expect("JSON");
    let NumbersOnly(read) = serde_json::from_str(&text).expect("read");
    assert!(read["auc"].is_nan() && read["loss"] == f64::INFINITY && read["f1"] == 0.5);
    let NumbersOnly(old) = serde_json::from_str(r#"{"auc": null}"#).expect("read");
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
