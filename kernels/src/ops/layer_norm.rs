//! Layer normalisation, with all gradients from one pass over the rows.

use std::sync::Arc;

use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::{
    Autodiff, Backend, Dispatch, Flex, TensorMetadata, backend_extension, tensor::FloatTensor,
};
use burn::tensor::{Tensor, module};

use super::{CpuTensor, is_served, tensor, values};
use crate::cpu::layer_norm::{Moments, backward, forward};

#[backend_extension(Flex, Autodiff)]
trait LayerNormOp: Backend {
    fn layer_norm_op(
        input: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        epsilon: f32,
    ) -> FloatTensor<Self>;
}

impl LayerNormOp for Flex {
    fn layer_norm_op(
        input: CpuTensor,
        gamma: CpuTensor,
        beta: CpuTensor,
        epsilon: f32,
    ) -> CpuTensor {
        let [input, gamma, beta] = [input, gamma, beta].map(|tensor| tensor.to_contiguous());
        tensor(forward(values(&input), values(&gamma), values(&beta), epsilon).0, input.shape())
    }
}

impl<C: CheckpointStrategy> LayerNormOp for Autodiff<Flex, C> {
    fn layer_norm_op(
        input: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        epsilon: f32,
    ) -> FloatTensor<Self> {
        let nodes = [input.node(), gamma.node(), beta.node()];
        let [input, gamma, beta] = [input, gamma, beta].map(FloatTensor::<Self>::into_primitive);
        match LayerNormBackward.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => {
                let [input, gamma, beta] =
                    [input, gamma, beta].map(|tensor| tensor.to_contiguous());
                let (output, moments) =
                    forward(values(&input), values(&gamma), values(&beta), epsilon);
                let output = tensor(output, input.shape());
                prepared.finish((input, gamma, moments.into()), output)
            }
            OpsKind::UnTracked(prepared) => {
                prepared.finish(Flex::layer_norm_op(input, gamma, beta, epsilon))
            }
        }
    }
}

#[derive(Debug)]
struct LayerNormBackward;

impl Backward<Flex, 3> for LayerNormBackward {
    type State = (CpuTensor, CpuTensor, Arc<[Moments]>);

    fn backward(self, ops: Ops<Self::State, 3>, grads: &mut Gradients, _: &mut Checkpointer) {
        let gradient = grads.consume::<Flex>(&ops.node).to_contiguous();
        let (input, gamma, moments) = ops.state;
        let found = backward(values(&input), values(&gamma), &moments, values(&gradient));
        let shapes = [input.shape(), gamma.shape(), gamma.shape()];
        let found = [found.input, found.gamma, found.beta].into_iter().zip(shapes);
        for (node, (values, shape)) in ops.parents.into_iter().zip(found) {
            if let Some(node) = node {
                grads.register::<Flex>(node.id, tensor(values, shape));
            }
        }
    }
}

/// Rows to mean zero and variance one, scaled by `gamma` and shifted by `beta`, as Burn's function of this name.
pub fn layer_norm<const D: usize>(
    input: Tensor<D>,
    gamma: Tensor<1>,
    beta: Option<Tensor<1>>,
    epsilon: f64,
) -> Tensor<D> {
    let [width] = gamma.dims();
    let fits = input.dims()[D - 1] == width
        && width > 0
        && beta.as_ref().is_none_or(|beta| is_served(beta) && beta.dims() == [width]);
    if !(fits && is_served(&input) && is_served(&gamma)) {
        return module::layer_norm(input, gamma, beta, epsilon);
    }
    let beta = beta.unwrap_or_else(|| Tensor::zeros([width], &input.device()));
    Tensor::from_dispatch(<Dispatch as LayerNormOp>::layer_norm_op(
        input.into_dispatch(),
        gamma.into_dispatch(),
        beta.into_dispatch(),
        epsilon as f32,
    ))
}
