//! Linear layers in eight bits, for a thread that only asks a model: its weights become whole numbers when they are
//! first met, once.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use burn::backend::TensorMetadata as _;

use super::{CpuTensor, values};
use crate::cpu::int8::Int8Weights;

/// Layers of fewer inputs or outputs stay as they are: they take little time, and the last one is such.
const LEAST: (usize, usize) = (32, 16);

/// Weights by their place in memory, with what keeps them there.
type KnownWeights = HashMap<usize, (CpuTensor, Arc<Int8Weights>)>;

thread_local! {
    static KNOWN: RefCell<Option<KnownWeights>> = const { RefCell::new(None) };
}

/// Whether linear layers compute in eight bits on this thread from now on. For threads that only ask models: gradients
/// are those of floats.
pub fn use_int8(on: bool) {
    KNOWN.with(|known| *known.borrow_mut() = on.then(KnownWeights::new));
}

/// The whole numbers of weights, where this thread computes in eight bits.
pub(super) fn weights(weight: &CpuTensor) -> Option<Arc<Int8Weights>> {
    KNOWN.with(|known| {
        let mut known = known.borrow_mut();
        let known = known.as_mut()?;
        let [inputs, outputs] = weight.shape().dims();
        if inputs < LEAST.0 || outputs < LEAST.1 {
            return None;
        }
        let floats = values(weight);
        let place = floats.as_ptr() as usize;
        let (_, packed) = known.entry(place).or_insert_with(|| {
            let packed = Int8Weights::new(floats, inputs, outputs);
            (weight.clone(), Arc::new(packed))
        });
        Some(Arc::clone(packed))
    })
}
