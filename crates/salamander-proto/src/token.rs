//! The run's token on every call, as `authorization: Bearer <hex>`: added by clients, checked by servers.

use std::collections::HashSet;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::{Request, Status};
use tracing::warn;

use crate::status;

const HEADER: &str = "authorization";
/// So many refused peers are told apart; beyond, refusals are silent, so that nobody can fill a disk.
const REMEMBERED: usize = 256;

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

/// Refuses calls without the token, and logs each refused peer once.
#[derive(Clone)]
pub struct Guard {
    expected: blake3::Hash,
    refused: Arc<Mutex<HashSet<Option<IpAddr>>>>,
}

impl Guard {
    /// From the token as hexadecimal text.
    pub fn new(token: &str) -> Self {
        let expected = blake3::hash(format!("Bearer {token}").as_bytes());
        Self { expected, refused: Arc::default() }
    }

    /// Whether a peer is refused for the first time.
    fn is_news(&self, peer: Option<IpAddr>) -> bool {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused.len() < REMEMBERED && refused.insert(peer)
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
        if self.is_news(peer) {
            let reason = if found.is_some() { "wrong token" } else { "no token" };
            let peer = peer.map_or("unknown".to_string(), |peer| peer.to_string());
            warn!(peer, reason, "refused a call; later ones of this peer are not logged");
        }
        Err(status::status(&status::Error::Token))
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
    fn a_refused_peer_is_logged_once_and_memory_is_bounded() {
        let guard = Guard::new("c0ffee");
        let peer = |n: u32| Some(IpAddr::from(n.to_be_bytes()));
        assert!(guard.is_news(peer(1)));
        assert!(!guard.is_news(peer(1)));
        let news = (0..10_000).filter(|n| guard.is_news(peer(*n))).count();
        assert!(news < REMEMBERED);
        assert_eq!(guard.refused.lock().expect("not poisoned").len(), REMEMBERED);
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
