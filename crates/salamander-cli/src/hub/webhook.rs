//! `salamander hub webhook ...`: who is told when experiments end.

use std::process::ExitCode;

use anyhow::Result;
use serde_json::json;

use super::connect::HubCommand;
use super::table::table;

/// The command, and the hub that it is asked of.
pub(super) type Args = HubCommand<Command>;

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// Tell an address of ends, as JSON that is signed like Standard Webhooks
    Add {
        /// The address
        url: String,
        /// Only of these ends, with commas between: completed, failed, canceled
        #[arg(long, value_name = "STATES", value_delimiter = ',')]
        on: Vec<String>,
        /// Print one JSON object instead
        #[arg(long)]
        json: bool,
    },
    /// List addresses, what they have not heard yet, and the secret that messages are signed with
    List {
        /// Print one JSON object instead
        #[arg(long)]
        json: bool,
    },
    /// Do not tell an address any more
    Remove {
        /// Its id, as `list` shows it
        id: String,
    },
}

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let connected = args.hub.connect()?;
    let client = &connected.client;
    match &args.command {
        Command::Add { url, on, json } => {
            let added = client.add_webhook(url, on)?;
            match json {
                true => outln!("{}", json!(added))?,
                false => {
                    outln!("webhook {}: {} on {}", added.id, added.url, added.states.join(", "))?
                }
            }
        }
        Command::List { json } => {
            let all = client.webhooks()?;
            if *json {
                outln!("{}", json!(all))?;
                return Ok(ExitCode::SUCCESS);
            }
            let rows = all.webhooks.iter().map(|hook| {
                let own = all.waiting.iter().filter(|waiting| waiting.webhook == hook.id);
                let error = own.clone().find_map(|waiting| waiting.error.clone());
                [
                    hook.id.clone(),
                    hook.url.clone(),
                    hook.states.join(","),
                    own.count().to_string(),
                    error.unwrap_or_else(|| "-".to_string()),
                ]
            });
            let header = ["id", "url", "on", "waiting", "error"];
            for line in table(header, rows.collect()) {
                outln!("{line}")?;
            }
            outln!("secret  {}", all.secret)?;
        }
        Command::Remove { id } => {
            client.remove_webhook(id)?;
            outln!("webhook {id} is removed")?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
