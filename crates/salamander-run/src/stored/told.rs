//! The small files of runs in their stores: what a hub shows of them. They are put when a run ends or pauses, and
//! brought back where its folder was lost.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use salamander_core::experiment::CheckpointStorage;
use salamander_core::layout::{COUNTED, EXPERIMENT, MANIFEST, METRICS, RunLayout, TOLD, TRIALS};
use salamander_data::Bucket;
use salamander_net::Token;
use salamander_train::checkpoint::RemoteCheckpoints;

use super::write;
use crate::Error;
use salamander_files::{Durability, PendingFolder};

/// When each of them was written, in milliseconds since 1970: whoever lists runs sorts them by it.
const TIMES: &str = "times.json";
/// The logs, among the others.
const LOGS: &str = "logs";

type Times = BTreeMap<String, u64>;

/// Puts the files of a run or of a search that has ended or paused, where it has a store; a note says what went wrong.
pub(crate) fn keep(run: &RunLayout, storage: &CheckpointStorage) -> Option<String> {
    let kept = RemoteCheckpoints::of_run(storage, run.folder())
        .map_err(Error::from)
        .and_then(|remote| remote.map_or(Ok(()), |remote| keep_in(run, &remote)));
    let url = storage.store.as_deref().unwrap_or_default();
    kept.err().map(|error| format!("{url} does not have all files of {}: {error}", run.id()))
}

fn keep_in(run: &RunLayout, remote: &RemoteCheckpoints) -> Result<(), Error> {
    let mut names: Vec<String> = TOLD.iter().map(|(name, _)| name.to_string()).collect();
    let logs = fs::read_dir(run.logs()).into_iter().flatten().flatten();
    names.extend(logs.map(|log| format!("{LOGS}/{}", log.file_name().to_string_lossy())));
    let mut times = Times::new();
    for name in names {
        if let Some(time) = written(&run.file(&name)) {
            remote.put(run.folder(), &name)?;
            times.insert(name, time);
        }
    }
    for manifest in remote.counting()? {
        let path = run.checkpoints().join(&manifest.id).join(MANIFEST);
        times.extend(written(&path).map(|time| (manifest.id, time)));
    }
    Ok(remote.put_bytes(TIMES, serde_json::to_vec(&times).unwrap_or_default())?)
}

/// Brings the runs of a store that are not below `runs`, searches with all their trials. Gives their names.
pub fn bring_runs(
    url: &str,
    runs: &Path,
    note: &mut dyn FnMut(String),
) -> Result<Vec<String>, Error> {
    let mut brought = Vec::new();
    for name in Bucket::open(url)?.list("")?.folders {
        let folder = runs.join(&name);
        if folder.is_dir() || name.starts_with('.') {
            continue;
        }
        let beside = runs.join(format!(".brought-{:.8}", Token::random()?.to_hex()));
        let pending = PendingFolder::create(beside).map_err(Error::io(runs))?;
        let layout = RunLayout::new(pending.path());
        let is_run = bring_one(url, &name, &layout, note)?;
        let trials = Bucket::open(&format!("{}/{name}/{TRIALS}", url.trim_end_matches('/')))?;
        let trials = trials.list("")?.folders;
        for trial in &trials {
            let layout = RunLayout::new(layout.trials().join(trial));
            bring_one(url, &format!("{name}/{TRIALS}/{trial}"), &layout, note)?;
        }
        if is_run || layout.search().is_file() {
            pending.commit(&folder, Durability::Synced).map_err(Error::io(&folder))?;
            brought.push(name);
        }
    }
    Ok(brought)
}

/// Brings one run, or the files of a search; false if it is neither.
fn bring_one(
    url: &str,
    name: &str,
    run: &RunLayout,
    note: &mut dyn FnMut(String),
) -> Result<bool, Error> {
    let remote = RemoteCheckpoints::open(url, name)?;
    let times: Times = match remote.get(TIMES)? {
        Some(bytes) => serde_json::from_slice(&bytes).unwrap_or_default(),
        // One that was killed before it ended has put only what is needed to go on.
        None => [EXPERIMENT, METRICS].map(|name| (name.to_string(), 0)).into(),
    };
    fs::create_dir_all(run.checkpoints()).map_err(Error::io(&run.checkpoints()))?;
    fs::create_dir_all(run.logs()).map_err(Error::io(&run.logs()))?;
    for (name, time) in times.iter().filter(|(name, _)| !name.starts_with("step-")) {
        if let Some(bytes) = remote.get(name)? {
            write(&run.file(name), &bytes)?;
            set_written(&run.file(name), *time)?;
        }
    }
    if !run.experiment().is_file() {
        return Ok(false);
    }
    for manifest in remote.counting()? {
        if let Err(error) = remote.download(&manifest.id, &run.checkpoints()) {
            note(format!("warning: {error}"));
            continue;
        }
        let path = run.checkpoints().join(&manifest.id).join(MANIFEST);
        set_written(&path, times.get(&manifest.id).copied().unwrap_or(0))?;
    }
    if let Some(counted) = remote.get(COUNTED)? {
        write(&run.counted(), &counted)?;
    }
    // By this a folder is known to be a run's; nobody holds it.
    write(&run.lock(), b"")?;
    Ok(true)
}

/// When a file was written.
fn written(path: &Path) -> Option<u64> {
    let time = fs::metadata(path).ok()?.modified().ok()?;
    Some(time.duration_since(UNIX_EPOCH).ok()?.as_millis() as u64)
}

/// Gives a file the time that it had; 0: that is not known.
fn set_written(path: &Path, time: u64) -> Result<(), Error> {
    if time == 0 {
        return Ok(());
    }
    let time: SystemTime = UNIX_EPOCH + Duration::from_millis(time);
    let file = File::options().write(true).open(path).map_err(Error::io(path))?;
    file.set_modified(time).map_err(Error::io(path))
}
