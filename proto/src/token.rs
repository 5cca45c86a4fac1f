//! How a client shows that it has the run's token.
//!
//! On a plain connection, which stays within one machine, both sides prove it before anything else is said
//! ([`salamander_net::handshake`]): the token is never sent, so that whoever has a port that was the master's learns
//! nothing. On an encrypted one both sides have shown their certificates, and the token goes along with every call as
//! `authorization: Bearer <hex>`.

use std::fmt;
use std::net::SocketAddr;

use salamander_net::{Refusals, Token};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::{Request, Status};

use crate::status;

const HEADER: &str = "authorization";

/// A token that cannot be sent.
#[derive(Debug, thiserror::Error)]
#[error("the token is not a line of visible characters")]
pub struct Error;

/// What connections of the control plane are proven with, which is good for nothing else.
pub fn of_connections(token: &str) -> Token {
    Token::derived(token, "salamander control plane: connections")
}

/// What a server knows of a connection before its first call.
#[derive(Clone, Copy, Debug, Default)]
pub struct ConnectionInfo {
    /// Where it comes from.
    pub peer: Option<SocketAddr>,
    /// Whether the client has proven that it has the token.
    pub is_proven: bool,
}

/// Adds the token to every call.
#[derive(Clone)]
pub struct Bearer(Option<MetadataValue<Ascii>>);

impl Bearer {
    /// Adds nothing, for connections that are proven as a whole.
    pub fn unsent() -> Self {
        Self(None)
    }

    /// From the token as hexadecimal text.
    pub fn new(token: &str) -> Result<Self, Error> {
        // The text is not part of the error: it may be nearly the secret.
        let mut value: MetadataValue<Ascii> =
            format!("Bearer {token}").parse().map_err(|_| Error)?;
        value.set_sensitive(true);
        Ok(Self(Some(value)))
    }
}

impl fmt::Debug for Bearer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bearer(..)")
    }
}

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(value) = &self.0 {
            request.metadata_mut().insert(HEADER, value.clone());
        }
        Ok(request)
    }
}

/// Refuses calls without the token, and logs who was refused.
#[derive(Clone)]
pub struct TokenGuard {
    expected: blake3::Hash,
    refusals: Refusals,
}

impl TokenGuard {
    /// From the token as hexadecimal text.
    pub fn new(token: &str) -> Self {
        let expected = blake3::hash(format!("Bearer {token}").as_bytes());
        Self { expected, refusals: Refusals::default() }
    }
}

impl fmt::Debug for TokenGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenGuard(..)")
    }
}

impl Interceptor for TokenGuard {
    fn call(&mut self, request: Request<()>) -> Result<Request<()>, Status> {
        let connection = request.extensions().get::<ConnectionInfo>().copied().unwrap_or_default();
        if connection.is_proven {
            return Ok(request);
        }
        let found = request.metadata().get(HEADER).map(|value| value.as_encoded_bytes());
        // Hashes are compared in constant time, so that a token cannot be guessed byte by byte.
        if found.is_some_and(|found| blake3::hash(found) == self.expected) {
            return Ok(request);
        }
        let peer = connection.peer.map_or("unknown".to_string(), |peer| peer.ip().to_string());
        self.refusals.log(&peer, if found.is_some() { "wrong token" } else { "no token" });
        Err(status::Error::Token.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(sent: Option<&str>, accepted: bool) {
        let mut request = Request::new(());
        if let Some(token) = sent {
            request = Bearer::new(token).expect("visible").call(request).expect("added");
        }
        let answer = TokenGuard::new("c0ffee").call(request);
        assert_eq!(answer.is_ok(), accepted, "{sent:?}");
        if let Err(status) = answer {
            assert_eq!(status.code(), tonic::Code::Unauthenticated);
        }
    }

    #[test]
    fn only_the_token_is_accepted() {
        check(Some("c0ffee"), true);
        check(Some("c0ffef"), false);
        check(Some("c0ffee0"), false);
        check(Some(""), false);
        check(None, false);
    }

    #[test]
    fn a_proven_connection_needs_no_token_on_its_calls() {
        for is_proven in [true, false] {
            let mut request = Bearer::unsent().call(Request::new(())).expect("left as it is");
            assert!(request.metadata().get(HEADER).is_none());
            request.extensions_mut().insert(ConnectionInfo { peer: None, is_proven });
            assert_eq!(TokenGuard::new("c0ffee").call(request).is_ok(), is_proven);
        }
    }

    #[test]
    fn debug_shows_nothing() {
        let bearer = Bearer::new("c0ffee").expect("visible");
        assert_eq!(
            format!("{bearer:?} {:?}", TokenGuard::new("c0ffee")),
            "Bearer(..) TokenGuard(..)"
        );
    }

    #[test]
    fn a_token_with_a_line_break_is_an_error() {
        assert!(Bearer::new("c0\nffee").is_err());
    }
}
