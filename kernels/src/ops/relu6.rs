//! ReLU6 (<https://arxiv.org/abs/1704.04861>) that writes into its input where nobody else needs it.

use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::{Autodiff, Backend, Dispatch, Flex, backend_extension, tensor::FloatTensor};
use burn::tensor::Tensor;

use super::{CpuTensor, is_served, map_values, values};
use crate::cpu::elementwise;

#[backend_extension(Flex, Autodiff)]
trait Relu6Op: Backend {
    fn relu6_op(input: FloatTensor<Self>) -> FloatTensor<Self>;
}

impl Relu6Op for Flex {
    fn relu6_op(input: CpuTensor) -> CpuTensor {
        map_values(input, elementwise::relu6)
    }
}

impl<C: CheckpointStrategy> Relu6Op for Autodiff<Flex, C> {
    fn relu6_op(input: FloatTensor<Self>) -> FloatTensor<Self> {
        match Relu6Backward.prepare::<C>([input.node()]).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => {
                let output = Flex::relu6_op(input.into_primitive());
                prepared.finish(output.clone(), output)
            }
            OpsKind::UnTracked(prepared) => prepared.finish(Flex::relu6_op(input.into_primitive())),
        }
    }
}

#[derive(Debug)]
struct Relu6Backward;

impl Backward<Flex, 1> for Relu6Backward {
    type State = CpuTensor;

    fn backward(self, ops: Ops<CpuTensor, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let gradient = grads.consume::<Flex>(&ops.node);
        if let [Some(parent)] = ops.parents {
            let gradient = map_values(gradient, |gradient| {
                elementwise::relu6_backward(gradient, values(&ops.state));
            });
            grads.register::<Flex>(parent.id, gradient);
        }
    }
}

/// `min(max(x, 0), 6)`.
pub fn relu6<const D: usize>(input: Tensor<D>) -> Tensor<D> {
    if is_served(&input) {
        return Tensor::from_dispatch(<Dispatch as Relu6Op>::relu6_op(input.into_dispatch()));
    }
    input.clamp(0.0, 6.0)
}
