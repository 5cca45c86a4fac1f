//! Dropout in one pass, with a mask that is drawn again in the backward pass.

use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::{Autodiff, Backend, Dispatch, Flex, backend_extension, tensor::FloatTensor};
use burn::tensor::{Distribution, Tensor};

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
    let keep = 1.0 - probability;
    if is_served(&input) {
        // All whole numbers below this are exact in f32.
        let range = Distribution::Uniform(0.0, f64::from(1 << 24));
        let drawn = Tensor::<1>::random([2], range, &input.device().without_autodiff());
        let mut keys =
            drawn.into_data().iter::<f32>().map(|value| value as u32).collect::<Vec<_>>();
        keys.resize(2, 0);
        let mask = Mask { seed: [keys[0], keys[1]], keep: keep as f32 };
        let output = <Dispatch as DropoutOp>::dropout_op(input.into_dispatch(), mask);
        return Tensor::from_dispatch(output);
    }
    let kept = input.random_like(Distribution::Bernoulli(keep));
    input * kept * (1.0 / keep)
}
