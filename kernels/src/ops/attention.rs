//! Attention of several heads in one operation: no score is stored.

use std::sync::Arc;

use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::{
    Autodiff, Backend, Dispatch, Flex, TensorMetadata, backend_extension, tensor::FloatTensor,
};
use burn::tensor::Tensor;

use super::{CpuTensor, is_served, tensor, values};
use crate::cpu::attention::{AttentionShape, Inputs, Weighing, backward, forward};

#[backend_extension(Flex, Autodiff)]
trait AttentionOp: Backend {
    fn attention_op(
        query: FloatTensor<Self>,
        key: FloatTensor<Self>,
        value: FloatTensor<Self>,
        shape: AttentionShape,
        weighing: Arc<Weighing>,
    ) -> FloatTensor<Self>;
}

impl AttentionOp for Flex {
    fn attention_op(
        query: CpuTensor,
        key: CpuTensor,
        value: CpuTensor,
        shape: AttentionShape,
        weighing: Arc<Weighing>,
    ) -> CpuTensor {
        let all = [query, key, value].map(|tensor| tensor.to_contiguous());
        tensor(forward(&shape, inputs(&all), &weighing), all[0].shape())
    }
}

fn inputs([query, key, value]: &[CpuTensor; 3]) -> Inputs<'_> {
    Inputs { query: values(query), key: values(key), value: values(value) }
}

impl<C: CheckpointStrategy> AttentionOp for Autodiff<Flex, C> {
    fn attention_op(
        query: FloatTensor<Self>,
        key: FloatTensor<Self>,
        value: FloatTensor<Self>,
        shape: AttentionShape,
        weighing: Arc<Weighing>,
    ) -> FloatTensor<Self> {
        let nodes = [query.node(), key.node(), value.node()];
        let all = [query, key, value].map(FloatTensor::<Self>::into_primitive);
        match AttentionBackward.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => {
                let inputs_kept = all.map(|tensor| tensor.to_contiguous());
                let output = forward(&shape, inputs(&inputs_kept), &weighing);
                let output = tensor(output, inputs_kept[0].shape());
                prepared.finish(AttentionKept { inputs: inputs_kept, shape, weighing }, output)
            }
            OpsKind::UnTracked(prepared) => {
                let [query, key, value] = all;
                prepared.finish(Flex::attention_op(query, key, value, shape, weighing))
            }
        }
    }
}

#[derive(Debug)]
struct AttentionBackward;

/// What the backward pass needs.
#[derive(Clone, Debug)]
struct AttentionKept {
    inputs: [CpuTensor; 3],
    shape: AttentionShape,
    weighing: Arc<Weighing>,
}

impl Backward<Flex, 3> for AttentionBackward {
    type State = AttentionKept;

    fn backward(self, ops: Ops<AttentionKept, 3>, grads: &mut Gradients, _: &mut Checkpointer) {
        let gradient = grads.consume::<Flex>(&ops.node).to_contiguous();
        let AttentionKept { inputs: all, shape, weighing } = ops.state;
        let found = backward(&shape, inputs(&all), &weighing, values(&gradient));
        for ((node, values), input) in ops.parents.into_iter().zip(found).zip(&all) {
            if let Some(node) = node {
                grads.register::<Flex>(node.id, tensor(values, input.shape()));
            }
        }
    }
}

/// Whether there is a kernel for attention among these.
pub(crate) fn attention_is_served(query: &Tensor<3>, key: &Tensor<3>, value: &Tensor<3>) -> bool {
    let sizes = key.dims();
    [query, key, value].into_iter().all(is_served) && sizes.into_iter().all(|size| size > 0)
}

/// Softmax of scaled products of queries and keys, times values, with `heads` independent blocks of columns:
/// `[batch, queries, columns]` from that and two of `[batch, keys, columns]`. Only where
/// [`attention_is_served`] says so.
pub(crate) fn attention(
    query: Tensor<3>,
    key: Tensor<3>,
    value: Tensor<3>,
    heads: usize,
    weighing: Weighing,
) -> Tensor<3> {
    let [batch, queries, columns] = query.dims();
    let [_, keys, _] = key.dims();
    let shape = AttentionShape { batch, heads, queries, keys, width: columns / heads };
    let output = <Dispatch as AttentionOp>::attention_op(
        query.into_dispatch(),
        key.into_dispatch(),
        value.into_dispatch(),
        shape,
        Arc::new(weighing),
    );
    Tensor::from_dispatch(output)
}
