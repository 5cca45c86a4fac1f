//! Optimizers as data: one description that the trainer, parameter servers and checkpoints share,
//! and one formula for each, on plain slices.

mod formula;
mod spec;
mod update;

pub use formula::{Corrections, Move, Slots, corrections};
pub use spec::{Adagrad, Adam, AdamW, Ftrl, Optimizer, RmsProp, Sgd};
pub use update::Update;
