//! Losses with one value per record, as [`Trial::loss`](crate::Trial::loss) wants them.
//!
//! ```
//! use salamander::prelude::*;
//!
//! let device = Device::flex();
//! let scores = Tensor::<2>::from_data([[2.0, 0.0], [0.0, 0.0], [-9.0, 9.0]], &device);
//! let labels = Tensor::<1, Int>::from_data([0, 0, 1], &device);
//! let loss: Vec<f32> = cross_entropy(&scores, &labels).into_data().iter::<f32>().collect();
//! assert_eq!(loss.len(), 3);
//! assert!(loss[0] < loss[1] && loss[2] < 1e-6);
//! ```

use burn::tensor::activation::log_sigmoid;
use burn::tensor::{Int, Tensor, TensorData};
use salamander_kernels::ops;

/// Cross-entropy of scores (before any softmax) against class numbers.
pub fn cross_entropy(scores: &Tensor<2>, labels: &Tensor<1, Int>) -> Tensor<1> {
    ops::cross_entropy(scores.clone(), labels)
}

/// Cross-entropy of the scores of several places of a record, `[records, places, classes]`, against their class
/// numbers: its mean over a record's places. Places with a number below 0, such as padding, are left out.
///
/// Places are tokens, or pixels: scores `[records, classes, height, width]` become such by
/// `scores.flatten::<3>(2, 3).swap_dims(1, 2)`.
pub fn token_cross_entropy(scores: &Tensor<3>, labels: &Tensor<2, Int>) -> Tensor<1> {
    let [records, places, classes] = scores.dims();
    let scores = scores.clone().reshape([records * places, classes]);
    let known = labels.clone().clamp_min(0).reshape([records * places]);
    let each = ops::cross_entropy(scores, &known).reshape([records, places]);
    let counted = labels.clone().greater_equal_elem(0).float().cast(each.dtype());
    let places = counted.clone().sum_dim(1).clamp_min(1.0);
    ((each * counted).sum_dim(1) / places).reshape([records])
}

/// Negative log-likelihood of log-probabilities against class numbers.
pub fn nll(log_probabilities: &Tensor<2>, labels: &Tensor<1, Int>) -> Tensor<1> {
    let records = labels.dims()[0];
    let at = labels.clone().reshape([records, 1]);
    -log_probabilities.clone().gather(1, at).reshape([records])
}

/// Cross-entropy of one score per record (before any sigmoid) against 0 and 1.
pub fn binary_cross_entropy(scores: &Tensor<2>, labels: &Tensor<1, Int>) -> Tensor<1> {
    let records = labels.dims()[0];
    let scores = scores.clone().reshape([records]);
    let truth = labels.clone().float().cast(scores.dtype());
    // log(1 - sigmoid(x)) = log_sigmoid(x) - x, without the cancellation.
    -(log_sigmoid(scores.clone()) - scores * (-truth + 1.0))
}

/// The losses of records, each times the weight of its class: `weighted(cross_entropy(..), &labels, &[1.0, 5.0])`.
///
/// The step divides by the number of records, not by the sum of weights, so that any split of a batch gives the same
/// step: weights with a mean of 1 over the data keep the size of steps. Labels without a weight count once.
pub fn weighted(losses: Tensor<1>, labels: &Tensor<1, Int>, weights: &[f32]) -> Tensor<1> {
    let labels = labels.clone().into_data();
    let of = |label: i64| usize::try_from(label).ok().and_then(|label| weights.get(label));
    let each: Vec<f32> =
        labels.iter::<i64>().map(|label| of(label).copied().unwrap_or(1.0)).collect();
    let records = each.len();
    let each = Tensor::<1>::from_data(TensorData::new(each, [records]), &losses.device());
    let each = each.cast(losses.dtype());
    losses * each
}

/// Squared error, summed over a record's outputs.
///
/// # Panics
/// If outputs and targets have other shapes: one would silently be repeated for the other. Panics of losses are errors
/// of the model, and are told before a run begins.
pub fn squared_error(output: &Tensor<2>, targets: &Tensor<2>) -> Tensor<1> {
    let (found, wanted) = (output.dims(), targets.dims());
    assert!(found == wanted, "outputs and targets have other shapes: {found:?} and {wanted:?}");
    let records = found[0];
    let targets = targets.clone().cast(output.dtype());
    (output.clone() - targets).powi_scalar(2).sum_dim(1).reshape([records])
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, IntDType};

    use super::*;

    fn check(loss: Tensor<1>, expected: &[f32]) {
        let found: Vec<f32> = loss.into_data().iter::<f32>().collect();
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-5, "{found} is not {expected}");
        }
    }

    #[test]
    fn losses_have_one_value_per_record() {
        let device = Device::flex();
        let scores = Tensor::<2>::from_data([[1.0, 2.0, 0.5], [0.0, 0.0, 0.0]], &device);
        let labels = Tensor::<1, Int>::from_data([1, 2], &device);
        check(cross_entropy(&scores, &labels), &[0.464_36, 1.098_61]);
        // The last class has no weight of its own.
        let of_classes = weighted(cross_entropy(&scores, &labels), &labels, &[1.0, 10.0]);
        check(of_classes, &[4.643_69, 1.098_61]);
        // Labels come from examples with 64 bits.
        check(cross_entropy(&scores, &labels.cast(IntDType::I64)), &[0.464_36, 1.098_61]);
        // The first place of the second record is padding, and so is all of the third.
        let [first, second] = [[1.0, 2.0, 0.5], [0.0, 0.0, 0.0]];
        let scores = [[first, second], [first, second], [first, second]];
        let scores = Tensor::<3>::from_data(scores, &device);
        let labels = Tensor::<2, Int>::from_data([[1, 2], [-100, 2], [-1, -1]], &device);
        check(token_cross_entropy(&scores, &labels), &[0.781_49, 1.098_61, 0.0]);
        let scores = Tensor::<2>::from_data([[2.0], [-30.0], [1.0]], &device);
        let labels = Tensor::<1, Int>::from_data([1, 1, 0], &device);
        check(binary_cross_entropy(&scores, &labels), &[0.126_93, 30.0, 1.313_26]);
        let output = Tensor::<2>::from_data([[1.0, 2.0], [0.0, 0.0]], &device);
        let targets = Tensor::<2>::from_data([[0.0, 0.0], [0.0, 3.0]], &device);
        check(squared_error(&output, &targets), &[5.0, 9.0]);
    }
}
