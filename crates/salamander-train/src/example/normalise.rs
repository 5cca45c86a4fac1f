//! Inputs that are normalised by statistics of the data, so that nobody copies means into code.

use burn::tensor::Tensor;
use salamander_data::preprocess::normalise;

use super::{Column, DecodeError, Target};

/// A tensor of floats with mean 0 and deviation 1 over the data of the statistics: mean and deviation of each column,
/// which has an equal share of the values.
pub fn normalised_tensor<'a, const D: usize, C: Column + 'a>(
    target: Target<'_, D>,
    columns: impl Iterator<Item = &'a C>,
    statistics: &[(f32, f32)],
) -> Result<Tensor<D>, DecodeError> {
    let mut values = target.values(columns, C::floats)?;
    let each = target.shape[1..].iter().product::<usize>() / statistics.len().max(1);
    normalise_all(&mut values, each.max(1), statistics);
    Ok(target.floats(values))
}

/// So many values of each column in turn. Never inlined: compiled with this crate, at its level of optimisation.
#[inline(never)]
fn normalise_all(values: &mut [f32], each: usize, statistics: &[(f32, f32)]) {
    for (part, (mean, std)) in values.chunks_mut(each).zip(statistics.iter().cycle()) {
        part.iter_mut().for_each(|value| *value = normalise(*value, *mean, *std));
    }
}
