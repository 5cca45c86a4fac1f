//! Softmax and cross-entropy in one operation, with one loss per row.

use std::sync::Arc;

use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::{
    Autodiff, Backend, Dispatch, Flex, TensorMetadata, backend_extension, tensor::FloatTensor,
};
use burn::tensor::activation::log_softmax;
use burn::tensor::{Int, Tensor};

use super::{CpuTensor, is_gpu, is_served, map_values, tensor, values};
use crate::cpu::entropy::{backward, forward};

#[backend_extension(Flex, Autodiff)]
trait CrossEntropyOp: Backend {
    fn cross_entropy_op(scores: FloatTensor<Self>, labels: Arc<[usize]>) -> FloatTensor<Self>;
}

impl CrossEntropyOp for Flex {
    fn cross_entropy_op(scores: CpuTensor, labels: Arc<[usize]>) -> CpuTensor {
        losses(scores, &labels).0
    }
}

/// The losses, and the probabilities.
fn losses(scores: CpuTensor, labels: &[usize]) -> (CpuTensor, CpuTensor) {
    let scores = scores.to_contiguous();
    let [rows, classes] = scores.shape().dims();
    let (losses, probabilities) = forward(values(&scores), labels, classes);
    (tensor(losses, [rows]), tensor(probabilities, [rows, classes]))
}

impl<C: CheckpointStrategy> CrossEntropyOp for Autodiff<Flex, C> {
    fn cross_entropy_op(scores: FloatTensor<Self>, labels: Arc<[usize]>) -> FloatTensor<Self> {
        let nodes = [scores.node()];
        let scores = scores.into_primitive();
        match CrossEntropyBackward.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => {
                let (losses, probabilities) = losses(scores, &labels);
                prepared.finish((probabilities, labels), losses)
            }
            OpsKind::UnTracked(prepared) => prepared.finish(Flex::cross_entropy_op(scores, labels)),
        }
    }
}

#[derive(Debug)]
struct CrossEntropyBackward;

impl Backward<Flex, 1> for CrossEntropyBackward {
    type State = (CpuTensor, Arc<[usize]>);

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let gradient = grads.consume::<Flex>(&ops.node).to_contiguous();
        let (probabilities, labels) = ops.state;
        let [_, classes] = probabilities.shape().dims();
        if let [Some(parent)] = ops.parents {
            let found = map_values(probabilities, |found| {
                backward(found, &labels, classes, values(&gradient));
            });
            grads.register::<Flex>(parent.id, found);
        }
    }
}

/// Cross-entropy of scores (before any softmax) against class numbers, one value per row.
///
/// # Panics
/// If a label is not a column of the scores.
pub fn cross_entropy(scores: Tensor<2>, labels: &Tensor<1, Int>) -> Tensor<1> {
    let [rows, classes] = scores.dims();
    // A GPU would have to be waited for.
    let numbers = (!is_gpu(&scores.device())).then(|| class_numbers(labels, classes));
    match numbers {
        Some(numbers) if is_served(&scores) && numbers.len() == rows && classes > 0 => {
            let scores = scores.into_dispatch();
            Tensor::from_dispatch(<Dispatch as CrossEntropyOp>::cross_entropy_op(scores, numbers))
        }
        _ => {
            let at = labels.clone().reshape([rows, 1]);
            -log_softmax(scores, 1).gather(1, at).reshape([rows])
        }
    }
}

/// Labels as columns. They are looked at here, on the thread that asks: of those that share the work each would print
/// its panic.
fn class_numbers(labels: &Tensor<1, Int>, classes: usize) -> Arc<[usize]> {
    let labels = labels.clone().into_data();
    let number = |label: i64| {
        let number = usize::try_from(label).ok().filter(|number| *number < classes);
        number.unwrap_or_else(|| panic!("label {label} is not one of {classes} classes"))
    };
    labels.iter::<i64>().map(number).collect()
}
