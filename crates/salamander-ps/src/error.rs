//! What can go wrong with tables, told apart by what the caller does next.

use std::path::{Path, PathBuf};

use salamander_core::asynchronous::OutOfStep;

/// A refused or failed request. Nothing was changed by it, unless its text says so.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A description that makes no sense.
    #[error("table \"{table}\": {reason}")]
    Spec {
        /// The table.
        table: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A table of that name is there, and is another one.
    #[error(
        "table \"{table}\" is there with another {field}: {there}, and not {asked}; give it \
         another name or start from nothing"
    )]
    Conflict {
        /// The table.
        table: String,
        /// The field that differs.
        field: &'static str,
        /// Its value here.
        there: String,
        /// Its value in the request.
        asked: String,
    },
    /// No table has that number.
    #[error("no table has the number {0}; declare it first")]
    UnknownTable(u32),
    /// A request whose parts do not fit together.
    #[error("wrong request: {0}")]
    Request(String),
    /// The partition lives elsewhere.
    #[error("partition {0} is not on this server; ask for the current map")]
    NotHere(u16),
    /// A request of another step than the current one.
    #[error(transparent)]
    OutOfStep(#[from] OutOfStep),
    /// Bytes that are not what was written.
    #[error("{place}: {reason}; it is damaged or cut short, use another checkpoint")]
    Damaged {
        /// The file, and the partition where known.
        place: String,
        /// What is wrong.
        reason: String,
    },
    /// Files that are sound but do not make up what is needed.
    #[error("cannot restore: {0}")]
    Restore(String),
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// What was to be copied is not there any more.
    #[error("the tables were replaced before a copy of them was written; save again")]
    Replaced,
    /// The system refused a thread.
    #[error("cannot start an owner thread: {0}")]
    Thread(std::io::Error),
    /// An owner thread ended early, which is a bug; what it held is lost until a restore.
    #[error("an owner thread has ended; restart the server")]
    Gone,
}

impl Error {
    pub(crate) fn file(path: &Path, source: std::io::Error) -> Self {
        Self::File { path: path.to_path_buf(), source }
    }

    pub(crate) fn damaged(place: impl ToString, reason: impl ToString) -> Self {
        Self::Damaged { place: place.to_string(), reason: reason.to_string() }
    }
}
