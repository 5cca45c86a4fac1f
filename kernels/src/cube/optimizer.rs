//! Optimizers as one pass over a parameter: the state is changed where it lies, the parameter is written anew, since
//! copies of a model share the old one.
#![allow(clippy::too_many_arguments, reason = "a kernel's arguments are its buffers and numbers")]

use burn::cubecl::{self, prelude::*};

use super::{GpuTensor, empty_like, grid, len};
use crate::ops::Rule;

#[cube(launch)]
pub(super) fn plain_kernel(
    param: &[f32],
    gradient: &[f32],
    moved: &mut [f32],
    at: usize,
    factor: f32,
    rate: f32,
    decay: f32,
) {
    let i = ABSOLUTE_POS;
    if i < moved.len() {
        let old = param[i];
        moved[i] = old - rate * (factor * gradient[at + i] + decay * old);
    }
}

#[cube(launch)]
pub(super) fn momentum_kernel(
    param: &[f32],
    gradient: &[f32],
    velocity: &mut [f32],
    moved: &mut [f32],
    at: usize,
    factor: f32,
    rate: f32,
    decay: f32,
    momentum: f32,
    #[comptime] nesterov: bool,
) {
    let i = ABSOLUTE_POS;
    if i < moved.len() {
        let old = param[i];
        let slope = factor * gradient[at + i] + decay * old;
        let speed = momentum * velocity[i] + slope;
        velocity[i] = speed;
        if nesterov {
            moved[i] = old - rate * (slope + momentum * speed);
        } else {
            moved[i] = old - rate * speed;
        }
    }
}

#[cube(launch)]
pub(super) fn adam_kernel(
    param: &[f32],
    gradient: &[f32],
    mean: &mut [f32],
    square: &mut [f32],
    moved: &mut [f32],
    at: usize,
    factor: f32,
    rate: f32,
    beta1: f32,
    beta2: f32,
    epsilon: f32,
    decay: f32,
    keep: f32,
    root: f32,
) {
    let i = ABSOLUTE_POS;
    if i < moved.len() {
        let old = param[i];
        let slope = factor * gradient[at + i] + decay * old;
        let first = beta1 * mean[i] + (1.0f32 - beta1) * slope;
        let second = beta2 * square[i] + (1.0f32 - beta2) * slope * slope;
        mean[i] = first;
        square[i] = second;
        moved[i] = keep * old - rate * first / (second.sqrt() / root + epsilon);
    }
}

/// Moves a parameter along `factor` times the part of a bucket that begins at `at`; returns it with its new state.
pub(crate) fn step(
    rule: &Rule,
    param: GpuTensor,
    (bucket, at, factor): (GpuTensor, usize, f32),
    slots: Vec<GpuTensor>,
) -> (GpuTensor, Vec<GpuTensor>) {
    let moved = empty_like(&param, param.meta.shape().clone());
    let client = moved.client.clone();
    let (count, dim) = grid(&client, len(&moved));
    let slots: Vec<GpuTensor> = slots.into_iter().map(own).collect();
    let (old, gradient) = (param.into_buffer_arg(), bucket.into_buffer_arg());
    let new = moved.clone().into_buffer_arg();
    match (*rule, slots.as_slice()) {
        (Rule::Sgd { rate, decay }, []) => {
            plain_kernel::launch(&client, count, dim, old, gradient, new, at, factor, rate, decay);
        }
        (Rule::Momentum { rate, decay, momentum, nesterov }, [velocity]) => {
            let velocity = velocity.clone().into_buffer_arg();
            momentum_kernel::launch(
                &client, count, dim, old, gradient, velocity, new, at, factor, rate, decay,
                momentum, nesterov,
            );
        }
        (Rule::Adam { rate, beta1, beta2, epsilon, decay, keep, root }, [mean, square]) => {
            let (mean, square) = (mean.clone().into_buffer_arg(), square.clone().into_buffer_arg());
            adam_kernel::launch(
                &client, count, dim, old, gradient, mean, square, new, at, factor, rate, beta1,
                beta2, epsilon, decay, keep, root,
            );
        }
        (rule, slots) => panic!("{rule:?} does not have {} slots", slots.len()),
    }
    (moved, slots)
}

/// The state itself if nobody else holds it, or a copy.
fn own(slot: GpuTensor) -> GpuTensor {
    if slot.can_mut() { slot } else { slot.copy() }
}
