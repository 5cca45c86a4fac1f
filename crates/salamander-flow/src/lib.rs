//! From raw data to a trained model in one file: steps that run when what they stand on has changed, and only then.
//!
//! ```
//! use salamander_flow::pipeline::{Pipeline, PipelineText};
//!
//! let text = "
//! parameters: {epochs: 3}
//! steps:
//!   fit:  {train: mnist.yaml, set: {searcher.max_length.epochs: ${params.epochs}}}
//!   test: {evaluate: ${fit}}
//!   ship: {export: ${fit}, when: ${test.accuracy} > 0.97}
//! ";
//! let pipeline = Pipeline::read(&PipelineText::of_text("mnist.yaml", text), &[])?;
//! assert_eq!(pipeline.steps().len(), 3);
//!
//! let wrong = text.replace("${test.accuracy}", "${tset.accuracy}");
//! let error = Pipeline::read(&PipelineText::of_text("mnist.yaml", &wrong), &[]).unwrap_err();
//! assert_eq!(
//!     error.to_string(),
//!     "pipeline mnist.yaml: line 6: ship.when: ${tset.accuracy}: no step \"tset\" (did you mean \"test\"?)"
//! );
//! # Ok::<(), salamander_flow::pipeline::Error>(())
//! ```
//!
//! # Layout
//! - [`pipeline`]: the file, the planner (state in, decisions with reasons out), what carries them out, the picture
//! - `flow`, behind the feature of that name: pre-processing on DataFusion

#[cfg(feature = "flow")]
pub mod flow;
pub mod pipeline;
