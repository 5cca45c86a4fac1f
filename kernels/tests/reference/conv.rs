//! A convolution, product by product. The unit tests of the direct kernels include this file too.

use crate::cpu::ConvShape;
use crate::cpu::conv::ConvGradients;

/// Calls `visit(output index, input index, weight index)` for every product in a convolution.
fn products(shape: &ConvShape, mut visit: impl FnMut(usize, usize, usize)) {
    let [rows, columns] = shape.out();
    let (group_in, group_out) =
        (shape.channels_in / shape.groups, shape.channels_out / shape.groups);
    for sample in 0..shape.batch {
        for filter in 0..shape.channels_out {
            for pixel in 0..rows * columns {
                let out = (sample * shape.channels_out + filter) * rows * columns + pixel;
                for tap in 0..shape.taps() {
                    let channel = tap / (shape.kernel[0] * shape.kernel[1]);
                    let at = [tap / shape.kernel[1] % shape.kernel[0], tap % shape.kernel[1]];
                    let Some(pixel) = input_pixel(shape, [pixel / columns, pixel % columns], at)
                    else {
                        continue;
                    };
                    let channel = filter / group_out * group_in + channel;
                    let plane = sample * shape.channels_in + channel;
                    visit(
                        out,
                        plane * shape.size[0] * shape.size[1] + pixel,
                        filter * shape.taps() + tap,
                    );
                }
            }
        }
    }
}

fn input_pixel(shape: &ConvShape, out: [usize; 2], tap: [usize; 2]) -> Option<usize> {
    let at = |axis: usize| {
        let place = out[axis] * shape.stride[axis] + tap[axis] * shape.dilation[axis];
        place.checked_sub(shape.padding[axis].0).filter(|place| *place < shape.size[axis])
    };
    Some(at(0)? * shape.size[1] + at(1)?)
}

/// A convolution with bias.
pub(crate) fn conv2d(shape: &ConvShape, input: &[f32], weight: &[f32], bias: &[f32]) -> Vec<f32> {
    let plane = shape.pixels_out();
    let mut output: Vec<f64> = (0..shape.batch * shape.sample_out())
        .map(|at| f64::from(bias[at / plane % shape.channels_out]))
        .collect();
    products(shape, |out, pixel, tap| {
        output[out] += f64::from(input[pixel]) * f64::from(weight[tap]);
    });
    narrow(output)
}

/// All gradients of a convolution.
pub(crate) fn conv2d_backward(
    shape: &ConvShape,
    input: &[f32],
    weight: &[f32],
    gradient: &[f32],
) -> ConvGradients {
    let (mut of_input, mut of_weight) = (vec![0.0; input.len()], vec![0.0; weight.len()]);
    let mut bias = vec![0.0; shape.channels_out];
    products(shape, |out, pixel, tap| {
        of_input[pixel] += f64::from(gradient[out]) * f64::from(weight[tap]);
        of_weight[tap] += f64::from(gradient[out]) * f64::from(input[pixel]);
    });
    for (at, gradient) in gradient.iter().enumerate() {
        bias[at / shape.pixels_out() % shape.channels_out] += f64::from(*gradient);
    }
    ConvGradients {
        input: Some(narrow(of_input)),
        weight: Some(narrow(of_weight)),
        bias: Some(narrow(bias)),
    }
}

/// Sums in f64 as the kernels give them.
pub(crate) fn narrow(values: Vec<f64>) -> Vec<f32> {
    values.into_iter().map(|value| value as f32).collect()
}
