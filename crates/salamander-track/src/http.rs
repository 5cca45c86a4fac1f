//! What sinks that talk to servers have in common.

use std::error::Error;
use std::time::Duration;

use reqwest::Client;

/// How long a connection, and an answer, may take.
const CONNECT: Duration = Duration::from_secs(5);
const ANSWER: Duration = Duration::from_secs(60);

/// A client; nothing is sent yet.
pub(crate) fn client() -> Result<Client, reqwest::Error> {
    // Another part of the program may have chosen before; it is the same one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder().connect_timeout(CONNECT).timeout(ANSWER).build()
}

/// How long the answer to a request with so many bytes may take, where the line carries a megabyte in a second.
pub(crate) fn patience(bytes: usize) -> Duration {
    ANSWER + Duration::from_secs(bytes as u64 / 1_000_000)
}

/// An error with what it came from.
pub(crate) fn reasons(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        text.push_str(&format!(": {error}"));
        next = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_file_may_take_longer_than_an_answer() {
        assert_eq!(patience(500), ANSWER);
        assert_eq!(patience(2_000_000_000), ANSWER + Duration::from_secs(2000));
    }
}
