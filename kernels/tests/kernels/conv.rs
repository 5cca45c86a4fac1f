//! Convolution.

use burn::tensor::ops::ConvOptions;
use burn::tensor::{DType, FloatDType, activation, module};
use salamander_kernels::cpu::ConvShape;
use salamander_kernels::cpu::conv::{Saved, WantedGradients, backward, forward, forward_training};
use salamander_kernels::ops::{Activation, conv2d};

use super::random::Random;
use super::reference;
use super::{assert_all_close, assert_close, assert_slopes, trace, tracked, with_any_threads};

const ALL: WantedGradients = WantedGradients { input: true, weight: true, bias: true };

struct Case {
    shape: ConvShape,
    input: Vec<f32>,
    weight: Vec<f32>,
    bias: Vec<f32>,
    gradient: Vec<f32>,
}

impl Case {
    fn new(shape: ConvShape, random: &mut Random) -> Self {
        Self {
            shape,
            input: random.values(shape.batch * shape.sample_in()),
            weight: random.values(shape.weights()),
            bias: random.values(shape.channels_out),
            gradient: random.values(shape.batch * shape.sample_out()),
        }
    }

    fn saved(&self) -> Saved<'_> {
        Saved { input: &self.input, weight: &self.weight, relu_output: None }
    }

    fn input_dims(&self) -> [usize; 4] {
        let [height, width] = self.shape.size;
        [self.shape.batch, self.shape.channels_in, height, width]
    }

    fn weight_dims(&self) -> [usize; 4] {
        let [height, width] = self.shape.kernel;
        let shape = &self.shape;
        [shape.channels_out, shape.channels_in / shape.groups, height, width]
    }

    fn options(&self) -> ConvOptions<2> {
        let ConvShape { stride, padding, dilation, groups, .. } = self.shape;
        ConvOptions::new_with_padding(stride, padding, dilation, groups)
    }

    /// The output and all gradients, by our operation or by Burn's.
    fn traced(&self, ours: bool, relu: bool, with_bias: bool) -> Vec<Vec<f32>> {
        let x = tracked(&self.input, self.input_dims());
        let w = tracked(&self.weight, self.weight_dims());
        let b = tracked(&self.bias, [self.shape.channels_out]);
        let bias = with_bias.then(|| b.clone());
        let output = if ours {
            let activation = if relu { Activation::Relu } else { Activation::None };
            conv2d(x.clone(), w.clone(), bias, self.options(), activation)
        } else {
            let output = module::conv2d(x.clone(), w.clone(), bias, self.options());
            if relu { activation::relu(output) } else { output }
        };
        trace(output, |gradients| {
            let mut all = vec![
                super::vector(x.grad(gradients).expect("used")),
                super::vector(w.grad(gradients).expect("used")),
            ];
            all.extend(with_bias.then(|| super::vector(b.grad(gradients).expect("used"))));
            all
        })
    }
}

/// The shapes of the model zoo and others that take paths of their own.
fn chosen() -> Vec<ConvShape> {
    let plain = ConvShape {
        batch: 3,
        channels_in: 1,
        channels_out: 32,
        size: [28, 28],
        kernel: [3, 3],
        stride: [1, 1],
        padding: [(0, 0); 2],
        dilation: [1, 1],
        groups: 1,
    };
    vec![
        plain,
        ConvShape { batch: 2, channels_in: 32, channels_out: 64, size: [26, 26], ..plain },
        ConvShape { channels_out: 16, kernel: [5, 5], padding: [(2, 2); 2], ..plain },
        ConvShape { channels_in: 7, channels_out: 9, kernel: [1, 1], size: [5, 6], ..plain },
        ConvShape { channels_in: 6, channels_out: 6, groups: 6, size: [9, 8], ..plain },
        // As MobileNet has them.
        depthwise(plain, [14, 14], [1, 1]),
        depthwise(plain, [15, 17], [2, 2]),
        ConvShape { dilation: [2, 1], kernel: [2, 5], ..depthwise(plain, [20, 40], [1, 3]) },
        // Few pixels, which are multiplied together with those of other samples.
        ConvShape { channels_out: 24, kernel: [1, 1], ..few_pixels(plain, [2, 2]) },
        ConvShape { dilation: [2, 2], padding: [(2, 2); 2], ..few_pixels(plain, [4, 3]) },
        ConvShape { kernel: [1, 1], stride: [2, 2], ..few_pixels(plain, [5, 4]) },
        ConvShape { kernel: [1, 1], batch: 5, ..few_pixels(plain, [1, 1]) },
        // Weights enough for threads to share filters.
        ConvShape {
            kernel: [1, 1],
            batch: 5,
            channels_in: 300,
            channels_out: 230,
            ..few_pixels(plain, [2, 1])
        },
        ConvShape { channels_in: 5, stride: [2, 2], padding: [(1, 1); 2], size: [9, 9], ..plain },
        ConvShape { channels_in: 4, padding: [(1, 1); 2], size: [7, 17], batch: 17, ..plain },
        ConvShape { channels_in: 16, padding: [(1, 1); 2], size: [16, 16], batch: 9, ..plain },
        ConvShape { channels_in: 16, padding: [(1, 1); 2], stride: [2, 2], batch: 9, ..plain },
        ConvShape {
            channels_in: 64,
            channels_out: 64,
            padding: [(1, 1); 2],
            size: [8, 8],
            ..plain
        },
    ]
    .into_iter()
    .chain(of_batches())
    .collect()
}

/// Those that a training step computes in other ways than inference: at Winograd's points with three and with five
/// taps, pixel by pixel, and with one tap of planes as they lie.
fn of_batches() -> [ConvShape; 5] {
    let plain = ConvShape {
        batch: 33,
        channels_in: 16,
        channels_out: 32,
        size: [6, 5],
        kernel: [3, 3],
        stride: [1, 1],
        padding: [(1, 1); 2],
        dilation: [1, 1],
        groups: 1,
    };
    [
        plain,
        ConvShape { kernel: [5, 5], padding: [(2, 2); 2], ..plain },
        ConvShape { size: [2, 2], ..plain },
        ConvShape { size: [4, 4], stride: [2, 2], channels_in: 48, ..plain },
        ConvShape { kernel: [1, 1], padding: [(0, 0); 2], size: [9, 8], channels_out: 24, ..plain },
    ]
}

fn few_pixels(plain: ConvShape, size: [usize; 2]) -> ConvShape {
    ConvShape { batch: 150, channels_in: 7, channels_out: 9, size, ..plain }
}

#[test]
fn a_sample_alone_gives_the_bits_that_it_gives_among_others() {
    for Case { shape, input, weight, bias, .. } in cases() {
        let all = forward(&shape, &input, &weight, Some(&bias), false);
        let one = ConvShape { batch: 1, ..shape };
        let last = shape.batch - 1;
        let sample = &input[last * shape.sample_in()..];
        let found = forward(&one, sample, &weight, Some(&bias), false);
        assert_eq!(found, all[last * shape.sample_out()..], "{shape:?}");
    }
}

/// Each channel by a filter of its own.
fn depthwise(plain: ConvShape, size: [usize; 2], stride: [usize; 2]) -> ConvShape {
    let padding = [(1, 1); 2];
    ConvShape { channels_in: 24, channels_out: 24, groups: 24, size, stride, padding, ..plain }
}

fn cases() -> impl Iterator<Item = Case> {
    let mut random = Random::new(1);
    let mut shapes = chosen();
    for _ in 0..60 {
        shapes.push(random.conv_shape());
        shapes.push(random.wide_conv_shape());
    }
    shapes.into_iter().map(move |shape| Case::new(shape, &mut random))
}

#[test]
fn kernels_equal_the_reference() {
    for case in cases() {
        let Case { shape, input, weight, bias, gradient } = &case;
        let what = format!("{shape:?}");
        let expected = reference::conv2d(shape, input, weight, bias);
        assert_close(&forward(shape, input, weight, Some(bias), false), &expected, &what);
        let zero = vec![0.0; bias.len()];
        let without = reference::conv2d(shape, input, weight, &zero);
        assert_close(&forward(shape, input, weight, None, false), &without, &what);
        let clipped: Vec<f32> = expected.iter().map(|value| value.max(0.0)).collect();
        assert_close(&forward(shape, input, weight, Some(bias), true), &clipped, &what);
        let found = forward_training(shape, input, weight, Some(bias), false);
        assert_close(&found, &expected, &what);
        let found = forward_training(shape, input, weight, Some(bias), true);
        assert_close(&found, &clipped, &what);

        let found = backward(shape, case.saved(), gradient, ALL);
        let expected = reference::conv2d_backward(shape, input, weight, gradient);
        for (found, expected) in [
            (found.input, expected.input),
            (found.weight, expected.weight),
            (found.bias, expected.bias),
        ] {
            assert_close(&found.expect("wanted"), &expected.expect("wanted"), &what);
        }
    }
}

#[test]
fn only_wanted_gradients_are_computed() {
    for case in cases().take(12) {
        let all = backward(&case.shape, case.saved(), &case.gradient, ALL);
        let some = |input, weight, bias| {
            backward(
                &case.shape,
                case.saved(),
                &case.gradient,
                WantedGradients { input, weight, bias },
            )
        };
        assert_eq!(some(true, false, false).input, all.input);
        assert_eq!(some(false, true, false).weight, all.weight);
        assert_eq!(some(false, false, true).bias, all.bias);
        assert_eq!(some(false, true, false).input, None);
    }
}

#[test]
fn operations_equal_burns() {
    for case in cases() {
        let what = format!("{:?}", case.shape);
        assert_all_close(&case.traced(true, false, true), &case.traced(false, false, true), &what);
        assert_all_close(&case.traced(true, true, true), &case.traced(false, true, true), &what);
        assert_all_close(
            &case.traced(true, false, false),
            &case.traced(false, false, false),
            &what,
        );
    }
}

#[test]
fn gradients_are_slopes() {
    let mut random = Random::new(3);
    let small = ConvShape { batch: 2, ..chosen()[4] };
    let own = [depthwise(small, [5, 6], [1, 1]), depthwise(small, [6, 7], [2, 2])];
    let any = |random: &mut Random| [random.conv_shape(), random.wide_conv_shape()];
    let others: Vec<ConvShape> = (0..12).flat_map(|_| any(&mut random)).collect();
    for shape in own.into_iter().chain(of_batches()).chain(others) {
        let case = Case::new(shape, &mut random);
        let Case { shape, input, weight, bias, gradient } = &case;
        let loss = |input: &[f32], weight: &[f32], bias: &[f32]| {
            let output = forward_training(shape, input, weight, Some(bias), false);
            output.iter().zip(gradient).map(|(y, g)| f64::from(*y) * f64::from(*g)).sum::<f64>()
        };
        let found = backward(shape, case.saved(), gradient, ALL);
        let what = format!("{shape:?}");
        assert_slopes(input.clone(), &found.input.expect("wanted"), &what, |x| {
            loss(x, weight, bias)
        });
        assert_slopes(weight.clone(), &found.weight.expect("wanted"), &what, |w| {
            loss(input, w, bias)
        });
        assert_slopes(bias.clone(), &found.bias.expect("wanted"), &what, |b| {
            loss(input, weight, b)
        });
    }
}

#[test]
fn any_number_of_threads_gives_the_same_bits() {
    for case in cases().take(40) {
        let Case { shape, input, weight, bias, gradient } = &case;
        with_any_threads(|| forward(shape, input, weight, Some(bias), true));
        with_any_threads(|| forward_training(shape, input, weight, Some(bias), true));
        with_any_threads(|| backward(shape, case.saved(), gradient, ALL));
    }
}

#[test]
fn other_types_use_burns_operation() {
    let case = Case::new(chosen()[5], &mut Random::new(4));
    let x = tracked(&case.input, case.input_dims()).cast(FloatDType::F64);
    let w = tracked(&case.weight, case.weight_dims()).cast(FloatDType::F64);
    let output = conv2d(x, w, None, case.options(), Activation::Relu);
    assert_eq!(output.dtype(), DType::F64);
    let expected = forward(&case.shape, &case.input, &case.weight, None, true);
    assert_close(&super::vector(output.inner()), &expected, "f64");
}
