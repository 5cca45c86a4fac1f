//! Rows of a table by place, with a backward pass that adds up the gradients of each row.

use std::sync::Arc;

use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::{
    Autodiff, Backend, Dispatch, Flex, TensorMetadata, backend_extension, tensor::FloatTensor,
};
use burn::tensor::{Int, Tensor, TensorData};

use super::{CpuTensor, is_served, tensor, values};
use crate::cpu::embedding as kernel;

#[backend_extension(Flex, Autodiff)]
trait EmbeddingOp: Backend {
    fn embedding_op(table: FloatTensor<Self>, places: Arc<[usize]>) -> FloatTensor<Self>;
}

impl EmbeddingOp for Flex {
    fn embedding_op(table: CpuTensor, places: Arc<[usize]>) -> CpuTensor {
        let table = table.to_contiguous();
        let [_, dim] = table.shape().dims();
        tensor(kernel::forward(values(&table), &places, dim), [places.len(), dim])
    }
}

impl<C: CheckpointStrategy> EmbeddingOp for Autodiff<Flex, C> {
    fn embedding_op(table: FloatTensor<Self>, places: Arc<[usize]>) -> FloatTensor<Self> {
        match EmbeddingBackward.prepare::<C>([table.node()]).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => {
                let table = table.into_primitive();
                let [rows, _] = table.shape().dims();
                prepared.finish((places.clone(), rows), Flex::embedding_op(table, places))
            }
            OpsKind::UnTracked(prepared) => {
                prepared.finish(Flex::embedding_op(table.into_primitive(), places))
            }
        }
    }
}

#[derive(Debug)]
struct EmbeddingBackward;

impl Backward<Flex, 1> for EmbeddingBackward {
    /// Which rows, and of how many.
    type State = (Arc<[usize]>, usize);

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let gradient = grads.consume::<Flex>(&ops.node).to_contiguous();
        if let [Some(parent)] = ops.parents {
            let (places, rows) = ops.state;
            let [_, dim] = gradient.shape().dims();
            let sums = kernel::backward(values(&gradient), &places, rows, dim);
            grads.register::<Flex>(parent.id, tensor(sums, [rows, dim]));
        }
    }
}

/// The row of each id, which are tensors of the table's device: `[ids, dim]`.
///
/// # Panics
/// If an id lies outside of the table.
pub fn embedding(table: Tensor<2>, ids: Tensor<1, Int>) -> Tensor<2> {
    if is_served(&table) {
        return rows(table, &ids.into_data().iter::<i64>().collect::<Vec<_>>());
    }
    table.select(0, ids)
}

/// The row at each place: a table of `[rows, dim]` gives `[places, dim]`.
///
/// # Panics
/// If a place lies outside of the table.
pub fn rows(table: Tensor<2>, places: &[i64]) -> Tensor<2> {
    let [count, dim] = table.dims();
    let inside = |place: &i64| (0..count as i64).contains(place);
    assert!(places.iter().all(inside), "the places lie in a table of {count} rows");
    let device = table.device();
    if places.is_empty() || dim == 0 {
        return Tensor::zeros([places.len(), dim], (&device, table.dtype()));
    }
    #[cfg(any(feature = "wgpu", feature = "cuda"))]
    if gpu::serves(&table) {
        return gpu::rows(table, places);
    }
    if is_served(&table) {
        let places = places.iter().map(|place| *place as usize).collect();
        let rows = <Dispatch as EmbeddingOp>::embedding_op(table.into_dispatch(), places);
        return Tensor::from_dispatch(rows);
    }
    let data = TensorData::new(places.to_vec(), [places.len()]);
    table.select(0, Tensor::<1, Int>::from_data(data, &device))
}

/// The same with kernels of our own.
#[cfg(any(feature = "wgpu", feature = "cuda"))]
mod gpu {
    use std::sync::Arc;

    use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
    use burn::backend::autodiff::grads::Gradients;
    use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
    use burn::backend::{
        Autodiff, Backend, Cube, Dispatch, backend_extension, tensor::FloatTensor,
    };
    use burn::tensor::{DType, Tensor};

    use crate::cube::{self, GpuTensor};

    /// Which rows, and of how many.
    type Places = (Arc<[u32]>, usize);

    #[backend_extension(Cube, Autodiff)]
    trait RowsOp: Backend {
        fn rows_op(table: FloatTensor<Self>, places: Places) -> FloatTensor<Self>;
    }

    impl RowsOp for Cube {
        fn rows_op(table: GpuTensor, (places, _): Places) -> GpuTensor {
            cube::gather(cube::contiguous(table), &places)
        }
    }

    impl<C: CheckpointStrategy> RowsOp for Autodiff<Cube, C> {
        fn rows_op(table: FloatTensor<Self>, places: Places) -> FloatTensor<Self> {
            match RowsBackward.prepare::<C>([table.node()]).compute_bound().stateful() {
                OpsKind::Tracked(prepared) => {
                    let output = Cube::rows_op(table.into_primitive(), places.clone());
                    prepared.finish(places, output)
                }
                OpsKind::UnTracked(prepared) => {
                    prepared.finish(Cube::rows_op(table.into_primitive(), places))
                }
            }
        }
    }

    #[derive(Debug)]
    struct RowsBackward;

    impl Backward<Cube, 1> for RowsBackward {
        type State = Places;

        fn backward(self, ops: Ops<Places, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
            let gradient = grads.consume::<Cube>(&ops.node);
            if let [Some(parent)] = ops.parents {
                let (places, count) = ops.state;
                let sums = cube::scatter_add(cube::contiguous(gradient), &places, count);
                grads.register::<Cube>(parent.id, sums);
            }
        }
    }

    pub(super) fn serves(table: &Tensor<2>) -> bool {
        table.dtype() == DType::F32 && cube::gpu(&table.device()).is_some()
    }

    pub(super) fn rows(table: Tensor<2>, places: &[i64]) -> Tensor<2> {
        let count = table.dims()[0];
        let places: Arc<[u32]> = places.iter().map(|place| *place as u32).collect();
        let output = <Dispatch as RowsOp>::rows_op(table.into_dispatch(), (places, count));
        Tensor::from_dispatch(output)
    }
}
