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
use salamander_core::metrics::{Metric, Metrics};

/// Above this many classes only the accuracy is kept, not the whole confusion matrix.
const MAX_CONFUSION: usize = 200;

/// `accuracy`: the share of records whose greatest output is at the label. Up to 200 classes it
/// also feeds the report and the confusion matrix.
pub fn accuracy(output: &Tensor<2>, labels: &Tensor<1, Int>) -> Metrics {
    matches(predicted(output), ints(labels.clone()), output.dims()[1])
}

/// `accuracy` over the places of all records, such as tokens: scores are `[records, places, classes]`. Places with a
/// label below 0, such as padding, are left out.
pub fn token_accuracy(output: &Tensor<3>, labels: &Tensor<2, Int>) -> Metrics {
    let classes = output.dims()[2];
    let predicted = predicted(&output.clone().flatten(0, 1));
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

/// `error`: the share of records whose greatest output is not at the label.
pub fn error_rate(output: &Tensor<2>, labels: &Tensor<1, Int>) -> Metrics {
    let (predicted, truth) = (predicted(output), ints(labels.clone()));
    let wrong = predicted.iter().zip(&truth).filter(|(p, t)| p != t).count();
    Metrics::new().with("error", Metric::mean(wrong as f64, truth.len() as f64))
}

/// `top_k`: the share of records whose label is among the `k` greatest outputs.
pub fn top_k(k: usize, output: &Tensor<2>, labels: &Tensor<1, Int>) -> Metrics {
    let classes = output.dims()[1];
    let scores = floats(output.clone().flatten::<1>(0, 1));
    let truth = ints(labels.clone());
    let within = scores.chunks(classes).zip(&truth).filter(|(scores, label)| {
        let own = usize::try_from(**label).ok().and_then(|label| scores.get(label));
        own.is_some_and(|own| scores.iter().filter(|score| *score > own).count() < k)
    });
    let sum = within.count() as f64;
    Metrics::new().with(format!("top_{k}"), Metric::mean(sum, truth.len() as f64))
}

/// `auc`: the area under the ROC curve of one score per record; scores are squeezed by a sigmoid.
pub fn auc(logits: &Tensor<2>, labels: &Tensor<1, Int>) -> Metrics {
    let scores = floats(logits.clone().flatten::<1>(0, 1));
    let truth = ints(labels.clone());
    let pairs = scores.iter().zip(&truth).map(|(score, label)| {
        let probability = 1.0 / (1.0 + f64::from(-*score).exp());
        (probability, *label != 0)
    });
    Metrics::new().with("auc", Metric::auc(pairs))
}

/// The mean over records of one value each, under a name of the model's choice.
pub fn mean(name: &str, values: &Tensor<1>) -> Metrics {
    let values = floats(values.clone());
    let sum = values.iter().map(|value| f64::from(*value)).sum();
    Metrics::new().with(name, Metric::mean(sum, values.len() as f64))
}

/// The class with the greatest output.
fn predicted(output: &Tensor<2>) -> Vec<i64> {
    ints(output.clone().argmax(1).flatten::<1>(0, 1))
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
    }
}
