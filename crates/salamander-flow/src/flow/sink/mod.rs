//! Where a flow's rows end: shards of bounded size that are complete or absent, with what training needs beside them.
//!
//! # Layout
//! - [`SinkSettings`]: what is written; `writer`: shards of one part, one after the other
//! - `buckets`: the order of a shuffle, which only the rows and the seed decide
//! - `stage`: the work in tasks, each done by whoever has it; `assemble`: the output from what tasks have left

pub(crate) mod assemble;
pub(crate) mod buckets;
mod settings;
pub(crate) mod stage;
mod writer;

pub use assemble::FlowSummary;
pub use settings::SinkSettings;
pub use stage::{FlowStage, TaskReport};
pub use writer::ShardFile;
