//! ReLU that writes into its input where nobody else needs it.

use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::{Autodiff, Backend, Dispatch, Flex, backend_extension, tensor::FloatTensor};
use burn::tensor::Tensor;

use super::{CpuTensor, is_served, map_values, values};
use crate::cpu::elementwise;

#[backend_extension(Flex, Autodiff)]
trait ReluOp: Backend {
    fn relu_op(input: FloatTensor<Self>) -> FloatTensor<Self>;
}

impl ReluOp for Flex {
    fn relu_op(input: CpuTensor) -> CpuTensor {
        map_values(input, elementwise::relu)
    }
}

impl<C: CheckpointStrategy> ReluOp for Autodiff<Flex, C> {
    fn relu_op(input: FloatTensor<Self>) -> FloatTensor<Self> {
        match ReluBackward.prepare::<C>([input.node()]).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => {
                let output = Flex::relu_op(input.into_primitive());
                prepared.finish(output.clone(), output)
            }
            OpsKind::UnTracked(prepared) => prepared.finish(Flex::relu_op(input.into_primitive())),
        }
    }
}

#[derive(Debug)]
struct ReluBackward;

impl Backward<Flex, 1> for ReluBackward {
    type State = CpuTensor;

    fn backward(self, ops: Ops<CpuTensor, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let gradient = grads.consume::<Flex>(&ops.node);
        if let [Some(parent)] = ops.parents {
            let gradient = map_values(gradient, |gradient| {
                elementwise::relu_backward(gradient, values(&ops.state));
            });
            grads.register::<Flex>(parent.id, gradient);
        }
    }
}

/// `max(x, 0)`, as Burn's function of this name.
pub fn relu<const D: usize>(input: Tensor<D>) -> Tensor<D> {
    if is_served(&input) {
        return Tensor::from_dispatch(<Dispatch as ReluOp>::relu_op(input.into_dispatch()));
    }
    burn::tensor::activation::relu(input)
}
