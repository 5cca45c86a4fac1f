//! Pipelines: a file of steps, which of them are due and why, and what carries them out.
//!
//! # Layout
//! - [`Pipeline`]: the file, read and checked (`spec`, `read`); `template`: texts with `${references}`; `condition`:
//!   what stands behind `when`; `scope`: what a reference may name, and its type
//! - [`StepKind`]: the table of steps that are commands of the program, and the command line of each (`kind`,
//!   `command`)
//! - [`planner`]: pure: what is known of the steps in, decisions with reasons out; [`key`]: what names an artifact
//! - [`ArtifactStore`]: artifacts, records and locks on disk; `digest`: hashes of contents, kept
//! - [`run`]: the loop; `execute`: one step, its attempts and its outputs; `process`: one child and all below it
//! - [`svg`]: the picture; [`argo`]: the same steps on a cluster, as an Argo Workflow

pub mod argo;
mod command;
mod condition;
mod digest;
mod duration;
mod error;
mod execute;
pub mod key;
mod kind;
mod lock;
mod outputs;
pub mod planner;
mod process;
mod read;
mod runner;
mod scope;
mod spec;
mod store;
pub mod svg;
mod template;

pub use error::Error;
pub use kind::{KINDS, StepKind};
pub use planner::{Decision, Status, World};
pub use read::PipelineText;
pub use runner::{Options, PipelineEvent, PipelineState, PipelineSummary, StepReport, run};
pub use spec::{Pipeline, PipelineStep};
pub use store::{Artifact, ArtifactManifest, ArtifactStore, Remote, StepOutput};
