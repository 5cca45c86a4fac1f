//! The linear layer's operation, with the bias in one, and with a GELU behind it in one.

use burn::backend::autodiff::NodeId;
use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::{
    Autodiff, Backend, Dispatch, Flex, TensorMetadata, backend_extension, tensor::FloatTensor,
};
use burn::tensor::{Tensor, module};

use super::{CpuTensor, gelu, int8, is_served, map_values, tensor, values};
use crate::cpu::gelu as gelu_kernel;
use crate::cpu::int8::{self as int8_kernel, Int8Weights};
use crate::cpu::linear::{self, LinearShape, LinearValues};

/// A tensor of any backend.
type AnyTensor = FloatTensor<Dispatch>;

#[backend_extension(Flex, Autodiff)]
trait LinearOp: Backend {
    fn linear_op(
        input: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
    ) -> FloatTensor<Self>;

    fn linear_gelu_op(
        input: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
    ) -> FloatTensor<Self>;
}

impl LinearOp for Flex {
    fn linear_op(input: CpuTensor, weight: CpuTensor, bias: CpuTensor) -> CpuTensor {
        if let Some(output) = in_int8(&input, &weight, &bias, int8_kernel::forward) {
            return output;
        }
        let layer = LinearTensors::new(input, weight, bias);
        layer.output(linear::forward(layer.shape(), layer.values(), false))
    }

    fn linear_gelu_op(input: CpuTensor, weight: CpuTensor, bias: CpuTensor) -> CpuTensor {
        if let Some(output) = in_int8(&input, &weight, &bias, int8_kernel::forward_gelu) {
            return output;
        }
        let layer = LinearTensors::new(input, weight, bias);
        layer.output(linear::forward_gelu(layer.shape(), layer.values()))
    }
}

/// Rows of an input, which has so many, by weights and bias.
type Int8Forward = fn(usize, &[f32], &Int8Weights, Option<&[f32]>) -> Vec<f32>;

/// The output in eight bits, where this thread computes so.
fn in_int8(
    input: &CpuTensor,
    weight: &CpuTensor,
    bias: &CpuTensor,
    forward: Int8Forward,
) -> Option<CpuTensor> {
    // Copies of weights that are not row by row would be new ones each time.
    if !weight.is_contiguous() {
        return None;
    }
    let weight = int8::weights(weight)?;
    let (input, bias) = (input.to_contiguous(), bias.to_contiguous());
    let [rows, _] = input.shape().dims();
    let output = forward(rows, values(&input), &weight, Some(values(&bias)));
    let columns = bias.shape().dims::<1>()[0];
    Some(tensor(output, [rows, columns]))
}

/// What a layer computes from, row by row.
struct LinearTensors {
    input: CpuTensor,
    weight: CpuTensor,
    bias: CpuTensor,
}

impl LinearTensors {
    fn new(input: CpuTensor, weight: CpuTensor, bias: CpuTensor) -> Self {
        let [input, weight, bias] = [input, weight, bias].map(|tensor| tensor.to_contiguous());
        Self { input, weight, bias }
    }

    fn shape(&self) -> LinearShape {
        shape_of(&self.input, &self.weight)
    }

    fn values(&self) -> LinearValues<'_> {
        let Self { input, weight, bias } = self;
        LinearValues { input: values(input), weight: values(weight), bias: Some(values(bias)) }
    }

    /// Values of the output's shape.
    fn output(&self, values: Vec<f32>) -> CpuTensor {
        let LinearShape { rows, outputs, .. } = self.shape();
        tensor(values, [rows, outputs])
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

    fn linear_gelu_op(
        input: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        let nodes = [input.node(), weight.node(), bias.node()];
        let (input, weight) = (input.into_primitive(), weight.into_primitive());
        let bias = bias.into_primitive();
        match LinearGeluBackward.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => {
                let layer = LinearTensors::new(input, weight, bias);
                let (output, slope) =
                    linear::forward_gelu_with_slope(layer.shape(), layer.values());
                let (output, slope) = (layer.output(output), layer.output(slope));
                prepared.finish((layer.input, layer.weight, slope), output)
            }
            OpsKind::UnTracked(prepared) => {
                prepared.finish(Flex::linear_gelu_op(input, weight, bias))
            }
        }
    }
}

#[derive(Debug)]
struct LinearBackward;

impl Backward<Flex, 3> for LinearBackward {
    type State = (CpuTensor, CpuTensor);

    fn backward(self, ops: Ops<Self::State, 3>, grads: &mut Gradients, _: &mut Checkpointer) {
        let gradient = grads.consume::<Flex>(&ops.node).to_contiguous();
        let (input, weight) = ops.state;
        let parents = ops.parents.map(|node| node.map(|node| node.id));
        register(parents, grads, (&input, &weight), values(&gradient));
    }
}

#[derive(Debug)]
struct LinearGeluBackward;

impl Backward<Flex, 3> for LinearGeluBackward {
    /// Input, weight and the slope of the GELU.
    type State = (CpuTensor, CpuTensor, CpuTensor);

    fn backward(self, ops: Ops<Self::State, 3>, grads: &mut Gradients, _: &mut Checkpointer) {
        let (input, weight, slope) = ops.state;
        let gradient = map_values(grads.consume::<Flex>(&ops.node), |gradient| {
            gelu_kernel::backward_by_slope(gradient, values(&slope));
        });
        let parents = ops.parents.map(|node| node.map(|node| node.id));
        register(parents, grads, (&input, &weight), values(&gradient));
    }
}

/// Registers the gradients of input, weight and bias, from that of the product.
fn register(
    [of_input, of_weight, of_bias]: [Option<NodeId>; 3],
    grads: &mut Gradients,
    (input, weight): (&CpuTensor, &CpuTensor),
    gradient: &[f32],
) {
    let shape = shape_of(input, weight);
    if let Some(node) = of_input {
        let found = linear::input_gradient(shape, values(weight), gradient);
        grads.register::<Flex>(node, tensor(found, input.shape()));
    }
    if let Some(node) = of_weight {
        let found = linear::weight_gradient(shape, values(input), gradient);
        grads.register::<Flex>(node, tensor(found, weight.shape()));
    }
    if let Some(node) = of_bias {
        let found = linear::bias_gradient(shape, gradient);
        grads.register::<Flex>(node, tensor(found, [shape.outputs]));
    }
}

/// `x W + b` over the last axis, as Burn's function of this name.
pub fn linear<const D: usize>(
    input: Tensor<D>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
) -> Tensor<D> {
    match has_kernel(&input, &weight, bias.as_ref()) {
        true => by_kernel(input, weight, bias, <Dispatch as LinearOp>::linear_op),
        false => module::linear(input, weight, bias),
    }
}

/// [`gelu`] of [`linear()`] in one operation.
pub fn linear_gelu<const D: usize>(
    input: Tensor<D>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
) -> Tensor<D> {
    match has_kernel(&input, &weight, bias.as_ref()) {
        true => by_kernel(input, weight, bias, <Dispatch as LinearOp>::linear_gelu_op),
        false => gelu(module::linear(input, weight, bias)),
    }
}

/// Whether the kernels serve these.
fn has_kernel<const D: usize>(
    input: &Tensor<D>,
    weight: &Tensor<2>,
    bias: Option<&Tensor<1>>,
) -> bool {
    let [inputs, outputs] = weight.dims();
    input.dims()[D - 1] == inputs
        && inputs > 0
        && bias.is_none_or(|bias| is_served(bias) && bias.dims() == [outputs])
        && is_served(input)
        && is_served(weight)
}

/// One of the operations, on all axes but the last as one.
fn by_kernel<const D: usize>(
    input: Tensor<D>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
    operation: fn(AnyTensor, AnyTensor, AnyTensor) -> AnyTensor,
) -> Tensor<D> {
    let mut dims = input.dims();
    let [inputs, outputs] = weight.dims();
    let rows = dims[..D - 1].iter().product::<usize>();
    let bias = bias.unwrap_or_else(|| Tensor::zeros([outputs], &input.device()));
    let flat: Tensor<2> = input.reshape([rows, inputs]);
    let output = operation(flat.into_dispatch(), weight.into_dispatch(), bias.into_dispatch());
    dims[D - 1] = outputs;
    Tensor::<2>::from_dispatch(output).reshape(dims)
}

fn shape_of(input: &CpuTensor, weight: &CpuTensor) -> LinearShape {
    let [rows, inputs] = input.shape().dims();
    let [_, outputs] = weight.shape().dims();
    LinearShape { rows, inputs, outputs }
}
