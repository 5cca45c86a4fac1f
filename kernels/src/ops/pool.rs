//! Max-pooling that keeps one byte per window for its backward pass.

use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::{
    Autodiff, Backend, Dispatch, Flex, TensorMetadata, backend_extension, tensor::FloatTensor,
};
use burn::tensor::ops::MaxPoolOptions;
use burn::tensor::{Tensor, module};

use super::{CpuTensor, is_served, tensor, values};
use crate::cpu::{PoolShape, pool};

#[backend_extension(Flex, Autodiff)]
trait PoolOp: Backend {
    fn pool_op(input: FloatTensor<Self>, options: MaxPoolOptions<2>) -> FloatTensor<Self>;
}

impl PoolOp for Flex {
    fn pool_op(input: CpuTensor, options: MaxPoolOptions<2>) -> CpuTensor {
        pool(input, &options).0
    }
}

impl<C: CheckpointStrategy> PoolOp for Autodiff<Flex, C> {
    fn pool_op(input: FloatTensor<Self>, options: MaxPoolOptions<2>) -> FloatTensor<Self> {
        match PoolBackward.prepare::<C>([input.node()]).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => {
                let input = input.into_primitive();
                let dims = input.shape().dims();
                let (output, winners) = pool(input, &options);
                prepared.finish(PoolKept { dims, options, winners }, output)
            }
            OpsKind::UnTracked(prepared) => {
                prepared.finish(Flex::pool_op(input.into_primitive(), options))
            }
        }
    }
}

#[derive(Debug)]
struct PoolBackward;

#[derive(Clone, Debug)]
struct PoolKept {
    dims: [usize; 4],
    options: MaxPoolOptions<2>,
    winners: Vec<u8>,
}

impl Backward<Flex, 1> for PoolBackward {
    type State = PoolKept;

    fn backward(self, ops: Ops<PoolKept, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let gradient = grads.consume::<Flex>(&ops.node).to_contiguous();
        let PoolKept { dims, options, winners } = ops.state;
        if let [Some(parent)] = ops.parents {
            let input = pool::backward(&shape_of(dims, &options), values(&gradient), &winners);
            grads.register::<Flex>(parent.id, tensor(input, dims));
        }
    }
}

fn pool(input: CpuTensor, options: &MaxPoolOptions<2>) -> (CpuTensor, Vec<u8>) {
    let input = input.to_contiguous();
    let dims: [usize; 4] = input.shape().dims();
    let shape = shape_of(dims, options);
    let (maxima, winners) = pool::forward(&shape, values(&input));
    let [rows, columns] = shape.out();
    (tensor(maxima, [dims[0], dims[1], rows, columns]), winners)
}

/// Max-pooling as Burn's function of this name.
pub fn max_pool2d(input: Tensor<4>, options: MaxPoolOptions<2>) -> Tensor<4> {
    let fits = !options.ceil_mode && shape_of(input.dims(), &options).is_valid();
    if fits && is_served(&input) {
        let output = <Dispatch as PoolOp>::pool_op(input.into_dispatch(), options);
        return Tensor::from_dispatch(output);
    }
    module::max_pool2d(input, options)
}

fn shape_of(input: [usize; 4], options: &MaxPoolOptions<2>) -> PoolShape {
    PoolShape {
        planes: input[0] * input[1],
        size: [input[2], input[3]],
        kernel: options.kernel_size,
        stride: options.stride,
        padding: options.padding,
        dilation: options.dilation,
    }
}
