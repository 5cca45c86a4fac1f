//! The kernels' arithmetic in the plainest Rust, summed in f64: what the tests hold the kernels against.

pub(crate) mod bucket;
mod conv;
pub(crate) mod encoder;
pub(crate) mod norm;

use crate::cpu::PoolShape;
use conv::narrow;

pub(crate) use conv::{conv2d, conv2d_backward};

/// Max-pooling: the maxima, and where each came from in its plane.
pub(crate) fn max_pool2d(shape: &PoolShape, input: &[f32]) -> (Vec<f32>, Vec<Option<usize>>) {
    let [rows, columns] = shape.out();
    let plane = shape.size[0] * shape.size[1];
    let mut found = Vec::new();
    for at in 0..shape.planes * rows * columns {
        let (out, base) = (at % (rows * columns), at / (rows * columns) * plane);
        let mut best: Option<usize> = None;
        for tap in 0..shape.kernel[0] * shape.kernel[1] {
            let place = |axis: usize, out: usize, tap: usize| {
                (out * shape.stride[axis] + tap * shape.dilation[axis])
                    .checked_sub(shape.padding[axis].0)
                    .filter(|place| *place < shape.size[axis])
            };
            let y = place(0, out / columns, tap / shape.kernel[1]);
            let x = place(1, out % columns, tap % shape.kernel[1]);
            let (Some(y), Some(x)) = (y, x) else { continue };
            let pixel = y * shape.size[1] + x;
            if best.is_none_or(|best| input[base + pixel] > input[base + best]) {
                best = Some(pixel);
            }
        }
        found.push((best.map_or(f32::NEG_INFINITY, |best| input[base + best]), best));
    }
    found.into_iter().unzip()
}

/// The gradient of a max-pooling's input.
pub(crate) fn max_pool2d_backward(
    shape: &PoolShape,
    gradient: &[f32],
    winners: &[Option<usize>],
) -> Vec<f32> {
    let plane = shape.size[0] * shape.size[1];
    let out: usize = shape.out().iter().product();
    let mut input = vec![0.0; shape.planes * plane];
    for (at, (gradient, winner)) in gradient.iter().zip(winners).enumerate() {
        if let Some(winner) = winner {
            input[at / out * plane + winner] += f64::from(*gradient);
        }
    }
    narrow(input)
}

/// `x W + b`.
pub(crate) fn linear(rows: usize, input: &[f32], weight: &[f32], bias: &[f32]) -> Vec<f32> {
    let (inputs, outputs) = (input.len() / rows, bias.len());
    let value = |at: usize| {
        let (row, column) = (at / outputs, at % outputs);
        let product =
            |k: usize| f64::from(input[row * inputs + k]) * f64::from(weight[k * outputs + column]);
        f64::from(bias[column]) + (0..inputs).map(product).sum::<f64>()
    };
    narrow((0..rows * outputs).map(value).collect())
}
