//! Convolution with bias and ReLU in one operation.

use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::{
    Autodiff, Backend, Dispatch, Flex, TensorMetadata, backend_extension, tensor::FloatTensor,
};
use burn::tensor::ops::ConvOptions;
use burn::tensor::{Tensor, module};

use super::{CpuTensor, is_served, relu6, tensor, values};
use crate::cpu::ConvShape;
use crate::cpu::conv::{self, Saved, WantedGradients};

/// What follows a layer's sum in the same operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// Nothing.
    None,
    /// `max(x, 0)`
    Relu,
    /// `min(max(x, 0), 6)`
    Relu6,
}

#[backend_extension(Flex, Autodiff)]
trait ConvOp: Backend {
    fn conv_op(
        input: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        options: ConvOptions<2>,
        activation: Activation,
    ) -> FloatTensor<Self>;
}

impl ConvOp for Flex {
    fn conv_op(
        input: CpuTensor,
        weight: CpuTensor,
        bias: CpuTensor,
        options: ConvOptions<2>,
        activation: Activation,
    ) -> CpuTensor {
        convolve([input, weight, bias], &options, activation, conv::forward)
    }
}

/// A kernel's forward pass: shape, input, weights, bias, whether a ReLU follows.
type ForwardFn = fn(&ConvShape, &[f32], &[f32], Option<&[f32]>, bool) -> Vec<f32>;

fn convolve(
    tensors: [CpuTensor; 3],
    options: &ConvOptions<2>,
    activation: Activation,
    forward: ForwardFn,
) -> CpuTensor {
    let [input, weight, bias] = tensors.map(|tensor| tensor.to_contiguous());
    let shape = shape_of(input.shape().dims(), weight.shape().dims(), options);
    let relu = activation == Activation::Relu;
    let output = forward(&shape, values(&input), values(&weight), Some(values(&bias)), relu);
    let [rows, columns] = shape.out();
    tensor(output, [shape.batch, shape.channels_out, rows, columns])
}

impl<C: CheckpointStrategy> ConvOp for Autodiff<Flex, C> {
    fn conv_op(
        input: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        options: ConvOptions<2>,
        activation: Activation,
    ) -> FloatTensor<Self> {
        let nodes = [input.node(), weight.node(), bias.node()];
        let (input, weight) = (input.into_primitive(), weight.into_primitive());
        let bias = bias.into_primitive();
        match ConvBackward.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => {
                let (input, weight) = (input.to_contiguous(), weight.to_contiguous());
                let (x, w) = (input.clone(), weight.clone());
                let forward = conv::forward_training;
                let output = convolve([x, w, bias], &options, activation, forward);
                let relu_output = (activation == Activation::Relu).then(|| output.clone());
                prepared.finish(ConvKept { input, weight, relu_output, options }, output)
            }
            OpsKind::UnTracked(prepared) => {
                prepared.finish(Flex::conv_op(input, weight, bias, options, activation))
            }
        }
    }
}

#[derive(Debug)]
struct ConvBackward;

#[derive(Clone, Debug)]
struct ConvKept {
    input: CpuTensor,
    weight: CpuTensor,
    relu_output: Option<CpuTensor>,
    options: ConvOptions<2>,
}

impl Backward<Flex, 3> for ConvBackward {
    type State = ConvKept;

    fn backward(self, ops: Ops<ConvKept, 3>, grads: &mut Gradients, _: &mut Checkpointer) {
        let gradient = grads.consume::<Flex>(&ops.node).to_contiguous();
        let ConvKept { input, weight, relu_output, options } = ops.state;
        let shape = shape_of(input.shape().dims(), weight.shape().dims(), &options);
        let [of_input, of_weight, of_bias] = ops.parents;
        let wanted = WantedGradients {
            input: of_input.is_some(),
            weight: of_weight.is_some(),
            bias: of_bias.is_some(),
        };
        let saved = Saved {
            input: values(&input),
            weight: values(&weight),
            relu_output: relu_output.as_ref().map(values),
        };
        let found = conv::backward(&shape, saved, values(&gradient), wanted);
        if let (Some(node), Some(values)) = (of_input, found.input) {
            grads.register::<Flex>(node.id, tensor(values, input.shape()));
        }
        if let (Some(node), Some(values)) = (of_weight, found.weight) {
            grads.register::<Flex>(node.id, tensor(values, weight.shape()));
        }
        if let (Some(node), Some(values)) = (of_bias, found.bias) {
            grads.register::<Flex>(node.id, tensor(values, [shape.channels_out]));
        }
    }
}

/// Convolution as Burn's function of this name, followed by an activation.
pub fn conv2d(
    input: Tensor<4>,
    weight: Tensor<4>,
    bias: Option<Tensor<1>>,
    options: ConvOptions<2>,
    activation: Activation,
) -> Tensor<4> {
    let shape = shape_of(input.dims(), weight.dims(), &options);
    let fits = shape.is_valid()
        && weight.dims()[1] * shape.groups == shape.channels_in
        && bias.as_ref().is_none_or(|bias| is_served(bias) && bias.dims() == [shape.channels_out]);
    // No network has it right behind a convolution, so that it has no kernel there.
    if activation == Activation::Relu6 {
        return relu6(conv2d(input, weight, bias, options, Activation::None));
    }
    if fits && is_served(&input) && is_served(&weight) {
        // Without a bias zeros serve as one: they need no gradient, and the sum has to start from something.
        let bias = bias.unwrap_or_else(|| Tensor::zeros([shape.channels_out], &input.device()));
        return Tensor::from_dispatch(<Dispatch as ConvOp>::conv_op(
            input.into_dispatch(),
            weight.into_dispatch(),
            bias.into_dispatch(),
            options,
            activation,
        ));
    }
    let output = module::conv2d(input, weight, bias, options);
    match activation {
        Activation::None => output,
        Activation::Relu => burn::tensor::activation::relu(output),
        Activation::Relu6 => relu6(output),
    }
}

fn shape_of(input: [usize; 4], weight: [usize; 4], options: &ConvOptions<2>) -> ConvShape {
    ConvShape {
        batch: input[0],
        channels_in: input[1],
        channels_out: weight[0],
        size: [input[2], input[3]],
        kernel: [weight[2], weight[3]],
        stride: options.stride,
        padding: options.padding,
        dilation: options.dilation,
        groups: options.groups,
    }
}
