//! What the API server says, made clear: who may not do what, and how to allow it.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tracing::warn;

/// How long a server that does not answer is asked again.
const RETRY_TIMEOUT: Duration = Duration::from_secs(60);
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// Why something could not be done with the cluster.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Rights are missing.
    #[error(
        "{what}: {message} (the cluster's roles do not allow it; see docs/kubernetes.md#rights)"
    )]
    Forbidden {
        /// What was tried.
        what: String,
        /// The server's words, which name the account, the verb and the resource.
        message: String,
    },
    /// The object is not there.
    #[error("{what}: {message}")]
    NotFound {
        /// What was tried.
        what: String,
        /// The server's words.
        message: String,
    },
    /// The server says no.
    #[error("{what}: {message}")]
    Refused {
        /// What was tried.
        what: String,
        /// The server's words.
        message: String,
    },
    /// The server cannot be reached, or answers nonsense.
    #[error("{what}: the API server does not answer: {reason}")]
    Unreachable {
        /// What was tried.
        what: String,
        /// The reason.
        reason: String,
    },
    /// There is no way to a cluster.
    #[error(
        "no cluster: {0} (in a pod the service account says where it is, elsewhere KUBECONFIG or ~/.kube/config)"
    )]
    NoCluster(String),
    /// A job cannot be made of what was written.
    #[error("{0}")]
    Invalid(String),
}

impl Error {
    /// For `map_err` on calls to the API server: its error in words.
    pub(crate) fn doing(what: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let what = what.into();
        move |error| {
            let kube::Error::Api(status) = error else {
                return Error::Unreachable { what, reason: root(&error) };
            };
            let message = status.message;
            match status.code {
                401 | 403 => Error::Forbidden { what, message },
                404 => Error::NotFound { what, message },
                // It is there, but not able to.
                408 | 429 | 500.. => Error::Unreachable { what, reason: message },
                _ => Error::Refused { what, message },
            }
        }
    }

    /// For `map_err` on what a job is made of.
    pub(crate) fn invalid(error: impl ToString) -> Self {
        Error::Invalid(error.to_string())
    }
}

/// Asks again, for a while, when the server does not answer: a network or a server that just starts is no
/// reason to give up.
pub(crate) async fn retry<T, C: Future<Output = Result<T, Error>>>(
    mut call: impl FnMut() -> C,
) -> Result<T, Error> {
    let began = Instant::now();
    let mut wait = FIRST_WAIT;
    loop {
        match call().await {
            Err(error @ Error::Unreachable { .. }) if began.elapsed() < RETRY_TIMEOUT => {
                warn!(%error, "trying again");
                sleep(wait).await;
                wait = (wait * 2).min(LONGEST_WAIT);
            }
            other => return other,
        }
    }
}

/// The code of an answer, if there was one.
pub(crate) fn code(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

/// The reason at the root of a chain of errors.
pub(crate) fn root(error: &dyn std::error::Error) -> String {
    let mut deepest = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    deepest.to_string()
}
