//! `salamander job ...`: the queue.

use std::process::ExitCode;

use anyhow::Result;
use salamander_hub::ExperimentId;
use salamander_hub::store::experiments::Experiment;
use salamander_hub::store::page::ListQuery;
use serde_json::json;

use super::connect::HubArgs;
use super::table::{ago, table};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    hub: HubArgs,
}

#[derive(clap::Subcommand)]
enum Command {
    /// List what runs and what waits, in the order of the queue
    List {
        /// Print JSON instead
        #[arg(long)]
        json: bool,
    },
    /// Change an experiment's place in the queue
    Update {
        /// The experiment's number
        id: ExperimentId,
        /// 1 (first) to 99; one that runs makes room for those before it
        #[arg(long)]
        priority: i64,
    },
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let connected = args.hub.connect()?;
    let client = &connected.client;
    match &args.command {
        Command::List { json } => {
            let query = ListQuery {
                state: Some(
                    "running,queued,pausing,paused,stopping_canceled,stopping_killed".into(),
                ),
                archived: Some(true),
                sort: Some("priority".to_string()),
                limit: Some(1000),
                ..ListQuery::default()
            };
            let page = client.experiments(&query)?;
            if *json {
                outln!("{}", json!(page.items))?;
                return Ok(ExitCode::SUCCESS);
            }
            let row = |e: &Experiment| {
                [
                    e.id.to_string(),
                    e.name.clone(),
                    e.state.clone(),
                    e.priority.to_string(),
                    format!("{} to {}", e.slots, e.max_slots),
                    ago(Some(e.created)),
                ]
            };
            let header = ["experiment", "name", "state", "priority", "slots", "created"];
            for line in table(header, page.items.iter().map(row).collect()) {
                outln!("{line}")?;
            }
        }
        Command::Update { id, priority } => {
            let experiment = client.change(*id, &json!({"priority": priority}))?;
            outln!("experiment {id}: priority {}", experiment.priority)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
