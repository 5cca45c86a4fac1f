//! Dropout in one pass, with a mask that is drawn again in the backward pass.

use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::{Autodiff, Backend, Dispatch, Flex, backend_extension, tensor::FloatTensor};
use burn::tensor::{Device, Distribution, Tensor};

use super::{CpuTensor, is_served, map_values};
use crate::cpu::dropout::{Mask, apply};

#[backend_extension(Flex, Autodiff)]
trait DropoutOp: Backend {
    fn dropout_op(input: FloatTensor<Self>, mask: Mask) -> FloatTensor<Self>;
}

impl DropoutOp for Flex {
    fn dropout_op(input: CpuTensor, mask: Mask) -> CpuTensor {
        map_values(input, |values| apply(mask, values))
    }
}

impl<C: CheckpointStrategy> DropoutOp for Autodiff<Flex, C> {
    fn dropout_op(input: FloatTensor<Self>, mask: Mask) -> FloatTensor<Self> {
        match DropoutBackward.prepare::<C>([input.node()]).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => {
                prepared.finish(mask, Flex::dropout_op(input.into_primitive(), mask))
            }
            OpsKind::UnTracked(prepared) => {
                prepared.finish(Flex::dropout_op(input.into_primitive(), mask))
            }
        }
    }
}

#[derive(Debug)]
struct DropoutBackward;

impl Backward<Flex, 1> for DropoutBackward {
    type State = Mask;

    fn backward(self, ops: Ops<Mask, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let gradient = grads.consume::<Flex>(&ops.node);
        if let [Some(parent)] = ops.parents {
            grads.register::<Flex>(parent.id, Flex::dropout_op(gradient, ops.state));
        }
    }
}

/// Sets each value to zero with probability `probability` and scales the others, so that the expected sum stays.
/// Which ones depends on the device's random generator, of which this takes two numbers.
pub fn dropout<const D: usize>(input: Tensor<D>, probability: f64) -> Tensor<D> {
    if is_served(&input) {
        let mask = draw(probability, &input.device());
        return masked(input, mask);
    }
    let keep = 1.0 - probability;
    let kept = input.random_like(Distribution::Bernoulli(keep));
    input * kept * (1.0 / keep)
}

/// A mask from two numbers of the device's random generator.
pub(crate) fn draw(probability: f64, device: &Device) -> Mask {
    // All whole numbers below this are exact in f32.
    let range = Distribution::Uniform(0.0, f64::from(1 << 24));
    let drawn = Tensor::<1>::random([2], range, &device.clone().without_autodiff());
    let mut keys = drawn.into_data().iter::<f32>().map(|value| value as u32).collect::<Vec<_>>();
    keys.resize(2, 0);
    Mask { seed: [keys[0], keys[1]], keep: (1.0 - probability) as f32 }
}

/// Applies a mask to a tensor that the kernels serve.
pub(crate) fn masked<const D: usize>(input: Tensor<D>, mask: Mask) -> Tensor<D> {
    Tensor::from_dispatch(<Dispatch as DropoutOp>::dropout_op(input.into_dispatch(), mask))
}
