//! From a request to its answer: what waits, who computes, and which models there are.

mod metrics;
mod owner;
mod registry;
mod statistics;
mod waiting;

pub use owner::Batching;
pub(crate) use owner::{Answer, Owner};
pub use registry::{InferRequest, InferResponse, Registry};
pub(crate) use registry::{ModelStatus, Version};
pub(crate) use statistics::{Statistics, StatisticsNow, SumNow};
