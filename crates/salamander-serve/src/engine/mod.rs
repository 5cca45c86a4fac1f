//! From a request to its answer: what waits, who computes, and which models there are.

mod loading;
mod metrics;
mod owner;
mod registry;
mod served;
mod statistics;
mod waiting;

pub use owner::Batching;
pub(crate) use owner::{ComputedAnswer, LoadedParts, Owner};
pub(crate) use registry::ModelStatus;
pub use registry::{InferRequest, InferResponse, Registry};
pub(crate) use served::ServedVersion;
pub(crate) use statistics::{RequestTimes, Statistics, StatisticsNow, SumNow};
