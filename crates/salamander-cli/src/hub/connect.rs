//! Which hub a command talks to: the one that is named, the one that runs for a folder, or one for the moment.

use std::env;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};
use salamander_core::environment;
use salamander_hub::server::Listen;
use salamander_hub::{Daemon, DaemonOptions, Hub, HubClient, OWN_FOLDER};

/// How long a hub of this machine may take to accept.
const PATIENCE: Duration = Duration::from_secs(5);

/// The hub to talk to.
#[derive(clap::Args, Clone)]
pub(crate) struct HubArgs {
    /// The hub, such as http://127.0.0.1:7070 [default: SALAMANDER_HUB, or else the one of the folder of runs]
    #[arg(long, value_name = "URL", global = true)]
    pub(crate) hub: Option<String>,
    /// The folder that runs live in
    #[arg(long, value_name = "DIR", default_value = "runs", global = true)]
    pub(crate) runs: PathBuf,
}

/// A command that is asked of a hub.
#[derive(clap::Args)]
pub(crate) struct HubCommand<C: clap::Subcommand> {
    #[command(subcommand)]
    pub(super) command: C,
    #[command(flatten)]
    pub(super) hub: HubArgs,
}

/// A hub that answers.
pub(crate) struct Connected {
    pub(crate) client: HubClient,
    /// The hub within this command, where there was no other.
    pub(crate) own: Option<Daemon>,
}

impl HubArgs {
    /// A hub that is there already.
    pub(crate) fn running(&self) -> Result<Option<HubClient>> {
        let token = env::var(environment::HUB_TOKEN.name).ok();
        let named = self.hub.clone().or_else(|| env::var(environment::HUB.name).ok());
        if let Some(url) = named.filter(|url| !url.is_empty()) {
            return Ok(Some(HubClient::new(&url, token)?));
        }
        let text = fs::read_to_string(self.runs.join(OWN_FOLDER).join("address"));
        let text = text.unwrap_or_default();
        match noted(text.trim()).filter(|(_, to)| TcpStream::connect_timeout(to, PATIENCE).is_ok())
        {
            Some((scheme, to)) => Ok(Some(HubClient::new(&format!("{scheme}://{to}"), token)?)),
            None => Ok(None),
        }
    }

    /// A hub, within this command if need be; that one starts no experiments.
    pub(crate) fn connect(&self) -> Result<Connected> {
        if let Some(client) = self.running()? {
            return Ok(Connected { client, own: None });
        }
        if !self.runs.is_dir() {
            let runs = self.runs.display();
            bail!(
                "there is no folder {runs}: name a hub with --hub, or the folder of runs with --runs"
            );
        }
        start(&self.runs, 0)
    }
}

/// The address that a hub has noted among its files: a release before this one wrote no scheme.
fn noted(text: &str) -> Option<(&str, SocketAddr)> {
    let (scheme, address) = text.split_once("://").unwrap_or(("http", text));
    Some((scheme, address.parse().ok()?))
}

/// A hub within this command, with so many slots.
pub(crate) fn start(runs: &Path, slots: u32) -> Result<Connected> {
    let hub = Hub::open(runs, None)?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let listen = Listen { address, tls: None, proxy: None, login: false };
    let programs = vec![env::current_exe()?];
    let daemon = Daemon::start(
        hub,
        DaemonOptions {
            listen,
            slots,
            log_retention_days: None,
            programs,
            routes: None,
            platform: None,
        },
    )?;
    let client = HubClient::new(&format!("http://{}", daemon.address()), None)?;
    Ok(Connected { client, own: Some(daemon) })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn a_noted_address_has_a_scheme_or_is_of_an_older_release() {
        let address: SocketAddr = "127.0.0.1:7070".parse().expect("an address");
        for (text, scheme) in [
            ("https://127.0.0.1:7070", "https"),
            ("http://127.0.0.1:7070", "http"),
            ("127.0.0.1:7070", "http"),
        ] {
            assert_eq!(noted(text), Some((scheme, address)), "{text}");
        }
        assert_eq!(noted("https://"), None);
    }

    #[derive(clap::Subcommand)]
    enum Asked {
        List,
    }

    #[derive(Parser)]
    struct CommandLine {
        #[command(flatten)]
        args: HubCommand<Asked>,
    }

    #[test]
    fn the_folder_of_runs_is_named_before_or_behind_what_is_asked() {
        for (typed, expected) in [
            (&["experiment", "list", "--runs", "there"][..], "there"),
            (&["experiment", "--runs", "there", "list"], "there"),
            (&["experiment", "list"], "runs"),
        ] {
            let line = CommandLine::try_parse_from(typed).expect("arguments");
            assert!(matches!(line.args.command, Asked::List));
            assert_eq!(line.args.hub.runs, Path::new(expected), "{typed:?}");
        }
    }
}
