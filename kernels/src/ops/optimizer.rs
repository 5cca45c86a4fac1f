//! One move of a parameter by an optimizer, on the device that holds it.

use burn::tensor::Tensor;

/// An optimizer's formula with its numbers for one step. The bias corrections of Adam are worked in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    /// `p -= rate * (g + decay * p)`.
    Sgd {
        /// The learning rate.
        rate: f32,
        /// The weight decay.
        decay: f32,
    },
    /// SGD with a velocity, as PyTorch defines it.
    Momentum {
        /// The learning rate.
        rate: f32,
        /// The weight decay.
        decay: f32,
        /// How much of the velocity is kept.
        momentum: f32,
        /// Whether to look ahead by one velocity.
        nesterov: bool,
    },
    /// Adam, and AdamW through `keep`: `p = keep * p - rate * m / (sqrt(v) / root + epsilon)`.
    Adam {
        /// The learning rate over the correction of the mean.
        rate: f32,
        /// How much of the mean is kept.
        beta1: f32,
        /// How much of the mean square is kept.
        beta2: f32,
        /// Keeps the divisor from zero.
        epsilon: f32,
        /// Weight decay that is part of the gradient.
        decay: f32,
        /// One minus the weight decay that is not.
        keep: f32,
        /// The root of the correction of the mean square.
        root: f32,
    },
}

impl Rule {
    /// How many values are kept for each value of a parameter.
    pub fn slots(&self) -> usize {
        match self {
            Rule::Sgd { .. } => 0,
            Rule::Momentum { .. } => 1,
            Rule::Adam { .. } => 2,
        }
    }
}

/// A parameter's part of a bucket of gradients.
#[derive(Clone, Copy, Debug)]
pub struct Gradient<'a> {
    /// All gradients.
    pub bucket: &'a Tensor<1>,
    /// Where the parameter's part begins.
    pub at: usize,
    /// What all of them are multiplied by: one over the number of records, times what clipping leaves.
    pub factor: f32,
}

/// Moves a parameter and its state, which is flat and as long as the parameter.
#[must_use]
#[cfg_attr(
    not(any(feature = "wgpu", feature = "cuda")),
    allow(clippy::ptr_arg, reason = "a GPU's kernels take the state and give another back")
)]
pub fn step<const D: usize>(
    rule: &Rule,
    param: Tensor<D>,
    gradient: Gradient<'_>,
    slots: &mut Vec<Tensor<1>>,
) -> Tensor<D> {
    let len = param.shape().num_elements();
    assert_eq!(slots.len(), rule.slots(), "{rule:?} does not have {} slots", slots.len());
    assert!(gradient.at + len <= gradient.bucket.dims()[0], "the bucket holds the gradient");
    assert!(slots.iter().all(|slot| slot.dims() == [len]), "the state is as long as the parameter");
    #[cfg(any(feature = "wgpu", feature = "cuda"))]
    {
        use crate::cube;
        let served = cube::is_served(&param) && cube::is_served(gradient.bucket);
        if served && slots.iter().all(cube::is_served) {
            use burn::backend::Cube;
            let bucket = cube::buffer(gradient.bucket.clone());
            let state = std::mem::take(slots).into_iter().map(cube::buffer).collect();
            let along = (bucket, gradient.at, gradient.factor);
            let (moved, state) = cube::step(rule, cube::buffer(param), along, state);
            slots.extend(state.into_iter().map(Tensor::from_primitive::<Cube>));
            return Tensor::from_primitive::<Cube>(moved);
        }
    }
    let shape = param.shape();
    let part = gradient.bucket.clone().narrow(0, gradient.at, len);
    let part = part.mul_scalar(gradient.factor);
    by_tensors(rule, param.reshape([len]), part, slots).reshape(shape)
}

/// The same with Burn's operations.
fn by_tensors(rule: &Rule, old: Tensor<1>, part: Tensor<1>, slots: &mut [Tensor<1>]) -> Tensor<1> {
    match (*rule, slots) {
        (Rule::Sgd { rate, decay }, _) => {
            old.clone() - (part + old.mul_scalar(decay)).mul_scalar(rate)
        }
        (Rule::Momentum { rate, decay, momentum, nesterov }, [velocity]) => {
            let slope = part + old.clone().mul_scalar(decay);
            *velocity = velocity.clone().mul_scalar(momentum) + slope.clone();
            let along = match nesterov {
                true => slope + velocity.clone().mul_scalar(momentum),
                false => velocity.clone(),
            };
            old - along.mul_scalar(rate)
        }
        (Rule::Adam { rate, beta1, beta2, epsilon, decay, keep, root }, [mean, square]) => {
            let slope = part + old.clone().mul_scalar(decay);
            let squared = slope.clone() * slope.clone();
            *mean = mean.clone().mul_scalar(beta1) + slope.mul_scalar(1.0 - beta1);
            *square = square.clone().mul_scalar(beta2) + squared.mul_scalar(1.0 - beta2);
            let divisor = square.clone().sqrt().div_scalar(root).add_scalar(epsilon);
            old.mul_scalar(keep) - mean.clone().mul_scalar(rate) / divisor
        }
        (rule, slots) => panic!("{rule:?} does not have {} slots", slots.len()),
    }
}
