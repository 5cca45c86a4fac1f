//! Models that exist only to be tested.
//!
//! # Layout
//! - [`resilient`]: everything that makes resuming hard, in one small model
//! - [`points`]: two inputs, two classes, without randomness: for exact comparisons and imports

pub mod points;
pub mod resilient;
