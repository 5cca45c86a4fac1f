//! Average pooling, of windows and of equal parts.

use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::{Autodiff, Backend, Dispatch, Flex, backend_extension, tensor::FloatTensor};
use burn::tensor::ops::AvgPoolOptions;
use burn::tensor::{Tensor, module};

use super::{CpuTensor, is_served, tensor, values};
use crate::cpu::PoolShape;
use crate::cpu::average::{self, AverageShape, Windows};

/// The sizes of a pooling, with samples and channels apart.
#[derive(Clone, Debug)]
struct Sizes {
    outer: [usize; 2],
    shape: AverageShape,
}

#[backend_extension(Flex, Autodiff)]
trait AverageOp: Backend {
    fn average_op(input: FloatTensor<Self>, sizes: Sizes) -> FloatTensor<Self>;
}

impl AverageOp for Flex {
    fn average_op(input: CpuTensor, sizes: Sizes) -> CpuTensor {
        let output = average::forward(&sizes.shape, values(&input.to_contiguous()));
        let ([samples, channels], [rows, columns]) = (sizes.outer, sizes.shape.out());
        tensor(output, [samples, channels, rows, columns])
    }
}

impl<C: CheckpointStrategy> AverageOp for Autodiff<Flex, C> {
    fn average_op(input: FloatTensor<Self>, sizes: Sizes) -> FloatTensor<Self> {
        match AverageBackward.prepare::<C>([input.node()]).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => {
                let output = Flex::average_op(input.into_primitive(), sizes.clone());
                prepared.finish(sizes, output)
            }
            OpsKind::UnTracked(prepared) => {
                prepared.finish(Flex::average_op(input.into_primitive(), sizes))
            }
        }
    }
}

#[derive(Debug)]
struct AverageBackward;

impl Backward<Flex, 1> for AverageBackward {
    type State = Sizes;

    fn backward(self, ops: Ops<Sizes, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let gradient = grads.consume::<Flex>(&ops.node).to_contiguous();
        let Sizes { outer: [samples, channels], shape } = ops.state;
        if let [Some(parent)] = ops.parents {
            let input = average::backward(&shape, values(&gradient));
            let [height, width] = shape.size;
            grads.register::<Flex>(parent.id, tensor(input, [samples, channels, height, width]));
        }
    }
}

fn pool(input: Tensor<4>, windows: [Windows; 2]) -> Tensor<4> {
    let [samples, channels, height, width] = input.dims();
    let shape = AverageShape { planes: samples * channels, size: [height, width], windows };
    let sizes = Sizes { outer: [samples, channels], shape };
    Tensor::from_dispatch(<Dispatch as AverageOp>::average_op(input.into_dispatch(), sizes))
}

/// Average pooling as Burn's function of this name.
pub fn avg_pool2d(input: Tensor<4>, options: AvgPoolOptions<2>) -> Tensor<4> {
    let [samples, channels, height, width] = input.dims();
    let shape = PoolShape {
        planes: samples * channels,
        size: [height, width],
        kernel: options.kernel_size,
        stride: options.stride,
        padding: options.padding,
        dilation: [1, 1],
    };
    if options.ceil_mode || !shape.is_valid() || !is_served(&input) {
        return module::avg_pool2d(input, options);
    }
    pool(input, [0, 1].map(|axis| Windows::of_pool(&shape, axis, options.count_include_pad)))
}

/// Average pooling to a given size, as Burn's function of this name.
pub fn adaptive_avg_pool2d(input: Tensor<4>, output_size: [usize; 2]) -> Tensor<4> {
    let [_, _, height, width] = input.dims();
    if height * width == 0 || output_size.contains(&0) || !is_served(&input) {
        return module::adaptive_avg_pool2d(input, output_size);
    }
    let [rows, columns] = output_size;
    pool(input, [Windows::of_parts(height, rows), Windows::of_parts(width, columns)])
}
