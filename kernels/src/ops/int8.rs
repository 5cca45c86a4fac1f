//! Linear layers in eight bits, for threads that only ask a model: its weights become whole numbers when they are first
//! met, once for all threads that ask it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use burn::backend::TensorMetadata as _;

use super::{CpuTensor, values};
use crate::cpu::int8::Int8Weights;

/// Layers of fewer inputs or outputs stay as they are: they take little time, and the last one is such.
const LEAST: (usize, usize) = (32, 16);

/// Weights by their place in memory, with what keeps them there.
type KnownWeights = HashMap<usize, (CpuTensor, Arc<Int8Weights>)>;

/// The weights of a model that were met, as whole numbers; a copy is the same ones.
#[derive(Clone, Default)]
pub struct Int8Layers(Arc<Mutex<KnownWeights>>);

impl std::fmt::Debug for Int8Layers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Int8Layers(..)")
    }
}

thread_local! {
    static KNOWN: RefCell<Option<Int8Layers>> = const { RefCell::new(None) };
}

/// Whether linear layers compute in eight bits on this thread from now on. For threads that only ask models: gradients
/// are those of floats.
pub fn use_int8(on: bool) {
    use_int8_layers(on.then(Int8Layers::default));
}

/// The same, with weights that other threads have met too.
pub fn use_int8_layers(layers: Option<Int8Layers>) {
    KNOWN.with(|known| *known.borrow_mut() = layers);
}

/// The whole numbers of weights, where this thread computes in eight bits.
pub(super) fn weights(weight: &CpuTensor) -> Option<Arc<Int8Weights>> {
    KNOWN.with(|known| {
        let known = known.borrow();
        let Int8Layers(known) = known.as_ref()?;
        let [inputs, outputs] = weight.shape().dims();
        if inputs < LEAST.0 || outputs < LEAST.1 {
            return None;
        }
        let floats = values(weight);
        let place = floats.as_ptr() as usize;
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, packed) = known.entry(place).or_insert_with(|| {
            let packed = Int8Weights::new(floats, inputs, outputs);
            (weight.clone(), Arc::new(packed))
        });
        Some(Arc::clone(packed))
    })
}
