//! `salamander model ...`: names and versions for trained models.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use salamander_hub::store::models::Model;
use salamander_hub::{Client, RunId};
use serde_json::{Value, json};

use super::connect::HubArgs;
use super::table::{ago, table};
use crate::args::RunsFolder;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    hub: HubArgs,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Make a model, which has no version yet
    Create {
        /// Its name
        name: String,
        /// What it is for
        #[arg(long, default_value = "")]
        description: String,
    },
    /// List models
    List {
        /// Print JSON instead
        #[arg(long)]
        json: bool,
    },
    /// Show a model's versions, and where each comes from
    Describe {
        /// Its name
        name: String,
        /// Print one JSON object instead
        #[arg(long)]
        json: bool,
    },
    /// Make a checkpoint the next version of a model
    Register {
        /// The model
        name: String,
        /// The trial, as EXPERIMENT.TRIAL
        run: RunId,
        /// The checkpoint: best, latest, or its name
        #[arg(long, default_value = "best")]
        checkpoint: String,
        /// Print one JSON object instead
        #[arg(long)]
        json: bool,
    },
    /// Give a version a name such as champion, which another one may have had
    Alias {
        /// The model
        name: String,
        /// The alias
        alias: String,
        /// The version; without one the alias goes
        version: Option<i64>,
    },
    /// Delete a model, or one version; the checkpoints stay
    Delete {
        /// The model
        name: String,
        /// Only this version
        #[arg(long)]
        version: Option<i64>,
    },
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let connected = args.hub.connect()?;
    let client = &connected.client;
    match &args.command {
        Command::Create { name, description } => {
            let body = json!({"name": name, "description": description});
            let _: Model = client.post("api/v1/models", &body)?;
            outln!("model {name}")?;
        }
        Command::List { json } => list(&client.models()?, *json)?,
        Command::Describe { name, json } => describe(&client.model(name)?, *json)?,
        Command::Register { name, run, checkpoint, json } => {
            let checkpoint = which(client, *run, checkpoint)?;
            let version = client.register(name, *run, &checkpoint)?;
            match json {
                true => outln!("{}", json!(version))?,
                false => outln!("model {name}@{} is {checkpoint} of trial {run}", version.version)?,
            }
        }
        Command::Alias { name, alias, version } => {
            let body = json!({"alias": alias, "version": version});
            let _: Model = client.post(&format!("api/v1/models/{name}/aliases"), &body)?;
            match version {
                Some(version) => outln!("{name}@{alias} is version {version}")?,
                None => outln!("{name} has no alias {alias} any more")?,
            }
        }
        Command::Delete { name, version } => {
            let place = version.map_or(String::new(), |version| format!("/versions/{version}"));
            let _: Value = client.delete(&format!("api/v1/models/{name}{place}"))?;
            outln!("deleted")?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The name of a checkpoint that was asked for as best or latest.
fn which(client: &Client, run: RunId, wanted: &str) -> Result<String> {
    let all = client.checkpoints(run)?;
    let there = || all.iter().filter(|checkpoint| checkpoint.state == "completed");
    let score = |watched: Option<f64>| watched.unwrap_or(f64::INFINITY);
    let chosen = match wanted {
        "best" => there().min_by(|a, b| score(a.watched).total_cmp(&score(b.watched))),
        "latest" => there().next_back(),
        name => return Ok(name.to_string()),
    };
    Ok(chosen.with_context(|| format!("trial {run} has no checkpoint"))?.name.clone())
}

fn list(models: &[Model], json: bool) -> Result<()> {
    if json {
        return Ok(outln!("{}", json!(models))?);
    }
    let row = |model: &Model| {
        let aliases = model.versions.iter().flat_map(|version| {
            version.aliases.iter().map(|alias| format!("{alias}={}", version.version))
        });
        [
            model.name.clone(),
            model.versions.len().to_string(),
            aliases.collect::<Vec<_>>().join(", "),
            model.description.clone(),
            ago(Some(model.created)),
        ]
    };
    let header = ["model", "versions", "aliases", "description", "made"];
    for line in table(header, models.iter().map(row).collect()) {
        outln!("{line}")?;
    }
    Ok(())
}

fn describe(model: &Model, json: bool) -> Result<()> {
    if json {
        return Ok(outln!("{}", json!(model))?);
    }
    outln!("model {}: {}", model.name, model.description)?;
    let rows = model.versions.iter().map(|version| {
        [
            version.version.to_string(),
            version.aliases.join(", "),
            version.run.to_string(),
            version.checkpoint.clone(),
            version.folder.clone().unwrap_or_else(|| "deleted".to_string()),
            ago(Some(version.created)),
        ]
    });
    let header = ["version", "aliases", "trial", "checkpoint", "folder", "registered"];
    for line in table(header, rows.collect()) {
        outln!("{line}")?;
    }
    Ok(())
}

/// What `NAME@ALIAS` stands for.
pub(crate) struct FoundVersion {
    pub(crate) version: i64,
    pub(crate) folder: PathBuf,
    pub(crate) checkpoint: String,
}

/// The folder and the checkpoint that `NAME@ALIAS` stands for.
pub(crate) fn find(reference: &str, runs: &Path) -> Result<(PathBuf, String)> {
    find_version(reference, runs).map(|found| (found.folder, found.checkpoint))
}

/// The version that `NAME@ALIAS` stands for.
pub(crate) fn find_version(reference: &str, runs: &Path) -> Result<FoundVersion> {
    let folder = RunsFolder { runs: runs.to_path_buf() };
    let connected = HubArgs { hub: None, folder }.connect()?;
    let version = connected.client.model_version(reference)?;
    let folder = version
        .folder
        .with_context(|| format!("model:{reference}: the run that trained it is deleted"))?;
    let (folder, checkpoint) = (runs.join(folder), version.checkpoint);
    Ok(FoundVersion { version: version.version, folder, checkpoint })
}
