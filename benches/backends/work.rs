//! What is measured on each device: one entry per area, each preparing a step that is then repeated.

use std::fmt;

use burn::tensor::{Device, Distribution, Int, Tensor};
use salamander::prelude::*;

use crate::steps;

/// How large the work is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// Rows and columns of a matrix.
    pub(crate) matrix: usize,
    /// Records of a batch.
    pub(crate) batch: usize,
    /// Tokens of a sequence.
    pub(crate) tokens: usize,
    /// Parameters of the optimizer's step, in thousands.
    pub(crate) thousands: usize,
}

impl Sizes {
    pub(crate) const USUAL: Self = Self { matrix: 512, batch: 64, tokens: 128, thousands: 1000 };
    pub(crate) const TINY: Self = Self { matrix: 64, batch: 2, tokens: 8, thousands: 10 };
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{},{},{}", self.matrix, self.batch, self.tokens, self.thousands)
    }
}

/// One kind of work.
pub(crate) struct Area {
    /// Its name here and in `peers/backends.py`.
    pub(crate) name: &'static str,
    /// What is counted per second.
    pub(crate) unit: &'static str,
    /// How much of it a step does.
    pub(crate) items: fn(&Sizes) -> f64,
    /// Makes the step.
    pub(crate) prepare: fn(&Device, &Sizes) -> Box<dyn FnMut()>,
}

/// All of them.
pub(crate) const AREAS: [Area; 8] = [
    Area { name: "matmul", unit: "GFLOP/s", items: matmul_work, prepare: matmul },
    Area { name: "conv_forward", unit: "images/s", items: batch, prepare: conv_forward },
    Area { name: "conv_backward", unit: "images/s", items: batch, prepare: conv_backward },
    Area { name: "mlp_step", unit: "samples/s", items: batch, prepare: steps::mlp },
    Area { name: "cnn_step", unit: "samples/s", items: batch, prepare: steps::cnn },
    Area { name: "embedding", unit: "rows/s", items: rows, prepare: embedding },
    Area {
        name: "optimizer",
        unit: "M parameters/s",
        items: parameters,
        prepare: steps::optimizer,
    },
    Area { name: "attention", unit: "tokens/s", items: tokens, prepare: attention },
];

/// Width of a row of the embedding.
const DIM: usize = 64;
/// Rows of the embedding.
const ROWS: usize = 10_000;
/// Width of a token.
const WIDTH: usize = 256;

fn matmul_work(sizes: &Sizes) -> f64 {
    2.0 * (sizes.matrix as f64).powi(3) / 1e9
}

fn batch(sizes: &Sizes) -> f64 {
    sizes.batch as f64
}

fn rows(sizes: &Sizes) -> f64 {
    (sizes.batch * sizes.tokens) as f64
}

fn parameters(sizes: &Sizes) -> f64 {
    sizes.thousands as f64 / 1e3
}

fn tokens(sizes: &Sizes) -> f64 {
    (sizes.batch * sizes.tokens) as f64
}

fn random<const D: usize>(shape: [usize; D], device: &Device) -> Tensor<D> {
    Tensor::random(shape, Distribution::Uniform(-1.0, 1.0), device)
}

fn matmul(device: &Device, sizes: &Sizes) -> Box<dyn FnMut()> {
    let shape = [sizes.matrix, sizes.matrix];
    let (a, b) = (random(shape, device), random(shape, device));
    Box::new(move || drop(a.clone().matmul(b.clone())))
}

/// The second convolution of the zoo's `mnist_conv32`.
fn conv_forward(device: &Device, sizes: &Sizes) -> Box<dyn FnMut()> {
    let conv = Conv2dConfig::new([32, 64], [3, 3]).init(device);
    let images = random([sizes.batch, 32, 26, 26], device);
    Box::new(move || drop(conv.forward(images.clone())))
}

/// Forward and backward, to weights and input.
fn conv_backward(device: &Device, sizes: &Sizes) -> Box<dyn FnMut()> {
    let device = device.clone().autodiff();
    let conv = Conv2dConfig::new([32, 64], [3, 3]).init(&device);
    let images = random([sizes.batch, 32, 26, 26], &device).require_grad();
    Box::new(move || drop(conv.forward(images.clone()).sum().backward()))
}

/// Rows looked up, and their gradients added up.
fn embedding(device: &Device, sizes: &Sizes) -> Box<dyn FnMut()> {
    let device = device.clone().autodiff();
    let table = random([ROWS, DIM], &device).require_grad();
    let ids: Vec<i64> = (0..sizes.batch * sizes.tokens).map(|i| (i * 7919 % ROWS) as i64).collect();
    let ids = Tensor::<1, Int>::from_data(ids.as_slice(), &device);
    Box::new(move || drop(table.clone().select(0, ids.clone()).powi_scalar(2).sum().backward()))
}

/// Attention of eight heads, forward and backward.
fn attention(device: &Device, sizes: &Sizes) -> Box<dyn FnMut()> {
    let device = device.clone().autodiff();
    let block = MultiHeadAttentionConfig::new(WIDTH, 8).with_dropout(0.0).init(&device);
    let x = random([sizes.batch, sizes.tokens, WIDTH], &device);
    Box::new(move || {
        let output = block.forward(MhaInput::self_attn(x.clone()));
        drop(output.context.sum().backward());
    })
}
