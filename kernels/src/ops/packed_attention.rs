//! Attention within sequences of any lengths that are laid end to end, in one operation.

use std::sync::Arc;

use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::{
    Autodiff, Backend, Dispatch, Flex, TensorMetadata, backend_extension, tensor::FloatTensor,
};
use burn::tensor::activation::softmax;
use burn::tensor::{Bool, Device, Int, Tensor, TensorData};

use super::{CpuTensor, draw, dropout, is_served, tensor, values};
use crate::cpu::attention::{Inputs, Masks, Weighing};
use crate::cpu::packed_attention::{PackedShape, backward, forward};

/// How the places of sequences look at each other.
#[derive(Clone, Debug, PartialEq)]
pub struct PackedAttention {
    /// Places of each sequence; their rows come one sequence after the other.
    pub lengths: Arc<[usize]>,
    /// Independent blocks of columns.
    pub heads: usize,
    /// Whether a place looks at itself and those before it only.
    pub causal: bool,
    /// The probability that a weight is dropped; zero outside of training.
    pub dropout: f64,
}

/// What the kernel takes besides tensors.
#[derive(Debug)]
struct PackedSettings {
    shape: PackedShape,
    weighing: Weighing,
}

#[backend_extension(Flex, Autodiff)]
trait PackedAttentionOp: Backend {
    fn packed_attention_op(
        query: FloatTensor<Self>,
        key: FloatTensor<Self>,
        value: FloatTensor<Self>,
        settings: Arc<PackedSettings>,
    ) -> FloatTensor<Self>;
}

impl PackedAttentionOp for Flex {
    fn packed_attention_op(
        query: CpuTensor,
        key: CpuTensor,
        value: CpuTensor,
        settings: Arc<PackedSettings>,
    ) -> CpuTensor {
        let all = [query, key, value].map(|tensor| tensor.to_contiguous());
        tensor(forward(&settings.shape, inputs(&all), &settings.weighing), all[0].shape())
    }
}

fn inputs([query, key, value]: &[CpuTensor; 3]) -> Inputs<'_> {
    Inputs { query: values(query), key: values(key), value: values(value) }
}

impl<C: CheckpointStrategy> PackedAttentionOp for Autodiff<Flex, C> {
    fn packed_attention_op(
        query: FloatTensor<Self>,
        key: FloatTensor<Self>,
        value: FloatTensor<Self>,
        settings: Arc<PackedSettings>,
    ) -> FloatTensor<Self> {
        let nodes = [query.node(), key.node(), value.node()];
        let all = [query, key, value].map(FloatTensor::<Self>::into_primitive);
        match PackedAttentionBackward.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => {
                let kept = all.map(|tensor| tensor.to_contiguous());
                let output = forward(&settings.shape, inputs(&kept), &settings.weighing);
                let output = tensor(output, kept[0].shape());
                prepared.finish(PackedKept { inputs: kept, settings }, output)
            }
            OpsKind::UnTracked(prepared) => {
                let [query, key, value] = all;
                prepared.finish(Flex::packed_attention_op(query, key, value, settings))
            }
        }
    }
}

#[derive(Debug)]
struct PackedAttentionBackward;

/// What the backward pass needs.
#[derive(Clone, Debug)]
struct PackedKept {
    inputs: [CpuTensor; 3],
    settings: Arc<PackedSettings>,
}

impl Backward<Flex, 3> for PackedAttentionBackward {
    type State = PackedKept;

    fn backward(self, ops: Ops<PackedKept, 3>, grads: &mut Gradients, _: &mut Checkpointer) {
        let gradient = grads.consume::<Flex>(&ops.node).to_contiguous();
        let PackedKept { inputs: all, settings } = ops.state;
        let PackedSettings { shape, weighing } = &*settings;
        let found = backward(shape, inputs(&all), weighing, values(&gradient));
        for ((node, values), input) in ops.parents.into_iter().zip(found).zip(&all) {
            if let Some(node) = node {
                grads.register::<Flex>(node.id, tensor(values, input.shape()));
            }
        }
    }
}

/// Softmax of scaled products of queries and keys of the same sequence, times values: `[places, columns]` from three of
/// these, in which the sequences stand one after the other.
///
/// # Panics
/// If the lengths do not add up to the places, or the heads do not divide the columns.
pub fn packed_attention(
    query: Tensor<2>,
    key: Tensor<2>,
    value: Tensor<2>,
    how: &PackedAttention,
) -> Tensor<2> {
    let [places, columns] = query.dims();
    let PackedAttention { lengths, heads, causal, dropout } = how;
    assert_eq!(lengths.iter().sum::<usize>(), places, "the lengths do not fit the places");
    assert_eq!(columns % heads, 0, "{heads} heads do not divide {columns} columns");
    let served = [&query, &key, &value].into_iter().all(is_served);
    if !served || columns == 0 || lengths.contains(&0) {
        return by_tensors(query, key, value, how);
    }
    let mask = (*dropout > 0.0).then(|| draw(*dropout, &query.device()));
    let weighing = Weighing { masks: Masks::default(), causal: *causal, dropout: mask };
    let shape = PackedShape { lengths: lengths.clone(), heads: *heads, width: columns / heads };
    Tensor::from_dispatch(<Dispatch as PackedAttentionOp>::packed_attention_op(
        query.into_dispatch(),
        key.into_dispatch(),
        value.into_dispatch(),
        Arc::new(PackedSettings { shape, weighing }),
    ))
}

/// With Burn's operations: sequences are padded to the longest, and what was added is masked.
fn by_tensors(
    query: Tensor<2>,
    key: Tensor<2>,
    value: Tensor<2>,
    how: &PackedAttention,
) -> Tensor<2> {
    let [places, columns] = query.dims();
    let device = query.device();
    let (batch, longest) = (how.lengths.len(), how.lengths.iter().copied().max().unwrap_or(0));
    if places == 0 {
        return value;
    }
    let padding = Padding::new(&how.lengths, longest);
    let into = padding.places(&device);
    let width = columns / how.heads;
    let by_head = |rows: Tensor<2>| {
        let padded = rows.select(0, into.clone());
        padded.reshape([batch, longest, how.heads, width]).swap_dims(1, 2)
    };
    let scores = by_head(query).matmul(by_head(key).transpose());
    let scores = scores.div_scalar((width as f32).sqrt());
    let masked = padding.masked(how.causal, &device);
    let scores = scores.mask_fill(masked, -1e9);
    let mut weights = softmax(scores, 3);
    if how.dropout > 0.0 {
        weights = dropout(weights, how.dropout);
    }
    let output = weights.matmul(by_head(value)).swap_dims(1, 2);
    output.reshape([batch * longest, columns]).select(0, padding.rows(&device))
}

/// Where the places of sequences stand once all are as long as the longest.
struct Padding<'a> {
    lengths: &'a [usize],
    longest: usize,
}

impl<'a> Padding<'a> {
    fn new(lengths: &'a [usize], longest: usize) -> Self {
        Self { lengths, longest }
    }

    fn ints(values: Vec<i64>, device: &Device) -> Tensor<1, Int> {
        let count = values.len();
        Tensor::from_data(TensorData::new(values, [count]), device)
    }

    /// The place that each padded one is taken from; the first one where there is none.
    fn places(&self, device: &Device) -> Tensor<1, Int> {
        let mut start = 0;
        let mut from = Vec::new();
        for length in self.lengths {
            from.extend(
                (0..self.longest).map(|at| if at < *length { start + at as i64 } else { 0 }),
            );
            start += *length as i64;
        }
        Self::ints(from, device)
    }

    /// The padded place of each place.
    fn rows(&self, device: &Device) -> Tensor<1, Int> {
        let of = |(number, length): (usize, &usize)| {
            let first = number * self.longest;
            (first..first + length).map(|row| row as i64)
        };
        Self::ints(self.lengths.iter().enumerate().flat_map(of).collect(), device)
    }

    fn masked(&self, causal: bool, device: &Device) -> Tensor<4, Bool> {
        let longest = self.longest;
        let mut masked = Vec::with_capacity(self.lengths.len() * longest * longest);
        for length in self.lengths {
            for query in 0..longest {
                masked.extend((0..longest).map(|key| key >= *length || (causal && key > query)));
            }
        }
        let shape = [self.lengths.len(), 1, longest, longest];
        Tensor::from_data(TensorData::new(masked, shape), device)
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::Distribution;

    use super::*;

    /// The output and the gradients of query, key and value, by either way.
    fn both(how: &PackedAttention, columns: usize) -> [Vec<Vec<f32>>; 2] {
        let device = Device::flex().autodiff();
        let places = how.lengths.iter().sum::<usize>();
        let draw =
            || Tensor::<2>::random([places, columns], Distribution::Normal(0.0, 1.0), &device);
        let (values, slope) = ([(); 3].map(|()| draw()), draw());
        let run = |attend: &dyn Fn(Tensor<2>, Tensor<2>, Tensor<2>) -> Tensor<2>| {
            let [query, key, value] = values.clone().map(|tensor| tensor.detach().require_grad());
            let output = attend(query.clone(), key.clone(), value.clone());
            let gradients = (output.clone() * slope.clone()).sum().backward();
            let mut found = vec![output.inner()];
            found.extend([query, key, value].map(|x| x.grad(&gradients).expect("has one")));
            found.into_iter().map(|tensor| tensor.into_data().iter::<f32>().collect()).collect()
        };
        [
            run(&|query, key, value| packed_attention(query, key, value, how)),
            run(&|query, key, value| by_tensors(query, key, value, how)),
        ]
    }

    #[test]
    fn packed_sequences_are_those_that_are_padded_and_masked() {
        for (lengths, heads, causal) in
            [(&[3, 1, 5][..], 2, false), (&[4, 4], 1, true), (&[150, 2], 2, true), (&[1], 3, false)]
        {
            let how = PackedAttention { lengths: lengths.into(), heads, causal, dropout: 0.0 };
            let [ours, theirs] = both(&how, heads * 4);
            for (part, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
                for (a, b) in ours.iter().zip(theirs) {
                    assert!((a - b).abs() < 2e-5, "{lengths:?} {causal} part {part}: {a} and {b}");
                }
            }
        }
    }

    #[test]
    fn gradients_are_those_of_small_steps() {
        let lengths: Arc<[usize]> = [3, 2].into();
        let how = PackedAttention { lengths, heads: 2, causal: true, dropout: 0.0 };
        let device = Device::flex().autodiff();
        let start: Vec<f32> = (0..20).map(|at| (at as f32 * 0.7).sin()).collect();
        let rows = |values: &[f32]| {
            Tensor::<2>::from_data(TensorData::new(values.to_vec(), [5, 4]), &device)
        };
        let total = |x: Tensor<2>| {
            let weights = rows(&(0..20).map(|at| (at as f32).cos()).collect::<Vec<_>>());
            (packed_attention(x.clone(), x.clone() * 0.5, x, &how) * weights).sum()
        };
        let x = rows(&start).require_grad();
        let gradients = total(x.clone()).backward();
        let found: Vec<f32> = x.grad(&gradients).expect("has one").into_data().iter().collect();
        for (at, found) in found.iter().enumerate() {
            let moved = |by: f32| {
                let mut values = start.clone();
                values[at] += by;
                total(rows(&values)).into_scalar::<f32>()
            };
            let slope = (moved(1e-2) - moved(-1e-2)) / 2e-2;
            assert!((slope - found).abs() < 2e-3, "{at}: {slope} and {found}");
        }
    }

    #[test]
    fn dropout_differs_between_sequences_and_is_the_same_on_the_way_back() {
        let device = Device::flex().autodiff();
        device.seed(3);
        let lengths: Arc<[usize]> = [8, 8].into();
        let how = PackedAttention { lengths, heads: 1, causal: false, dropout: 0.5 };
        let ones = Tensor::<2>::ones([16, 4], &device);
        let value = ones.clone().require_grad();
        let output = packed_attention(ones.clone(), ones, value.clone(), &how);
        let rows: Vec<f32> = output.clone().inner().into_data().iter().collect();
        assert_ne!(rows[..32], rows[32..], "both sequences have one mask");
        // With equal scores the gradient of the values' sum is what the weights of each key add up to: as much in all
        // as the output has.
        let gradients = output.clone().sum().backward();
        let slope = value.grad(&gradients).expect("has one").sum().into_scalar::<f32>();
        let total = output.inner().sum().into_scalar::<f32>();
        assert!((slope - total).abs() < 1e-3, "{slope} and {total}");
    }
}
