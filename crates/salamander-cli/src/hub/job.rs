//! `salamander job ...`: the queue.

use std::process::ExitCode;

use anyhow::Result;
use salamander_core::experiment::Budget;
use salamander_hub::store::experiments::Experiment;
use salamander_hub::store::limits::Usage;
use salamander_hub::store::page::ListQuery;
use salamander_hub::{ExperimentId, HubClient};
use serde_json::json;

use super::connect::HubCommand;
use super::table::{ago, table};

/// The command, and the hub that it is asked of.
pub(crate) type Args = HubCommand<Command>;

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// List what runs and what waits, in the order of the queue
    List {
        /// Print JSON instead
        #[arg(long)]
        json: bool,
    },
    /// Change an experiment's place in the queue, or its budget
    #[command(group(clap::ArgGroup::new("what").required(true).multiple(true)))]
    Update {
        /// The experiment's number
        id: ExperimentId,
        /// 1 (first) to 99; one that runs makes room for those before it
        #[arg(long, group = "what")]
        priority: Option<i64>,
        /// Hours that its process may run in all; `none` lifts the limit
        #[arg(long, group = "what", value_name = "HOURS", value_parser = hours)]
        hours: Option<Hours>,
        /// The same times its slots
        #[arg(long, group = "what", value_name = "HOURS", value_parser = hours)]
        slot_hours: Option<Hours>,
        /// Print one JSON object instead
        #[arg(long)]
        json: bool,
    },
}

/// A limit, or that there is none.
#[derive(Clone, Copy)]
pub(crate) struct Hours(Option<f64>);

fn hours(text: &str) -> Result<Hours, String> {
    match text {
        "none" => Ok(Hours(None)),
        text => match text.parse::<f64>() {
            Ok(hours) if hours.is_finite() && hours > 0.0 => Ok(Hours(Some(hours))),
            _ => Err("write hours above 0, or none".to_string()),
        },
    }
}

/// What an experiment has used of what it may.
pub(super) fn shown(usage: &Usage) -> String {
    let hours = |ms: i64| format!("{:.2}", ms as f64 / 3.6e6);
    let most = |ms: Option<i64>| ms.map_or(String::new(), |ms| format!(" of {}", hours(ms)));
    format!(
        "{}{} hours, {}{} slot hours used",
        hours(usage.used_ms),
        most(usage.allowance.max_ms),
        hours(usage.used_slot_ms),
        most(usage.allowance.max_slot_ms)
    )
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
        Command::Update { id, priority, hours, slot_hours, json } => {
            let update = JobUpdate { priority: *priority, hours: *hours, slot_hours: *slot_hours };
            update.make(client, *id, *json)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// What is to be changed of an experiment.
struct JobUpdate {
    priority: Option<i64>,
    hours: Option<Hours>,
    slot_hours: Option<Hours>,
}

impl JobUpdate {
    fn make(&self, client: &HubClient, id: ExperimentId, json: bool) -> Result<()> {
        let mut made = json!({"experiment": id});
        if let Some(priority) = self.priority {
            let experiment = client.change(id, &json!({"priority": priority}))?;
            made["priority"] = json!(experiment.priority);
            if !json {
                outln!("experiment {id}: priority {}", experiment.priority)?;
            }
        }
        if self.hours.is_some() || self.slot_hours.is_some() {
            let now = client.usage(id)?.allowance;
            let kept = |ms: Option<i64>| ms.map(|ms| ms as f64 / 3.6e6);
            let chosen = |new: &Option<Hours>, old| new.map_or(kept(old), |hours| hours.0);
            let budget = Budget {
                hours: chosen(&self.hours, now.max_ms),
                slot_hours: chosen(&self.slot_hours, now.max_slot_ms),
            };
            let usage = client.allow(id, &budget)?;
            made["usage"] = json!(usage);
            if !json {
                outln!("experiment {id}: {}", shown(&usage))?;
            }
        }
        if json {
            outln!("{made}")?;
        }
        Ok(())
    }
}
