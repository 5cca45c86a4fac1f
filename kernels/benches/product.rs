//! What it costs that a row of a product has the same bits whatever is computed with it: our product beside one call of
//! `gemm` as it is, over shapes of training steps; and the linear layer in eight bits beside the one in f32.
//!
//! `cargo bench -p salamander-kernels --bench product`
#![allow(unsafe_code, reason = "the gemm crate takes raw pointers")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use salamander_kernels::cpu::int8::{Int8Weights, forward as forward_int8};
use salamander_kernels::cpu::linear::{LinearShape, LinearValues, forward};
use salamander_kernels::cpu::{Matrix, ProductOutput, product};

/// Rows, inner size, columns, and where they come from.
const SHAPES: [(usize, usize, usize, &str); 9] = [
    (64, 784, 256, "MLP, first layer, 64 records"),
    (64, 256, 10, "MLP, last layer"),
    (784, 64, 256, "MLP, gradient of the first layer's weights"),
    (64, 1568, 10, "conv16, last layer"),
    (256, 576, 784, "a convolution by im2col, one picture"),
    (1024, 384, 1536, "MiniLM, feed-forward, 1,024 tokens"),
    (1024, 1536, 384, "MiniLM, feed-forward back"),
    (27, 384, 384, "MiniLM, one sentence"),
    (1, 784, 256, "one record"),
];
const ROUNDS: usize = 7;
const TIME: Duration = Duration::from_millis(60);

fn values(count: usize) -> Vec<f32> {
    (0..count).map(|at| ((at * 2_654_435_761) % 1000) as f32 / 500.0 - 1.0).collect()
}

/// Seconds of a call, over some time.
fn seconds(mut call: impl FnMut()) -> f64 {
    let (begin, mut calls) = (Instant::now(), 0u32);
    while begin.elapsed() < TIME {
        call();
        calls += 1;
    }
    begin.elapsed().as_secs_f64() / f64::from(calls)
}

/// The medians of two, which take turns.
fn medians(mut first: impl FnMut(), mut second: impl FnMut()) -> (f64, f64) {
    let (mut left, mut right) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        left.push(seconds(&mut first));
        right.push(seconds(&mut second));
    }
    left.sort_by(f64::total_cmp);
    right.sort_by(f64::total_cmp);
    (left[ROUNDS / 2], right[ROUNDS / 2])
}

fn plain(out: &mut [f32], left: &[f32], right: &[f32], (m, k, n): (usize, usize, usize)) {
    assert!(out.len() == m * n && left.len() == m * k && right.len() == k * n);
    // SAFETY: the sizes were just checked.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            out.as_mut_ptr(),
            1,
            n as isize,
            false,
            left.as_ptr(),
            1,
            k as isize,
            right.as_ptr(),
            1,
            n as isize,
            1.0,
            1.0,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}

fn main() {
    println!(
        "{:>18} {:>10} {:>10} {:>7}  shape",
        "rows inner columns", "gemm us", "ours us", "ratio"
    );
    for (rows, inner, columns, name) in SHAPES {
        let (left, right) = (values(rows * inner), values(inner * columns));
        let (mut theirs, mut ours) = (vec![0.0; rows * columns], vec![0.0; rows * columns]);
        let (gemm, own) = medians(
            || plain(black_box(&mut theirs), &left, &right, (rows, inner, columns)),
            || {
                let (left, right) =
                    (Matrix::new(&left, rows, inner), Matrix::new(&right, inner, columns));
                product(ProductOutput::Replace, black_box(&mut ours), left, right);
            },
        );
        let (gemm, own) = (gemm * 1e6, own * 1e6);
        println!(
            "{rows:>6}{inner:>6}{columns:>6} {gemm:>10.1} {own:>10.1} {:>7.2}  {name}",
            own / gemm
        );
    }
    println!("\n{:>18} {:>10} {:>10} {:>7}  linear layer", "", "f32 us", "int8 us", "faster");
    for (rows, inputs, outputs, name) in SHAPES {
        let (input, weight) = (values(rows * inputs), values(inputs * outputs));
        let packed = Int8Weights::new(&weight, inputs, outputs);
        let shape = LinearShape { rows, inputs, outputs };
        let linear = LinearValues { input: &input, weight: &weight, bias: None };
        let (floats, bytes) = medians(
            || drop(black_box(forward(shape, linear, false))),
            || drop(black_box(forward_int8(rows, &input, &packed, None))),
        );
        let (floats, bytes) = (floats * 1e6, bytes * 1e6);
        println!(
            "{rows:>6}{inputs:>6}{outputs:>6} {floats:>10.1} {bytes:>10.1} {:>7.2}  {name}",
            floats / bytes
        );
    }
}
