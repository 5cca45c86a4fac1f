//! `salamander model ...`: names and versions for trained models.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use salamander_core::words::count;
use salamander_hub::api::Lineage;
use salamander_hub::store::models::{ModelRow, ModelVersion};
use salamander_hub::{HubClient, RunId};
use serde_json::{Value, json};

use super::add;
use super::checkpoint;
use super::connect::{HubArgs, HubCommand};
use super::table::{ago, size, table};

/// The command, and the hub that it is asked of.
pub(crate) type Args = HubCommand<Command>;

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// Make a model, which has no version yet
    Create {
        /// Its name
        name: String,
        /// What it is for
        #[arg(long, default_value = "")]
        description: String,
        /// Print one JSON object instead
        #[arg(long)]
        json: bool,
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
    /// Make a checkpoint of any run a version of a model: one that is elsewhere is copied into the folder of runs
    Add(add::Args),
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
        /// Print one JSON object instead
        #[arg(long)]
        json: bool,
    },
    /// Give a model another name; its versions and aliases go along
    Move {
        /// The model
        name: String,
        /// The name that it is to have
        to: String,
        /// Print one JSON object instead
        #[arg(long)]
        json: bool,
    },
    /// Delete a model, or one version; the checkpoints stay
    Delete {
        /// The model
        name: String,
        /// Only this version
        #[arg(long)]
        version: Option<i64>,
        /// Print one JSON object instead
        #[arg(long)]
        json: bool,
    },
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    if let Command::Add(run) = &args.command {
        // Before there is a hub: one within this command looks at the folders once.
        add::run(run, &args.hub)?;
        return Ok(ExitCode::SUCCESS);
    }
    let connected = args.hub.connect()?;
    let client = &connected.client;
    match &args.command {
        Command::Add(_) => {}
        Command::Create { name, description, json } => {
            let body = json!({"name": name, "description": description});
            let made: ModelRow = client.post("api/v1/models", &body)?;
            match json {
                true => outln!("{}", json!(made))?,
                false => outln!("model {name}")?,
            }
        }
        Command::List { json } => list(&client.models()?, *json)?,
        Command::Describe { name, json } => describe(client, &client.model(name)?, *json)?,
        Command::Register { name, run, checkpoint, json } => {
            let checkpoint = which(client, *run, checkpoint)?;
            let version = client.register(name, *run, &checkpoint)?;
            match json {
                true => outln!("{}", json!(version))?,
                false => outln!("model {name}@{} is {checkpoint} of trial {run}", version.version)?,
            }
        }
        Command::Alias { name, alias, version, json } => {
            let model = client.alias_model(name, alias, *version)?;
            match (json, version) {
                (true, _) => outln!("{}", json!(model))?,
                (false, Some(version)) => outln!("{name}@{alias} is version {version}")?,
                (false, None) => outln!("{name} has no alias {alias} any more")?,
            }
        }
        Command::Move { name, to, json } => {
            let moved = client.move_model(name, to)?;
            match json {
                true => outln!("{}", json!(moved))?,
                false => outln!("model {name} is {} now", moved.name)?,
            }
        }
        Command::Delete { name, version, json } => {
            let deleted = client.delete_model(name, *version)?;
            match json {
                true => outln!("{deleted}")?,
                false => outln!("deleted")?,
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The name of a checkpoint that was asked for as best or latest.
pub(super) fn which(client: &HubClient, run: RunId, wanted: &str) -> Result<String> {
    match wanted {
        "best" | "latest" => Ok(checkpoint::chosen(client, run, wanted == "latest")?.name),
        name => Ok(name.to_string()),
    }
}

fn list(models: &[ModelRow], json: bool) -> Result<()> {
    if json {
        return Ok(outln!("{}", json!(models))?);
    }
    let row = |model: &ModelRow| {
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

fn describe(client: &HubClient, model: &ModelRow, json: bool) -> Result<()> {
    // Of a run that was deleted nothing is known any more.
    let lineage = |version: &ModelVersion| client.lineage(version.run.experiment()).ok();
    if json {
        let mut all = json!(model);
        for (place, version) in model.versions.iter().enumerate() {
            all["versions"][place]["lineage"] = json!(lineage(version));
        }
        return Ok(outln!("{all}")?);
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
    for version in &model.versions {
        let Some(made) = lineage(version) else { continue };
        outln!("version {} was trained by {}", version.version, program(&made))?;
        for line in data_lines(&made) {
            outln!("  {line}")?;
        }
    }
    Ok(())
}

/// The program, or the image, that an experiment was trained with.
pub(super) fn program(made: &Lineage) -> String {
    match (&made.image, &made.program) {
        (Some(image), _) => format!("image {image}"),
        (None, Some(program)) => {
            format!("{program} ({:.12})", made.program_hash.as_deref().unwrap_or("no hash"))
        }
        (None, None) => "a program that no hub started".to_string(),
    }
}

/// The data that it was trained with, a line for each part.
pub(super) fn data_lines(made: &Lineage) -> Vec<String> {
    let parts = made.data.as_object().into_iter().flatten();
    let line = |(name, part): (&String, &Value)| {
        let (files, bytes) = (part["files"].as_u64(), part["bytes"].as_i64());
        let print = part["fingerprint"].as_str().unwrap_or_default();
        let files = count(files.unwrap_or(0), "file");
        format!("{name} data {print:.12} ({files}, {})", size(bytes.unwrap_or(0)))
    };
    parts.map(line).collect()
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
    let connected = HubArgs { hub: None, runs: runs.to_path_buf() }.connect()?;
    let version = connected.client.model_version(reference)?;
    let folder = version
        .folder
        .with_context(|| format!("model:{reference}: the run that trained it is deleted"))?;
    let (folder, checkpoint) = (runs.join(folder), version.checkpoint);
    if !folder.is_dir() {
        let (run, folder) = (version.run, folder.display());
        bail!(
            "model:{reference} is checkpoint {checkpoint} of trial {run}, whose folder is not here ({folder}): name \
             the hub's folder of runs with --runs, or fetch it: salamander checkpoint download {run} {checkpoint}"
        );
    }
    Ok(FoundVersion { version: version.version, folder, checkpoint })
}
