//! Models that exist only to be tested, and what is done to runs of them.
//!
//! # Layout
//! - [`resilient`]: everything that makes resuming hard, in one small model
//! - [`points`]: two inputs, two classes, without randomness: for exact comparisons and imports
//! - [`tally`]: one weight per record, to count how often each was applied
//! - [`factors`]: rows of tables, some of them small, some with several ids per record
//! - [`next_token`]: a language model, whose output has three dimensions
//! - [`people`]: statistics, a vocabulary and classes as text
//! - [`chaos`]: a run whose workers and masters are killed and stopped

pub mod chaos;
pub mod factors;
pub mod next_token;
pub mod people;
pub mod points;
pub mod resilient;
pub mod tally;
