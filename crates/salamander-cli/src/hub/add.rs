//! `salamander model add`: a run that lies elsewhere, such as in a pipeline's artifact, becomes a version of a model.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use salamander_core::layout::{MANIFEST, NOT_COPIED};
use salamander_files::{Durability, PendingFolder};
use salamander_hub::store::models::{ModelRow, ModelVersion};
use salamander_hub::store::page::ListQuery;
use salamander_hub::{HubClient, RunId};
use salamander_run::{RunLayout, find};
use serde_json::{Value, json};

use super::connect::{Connected, HubArgs};
use super::model::which;

/// How long a hub may take to see a new folder, and another command to leave the hub of a folder.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(50);
/// Runs of a page.
const PAGE: usize = 1000;
/// Digits of a hash in the name of a folder.
const DIGITS: usize = 8;

/// Which run becomes a version of which model.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The run, by its folder or id, or `latest`
    run: String,
    /// The model; made if there is none of this name
    #[arg(long, value_name = "NAME")]
    model: String,
    /// The checkpoint: best, latest, or its name
    #[arg(long, default_value = "best")]
    checkpoint: String,
    /// A name for this version such as champion, which another one may have had
    #[arg(long, value_name = "NAME")]
    alias: Option<String>,
    /// Print one JSON object instead
    #[arg(long)]
    json: bool,
}

/// Brings the run to the hub's folder and registers it. Whoever asks again gets the version that there is.
pub(super) fn run(args: &Args, hub: &HubArgs) -> Result<()> {
    let folder = bring(&RunLayout::new(find(&args.run, &hub.runs)?), &hub.runs)?;
    let version = asked(args, hub, &folder)?;
    if args.json {
        outln!("{version}")?;
        return Ok(());
    }
    let (name, number) = (&args.model, &version["version"]);
    let (checkpoint, run) = (text(&version["checkpoint"]), text(&version["run"]));
    outln!("model {name}@{number} is {checkpoint} of trial {run}, in {folder}")?;
    Ok(())
}

/// The version as a hub has it. One within another command may end in between: then another one is asked, and finds
/// what there is.
fn asked(args: &Args, hub: &HubArgs, folder: &str) -> Result<Value> {
    let begun = Instant::now();
    loop {
        let connected = connect(hub)?;
        match ask(&connected.client, args, folder) {
            Err(error)
                if hub.hub.is_none()
                    && connected.own.is_none()
                    && matches!(error.downcast_ref(), Some(salamander_hub::Error::Remote(_)))
                    && begun.elapsed() < PATIENCE =>
            {
                sleep(LOOK);
            }
            done => return done,
        }
    }
}

fn ask(client: &HubClient, args: &Args, folder: &str) -> Result<Value> {
    let run = seen(client, folder)?;
    let checkpoint = which(client, run, &args.checkpoint)?;
    let version = registered(client, &args.model, run, &checkpoint)?;
    if let Some(alias) = &args.alias {
        client.alias_model(&args.model, alias, Some(version.version))?;
    }
    let mut object = json!(client.model_version(&format!("{}@{}", args.model, version.version))?);
    object["model"] = json!(args.model);
    Ok(object)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The name of the run's folder below the hub's runs: there already, or copied, complete or not at all. It is named
/// by what was learned too, so that another run of the same second is another one.
fn bring(run: &RunLayout, runs: &Path) -> Result<String> {
    fs::create_dir_all(runs).with_context(|| runs.display().to_string())?;
    let whole = |path: &Path| fs::canonicalize(path).with_context(|| path.display().to_string());
    let (from, runs) = (whole(run.folder())?, whole(runs)?);
    let inside = from.strip_prefix(&runs).ok().and_then(Path::to_str);
    if let Some(inside) = inside
        && matches!(inside.split('/').collect::<Vec<_>>()[..], [_] | [_, "trials", _])
    {
        return Ok(inside.to_string());
    }
    let name = format!("{}-{}", name_of(&from), &learned(run)?[..DIGITS]);
    let to = runs.join(&name);
    if to.is_dir() {
        return Ok(name);
    }
    let beside = runs.join(format!(".{name}.new-{}", std::process::id()));
    let wrong = || format!("cannot copy {} to {}", from.display(), to.display());
    let pending = PendingFolder::create(beside).with_context(wrong)?;
    let copied = copy(&from, pending.path(), true).and_then(|()| {
        // By this a folder is known to be a run's; nobody ever holds it.
        fs::write(RunLayout::new(pending.path()).lock(), "")?;
        pending.commit(&to, Durability::Synced).map_err(Into::into)
    });
    if copied.is_err() {
        // Only a waste of room.
        let _ = fs::remove_dir_all(pending.path());
    }
    match copied {
        // Somebody has done the same meanwhile.
        Err(_) if to.is_dir() => Ok(name),
        copied => copied.with_context(wrong).map(|()| name),
    }
}

/// The name of a run's folder; a trial's is a number, so that its search comes before it.
fn name_of(folder: &Path) -> String {
    let name = |path: &Path| RunLayout::new(path).id();
    let trials = folder.parent().filter(|parent| parent.ends_with("trials"));
    match trials.and_then(Path::parent) {
        Some(search) => format!("{}-{}", name(search), name(folder)),
        None => name(folder),
    }
}

/// A hash of all checkpoints, by their manifests.
fn learned(run: &RunLayout) -> Result<String> {
    let place = run.checkpoints();
    let entries = fs::read_dir(&place).with_context(|| place.display().to_string())?;
    let mut manifests: Vec<PathBuf> =
        entries.flatten().map(|entry| entry.path().join(MANIFEST)).collect();
    manifests.retain(|path| path.is_file());
    manifests.sort();
    if manifests.is_empty() {
        bail!("{}: there is no checkpoint in it", run.folder().display());
    }
    let mut hasher = blake3::Hasher::new();
    for manifest in manifests {
        hasher.update(&fs::read(&manifest).with_context(|| manifest.display().to_string())?);
    }
    Ok(hasher.finalize().to_hex().to_string())
}

/// Copies what is in a folder; hidden files stay where they are.
fn copy(from: &Path, to: &Path, is_run: bool) -> Result<()> {
    for entry in fs::read_dir(from)? {
        let name = entry?.file_name();
        let left = is_run && NOT_COPIED.iter().any(|left| name == *left);
        if left || name.as_encoded_bytes().starts_with(b".") {
            continue;
        }
        let (source, target) = (from.join(&name), to.join(&name));
        if source.is_dir() {
            fs::create_dir(&target)?;
            copy(&source, &target, false)?;
        } else {
            fs::copy(&source, &target).with_context(|| source.display().to_string())?;
            File::open(&target)?.sync_all()?;
        }
    }
    Ok(())
}

/// A hub; where there is none for the folder, one at a time can be within a command.
fn connect(hub: &HubArgs) -> Result<Connected> {
    let begun = Instant::now();
    loop {
        match hub.connect() {
            Err(_) if hub.hub.is_none() && begun.elapsed() < PATIENCE => sleep(LOOK),
            connected => return connected,
        }
    }
}

/// The number that the hub gives to a folder, once it has seen the folder and its checkpoints.
fn seen(client: &HubClient, folder: &str) -> Result<RunId> {
    let begun = Instant::now();
    loop {
        if let Some(run) = run_in(client, folder)?
            && !client.checkpoints(run)?.is_empty()
        {
            return Ok(run);
        }
        if begun.elapsed() > PATIENCE {
            bail!("the hub does not see the run {folder}: is --runs the folder of its runs?");
        }
        sleep(LOOK);
    }
}

fn run_in(client: &HubClient, folder: &str) -> Result<Option<RunId>> {
    let mut query = ListQuery { limit: Some(PAGE), archived: Some(true), ..ListQuery::default() };
    loop {
        let page = client.runs(&query)?;
        if let Some(run) = page.items.iter().find(|run| run.folder == folder) {
            return Ok(Some(run.id));
        }
        match page.next {
            Some(next) => query.cursor = Some(next),
            None => return Ok(None),
        }
    }
}

/// The version that this checkpoint is, or becomes.
fn registered(
    client: &HubClient,
    name: &str,
    run: RunId,
    checkpoint: &str,
) -> Result<ModelVersion> {
    let known = |client: &HubClient| -> Result<Option<ModelRow>> {
        Ok(client.models()?.into_iter().find(|model| model.name == name))
    };
    let model = match known(client)? {
        Some(model) => model,
        None => {
            let made: Result<Value, _> =
                client.post("api/v1/models", &json!({"name": name, "description": ""}));
            match (known(client)?, made) {
                (Some(model), _) => model,
                (None, Err(error)) => return Err(error.into()),
                (None, Ok(_)) => bail!("the hub has not made the model {name}"),
            }
        }
    };
    let is_it = |version: &&ModelVersion| version.run == run && version.checkpoint == checkpoint;
    match model.versions.iter().find(is_it) {
        Some(version) => Ok(version.clone()),
        None => Ok(client.register(name, run, checkpoint)?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_copied_once_and_without_its_secrets() {
        let folder = tempfile::tempdir().expect("a folder");
        let (run, runs) = (folder.path().join("out/20261118-points"), folder.path().join("runs"));
        let layout = RunLayout::new(&run);
        let error = || bring(&layout, &runs).expect_err("nothing to bring").to_string();
        fs::create_dir_all(run.join("checkpoints")).expect("made");
        assert!(error().ends_with("there is no checkpoint in it"), "{}", error());
        fs::create_dir_all(run.join("checkpoints/step-1")).expect("made");
        for file in ["experiment.yaml", "token", "checkpoints/step-1/manifest.json", ".cache"] {
            fs::write(run.join(file), "x").expect("written");
        }
        let name = bring(&layout, &runs).expect("brought");
        assert!(name.starts_with("20261118-points-"), "{name}");
        let there = |file: &str| runs.join(&name).join(file).exists();
        assert!(there("experiment.yaml") && there("checkpoints/step-1/manifest.json"));
        assert!(there("run.lock") && !there("token") && !there(".cache"));
        assert_eq!(bring(&layout, &runs).expect("there"), name);
        assert_eq!(fs::read_dir(&runs).expect("a folder").count(), 1);
        assert_eq!(bring(&RunLayout::new(runs.join(&name)), &runs).expect("there"), name);
        fs::write(run.join("checkpoints/step-1/manifest.json"), "y").expect("written");
        assert_ne!(bring(&layout, &runs).expect("another one"), name);
        assert_eq!(name_of("runs/a-search/trials/00003".as_ref()), "a-search-00003");
    }
}
