//! The linear layer's operation, with bias and ReLU in one.

use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::{
    Autodiff, Backend, Dispatch, Flex, TensorMetadata, backend_extension, tensor::FloatTensor,
};
use burn::tensor::{Tensor, module};

use super::{CpuTensor, int8, is_served, tensor, values};
use crate::cpu::int8::forward as forward_int8;
use crate::cpu::linear::{self, LinearShape};

#[backend_extension(Flex, Autodiff)]
trait LinearOp: Backend {
    fn linear_op(
        input: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
    ) -> FloatTensor<Self>;
}

impl LinearOp for Flex {
    fn linear_op(input: CpuTensor, weight: CpuTensor, bias: CpuTensor) -> CpuTensor {
        // Copies of weights that are not row by row would be new ones each time.
        if weight.is_contiguous()
            && let Some(weight) = int8::weights(&weight)
        {
            let (input, bias) = (input.to_contiguous(), bias.to_contiguous());
            let [rows, _] = input.shape().dims();
            let output = forward_int8(rows, values(&input), &weight, Some(values(&bias)));
            let columns = bias.shape().dims::<1>()[0];
            return tensor(output, [rows, columns]);
        }
        let (input, weight) = (input.to_contiguous(), weight.to_contiguous());
        let bias = bias.to_contiguous();
        let shape = shape_of(&input, &weight);
        let bias = Some(values(&bias));
        let output = linear::forward(shape, values(&input), values(&weight), bias, false);
        tensor(output, [shape.rows, shape.outputs])
    }
}

impl<C: CheckpointStrategy> LinearOp for Autodiff<Flex, C> {
    fn linear_op(
        input: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        let nodes = [input.node(), weight.node(), bias.node()];
        let (input, weight) = (input.into_primitive(), weight.into_primitive());
        let bias = bias.into_primitive();
        match LinearBackward.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => {
                let (input, weight) = (input.to_contiguous(), weight.to_contiguous());
                let output = Flex::linear_op(input.clone(), weight.clone(), bias);
                prepared.finish((input, weight), output)
            }
            OpsKind::UnTracked(prepared) => prepared.finish(Flex::linear_op(input, weight, bias)),
        }
    }
}

#[derive(Debug)]
struct LinearBackward;

impl Backward<Flex, 3> for LinearBackward {
    type State = (CpuTensor, CpuTensor);

    fn backward(self, ops: Ops<Self::State, 3>, grads: &mut Gradients, _: &mut Checkpointer) {
        let gradient = grads.consume::<Flex>(&ops.node).to_contiguous();
        let gradient = values(&gradient);
        let (input, weight) = ops.state;
        let shape = shape_of(&input, &weight);
        let [of_input, of_weight, of_bias] = ops.parents;
        if let Some(node) = of_input {
            let found = linear::input_gradient(shape, values(&weight), gradient);
            grads.register::<Flex>(node.id, tensor(found, input.shape()));
        }
        if let Some(node) = of_weight {
            let found = linear::weight_gradient(shape, values(&input), gradient);
            grads.register::<Flex>(node.id, tensor(found, weight.shape()));
        }
        if let Some(node) = of_bias {
            let found = linear::bias_gradient(shape, gradient);
            grads.register::<Flex>(node.id, tensor(found, [shape.outputs]));
        }
    }
}

/// `x W + b` over the last axis, as Burn's function of this name.
pub fn linear<const D: usize>(
    input: Tensor<D>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
) -> Tensor<D> {
    let mut dims = input.dims();
    let [inputs, outputs] = weight.dims();
    let fits = dims[D - 1] == inputs
        && inputs > 0
        && bias.as_ref().is_none_or(|bias| is_served(bias) && bias.dims() == [outputs]);
    if !(fits && is_served(&input) && is_served(&weight)) {
        return module::linear(input, weight, bias);
    }
    let rows = dims[..D - 1].iter().product::<usize>();
    let bias = bias.unwrap_or_else(|| Tensor::zeros([outputs], &input.device()));
    let flat: Tensor<2> = input.reshape([rows, inputs]);
    let output = Tensor::<2>::from_dispatch(<Dispatch as LinearOp>::linear_op(
        flat.into_dispatch(),
        weight.into_dispatch(),
        bias.into_dispatch(),
    ));
    dims[D - 1] = outputs;
    output.reshape(dims)
}

fn shape_of(input: &CpuTensor, weight: &CpuTensor) -> LinearShape {
    let [rows, inputs] = input.shape().dims();
    let [_, outputs] = weight.shape().dims();
    LinearShape { rows, inputs, outputs }
}
