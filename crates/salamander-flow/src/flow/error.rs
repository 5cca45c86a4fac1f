//! What can go wrong in a flow: the engine, the files, a row, or what was asked for.

use std::io;
use std::path::{Path, PathBuf};

use datafusion::error::DataFusionError;

/// Why a flow cannot be built or run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// DataFusion refuses a plan, or fails while it runs one.
    #[error("{}", plain(.0))]
    Engine(Box<DataFusionError>),
    /// A file of records cannot be read or written.
    #[error(transparent)]
    Data(#[from] salamander_data::Error),
    /// A file or folder cannot be used.
    #[error("{}: {cause}", path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// A function's rows do not fit what comes before it.
    #[error("{step}: {reason}")]
    Step {
        /// The function's name.
        step: String,
        /// Why not.
        reason: String,
    },
    /// Something was asked for that there is not.
    #[error("{0}")]
    Invalid(String),
    /// Asked to stop.
    #[error("interrupted")]
    Interrupted,
}

impl Error {
    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> Error + '_ {
        move |cause| Error::Io { path: path.to_path_buf(), cause }
    }

    pub(crate) fn step(step: &str, reason: impl ToString) -> Error {
        Error::Step { step: step.to_string(), reason: reason.to_string() }
    }
}

impl From<DataFusionError> for Error {
    fn from(error: DataFusionError) -> Self {
        Error::Engine(Box::new(error))
    }
}

impl From<datafusion::arrow::error::ArrowError> for Error {
    fn from(error: datafusion::arrow::error::ArrowError) -> Self {
        DataFusionError::from(error).into()
    }
}

impl From<datafusion::parquet::errors::ParquetError> for Error {
    fn from(error: datafusion::parquet::errors::ParquetError) -> Self {
        DataFusionError::from(error).into()
    }
}

/// An error of ours on its way through DataFusion.
pub(crate) fn external(error: Error) -> DataFusionError {
    match error {
        Error::Engine(error) => *error,
        error => DataFusionError::External(Box::new(error)),
    }
}

/// The message without the names of the layers that it went through.
fn plain(error: &DataFusionError) -> String {
    match error {
        DataFusionError::External(cause) => cause.to_string(),
        DataFusionError::Context(_, cause) => plain(cause),
        DataFusionError::Shared(cause) => plain(cause),
        DataFusionError::Diagnostic(_, cause) => plain(cause),
        other => other.strip_backtrace(),
    }
}
