//! What only the pods of a job know: the token, and the certificates of an authority of its own.

use std::collections::BTreeMap;

use salamander_net::Token;
use salamander_net::tls::Files;

use crate::job::TOKEN_FILE;

/// The secrets of a job, fresh for each.
#[derive(Clone, Debug)]
pub struct Secrets {
    token: Token,
    certificates: Files,
}

/// There are no secrets.
#[derive(Debug, thiserror::Error)]
#[error("cannot make the secrets of a job: {0}")]
pub struct Error(String);

impl Secrets {
    /// Secrets that nobody had before.
    pub fn random() -> Result<Self, Error> {
        let token = Token::random().map_err(|error| Error(error.to_string()))?;
        let certificates = Files::create().map_err(|error| Error(error.to_string()))?;
        Ok(Self { token, certificates })
    }

    /// As files of one folder.
    pub(crate) fn files(&self) -> BTreeMap<String, String> {
        let certificates = self.certificates.named().map(|(name, text)| (name, text.to_string()));
        let all = certificates.into_iter().chain([(TOKEN_FILE, self.token.to_hex())]);
        all.map(|(name, text)| (name.to_string(), text)).collect()
    }
}
