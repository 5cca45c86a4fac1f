//! What can be wrong with a pipeline before any of its steps runs.

use std::io;
use std::path::{Path, PathBuf};

use salamander_core::yaml;

use super::template::unmark;

/// Why a pipeline cannot be read, planned or begun.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file says something wrong.
    #[error("pipeline {}: {}", file.display(), unmark(&error.to_string()))]
    File {
        /// The file.
        file: PathBuf,
        /// What is wrong in it, and where.
        error: yaml::Error,
    },
    /// A file or folder cannot be used.
    #[error("{}: {cause}", path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// Another process runs a pipeline in the same folder.
    #[error("{}: process {holder} runs a pipeline in this folder; wait for it, or use another --out", folder.display())]
    Locked {
        /// The folder.
        folder: PathBuf,
        /// The process, as far as it has said so.
        holder: String,
    },
    /// No such step.
    #[error("no step \"{name}\" in {}{hint}", file.display())]
    NoStep {
        /// What was asked for.
        name: String,
        /// The pipeline.
        file: PathBuf,
        /// The name that was probably meant.
        hint: String,
    },
    /// A single step cannot run by itself now.
    #[error("step {name}: {reason}")]
    Step {
        /// The step.
        name: String,
        /// Why not.
        reason: String,
    },
}

impl Error {
    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> Error + '_ {
        move |cause| Error::Io { path: path.to_path_buf(), cause }
    }
}
