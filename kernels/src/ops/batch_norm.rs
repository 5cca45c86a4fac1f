//! Batch normalisation in training, with a residual and a ReLU in the same operation.

use std::sync::{Arc, OnceLock};

use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::{
    Autodiff, Backend, Dispatch, Flex, TensorMetadata, backend_extension, tensor::FloatTensor,
};
use burn::tensor::{Tensor, TensorData, module};

use super::{Activation, CpuTensor, is_served, tensor, values};
use crate::cpu::batch_norm::{self, Affine, NO_CEILING, NormShape, Rectified, Saved, Statistics};

/// Pixels of a channel below which planes are too short for the kernel.
const FEWEST_PIXELS: usize = 4;

/// What is not a tensor in a normalisation, and where it leaves what it found.
#[derive(Clone, Debug)]
struct NormSettings {
    epsilon: f64,
    /// Whether the last tensor is a residual.
    residual: bool,
    /// Where a ReLU ends, if there is one.
    relu: Option<f32>,
    found: Arc<OnceLock<Statistics>>,
}

#[backend_extension(Flex, Autodiff)]
trait BatchNormOp: Backend {
    fn batch_norm_op(
        input: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        residual: FloatTensor<Self>,
        settings: NormSettings,
    ) -> FloatTensor<Self>;
}

impl BatchNormOp for Flex {
    fn batch_norm_op(
        input: CpuTensor,
        gamma: CpuTensor,
        beta: CpuTensor,
        residual: CpuTensor,
        settings: NormSettings,
    ) -> CpuTensor {
        let (input, residual) = (input.to_contiguous(), residual.to_contiguous());
        let (gamma, beta) = (gamma.to_contiguous(), beta.to_contiguous());
        let affine =
            Affine { gamma: values(&gamma), beta: values(&beta), epsilon: settings.epsilon };
        let residual = settings.residual.then(|| values(&residual));
        let (shape, relu) = (shape_of(&input), settings.relu);
        let (output, found) = batch_norm::forward(shape, values(&input), affine, residual, relu);
        settings.found.get_or_init(|| found);
        tensor(output, input.shape())
    }
}

impl<C: CheckpointStrategy> BatchNormOp for Autodiff<Flex, C> {
    fn batch_norm_op(
        input: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        residual: FloatTensor<Self>,
        settings: NormSettings,
    ) -> FloatTensor<Self> {
        let nodes = [input.node(), gamma.node(), beta.node(), residual.node()];
        let (input, gamma) = (input.into_primitive(), gamma.into_primitive());
        let (beta, residual) = (beta.into_primitive(), residual.into_primitive());
        match BatchNormBackward.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => {
                let input = input.to_contiguous();
                let parameters = [gamma.to_contiguous(), beta.to_contiguous()];
                let (x, [gamma, beta]) = (input.clone(), parameters.clone());
                let output = Flex::batch_norm_op(x, gamma, beta, residual, settings.clone());
                let tells = settings.relu.is_some() && settings.residual;
                let output_kept = tells.then(|| output.clone());
                prepared.finish(
                    BatchNormKept { input, parameters, output: output_kept, settings },
                    output,
                )
            }
            OpsKind::UnTracked(prepared) => {
                prepared.finish(Flex::batch_norm_op(input, gamma, beta, residual, settings))
            }
        }
    }
}

#[derive(Debug)]
struct BatchNormBackward;

#[derive(Clone, Debug)]
struct BatchNormKept {
    input: CpuTensor,
    parameters: [CpuTensor; 2],
    /// The output, where it is needed to tell what a ReLU let through.
    output: Option<CpuTensor>,
    settings: NormSettings,
}

impl Backward<Flex, 4> for BatchNormBackward {
    type State = BatchNormKept;

    fn backward(self, ops: Ops<BatchNormKept, 4>, grads: &mut Gradients, _: &mut Checkpointer) {
        let gradient = grads.consume::<Flex>(&ops.node).to_contiguous();
        let BatchNormKept { input, parameters: [gamma, beta], output, settings } = ops.state;
        let [of_input, of_gamma, of_beta, of_residual] = ops.parents;
        let statistics = settings.found.get().expect("the forward pass left its statistics");
        let relu = match (&output, settings.relu) {
            (Some(output), _) => Rectified::ByOutput(values(output)),
            (None, Some(_)) => Rectified::ByInput,
            (None, None) => Rectified::Not,
        };
        let ceiling = settings.relu.unwrap_or(NO_CEILING);
        let saved = Saved { input: values(&input), statistics, relu, ceiling };
        let affine =
            Affine { gamma: values(&gamma), beta: values(&beta), epsilon: settings.epsilon };
        let residual = settings.residual && of_residual.is_some();
        let (shape, channels) = (shape_of(&input), gamma.shape());
        let found = batch_norm::backward(shape, saved, affine, values(&gradient), residual);
        if let Some(node) = of_input {
            grads.register::<Flex>(node.id, tensor(found.input, input.shape()));
        }
        if let Some(node) = of_gamma {
            grads.register::<Flex>(node.id, tensor(found.gamma, channels.clone()));
        }
        if let Some(node) = of_beta {
            grads.register::<Flex>(node.id, tensor(found.beta, channels));
        }
        if let (Some(node), Some(values)) = (of_residual, found.residual) {
            grads.register::<Flex>(node.id, tensor(values, input.shape()));
        }
    }
}

fn shape_of(input: &CpuTensor) -> NormShape {
    let dims = input.shape();
    let pixels = dims.num_elements() / (dims[0] * dims[1]).max(1);
    NormShape { batch: dims[0], channels: dims[1], pixels }
}

/// What [`batch_norm_train`] gives.
#[derive(Clone, Debug)]
pub struct BatchNormed<const D: usize> {
    /// The normalised batch, with the residual and behind the activation.
    pub output: Tensor<D>,
    /// The batch's means, which need no gradient.
    pub mean: Tensor<1>,
    /// The batch's variances, divided by the number of values.
    pub variance: Tensor<1>,
}

/// Normalises `[batch, channels, ...]` by the batch's own statistics, as Burn's function of this name, then adds a
/// residual and applies an activation.
pub fn batch_norm_train<const D: usize>(
    input: Tensor<D>,
    [gamma, beta]: [Tensor<1>; 2],
    epsilon: f64,
    residual: Option<Tensor<D>>,
    activation: Activation,
) -> BatchNormed<D> {
    let dims = input.dims();
    let channels = dims.get(1).copied().unwrap_or(0);
    let pixels: usize = dims.iter().skip(2).product();
    let fits = D > 2
        && dims[0] * channels > 0
        && pixels >= FEWEST_PIXELS
        && gamma.dims() == [channels]
        && beta.dims() == [channels]
        && residual.as_ref().is_none_or(|residual| is_served(residual) && residual.dims() == dims);
    if !(fits && is_served(&input) && is_served(&gamma) && is_served(&beta)) {
        return of_burn(input, [gamma, beta], epsilon, residual, activation);
    }
    let device = input.device();
    let found = Arc::new(OnceLock::new());
    let relu = match activation {
        Activation::None => None,
        Activation::Relu => Some(NO_CEILING),
        Activation::Relu6 => Some(6.0),
    };
    let settings =
        NormSettings { epsilon, residual: residual.is_some(), relu, found: found.clone() };
    let nothing = || Tensor::<1>::zeros([1], &device).into_dispatch();
    let output = Tensor::from_dispatch(<Dispatch as BatchNormOp>::batch_norm_op(
        input.into_dispatch(),
        gamma.into_dispatch(),
        beta.into_dispatch(),
        residual.map_or_else(nothing, Tensor::into_dispatch),
        settings,
    ));
    let Statistics { mean, variance } = found.get().cloned().expect("left by the operation");
    let vector = |values: Vec<f32>| Tensor::from_data(TensorData::new(values, [channels]), &device);
    BatchNormed { output, mean: vector(mean), variance: vector(variance) }
}

fn of_burn<const D: usize>(
    input: Tensor<D>,
    [gamma, beta]: [Tensor<1>; 2],
    epsilon: f64,
    residual: Option<Tensor<D>>,
    activation: Activation,
) -> BatchNormed<D> {
    let found = module::batch_norm_train(input, gamma, beta, epsilon);
    let output = match residual {
        Some(residual) => found.output + residual,
        None => found.output,
    };
    let output = match activation {
        Activation::None => output,
        Activation::Relu => super::relu(output),
        Activation::Relu6 => super::relu6(output),
    };
    BatchNormed { output, mean: found.mean.detach(), variance: found.variance.detach() }
}
