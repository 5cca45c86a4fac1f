//! What can go wrong in a hub, in the words of whoever asked for it.

use std::path::{Path, PathBuf};

use crate::store::DbError;

/// Why a hub cannot do something.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The request makes no sense.
    #[error("{0}")]
    Invalid(String),
    /// What is named is not there.
    #[error("{0}")]
    NotFound(String),
    /// It is there, and in a state that does not allow it.
    #[error("{0}")]
    Conflict(String),
    /// Nobody is logged in.
    #[error("{0}")]
    Unauthorized(String),
    /// Whoever is logged in may not do it.
    #[error("{0}")]
    Forbidden(String),
    /// Too many logins of one address have failed.
    #[error("too many wrong tokens: try again in {seconds} s")]
    TooManyLogins {
        /// Until then.
        seconds: i64,
    },
    /// A file cannot be read or written.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// A store of a newer release.
    #[error(
        "{store}: this store is of format {found}, and this program knows formats up to {known}: use a newer program, \
         or another store (`salamander hub rebuild` makes one from the runs)"
    )]
    NewerStore {
        /// The store.
        store: String,
        /// Its format.
        found: i64,
        /// The newest format that is known here.
        known: i64,
    },
    /// The store's own.
    #[error("the store: {0}")]
    Store(#[from] DbError),
    /// It cannot be written now.
    #[error("the store cannot be written: {0}")]
    Unwritable(String),
    /// Its writer has ended.
    #[error("the store is closed")]
    Closed,
    /// The hub of an address does not answer, or not as one does.
    #[error("{0}")]
    Remote(String),
}

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        Self::Store(error.into())
    }
}

impl Error {
    /// For `map_err`: names the file.
    pub fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Self + use<> {
        let path = path.to_path_buf();
        move |source| Self::File { path, source }
    }

    /// The status that a request is answered with.
    pub fn status(&self) -> u16 {
        match self {
            Self::Invalid(_) => 400,
            Self::Unauthorized(_) => 401,
            Self::Forbidden(_) => 403,
            Self::NotFound(_) => 404,
            Self::Conflict(_) => 409,
            Self::TooManyLogins { .. } => 429,
            // A server that is away for a moment.
            Self::Store(error) if error.is_lost() => 503,
            Self::File { .. } | Self::Store(_) | Self::NewerStore { .. } => 500,
            Self::Closed | Self::Unwritable(_) => 503,
            Self::Remote(_) => 502,
        }
    }
}
