//! The secrets of a run: the token, and the certificates for connections between hosts. All are files beside the run,
//! or where a role is told; none is ever an argument.

use std::fs::OpenOptions;
use std::io::Write;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use salamander_net::tls::Files;
use salamander_net::{Keys, Tls, Token};

/// The file in a run's folder with its token.
const TOKEN: &str = "token";
/// The folder in a run's folder with its certificates.
const CERTIFICATES: &str = "tls";

/// `salamander tls`: the certificates of a run that was prepared elsewhere, or new ones for those that have expired.
#[derive(clap::Args)]
pub(super) struct TlsArgs {
    /// The folder to make, with ca.crt, tls.crt and tls.key
    folder: PathBuf,
}

pub(super) fn make(args: &TlsArgs) -> Result<ExitCode> {
    Files::create()?.write(&args.folder).with_context(|| args.folder.display().to_string())?;
    Ok(ExitCode::SUCCESS)
}

/// Where a role finds the secrets of its run.
#[derive(clap::Args)]
pub(super) struct KeyArgs {
    /// The file with the run's secret [default: `token` in the run's folder]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// The folder with ca.crt, tls.crt and tls.key, to encrypt all connections [default: `tls` in the run's folder, if
    /// it is there]
    #[arg(long, value_name = "DIR")]
    tls: Option<PathBuf>,
}

impl KeyArgs {
    /// The keys of a role that listens on an address: what others can reach is encrypted.
    pub(super) fn read(&self, folder: &Path, listen: IpAddr) -> Result<Keys> {
        let keys = Keys {
            token: token(self.token_file.as_deref().unwrap_or(&folder.join(TOKEN)))?,
            tls: match &self.tls {
                Some(certificates) => Some(load(certificates)?),
                None => tls(folder)?,
            },
        };
        if keys.tls.is_none() && !listen.is_loopback() {
            bail!(
                "{listen} can be reached from other hosts, and there are no certificates to encrypt connections with: \
                 make some with `salamander tls {}`, or name a folder with --tls",
                folder.join(CERTIFICATES).display()
            );
        }
        Ok(keys)
    }
}

/// The keys in a run's folder.
pub(super) fn keys(folder: &Path) -> Result<Keys> {
    Ok(Keys { token: token(&folder.join(TOKEN))?, tls: tls(folder)? })
}

/// Makes the run's token, readable by its owner only; a resumed run keeps its own.
pub(super) fn ensure_keys(folder: &Path) -> Result<Keys> {
    let path = folder.join(TOKEN);
    if !path.exists() {
        let token = Token::random()?;
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let written = file.and_then(|mut file| file.write_all(token.to_hex().as_bytes()));
        written.with_context(|| path.display().to_string())?;
    }
    keys(folder)
}

/// Makes the run's certificates too, for roles on several hosts; those that are there stay.
pub(super) fn ensure_certificates(folder: &Path) -> Result<()> {
    let path = folder.join(CERTIFICATES);
    if !path.exists() {
        Files::create()?.write(&path).with_context(|| path.display().to_string())?;
    }
    load(&path).map(drop)
}

fn token(path: &Path) -> Result<Token> {
    let shown = path.display();
    let text = std::fs::read_to_string(path).with_context(|| format!("token {shown}"))?;
    Token::from_hex(text.trim()).with_context(|| format!("token {shown}"))
}

fn tls(folder: &Path) -> Result<Option<Tls>> {
    let path = folder.join(CERTIFICATES);
    if path.exists() { load(&path).map(Some) } else { Ok(None) }
}

fn load(folder: &Path) -> Result<Tls> {
    Tls::load(folder).with_context(|| format!("certificates {}", folder.display()))
}
