//! What the roles of a distributed run share: logs, and where the master is.

use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use salamander_proto::client::{Admin, SessionOptions};
use salamander_train::checkpoint::write_atomic;
use tracing_subscriber::EnvFilter;

use super::keys::keys;

/// The file in a run's folder that says where its master listens.
const ADDRESS: &str = "master.address";
/// How long a command waits for the master's answer.
const ANSWER: Duration = Duration::from_secs(5);

/// Logs to standard error, which the supervisor keeps in the run's folder. SALAMANDER_LOG sets what is logged, as in
/// `salamander=debug`.
pub(super) fn log_to_stderr(role: &str, slot: u32) {
    let filter =
        EnvFilter::try_from_env("SALAMANDER_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false);
    // Only the first subscriber of a process counts, which is what is wanted.
    let _ = if std::env::var("SALAMANDER_LOG_FORMAT").is_ok_and(|format| format == "json") {
        let job = std::env::var("SALAMANDER_JOB").unwrap_or_default();
        let name = serde_json::json!({"job": job, "role": role, "index": slot}).to_string();
        let head = format!("{},", name.trim_end_matches('}'));
        log.json().with_writer(move || Named(head.clone())).try_init()
    } else {
        log.with_target(false).with_writer(std::io::stderr).try_init()
    };
    tracing::info!(role, slot, pid = std::process::id(), "starts");
}

/// Standard error, with the process's name in front of the fields of each line: logs of many pods end up in one place.
struct Named(String);

impl Write for Named {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        let rest = line.strip_prefix(b"{");
        let mut whole = Vec::with_capacity(self.0.len() + line.len());
        whole.extend(rest.map_or(&b""[..], |_| self.0.as_bytes()));
        whole.extend(rest.unwrap_or(line));
        // At once, so that lines of several threads do not mix.
        std::io::stderr().lock().write_all(&whole)?;
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        std::io::stderr().lock().flush()
    }
}

/// Makes a run's folder from an experiment file, as pods find it in a config map; one that is there stays as it is.
pub(super) fn folder_for(run: &str, experiment: &Path) -> Result<PathBuf> {
    let folder = PathBuf::from(run);
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let file = folder.join("experiment.yaml");
    if !file.exists() {
        let text = fs::read(experiment).with_context(|| experiment.display().to_string())?;
        write_atomic(&file, &text)?;
    }
    Ok(folder)
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
    Admin::connect(&SessionOptions::of(address, &keys(folder)?), ANSWER)
        .with_context(|| format!("{} does not run now", folder.display()))
}
