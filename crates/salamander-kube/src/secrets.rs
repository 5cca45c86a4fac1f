//! What only the pods of a job know: the token, and the certificates of an authority of its own.

use std::collections::BTreeMap;

use salamander_net::Token;
use salamander_net::tls::Files;

use crate::Error;
use crate::job::TOKEN_FILE;

/// The secrets of a job, fresh for each.
#[derive(Clone, Debug)]
pub struct Secrets {
    token: Token,
    certificates: Files,
}

impl Secrets {
    /// Secrets that nobody had before.
    pub fn random() -> Result<Self, Error> {
        let token = Token::random().map_err(no_secrets)?;
        let certificates = Files::create().map_err(no_secrets)?;
        Ok(Self { token, certificates })
    }

    /// As files of one folder.
    pub(crate) fn files(&self) -> BTreeMap<String, String> {
        let certificates = self.certificates.named().map(|(name, text)| (name, text.to_string()));
        let all = certificates.into_iter().chain([(TOKEN_FILE, self.token.to_hex())]);
        all.map(|(name, text)| (name.to_string(), text)).collect()
    }
}

fn no_secrets(error: impl std::fmt::Display) -> Error {
    Error::Invalid(format!("cannot make the secrets of a job: {error}"))
}
