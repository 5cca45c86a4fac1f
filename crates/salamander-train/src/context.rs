//! What a model is built from, and what one batch knows about its place in the run.
//!
//! ```
//! use salamander::prelude::*;
//! use salamander::train::MicroBatch;
//!
//! #[derive(Hparams)]
//! struct Hp {
//!     #[hparam(default = 64)]
//!     hidden: usize,
//! }
//!
//! /// A part of a model, as wide as the experiment says, on the device of the run.
//! fn layer(cx: &Context<Hp>) -> Linear {
//!     LinearConfig::new(784, cx.hp.hidden).init(&cx.device)
//! }
//!
//! /// Noise that depends on the micro-batch alone, whoever computes it.
//! fn noise(cx: &BatchContext) -> [f64; 2] {
//!     let mut rng = cx.rng();
//!     [rng.normal(), rng.normal()]
//! }
//!
//! let name = MicroBatch { epoch: 0, step: 5, k: 1 };
//! let cx = BatchContext { name, device: Device::flex(), seed: 7 };
//! assert_eq!(noise(&cx), noise(&cx.clone()));
//! # let _ = layer;
//! ```

use burn::tensor::Device;
use salamander_core::plan::MicroBatch;
use salamander_core::seed::{self, Rng};

use crate::example::Assets;
use crate::table::TableBuilder;
use crate::tables::Tables;

/// What [`Trial::build`](crate::Trial::build) gets.
#[derive(Clone, Debug)]
pub struct Context<H> {
    /// The model's hyperparameters, read and checked.
    pub hp: H,
    /// Where the parameters live.
    pub device: Device,
    /// The run's seed.
    pub seed: u64,
    /// The run's files, by which examples are read and which the model may be built from.
    pub assets: Assets,
    /// What the model declares.
    pub(crate) tables: Tables,
}

impl<H> Context<H> {
    /// Describes an embedding table with rows of so many floats: a field of the model. The name is unique in the model.
    pub fn table(&self, name: &str, dim: usize) -> TableBuilder {
        TableBuilder::new(self.tables.clone(), self.device.clone(), self.seed, name, dim)
    }
}

/// What [`Trial::train_batch`](crate::Trial::train_batch) knows besides its batch.
#[derive(Clone, Debug)]
pub struct BatchContext {
    /// The micro-batch's name.
    pub name: MicroBatch,
    /// Where tensors of this batch live.
    pub device: Device,
    /// The run's seed.
    pub seed: u64,
}

impl BatchContext {
    /// A generator for draws of the model's own: the same for this micro-batch whoever computes it.
    pub fn rng(&self) -> Rng {
        Rng::new(stream(self.seed, self.name, MODEL_DRAWS))
    }
}

/// Draws of the tensor library: dropout and initial values.
pub(crate) const TENSOR_DRAWS: u64 = 1;
/// Draws of augmentation in the loader.
pub(crate) const AUGMENT_DRAWS: u64 = 2;
const MODEL_DRAWS: u64 = 3;

/// The seed of one use of one micro-batch.
pub(crate) fn stream(seed: u64, name: MicroBatch, purpose: u64) -> u64 {
    seed::derive(seed, &[purpose, name.epoch, name.step, u64::from(name.k)])
}
