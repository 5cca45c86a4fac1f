//! What the roles of a distributed run share: logs, and where the master is.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use salamander_proto::client::Admin;
use salamander_train::checkpoint::write_atomic;
use tracing_subscriber::EnvFilter;

use super::worker::token;

/// The file in a run's folder that says where its master listens.
const ADDRESS: &str = "master.address";
/// How long a command waits for the master's answer.
const ANSWER: Duration = Duration::from_secs(5);

/// Logs to standard error, which the supervisor keeps in the run's folder. SALAMANDER_LOG sets what is logged, as in
/// `salamander=debug`.
pub(super) fn log_to_stderr(role: &str, slot: u32) {
    let filter =
        EnvFilter::try_from_env("SALAMANDER_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // Only the first subscriber of a process counts, which is what is wanted.
    let _ = log.with_ansi(false).with_target(false).try_init();
    tracing::info!(role, slot, pid = std::process::id(), "starts");
}

/// Writes down where the master of a run listens.
pub(super) fn note_address(folder: &Path, address: SocketAddr) -> Result<()> {
    Ok(write_atomic(&folder.join(ADDRESS), address.to_string().as_bytes())?)
}

/// Where the master of a run listens.
pub(super) fn address(folder: &Path) -> Result<String> {
    let path = folder.join(ADDRESS);
    match fs::read_to_string(&path) {
        Ok(text) => Ok(text.trim().to_string()),
        Err(_) => bail!("{} is not a distributed run, or has not begun", folder.display()),
    }
}

/// Asks the master of a run.
pub(super) fn ask(folder: &Path) -> Result<Admin> {
    let address = address(folder)?;
    let token = token(None, folder)?;
    Admin::connect(&address, &token.to_hex(), ANSWER)
        .with_context(|| format!("{} does not run now", folder.display()))
}
