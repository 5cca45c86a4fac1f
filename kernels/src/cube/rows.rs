//! Rows of a table gathered by place, and the gradients of those rows added up.

use burn::cubecl::{self, prelude::*};
use burn::tensor::{DType, Shape};

use super::{GpuTensor, empty_like, grid, len};

#[cube(launch)]
pub(super) fn gather_kernel(table: &[f32], places: &[u32], rows: &mut [f32], dim: usize) {
    let i = ABSOLUTE_POS;
    if i < rows.len() {
        rows[i] = table[places[i / dim] as usize * dim + i % dim];
    }
}

/// `order` has the places' numbers sorted by row, and `starts` where each row's begin in it: a unit adds up one value
/// of one row, in the order of the places.
#[cube(launch)]
pub(super) fn scatter_kernel(
    gradient: &[f32],
    order: &[u32],
    starts: &[u32],
    sums: &mut [f32],
    dim: usize,
) {
    let i = ABSOLUTE_POS;
    if i < sums.len() {
        let row = i / dim;
        let mut sum = 0.0f32;
        for k in starts[row] as usize..starts[row + 1] as usize {
            sum += gradient[order[k] as usize * dim + i % dim];
        }
        sums[i] = sum;
    }
}

/// The rows at these places, each of which lies in the table.
pub(crate) fn gather(table: GpuTensor, places: &[u32]) -> GpuTensor {
    let dim = table.meta.shape()[1];
    let rows = empty_like(&table, [places.len(), dim]);
    let client = table.client.clone();
    let (count, cube) = grid(&client, len(&rows));
    let places = words(&table, places).into_buffer_arg();
    let to = rows.clone().into_buffer_arg();
    gather_kernel::launch(&client, count, cube, table.into_buffer_arg(), places, to, dim);
    rows
}

/// The sum of the gradients of each of `rows` rows.
pub(crate) fn scatter_add(gradient: GpuTensor, places: &[u32], rows: usize) -> GpuTensor {
    let dim = gradient.meta.shape()[1];
    let (order, starts) = by_row(places, rows);
    let sums = empty_like(&gradient, [rows, dim]);
    let client = gradient.client.clone();
    let (count, cube) = grid(&client, len(&sums));
    let order = words(&gradient, &order).into_buffer_arg();
    let starts = words(&gradient, &starts).into_buffer_arg();
    let (from, to) = (gradient.into_buffer_arg(), sums.clone().into_buffer_arg());
    scatter_kernel::launch(&client, count, cube, from, order, starts, to, dim);
    sums
}

/// The numbers of the places sorted by row, and where each row's begin.
fn by_row(places: &[u32], rows: usize) -> (Vec<u32>, Vec<u32>) {
    let mut starts = vec![0u32; rows + 1];
    places.iter().for_each(|row| starts[*row as usize + 1] += 1);
    (0..rows).for_each(|row| starts[row + 1] += starts[row]);
    let (mut next, mut order) = (starts.clone(), vec![0u32; places.len()]);
    for (number, row) in places.iter().enumerate() {
        let at = &mut next[*row as usize];
        order[*at as usize] = number as u32;
        *at += 1;
    }
    (order, starts)
}

/// Whole numbers beside a tensor.
fn words(beside: &GpuTensor, values: &[u32]) -> GpuTensor {
    let (client, shape) = (beside.client.clone(), Shape::from([values.len()]));
    let handle = client.create_from_slice(u32::as_bytes(values));
    GpuTensor::new_contiguous(client, beside.device.clone(), shape, handle, DType::U32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_sorted_by_row_and_stay_in_order() {
        assert_eq!(by_row(&[2, 0, 2, 2, 0], 4), (vec![1, 4, 0, 2, 3], vec![0, 2, 2, 5, 5]));
        assert_eq!(by_row(&[], 2), (vec![], vec![0, 0, 0]));
    }
}
