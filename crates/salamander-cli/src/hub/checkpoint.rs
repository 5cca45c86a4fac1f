//! `salamander checkpoint ...`: what can be gone on from, evaluated and served.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use salamander_hub::store::checkpoints::Checkpoint;
use salamander_hub::{HubClient, RunId};
use serde_json::json;

use super::connect::HubCommand;
use super::gc;
use super::table::{ago, number, size, table};

/// The command, and the hub that it is asked of.
pub(crate) type Args = HubCommand<Command>;

#[derive(clap::Args)]
pub(crate) struct One {
    /// The trial, as EXPERIMENT.TRIAL
    run: RunId,
    /// The checkpoint's name, as `checkpoint list` shows it
    name: String,
}

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// List the checkpoints of a trial
    List {
        /// The trial, as EXPERIMENT.TRIAL
        run: RunId,
        /// Print JSON instead
        #[arg(long)]
        json: bool,
    },
    /// Show everything about one
    Describe {
        #[command(flatten)]
        one: One,
        /// Print one JSON object instead
        #[arg(long)]
        json: bool,
    },
    /// Fetch one
    Download {
        #[command(flatten)]
        one: One,
        /// The folder to put it into
        #[arg(long, value_name = "DIR", default_value = "checkpoints")]
        out: PathBuf,
        /// Print one JSON object instead
        #[arg(long)]
        json: bool,
    },
    /// Remove those that `checkpoint_storage` does not keep, of all experiments that are over
    Gc {
        #[command(flatten)]
        gc: gc::GcArgs,
        /// Print JSON instead
        #[arg(long)]
        json: bool,
    },
    /// Delete one; those that are versions of models stay
    Delete {
        #[command(flatten)]
        one: One,
        /// Print one JSON object instead
        #[arg(long)]
        json: bool,
    },
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let connected = args.hub.connect()?;
    let client = &connected.client;
    match &args.command {
        Command::List { run, json } => show(&client.checkpoints(*run)?, *json)?,
        Command::Describe { one, json } => {
            let checkpoint = find(client, one)?;
            if *json {
                outln!("{}", json!(checkpoint))?;
            } else {
                show(std::slice::from_ref(&checkpoint), false)?;
                outln!("weights   {}", checkpoint.weights_hash.as_deref().unwrap_or("-"))?;
                outln!("measured  {}", checkpoint.validation)?;
            }
        }
        Command::Download { one, out, json } => download(client, &find(client, one)?, out, *json)?,
        Command::Gc { gc, json } => gc::all(client, gc, *json)?,
        Command::Delete { one, json } => {
            client.delete_checkpoint(one.run, &one.name)?;
            let deleted = json!({"run": one.run, "checkpoint": one.name, "state": "deleted"});
            match json {
                true => outln!("{deleted}")?,
                false => outln!("checkpoint {} of trial {} is deleted", one.name, one.run)?,
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn find(client: &HubClient, one: &One) -> Result<Checkpoint> {
    let mut all = client.checkpoints(one.run)?;
    let place = all.iter().position(|checkpoint| checkpoint.name == one.name);
    let absent = || anyhow::anyhow!("trial {} has no checkpoint {:?}", one.run, one.name);
    place.map(|place| all.swap_remove(place)).ok_or_else(absent)
}

/// The best or the newest checkpoint of a trial.
pub(super) fn chosen(client: &HubClient, run: RunId, latest: bool) -> Result<Checkpoint> {
    let mut there = client.checkpoints(run)?;
    there.retain(|checkpoint| checkpoint.state == "completed");
    let score = |one: &Checkpoint| one.watched.unwrap_or(f64::INFINITY);
    let chosen = match latest {
        true => there.pop(),
        false => there.into_iter().min_by(|a, b| score(a).total_cmp(&score(b))),
    };
    chosen.with_context(|| format!("trial {run} has no checkpoint"))
}

/// Prints checkpoints.
pub(super) fn show(checkpoints: &[Checkpoint], json: bool) -> Result<()> {
    if json {
        return Ok(outln!("{}", json!(checkpoints))?);
    }
    let row = |checkpoint: &Checkpoint| {
        [
            checkpoint.run.to_string(),
            checkpoint.name.clone(),
            checkpoint.steps.to_string(),
            number(measured(checkpoint)),
            size(checkpoint.bytes),
            checkpoint.state.clone(),
            ago(Some(checkpoint.created)),
        ]
    };
    let header = ["trial", "checkpoint", "steps", "watched", "size", "state", "written"];
    for line in table(header, checkpoints.iter().map(row).collect()) {
        outln!("{line}")?;
    }
    Ok(())
}

/// The watched metric as it was measured: what a checkpoint keeps is negated where larger is better.
fn measured(checkpoint: &Checkpoint) -> Option<f64> {
    let watched = checkpoint.watched?;
    let values = || checkpoint.validation.as_object().into_iter().flatten();
    let is_there = |wanted: f64| values().any(|(_, value)| value.as_f64() == Some(wanted));
    Some(if !is_there(watched) && is_there(-watched) { -watched } else { watched })
}

/// Fetches a checkpoint, and prints where it is if JSON is wanted.
pub(super) fn download(
    client: &HubClient,
    checkpoint: &Checkpoint,
    out: &Path,
    json: bool,
) -> Result<()> {
    let folder = fetch(client, checkpoint, out)?;
    if json {
        let Checkpoint { run, name, .. } = checkpoint;
        outln!("{}", json!({"run": run, "checkpoint": name, "folder": folder}))?;
    }
    Ok(())
}

/// Fetches a checkpoint into a folder of its own, and says where it is.
pub(super) fn fetch(client: &HubClient, checkpoint: &Checkpoint, out: &Path) -> Result<PathBuf> {
    std::fs::create_dir_all(out)?;
    let folder = out.join(format!("{}-{}", checkpoint.run, checkpoint.name));
    let bytes = client.download(checkpoint.run, &checkpoint.name, &folder)?;
    errln!("{} ({})", folder.display(), size(bytes as i64));
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_accuracy_is_shown_as_it_was_measured() {
        let of = |watched: Option<f64>| Checkpoint {
            run: "1.1".parse().expect("a run"),
            name: "step-00000010".to_string(),
            steps: 10,
            epoch: 1,
            watched,
            recovery: false,
            weights_hash: None,
            bytes: 7,
            validation: json!({"accuracy": 0.75, "loss": 0.5}),
            state: "completed".to_string(),
            created: 0,
        };
        let shown =
            [Some(-0.75), Some(0.5), Some(0.25), None].map(|watched| measured(&of(watched)));
        assert_eq!(shown, [Some(0.75), Some(0.5), Some(0.25), None]);
    }
}
