//! What can be served: a model that its own thread asks, a decoder that every thread uses, and where both come from.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::input::Input;
use crate::tensor::{DataType, Tensor};

/// An input or an output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// Its name.
    pub name: String,
    /// What its values are.
    pub datatype: DataType,
    /// The shape of one record's values; `-1` stands for any size.
    pub shape: Vec<i64>,
    /// Whether an input may be left out.
    pub optional: bool,
}

impl TensorInfo {
    /// The shape with the records before it.
    pub fn batch_shape(&self) -> Vec<i64> {
        std::iter::once(-1).chain(self.shape.iter().copied()).collect()
    }
}

/// What a model takes and gives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    /// What the model is, for people: its name where it was trained.
    pub platform: String,
    /// Inputs; none where they are not known, and any are then tried.
    pub inputs: Vec<TensorInfo>,
    /// Outputs.
    pub outputs: Vec<TensorInfo>,
}

/// Records as a model computes on them.
pub struct Decoded {
    /// How many records.
    pub rows: usize,
    /// How many tokens their texts have together, where the model counts by them; 0 otherwise.
    pub tokens: usize,
    /// What only the model knows.
    pub value: Box<dyn Any + Send>,
}

/// Turns what a request holds into what the model computes on.
pub trait Decoder: Send + Sync {
    /// What there is to ask.
    fn metadata(&self) -> &Metadata;
    /// Decodes all records of a request; the error names record and field.
    fn decode(&self, input: &Input) -> Result<Decoded, String>;
}

/// A model, which one thread at a time asks.
pub trait Model: Send {
    /// Called once on the thread that owns the model from now on, before it is asked there.
    fn enter(&mut self) {}
    /// Counts look-ups of ids that the model does not know, where it does that.
    fn unknown_ids(&self) -> Option<Arc<AtomicU64>> {
        None
    }
    /// Computes the outputs of all records, each with as many rows as there are records, in their order.
    fn infer(&mut self, batch: Vec<Decoded>) -> Result<Vec<Tensor>, Failed>;
}

/// Why a batch could not be computed. It is given back, so that each request can be tried alone: a bad one must not
/// spoil those that were computed with it.
pub struct Failed {
    /// What was wrong.
    pub reason: String,
    /// Whether it was the records' fault.
    pub mistake: bool,
    /// The batch, where there is something left of it.
    pub batch: Vec<Decoded>,
}

/// A version of a model, ready.
pub struct Loaded {
    /// For every thread.
    pub decoder: Arc<dyn Decoder>,
    /// For its owner, who is another thread than the one that loaded it.
    pub model: Box<dyn Model>,
}

/// Where versions of a model come from.
pub trait Source: Send + Sync + 'static {
    /// The version that should be served now.
    fn newest(&self) -> Result<String, String>;
    /// Loads and warms a version, on a thread that ends with that: the last to get a core where others are in service.
    fn load(&self, version: &str) -> Result<Loaded, String>;
}

/// A place that versions of a model come from, with the name that clients call the model by.
pub struct SourceToServe {
    /// The model's name.
    pub name: String,
    /// What its version is called, whichever it is; by its own name when absent.
    pub label: Option<String>,
    /// Where it comes from.
    pub source: Arc<dyn Source>,
}

/// Opens what clients register while a server runs.
pub trait Opener: Send + Sync + 'static {
    /// What a client names, to be called `name` where it says so; the error tells what can be named.
    fn open(&self, name: Option<&str>, url: &str) -> Result<SourceToServe, String>;
}
