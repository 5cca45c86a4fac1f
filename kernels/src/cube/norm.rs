//! The sum of squares of a bucket, for clipping by the norm over all parameters.

use burn::cubecl::{self, prelude::*};

use super::{GpuTensor, empty_like, grid, len};

/// Values that a unit adds up at least; fewer would leave more to read back than was added.
const LEAST: usize = 32;
/// Partial sums that are read back at most.
const MOST_PARTIALS: usize = 1 << 14;

/// Each unit adds up every `partials.len()`th square, so that neighbours read neighbours.
#[cube(launch)]
pub(super) fn squares_kernel(values: &[f32], partials: &mut [f32]) {
    let unit = ABSOLUTE_POS;
    if unit < partials.len() {
        let mut sum = 0.0f32;
        for i in range_stepped(unit, values.len(), partials.len()) {
            sum += values[i] * values[i];
        }
        partials[unit] = sum;
    }
}

/// The sum of all squares; the last few thousand numbers are added up in f64 on the host.
pub(crate) fn sum_of_squares(bucket: GpuTensor) -> Result<f64, String> {
    let units = len(&bucket).div_ceil(LEAST).clamp(1, MOST_PARTIALS);
    let partials = empty_like(&bucket, [units]);
    let client = bucket.client.clone();
    let (count, dim) = grid(&client, units);
    let sums = partials.clone().into_buffer_arg();
    squares_kernel::launch(&client, count, dim, bucket.into_buffer_arg(), sums);
    let bytes = client.read_one(partials.handle).map_err(|error| format!("{error:?}"))?;
    Ok(f32::from_bytes(&bytes)[..units].iter().map(|sum| f64::from(*sum)).sum())
}
