//! `salamander experiment create`: into the queue of a hub, or of one within this command.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use salamander_core::words::program_name;
use salamander_hub::{CreateRequest, ExperimentId, HubClient};

use super::connect::{HubArgs, start};
use super::follow::{Followed, follow, outcome, to_json, trials};
use crate::out::Out;
use crate::signals::Signals;

const LOOK: Duration = Duration::from_millis(100);

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The experiment file
    experiment: PathBuf,
    /// Change a field: --set hyperparameters.learning_rate=0.1
    #[arg(long = "set", value_name = "A.B=V")]
    sets: Vec<String>,
    /// A label; may be given several times
    #[arg(long = "label", value_name = "LABEL")]
    labels: Vec<String>,
    /// Its place in the queue, 1 (first) to 99 [default: 42]
    #[arg(long)]
    priority: Option<i64>,
    /// Let it wait until it is activated
    #[arg(long)]
    paused: bool,
    /// Do not wait for its end; needs a hub that stays
    #[arg(long)]
    detach: bool,
    /// Slots of the hub within this command, where there is no other
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096))]
    slots: u32,
    /// End with one line of JSON on standard output
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args, hub: &HubArgs) -> Result<ExitCode> {
    let path = &args.experiment;
    let config = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let file = fs::canonicalize(path).with_context(|| path.display().to_string())?;
    let base = file.parent().unwrap_or(Path::new("/")).to_string_lossy().into_owned();
    let request = CreateRequest {
        config,
        base: Some(base),
        sets: args.sets.clone(),
        labels: args.labels.clone(),
        priority: args.priority,
        paused: args.paused,
        ..CreateRequest::default()
    };
    let signals = Signals::install()?;
    let (client, own) = match hub.running()? {
        Some(client) => (client, None),
        None if args.detach || args.paused => {
            bail!(
                "no hub is there to keep the experiment: start `salamander hub`, or name one with --hub"
            )
        }
        None => {
            let connected = start(&hub.runs, args.slots)?;
            (connected.client, connected.own)
        }
    };
    let created = client.create(&request).with_context(|| path.display().to_string())?;
    let out = if args.json { Out::Stderr } else { Out::Stdout };
    out.line(&format!("experiment {} in {}", created.id, created.folder));
    if args.detach || args.paused {
        return shown(&client, created.id, args.json, false);
    }
    let followed = follow(&client, created.id, out, &signals);
    if own.is_none() {
        return match followed? {
            Followed::Over(_) => shown(&client, created.id, args.json, true),
            Followed::Left => {
                let wait = format!("salamander experiment wait {}", created.id);
                errln!("the hub goes on with it: `{wait}` waits again");
                Ok(ExitCode::from(signals.exit_code()))
            }
        };
    }
    if let Ok(Followed::Over(_)) = followed {
        return shown(&client, created.id, args.json, true);
    }
    // Nobody would look after it: it waits with a checkpoint.
    pause(&client, created.id);
    followed?;
    let folder = hub.runs.join(created.folder);
    errln!("paused; go on with: {} train --resume {}", program_name(), folder.display());
    Ok(ExitCode::from(signals.exit_code()))
}

/// Pauses an experiment, and returns when nothing of it runs.
fn pause(client: &HubClient, id: ExperimentId) {
    let mut experiment = client.act(id, "pause");
    while let Ok(there) = &experiment
        && matches!(there.state.as_str(), "running" | "pausing")
    {
        std::thread::sleep(LOOK);
        experiment = client.experiment(id);
    }
}

fn shown(client: &HubClient, id: ExperimentId, json: bool, is_over: bool) -> Result<ExitCode> {
    let experiment = client.experiment(id)?;
    if json {
        outln!("{}", to_json(&experiment, &trials(client, id)?))?;
    }
    if is_over { outcome(&experiment) } else { Ok(ExitCode::SUCCESS) }
}
