//! What the API server says, made clear: who may not do what, and how to allow it.

use std::time::Duration;

use salamander_net::Backoff;
use tokio::time::{sleep, timeout};
use tracing::warn;

/// How long a server that does not answer is asked again.
const RETRY_TIMEOUT: Duration = Duration::from_secs(60);
/// How long an answer is waited for before it is asked again.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
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
    /// An object of the same name is there, and belongs to somebody else.
    #[error(
        "the {kind} {name:?} is there already and is not of this job, so it is left alone: delete it, or give the \
         job another name"
    )]
    Taken {
        /// What it is.
        kind: String,
        /// Its name.
        name: String,
    },
    /// An object of an earlier job has not gone yet.
    #[error(
        "the {kind} {name:?} of an earlier job is still being deleted; this job begins when it is gone"
    )]
    Leaving {
        /// What it is.
        kind: String,
        /// Its name.
        name: String,
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
            let (code, message) = (status.code, status.message);
            match code {
                // Quotas, pod security and other policies say 403 as well, and no role helps against them.
                403 if !is_about_rights(&message) => Error::Refused { what, message },
                401 | 403 => Error::Forbidden { what, message },
                404 => Error::NotFound { what, message },
                // It will not be able to before somebody has mended the webhook.
                500 if message.contains("failed calling webhook") => {
                    Error::Refused { what, message }
                }
                // It is there, but not able to.
                408 | 429 | 500.. => Error::Unreachable { what, reason: message },
                _ => Error::Refused { what, message },
            }
        }
    }

    /// Whether the cluster said no, in words that people should see.
    pub(crate) fn is_refusal(&self) -> bool {
        !matches!(self, Error::Unreachable { .. } | Error::NoCluster(_))
    }

    /// For `map_err` on what a job is made of.
    pub(crate) fn invalid(error: impl ToString) -> Self {
        Error::Invalid(error.to_string())
    }
}

/// An answer that has not come by then does not come: a connection whose other end has vanished says nothing.
pub(crate) async fn within<T>(
    deadline: Duration,
    what: &str,
    call: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let answer = timeout(deadline, call).await;
    answer.unwrap_or_else(|_| {
        let reason = format!("no answer within {deadline:?}");
        Err(Error::Unreachable { what: what.to_string(), reason })
    })
}

/// Asks again, for a while, when the server does not answer: a network or a server that just starts is no
/// reason to give up.
pub(crate) async fn retry<T, C: Future<Output = Result<T, Error>>>(
    mut call: impl FnMut() -> C,
) -> Result<T, Error> {
    let mut backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT).within(RETRY_TIMEOUT);
    loop {
        let error = match within(ANSWER_TIMEOUT, "asking", call()).await {
            Err(error @ Error::Unreachable { .. }) => error,
            other => return other,
        };
        let Some(wait) = backoff.wait() else { return Err(error) };
        warn!(%error, "trying again");
        sleep(wait).await;
    }
}

/// Whether a 403 is about the rights of an account: the words are Kubernetes' own.
fn is_about_rights(message: &str) -> bool {
    message.contains("User \"") && message.contains(" cannot ")
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

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[tokio::test]
    async fn an_answer_that_does_not_come_is_not_waited_for() {
        let never = std::future::pending::<Result<(), Error>>();
        let error =
            within(Duration::from_millis(5), "listing jobs", never).await.expect_err("late");
        let text = error.to_string();
        assert_eq!(text, "listing jobs: the API server does not answer: no answer within 5ms");
        let now = std::future::ready(Ok(1));
        assert_eq!(within(Duration::from_secs(60), "listing jobs", now).await.expect("at once"), 1);
    }

    #[test]
    fn a_webhook_that_is_down_is_told_to_people() {
        let say = |message: &str| {
            let status = Status::failure(message, "InternalError").with_code(500).boxed();
            Error::doing("creating the Pod p")(kube::Error::Api(status)).is_refusal()
        };
        let webhook = "Internal error occurred: failed calling webhook \"validate.kyverno.svc\": no endpoints";
        assert!(say(webhook));
        assert!(!say("etcdserver: request timed out"));
    }

    #[test]
    fn only_missing_rights_point_to_the_roles() {
        let say = |message: &str| {
            let status = Status::failure(message, "Forbidden").with_code(403).boxed();
            Error::doing("creating the Pod p")(kube::Error::Api(status)).to_string()
        };
        let quota = "pods \"p\" is forbidden: exceeded quota: compute, requested: pods=1";
        assert_eq!(say(quota), format!("creating the Pod p: {quota}"));
        let policy =
            "pods \"p\" is forbidden: violates PodSecurity \"restricted:latest\": hostPath";
        assert!(!say(policy).contains("roles"), "{}", say(policy));
        let rights = "pods is forbidden: User \"system:serviceaccount:ml:op\" cannot create resource \"pods\"";
        assert!(say(rights).contains("the cluster's roles do not allow it"), "{}", say(rights));
    }
}
