//! Metrics from outputs and labels: what a trial's [`metrics`](crate::Trial::metrics) returns.
//!
//! Metrics of batches add up, so that the value over all records is exact:
//!
//! ```
//! use salamander::prelude::*;
//!
//! let device = Device::flex();
//! let scores = Tensor::<2>::from_data([[0.9, 0.1], [0.2, 0.8], [0.7, 0.3]], &device);
//! let labels = Tensor::<1, Int>::from_data([0, 1, 1], &device);
//! let mut all = accuracy(&scores, &labels).and(top_k(2, &scores, &labels));
//! assert_eq!(all.values()["top_2"], 1.0);
//! all.merge(&accuracy(&scores, &Tensor::from_data([0, 1, 0], &device)));
//! assert_eq!(all.values()["accuracy"], 5.0 / 6.0);
//! ```

use burn::tensor::{DType, Int, Tensor};
use salamander_core::metrics::{Measure, Metric, Metrics};

/// Above this many classes only the accuracy is kept, not the whole confusion matrix.
const MAX_CONFUSION: usize = 200;

/// `accuracy`: the share of records whose greatest output is at the label. A single output is a score before any
/// sigmoid: above 0 it says 1, else 0. Up to 200 classes it also feeds the report and the confusion matrix.
pub fn accuracy(output: &Tensor<2>, labels: &Tensor<1, Int>) -> Metrics {
    matches(predicted(output), ints(labels.clone()), classes(output))
}

/// `precision`: how many of those that are taken for a class are of it. With two classes, or a single output, that of
/// class 1; with more, the mean over all classes that occur.
pub fn precision(output: &Tensor<2>, labels: &Tensor<1, Int>) -> Metrics {
    per_class("precision", Measure::Precision, output, labels)
}

/// `recall`: how many of those of a class are found; of which classes as with [`precision`].
pub fn recall(output: &Tensor<2>, labels: &Tensor<1, Int>) -> Metrics {
    per_class("recall", Measure::Recall, output, labels)
}

/// `f1`: the harmonic mean of [`precision`] and [`recall`] of a class.
pub fn f1(output: &Tensor<2>, labels: &Tensor<1, Int>) -> Metrics {
    per_class("f1", Measure::F1, output, labels)
}

fn per_class(name: &str, measure: Measure, output: &Tensor<2>, labels: &Tensor<1, Int>) -> Metrics {
    let classes = classes(output);
    let (predictions, truth) = (predicted(output), ints(labels.clone()));
    let count = |chosen: &mut dyn Iterator<Item = i64>| {
        let mut counts = vec![0; classes];
        for class in chosen.filter_map(|class| usize::try_from(class).ok()) {
            if let Some(count) = counts.get_mut(class) {
                *count += 1;
            }
        }
        counts
    };
    let pairs = predictions.iter().zip(&truth);
    let right = count(&mut pairs.filter(|(p, t)| p == t).map(|(p, _)| *p));
    let predicted = count(&mut predictions.iter().copied());
    let actual = count(&mut truth.iter().copied());
    Metrics::new().with(name, Metric::PerClass { measure, right, predicted, actual })
}

/// `accuracy` over the places of all records, such as tokens: scores are `[records, places, classes]`. Places with a
/// label below 0, such as padding, are left out.
pub fn token_accuracy(output: &Tensor<3>, labels: &Tensor<2, Int>) -> Metrics {
    let places = output.clone().flatten(0, 1);
    let (predicted, classes) = (predicted(&places), classes(&places));
    let truth = ints(labels.clone().flatten(0, 1));
    let counted = predicted.into_iter().zip(truth).filter(|(_, label)| *label >= 0);
    let (predicted, truth) = counted.unzip();
    matches(predicted, truth, classes)
}

fn matches(predicted: Vec<i64>, truth: Vec<i64>, classes: usize) -> Metrics {
    let right = predicted.iter().zip(&truth).filter(|(p, t)| p == t).count();
    let known = |label: &i64| usize::try_from(*label).is_ok_and(|label| label < classes);
    let metric = if classes <= MAX_CONFUSION && truth.iter().all(known) {
        let mut counts = vec![0; classes * classes];
        for (predicted, truth) in predicted.iter().zip(&truth) {
            counts[*truth as usize * classes + *predicted as usize] += 1;
        }
        Metric::Confusion { classes, counts }
    } else {
        Metric::mean(right as f64, truth.len() as f64)
    };
    Metrics::new().with("accuracy", metric)
}

/// `error`: the share of records that [`accuracy`] counts as wrong.
pub fn error_rate(output: &Tensor<2>, labels: &Tensor<1, Int>) -> Metrics {
    let (predicted, truth) = (predicted(output), ints(labels.clone()));
    let wrong = predicted.iter().zip(&truth).filter(|(p, t)| p != t).count();
    Metrics::new().with("error", Metric::mean(wrong as f64, truth.len() as f64))
}

/// `top_k`: the share of records whose label is among the `k` greatest outputs.
///
/// # Panics
/// If there is one output per record, which ranks nothing. Panics of metrics are errors of the model, and are told
/// before a run begins.
pub fn top_k(k: usize, output: &Tensor<2>, labels: &Tensor<1, Int>) -> Metrics {
    let classes = output.dims()[1];
    assert!(classes > 1, "top_k needs an output for each class, and there is one: use accuracy");
    let scores = floats(output.clone().flatten::<1>(0, 1));
    let truth = ints(labels.clone());
    let within = scores.chunks(classes).zip(&truth).filter(|(scores, label)| {
        let own = usize::try_from(**label).ok().and_then(|label| scores.get(label));
        own.is_some_and(|own| scores.iter().filter(|score| *score > own).count() < k)
    });
    let sum = within.count() as f64;
    Metrics::new().with(format!("top_{k}"), Metric::mean(sum, truth.len() as f64))
}

/// `auc`: the area under the ROC curve. Of a single output per record, which is squeezed by a sigmoid, or of two
/// classes: the share of the second in their softmax.
///
/// # Panics
/// If there are more outputs per record. Panics of metrics are errors of the model, and are told before a run begins.
pub fn auc(logits: &Tensor<2>, labels: &Tensor<1, Int>) -> Metrics {
    Metrics::new().with("auc", Metric::auc(probabilities(logits, labels)))
}

/// `pr_auc`: the average precision (the area under the precision-recall curve), of the same scores as [`auc`]. It says
/// more than that one where few records are positive.
///
/// # Panics
/// As [`auc`] does.
pub fn pr_auc(logits: &Tensor<2>, labels: &Tensor<1, Int>) -> Metrics {
    Metrics::new().with("pr_auc", Metric::pr_auc(probabilities(logits, labels)))
}

fn probabilities(
    logits: &Tensor<2>,
    labels: &Tensor<1, Int>,
) -> impl Iterator<Item = (f64, bool)> + use<> {
    let outputs = logits.dims()[1];
    assert!(
        (1..=2).contains(&outputs),
        "an area under a curve needs one output per record, or two classes, and there are {outputs}"
    );
    let scores = floats(logits.clone().flatten::<1>(0, 1));
    // The softmax of two is the sigmoid of their difference.
    let scores: Vec<f64> = scores
        .chunks(outputs)
        .map(|of_record| match of_record {
            [no, yes] => f64::from(*yes) - f64::from(*no),
            _ => of_record.iter().map(|score| f64::from(*score)).sum(),
        })
        .collect();
    scores.into_iter().zip(ints(labels.clone())).map(|(score, label)| {
        let probability = 1.0 / (1.0 + (-score).exp());
        (probability, label != 0)
    })
}

/// `rmse`: the root of the mean squared difference, over all outputs of all records.
///
/// # Panics
/// If outputs and targets have other shapes. Panics of metrics are errors of the model, and are told before a run
/// begins.
pub fn rmse(output: &Tensor<2>, targets: &Tensor<2>) -> Metrics {
    let differences = differences(output, targets);
    let sum = differences.iter().map(|difference| difference * difference).sum();
    Metrics::new().with("rmse", Metric::RootMean { sum, records: differences.len() as f64 })
}

/// `mae`: the mean absolute difference, over all outputs of all records.
///
/// # Panics
/// As [`rmse`] does.
pub fn mae(output: &Tensor<2>, targets: &Tensor<2>) -> Metrics {
    let differences = differences(output, targets);
    let sum = differences.iter().map(|difference| difference.abs()).sum();
    Metrics::new().with("mae", Metric::mean(sum, differences.len() as f64))
}

fn differences(output: &Tensor<2>, targets: &Tensor<2>) -> Vec<f64> {
    let (found, wanted) = (output.dims(), targets.dims());
    assert!(found == wanted, "outputs and targets have other shapes: {found:?} and {wanted:?}");
    let flat = |tensor: &Tensor<2>| floats(tensor.clone().flatten::<1>(0, 1));
    let pairs = flat(output).into_iter().zip(flat(targets));
    pairs.map(|(found, wanted)| f64::from(found) - f64::from(wanted)).collect()
}

/// The mean over records of one value each, under a name of the model's choice.
pub fn mean(name: &str, values: &Tensor<1>) -> Metrics {
    let values = floats(values.clone());
    let sum = values.iter().map(|value| f64::from(*value)).sum();
    Metrics::new().with(name, Metric::mean(sum, values.len() as f64))
}

/// The class with the greatest output, or by the sign of the only one.
fn predicted(output: &Tensor<2>) -> Vec<i64> {
    match output.dims()[1] {
        1 => ints(output.clone().greater_elem(0.0).int().flatten::<1>(0, 1)),
        _ => ints(output.clone().argmax(1).flatten::<1>(0, 1)),
    }
}

fn classes(output: &Tensor<2>) -> usize {
    output.dims()[1].max(2)
}

fn ints(tensor: Tensor<1, Int>) -> Vec<i64> {
    tensor.into_data().iter::<i64>().collect()
}

fn floats(tensor: Tensor<1>) -> Vec<f32> {
    let tensor = if tensor.dtype() == DType::F32 { tensor } else { tensor.cast(DType::F32) };
    tensor.inner().into_data().iter::<f32>().collect()
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::*;

    #[test]
    fn metrics_of_a_small_batch() {
        let device = Device::flex();
        let output =
            Tensor::<2>::from_data([[0.1, 0.9, 0.0], [0.8, 0.1, 0.1], [0.3, 0.2, 0.5]], &device);
        let labels = Tensor::<1, Int>::from_data([1, 2, 2], &device);
        let all = accuracy(&output, &labels)
            .and(error_rate(&output, &labels))
            .and(top_k(2, &output, &labels))
            .values();
        assert!((all["accuracy"] - 2.0 / 3.0).abs() < 1e-9);
        assert!((all["error"] - 1.0 / 3.0).abs() < 1e-9);
        assert!((all["top_2"] - 1.0).abs() < 1e-9);
        let tokens = output.clone().reshape([1, 3, 3]);
        let padded = Tensor::<2, Int>::from_data([[1, -1, 2]], &device);
        assert_eq!(token_accuracy(&tokens, &padded).values()["accuracy"], 1.0);
        let logits = Tensor::<2>::from_data([[2.0], [-1.0], [0.5]], &device);
        let labels = Tensor::<1, Int>::from_data([1, 0, 0], &device);
        assert_eq!(auc(&logits, &labels).values()["auc"], 1.0);
        assert_eq!(pr_auc(&logits, &labels).values()["pr_auc"], 1.0);
    }

    #[test]
    fn one_output_is_compared_with_zero() {
        let device = Device::flex();
        let logits = Tensor::<2>::from_data([[2.0], [-1.0], [0.5], [-3.0]], &device);
        let labels = Tensor::<1, Int>::from_data([1, 0, 0, 1], &device);
        let all = accuracy(&logits, &labels)
            .and(error_rate(&logits, &labels))
            .and(precision(&logits, &labels))
            .and(recall(&logits, &labels))
            .and(f1(&logits, &labels))
            .values();
        for name in ["accuracy", "error", "precision", "recall", "f1"] {
            assert_eq!(all[name], 0.5, "{name}");
        }
        let negative = Tensor::<1, Int>::from_data([0, 0, 0, 0], &device);
        assert_eq!(accuracy(&logits, &negative).values()["accuracy"], 0.5);
    }

    #[test]
    fn two_classes_have_the_area_of_their_difference() {
        let device = Device::flex();
        let one = Tensor::<2>::from_data([[2.0], [-1.0], [0.5], [-3.0]], &device);
        let two =
            Tensor::<2>::from_data([[1.0, 3.0], [0.5, -0.5], [0.0, 0.5], [1.0, -2.0]], &device);
        let labels = Tensor::<1, Int>::from_data([1, 0, 0, 1], &device);
        assert_eq!(auc(&two, &labels), auc(&one, &labels));
        assert_eq!(pr_auc(&two, &labels), pr_auc(&one, &labels));
    }

    #[test]
    #[should_panic(expected = "needs one output per record, or two classes, and there are 3")]
    fn three_classes_have_no_area() {
        let device = Device::flex();
        let scores = Tensor::<2>::from_data([[0.1, 0.9, 0.0]], &device);
        auc(&scores, &Tensor::from_data([1], &device));
    }

    #[test]
    #[should_panic(expected = "top_k needs an output for each class")]
    fn one_output_ranks_nothing() {
        let device = Device::flex();
        let scores = Tensor::<2>::from_data([[0.1]], &device);
        top_k(1, &scores, &Tensor::from_data([1], &device));
    }

    #[test]
    #[should_panic(expected = "outputs and targets have other shapes: [2, 1] and [1, 2]")]
    fn targets_of_another_shape_are_refused() {
        let device = Device::flex();
        let output = Tensor::<2>::from_data([[1.0], [2.0]], &device);
        rmse(&output, &Tensor::from_data([[1.0, 2.0]], &device));
    }

    #[test]
    fn regressions_are_measured_over_all_outputs() {
        let device = Device::flex();
        let output = Tensor::<2>::from_data([[1.0, 2.0], [3.0, 4.0]], &device);
        let targets = Tensor::<2>::from_data([[1.0, 0.0], [3.0, 6.0]], &device);
        let all = rmse(&output, &targets).and(mae(&output, &targets)).values();
        assert_eq!((all["rmse"], all["mae"]), (2f64.sqrt(), 1.0));
    }
}
