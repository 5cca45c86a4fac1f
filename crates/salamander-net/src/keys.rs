//! What a member of a job proves itself with, and checks others by.

use crate::{Tls, Token};

/// The job's token, and its certificates where connections leave the machine.
#[derive(Clone, Debug)]
pub struct Keys {
    /// Proven inside of every connection.
    pub token: Token,
    /// With it every TCP connection is encrypted, on loopback too; Unix sockets and shared memory
    /// stay as they are.
    pub tls: Option<Tls>,
}

/// A job on one machine.
impl From<Token> for Keys {
    fn from(token: Token) -> Self {
        Self { token, tls: None }
    }
}
