//! The secrets of a run: the token, and the certificates for connections between hosts. All are files beside the run,
//! or where a role is told; none is ever an argument.

use std::fs::OpenOptions;
use std::io::Write;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use salamander_core::layout::RunLayout;
use salamander_net::tls::Files;
use salamander_net::{Keys, Tls, Token};

use crate::Error;

/// Makes new certificates: ca.crt, tls.crt and tls.key.
pub fn make_certificates(folder: &Path) -> Result<(), Error> {
    let files = Files::create().map_err(Error::broken(folder))?;
    files.write(folder).map_err(Error::broken(folder))
}

/// Where a role finds the secrets of its run, if not in the run's folder.
#[derive(Clone, Debug, Default)]
pub struct KeyFiles {
    /// The file with the run's token.
    pub token: Option<PathBuf>,
    /// The folder with ca.crt, tls.crt and tls.key, to encrypt all connections.
    pub certificates: Option<PathBuf>,
}

impl KeyFiles {
    /// The keys of a role that listens on an address: what others can reach is encrypted.
    pub(crate) fn read(&self, run: &RunLayout, listen: IpAddr) -> Result<Keys, Error> {
        let keys = Keys {
            token: token(self.token.as_deref().unwrap_or(&run.token()))?,
            tls: match &self.certificates {
                Some(certificates) => Some(load(certificates)?),
                None => tls(run)?,
            },
        };
        if keys.tls.is_none() && !listen.is_loopback() {
            return Err(Error::Invalid(format!(
                "{listen} can be reached from other hosts, and there are no certificates to encrypt connections with: \
                 make some with `salamander tls {}`, or name a folder with --tls",
                run.certificates().display()
            )));
        }
        Ok(keys)
    }
}

/// The keys in a run's folder.
pub(crate) fn keys(run: &RunLayout) -> Result<Keys, Error> {
    Ok(Keys { token: token(&run.token())?, tls: tls(run)? })
}

/// Makes the run's token, readable by its owner only; a resumed run keeps its own.
pub(crate) fn ensure_keys(run: &RunLayout) -> Result<Keys, Error> {
    let path = run.token();
    if !path.exists() {
        let token = Token::random()?;
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let written = file.and_then(|mut file| file.write_all(token.to_hex().as_bytes()));
        written.map_err(Error::io(&path))?;
    }
    keys(run)
}

/// Makes the run's certificates too, for roles on several hosts; those that are there stay.
pub(crate) fn ensure_certificates(run: &RunLayout) -> Result<(), Error> {
    let path = run.certificates();
    if !path.exists() {
        make_certificates(&path)?;
    }
    load(&path).map(drop)
}

fn token(path: &Path) -> Result<Token, Error> {
    let wrong =
        |reason: String| Error::Secret { what: format!("token {}", path.display()), reason };
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    Token::from_hex(text.trim()).map_err(|error| wrong(error.to_string()))
}

fn tls(run: &RunLayout) -> Result<Option<Tls>, Error> {
    let path = run.certificates();
    if path.exists() { load(&path).map(Some) } else { Ok(None) }
}

fn load(folder: &Path) -> Result<Tls, Error> {
    Tls::load(folder).map_err(|error| Error::Secret {
        what: format!("certificates {}", folder.display()),
        reason: error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::Ipv4Addr;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    const ANY: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

    fn run() -> (tempfile::TempDir, RunLayout) {
        let folder = tempfile::tempdir().expect("a folder");
        let run = RunLayout::new(folder.path());
        (folder, run)
    }

    #[test]
    fn a_run_has_one_token_that_only_its_owner_reads() {
        let (_folder, run) = run();
        let made = ensure_keys(&run).expect("made");
        let mode = fs::metadata(run.token()).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let again = ensure_keys(&run).expect("kept");
        assert_eq!(made.token.to_hex(), again.token.to_hex());
        assert!(again.tls.is_none(), "nobody asked for certificates");
    }

    #[test]
    fn a_token_that_is_none_is_named() {
        let (_folder, run) = run();
        let error = keys(&run).expect_err("no token").to_string();
        assert!(error.contains(&run.token().display().to_string()), "{error}");
        fs::write(run.token(), "not hex").expect("written");
        let error = keys(&run).expect_err("no token").to_string();
        assert!(error.starts_with(&format!("token {}", run.token().display())), "{error}");
    }

    #[test]
    fn what_other_hosts_reach_needs_certificates() {
        let (_folder, run) = run();
        ensure_keys(&run).expect("made");
        let files = KeyFiles::default();
        assert!(files.read(&run, LOOPBACK).expect("within this host").tls.is_none());
        let error = files.read(&run, ANY).expect_err("refused").to_string();
        let advice = format!("salamander tls {}", run.certificates().display());
        assert!(error.contains(&advice), "{error}");
        ensure_certificates(&run).expect("made");
        assert!(files.read(&run, ANY).expect("encrypted").tls.is_some());
        ensure_certificates(&run).expect("those that are there stay");
    }

    #[test]
    fn secrets_are_read_where_a_role_is_told() {
        let (_folder, run) = run();
        let (_elsewhere, other) = self::run();
        let token = ensure_keys(&other).expect("made").token;
        let files = KeyFiles { token: Some(other.token()), certificates: None };
        assert_eq!(files.read(&run, LOOPBACK).expect("read").token.to_hex(), token.to_hex());
        let files = KeyFiles { certificates: Some(other.certificates()), ..files };
        let error = files.read(&run, LOOPBACK).expect_err("no certificates").to_string();
        assert!(error.contains(&other.certificates().display().to_string()), "{error}");
    }
}
