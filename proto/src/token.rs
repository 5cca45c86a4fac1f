//! The run's token on every call, as `authorization: Bearer <hex>`: added by clients, checked by servers.

use std::fmt;

use salamander_net::Refusals;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::{Request, Status};

use crate::status;

const HEADER: &str = "authorization";

/// A token that cannot be sent.
#[derive(Debug, thiserror::Error)]
#[error("the token is not a line of visible characters")]
pub struct Error;

/// Adds the token to every call.
#[derive(Clone)]
pub struct Bearer(MetadataValue<Ascii>);

impl Bearer {
    /// From the token as hexadecimal text.
    pub fn new(token: &str) -> Result<Self, Error> {
        // The text is not part of the error: it may be nearly the secret.
        let mut value: MetadataValue<Ascii> =
            format!("Bearer {token}").parse().map_err(|_| Error)?;
        value.set_sensitive(true);
        Ok(Self(value))
    }
}

impl fmt::Debug for Bearer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bearer(..)")
    }
}

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        request.metadata_mut().insert(HEADER, self.0.clone());
        Ok(request)
    }
}

/// Refuses calls without the token, and logs who was refused.
#[derive(Clone)]
pub struct Guard {
    expected: blake3::Hash,
    refusals: Refusals,
}

impl Guard {
    /// From the token as hexadecimal text.
    pub fn new(token: &str) -> Self {
        let expected = blake3::hash(format!("Bearer {token}").as_bytes());
        Self { expected, refusals: Refusals::default() }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Guard(..)")
    }
}

impl Interceptor for Guard {
    fn call(&mut self, request: Request<()>) -> Result<Request<()>, Status> {
        let found = request.metadata().get(HEADER).map(|value| value.as_encoded_bytes());
        // Hashes are compared in constant time, so that a token cannot be guessed byte by byte.
        if found.is_some_and(|found| blake3::hash(found) == self.expected) {
            return Ok(request);
        }
        let peer = request.remote_addr().map(|address| address.ip());
        let peer = peer.map_or("unknown".to_string(), |peer| peer.to_string());
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
        let answer = Guard::new("c0ffee").call(request);
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
    fn debug_shows_nothing() {
        let bearer = Bearer::new("c0ffee").expect("visible");
        assert_eq!(format!("{bearer:?} {:?}", Guard::new("c0ffee")), "Bearer(..) Guard(..)");
    }

    #[test]
    fn a_token_with_a_line_break_is_an_error() {
        assert!(Bearer::new("c0\nffee").is_err());
    }
}
