//! Attention among the places of each of several sequences of any lengths that are laid end to end: no padding is
//! computed. The arithmetic of a sequence is that of [`attention`](super::attention).

use std::sync::Arc;

use super::attention::{AttentionShape, Inputs, Sequence, Weighing};
use super::tasks::share;

/// The sizes of sequences that are laid end to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackedShape {
    /// Places of each sequence.
    pub lengths: Arc<[usize]>,
    /// Independent blocks of columns.
    pub heads: usize,
    /// Columns of one head.
    pub width: usize,
}

impl PackedShape {
    fn columns(&self) -> usize {
        self.heads * self.width
    }

    /// Places of all sequences.
    pub fn places(&self) -> usize {
        self.lengths.iter().sum()
    }

    /// Each sequence: where it begins, where its weights do, and its sizes.
    fn sequences(&self) -> Vec<OneSequence> {
        let (mut start, mut base) = (0, 0);
        let part = |length: &usize| {
            let (batch, heads, width) = (1, self.heads, self.width);
            let shape = AttentionShape { batch, heads, queries: *length, keys: *length, width };
            let part = OneSequence { start, base, shape };
            start += length * self.columns();
            base += self.heads * length * length;
            part
        };
        self.lengths.iter().map(part).collect()
    }
}

struct OneSequence {
    start: usize,
    base: usize,
    shape: AttentionShape,
}

impl OneSequence {
    fn values(&self) -> std::ops::Range<usize> {
        self.start..self.start + self.shape.queries * self.shape.columns()
    }

    fn sequence(&self) -> Sequence<'_> {
        Sequence { shape: &self.shape, number: 0, base: self.base }
    }

    fn inputs<'a>(&self, all: Inputs<'a>) -> Inputs<'a> {
        let own = |values: &'a [f32]| &values[self.values()];
        Inputs { query: own(all.query), key: own(all.key), value: own(all.value) }
    }

    /// Takes this part off the front of what is left.
    fn take<'a>(&self, rest: &mut &'a mut [f32]) -> &'a mut [f32] {
        let (own, tail) = std::mem::take(rest).split_at_mut(self.values().len());
        *rest = tail;
        own
    }
}

/// What every place gets, `[places, heads * width]`, from three of these sizes.
pub fn forward(shape: &PackedShape, inputs: Inputs<'_>, weighing: &Weighing) -> Vec<f32> {
    let mut output = vec![0.0; shape.places() * shape.columns()];
    let mut rest = output.as_mut_slice();
    let tasks: Vec<_> =
        shape.sequences().into_iter().map(|part| (part.take(&mut rest), part)).collect();
    share(tasks, |_, (output, part)| {
        part.sequence().forward(part.inputs(inputs), weighing, output);
    });
    output
}

/// The gradients of query, key and value.
pub fn backward(
    shape: &PackedShape,
    inputs: Inputs<'_>,
    weighing: &Weighing,
    gradient: &[f32],
) -> [Vec<f32>; 3] {
    let mut outputs = [(); 3].map(|()| vec![0.0; shape.places() * shape.columns()]);
    let mut rest = outputs.each_mut().map(Vec::as_mut_slice);
    let tasks: Vec<_> = shape
        .sequences()
        .into_iter()
        .map(|part| (rest.each_mut().map(|rest| part.take(rest)), part))
        .collect();
    share(tasks, |_, (mut outputs, part)| {
        let gradient = &gradient[part.values()];
        part.sequence().backward(part.inputs(inputs), weighing, gradient, &mut outputs);
    });
    outputs
}
