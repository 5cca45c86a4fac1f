//! What a model's `forward` gives, as far as evaluation and prediction have to know it.

use burn::tensor::Tensor;

/// The output of a model for the records of a batch. Tensors of floats of every rank are such, with the records as
/// their first dimension; a model with several tensors says how they become rows:
///
/// ```
/// use salamander::prelude::*;
///
/// /// Boxes `[records, 4]` around what is seen, and the scores of its class `[records, classes]`.
/// struct Detected {
///     at: Tensor<2>,
///     scores: Tensor<2>,
/// }
///
/// impl Output for Detected {
///     fn rows(self) -> Tensor<2> {
///         Tensor::cat(vec![self.at, self.scores], 1)
///     }
///
///     fn without_autodiff(self) -> Self {
///         Self { at: self.at.inner(), scores: self.scores.inner() }
///     }
/// }
///
/// let device = Device::flex();
/// let detected = Detected { at: Tensor::zeros([8, 4], &device), scores: Tensor::zeros([8, 10], &device) };
/// assert_eq!(detected.rows().dims(), [8, 14]);
/// assert_eq!(Tensor::<4>::zeros([8, 3, 16, 16], &device).rows().dims(), [8, 768]);
/// ```
#[diagnostic::on_unimplemented(
    message = "a model's output cannot be a `{Self}`",
    label = "use a `Tensor<D>`, or write `impl Output for {Self}`"
)]
pub trait Output: Sized {
    /// Whether the values of a row are scores of classes, the greatest of which is predicted, or one single value.
    /// Files of predictions then have a column for that.
    const CLASSES: bool = false;

    /// One row of values per record, as files of predictions have them.
    fn rows(self) -> Tensor<2>;

    /// What [`rows`](Self::rows) gives, where it can be had without giving the output away: who asks a trained model
    /// may want it beside what the model predicts from it.
    fn raw_rows(&self) -> Option<Tensor<2>> {
        None
    }

    /// The same without what a backward pass needs: `inner()` of every tensor.
    #[must_use]
    fn without_autodiff(self) -> Self;
}

impl<const D: usize> Output for Tensor<D> {
    const CLASSES: bool = D <= 2;

    fn rows(self) -> Tensor<2> {
        let dims = self.dims();
        self.reshape([dims[0], dims[1..].iter().product()])
    }

    fn raw_rows(&self) -> Option<Tensor<2>> {
        Some(self.clone().rows())
    }

    fn without_autodiff(self) -> Self {
        self.inner()
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::*;

    #[test]
    fn every_rank_has_a_row_per_record() {
        let device = Device::flex();
        let check = |rows: Tensor<2>, expected: [usize; 2]| assert_eq!(rows.dims(), expected);
        check(Tensor::<1>::zeros([3], &device).rows(), [3, 1]);
        check(Tensor::<2>::zeros([3, 4], &device).rows(), [3, 4]);
        check(Tensor::<3>::zeros([3, 4, 5], &device).rows(), [3, 20]);
        let classes = [Tensor::<1>::CLASSES, Tensor::<2>::CLASSES, Tensor::<3>::CLASSES];
        assert_eq!(classes, [true, true, false]);
    }
}
