//! Clients for programs without async: each has its own thread and runtime, or blocks the caller.
//!
//! [`Session`], [`NonMember`] and [`PlatformClient`] live as long as their process and connect again by themselves;
//! [`Admin`] makes single calls.

mod address;
mod admin;
mod link;
mod non_member;
mod outbox;
mod platform;
mod session;
mod stream;

use std::time::Duration;

use salamander_net::{Keys, Tls};
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::v1::control_client::ControlClient;
use crate::{convert, limits, token};

pub use admin::Admin;
pub use non_member::{CallError, NonMember, RunEnd};
pub use platform::{Ends, PlatformClient, PlatformHandler};
pub use session::{Handler, Registration, Role, Sender, Session, TrainedOn};

/// What goes wrong at a client.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address is none.
    #[error("master {master:?} is not an address; expected host:port")]
    Address {
        /// The address.
        master: String,
    },
    /// The token cannot be sent.
    #[error(transparent)]
    Token(#[from] token::Error),
    /// The client's thread or runtime cannot start.
    #[error("cannot start the thread of a client: {0}")]
    Start(#[from] std::io::Error),
    /// Nobody answers.
    #[error("master {master} does not answer: {reason}")]
    Unreachable {
        /// The address.
        master: String,
        /// What was tried.
        reason: String,
    },
    /// The master says no.
    #[error("master {master} refuses: {reason}")]
    Refused {
        /// The address.
        master: String,
        /// Its reason.
        reason: String,
    },
    /// The answer makes no sense.
    #[error("the master's answer: {0}")]
    Answer(#[from] convert::Error),
}

/// How a session reaches the master.
#[derive(Clone)]
pub struct SessionOptions {
    /// `host:port`.
    pub master: String,
    /// The run's token as hexadecimal text.
    pub token: String,
    /// The job's certificates, if the master has them too.
    pub tls: Option<Tls>,
    /// How often a heartbeat is sent.
    pub beat_every: Duration,
    /// The longest wait before it is tried again to connect.
    pub longest_wait: Duration,
}

impl SessionOptions {
    /// With a heartbeat each half second.
    pub fn new(master: impl Into<String>, token: impl Into<String>) -> Self {
        Self {
            master: master.into(),
            token: token.into(),
            tls: None,
            beat_every: Duration::from_millis(500),
            longest_wait: Duration::from_secs(1),
        }
    }

    /// Like [`SessionOptions::new`], with all keys of a job.
    pub fn of(master: impl Into<String>, keys: &Keys) -> Self {
        Self { tls: keys.tls.clone(), ..Self::new(master, keys.token.to_hex()) }
    }
}

impl std::fmt::Debug for SessionOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The token stays out of logs.
        f.debug_struct("SessionOptions").field("master", &self.master).finish_non_exhaustive()
    }
}

type BearerClient = ControlClient<InterceptedService<Channel, token::Bearer>>;

fn client(channel: Channel, bearer: token::Bearer) -> BearerClient {
    ControlClient::with_interceptor(channel, bearer)
        .max_decoding_message_size(limits::MESSAGE)
        .max_encoding_message_size(limits::MESSAGE)
}

/// Whether trying again with the same words can help.
fn is_passing(status: &Status) -> bool {
    !matches!(
        status.code(),
        Code::Unauthenticated
            | Code::InvalidArgument
            | Code::FailedPrecondition
            | Code::Unimplemented
    )
}

/// The reason at the root of a chain of errors: the outer ones only say "transport error".
fn root(error: &dyn std::error::Error) -> String {
    let chain = std::iter::successors(Some(error), |error| error.source());
    chain.last().map(ToString::to_string).unwrap_or_default()
}
