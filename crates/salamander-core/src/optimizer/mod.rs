//! Optimizers as data: one description that the trainer, parameter servers and checkpoints share,
//! and one formula for each, on plain slices.

mod spec;
mod update;

pub use spec::{Adagrad, Adam, AdamW, Ftrl, Optimizer, RmsProp, Sgd};
pub use update::{Update, corrections};
