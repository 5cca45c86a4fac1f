//! GELU with a slope of its own, on one exponential per value.

use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::{
    Autodiff, Backend, Dispatch, Flex, TensorMetadata, backend_extension, tensor::FloatTensor,
};
use burn::tensor::Tensor;

use super::{CpuTensor, is_served, map_values, tensor, values};
use crate::cpu::gelu as kernel;

#[backend_extension(Flex, Autodiff)]
trait GeluOp: Backend {
    fn gelu_op(input: FloatTensor<Self>) -> FloatTensor<Self>;
}

impl GeluOp for Flex {
    fn gelu_op(input: CpuTensor) -> CpuTensor {
        let input = input.to_contiguous();
        tensor(kernel::forward(values(&input)), input.shape())
    }
}

impl<C: CheckpointStrategy> GeluOp for Autodiff<Flex, C> {
    fn gelu_op(input: FloatTensor<Self>) -> FloatTensor<Self> {
        match GeluBackward.prepare::<C>([input.node()]).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => {
                let input = input.into_primitive().to_contiguous();
                let output = Flex::gelu_op(input.clone());
                prepared.finish(input, output)
            }
            OpsKind::UnTracked(prepared) => prepared.finish(Flex::gelu_op(input.into_primitive())),
        }
    }
}

#[derive(Debug)]
struct GeluBackward;

impl Backward<Flex, 1> for GeluBackward {
    type State = CpuTensor;

    fn backward(self, ops: Ops<CpuTensor, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let gradient = grads.consume::<Flex>(&ops.node);
        if let [Some(parent)] = ops.parents {
            let gradient = map_values(gradient, |gradient| {
                kernel::backward(gradient, values(&ops.state));
            });
            grads.register::<Flex>(parent.id, gradient);
        }
    }
}

/// `x` times the normal distribution's share below `x`, as Burn's function of this name.
pub fn gelu<const D: usize>(input: Tensor<D>) -> Tensor<D> {
    if is_served(&input) {
        return Tensor::from_dispatch(<Dispatch as GeluOp>::gelu_op(input.into_dispatch()));
    }
    burn::tensor::activation::gelu(input)
}
