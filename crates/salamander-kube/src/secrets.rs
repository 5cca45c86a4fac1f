//! What only the pods of a job know: the token, and the certificates of an authority of its own.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use salamander_net::Token;
use salamander_net::tls::{AUTHORITY, CERTIFICATE, Files, KEY};

use crate::Error;
use crate::job::TOKEN_FILE;

/// What a job's secrets consist of.
const NAMES: [&str; 4] = [AUTHORITY, CERTIFICATE, KEY, TOKEN_FILE];

/// The secrets of a job, as files of one folder; fresh for each.
#[derive(Clone)]
pub struct Secrets(BTreeMap<String, String>);

impl Secrets {
    /// Secrets that nobody had before.
    pub fn random() -> Result<Self, Error> {
        let token = Token::random().map_err(no_secrets)?;
        let certificates = Files::create().map_err(no_secrets)?;
        let certificates = certificates.named().map(|(name, text)| (name, text.to_string()));
        let all = certificates.into_iter().chain([(TOKEN_FILE, token.to_hex())]);
        Ok(Self(all.map(|(name, text)| (name.to_string(), text)).collect()))
    }

    /// The secrets in a file, which is made with fresh ones if it is not there: with them the same manifest comes out
    /// again, and can be applied again.
    pub fn kept(file: &Path) -> Result<Self, Error> {
        let wrong = |reason: String| Error::Invalid(format!("{}: {reason}", file.display()));
        if let Ok(text) = std::fs::read_to_string(file) {
            let files = serde_json::from_str(&text).map_err(|_| wrong("cannot be read".into()))?;
            let kept = Self(files);
            let missing = NAMES.iter().find(|name| !kept.0.contains_key(**name));
            return match missing {
                Some(name) => Err(wrong(format!("has no {name}; delete it to make other secrets"))),
                None => Ok(kept),
            };
        }
        let secrets = Self::random()?;
        let text = serde_json::to_string(secrets.files()).map_err(Error::invalid)?;
        let cannot = |error: std::io::Error| wrong(format!("cannot be written: {error}"));
        if let Some(folder) = file.parent() {
            std::fs::create_dir_all(folder).map_err(cannot)?;
        }
        // Never replaced: whoever was faster has the secrets that count.
        let mut options = OpenOptions::new();
        let made = options.write(true).create_new(true).mode(0o600).open(file);
        made.and_then(|mut made| made.write_all(text.as_bytes())).map_err(cannot)?;
        Ok(secrets)
    }

    /// As files of one folder.
    pub(crate) fn files(&self) -> &BTreeMap<String, String> {
        &self.0
    }
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secrets")
    }
}

fn no_secrets(error: impl std::fmt::Display) -> Error {
    Error::Invalid(format!("cannot make the secrets of a job: {error}"))
}
