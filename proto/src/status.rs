//! Errors to gRPC codes: the only function that chooses a code is here.

use tonic::{Code, Status};

use crate::convert;
use crate::limits::FIRST_MESSAGE;

/// Why a call is refused.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The call does not carry the run's token.
    #[error("the call does not carry the token of this run")]
    Token,
    /// A message lacks a field or has a wrong value.
    #[error(transparent)]
    Message(#[from] convert::Error),
    /// A session began with something else, or not in time.
    #[error("a session begins with a hello or an inventory, within {} s", FIRST_MESSAGE.as_secs())]
    First,
    /// An argument makes no sense.
    #[error("{0}")]
    Argument(String),
    /// The run is not of the kind that the call needs.
    #[error("{0}")]
    Unfit(String),
    /// The master has too much to do to take the call.
    #[error("the master is too busy; try again")]
    Busy,
    /// The master is leaving.
    #[error("the master is leaving; try again")]
    Leaving,
}

/// The code of each error. Nothing else makes a [`Status`].
impl From<Error> for Status {
    fn from(error: Error) -> Self {
        let code = match error {
            Error::Token => Code::Unauthenticated,
            Error::Message(_) | Error::First | Error::Argument(_) => Code::InvalidArgument,
            Error::Unfit(_) => Code::FailedPrecondition,
            Error::Busy => Code::ResourceExhausted,
            Error::Leaving => Code::Unavailable,
        };
        Status::new(code, error.to_string())
    }
}
