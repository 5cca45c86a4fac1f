//! Writing a checkpoint: beside, flushed, manifest last, renamed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use burn::tensor::TensorData;
use serde_json::json;

use salamander_files::{Access, Disk, Durability, PendingFolder, real, write_synced};

use super::tensors::to_safetensors;
use super::weights_hash::weights_hash;
use super::{
    ASSET, EXPERIMENT, FORMAT, FileEntry, MANIFEST, MODEL, Manifest, OPTIMIZER, OptimizerStates,
    STATE, Snapshot, read_manifest_on, read_on,
};
use crate::Error;
use crate::tables::Finish;

/// Writes a snapshot into the folder of checkpoints and returns its path.
pub(crate) fn write(
    folder: &Path,
    snapshot: &Snapshot,
    tables: Option<Finish>,
) -> Result<PathBuf, Error> {
    write_on(&real(), folder, snapshot, tables)
}

/// [`write`] on a given disk.
pub(super) fn write_on(
    disk: &Arc<dyn Disk>,
    folder: &Path,
    snapshot: &Snapshot,
    tables: Option<Finish>,
) -> Result<PathBuf, Error> {
    let id = &snapshot.id;
    let target = folder.join(id);
    // A resumed run comes by the same versions again, with the same content; a damaged one is written again.
    let is_same =
        |old: Manifest| (old.watched, old.recovery) == (snapshot.watched, snapshot.recovery);
    if read_manifest_on(&**disk, &target).is_ok_and(is_same) && read_on(&**disk, &target).is_ok() {
        // Whoever wrote it may have failed, or ended, before its name was on the disk.
        disk.sync_folder(folder).map_err(Error::io(folder))?;
        return Ok(target);
    }
    // Half a checkpoint is of no use, and on a full disk it takes the room of the next.
    let beside = folder.join(format!(".{id}.tmp"));
    let pending = PendingFolder::create_on(Arc::clone(disk), &beside);
    let pending = pending.map_err(Error::io(&beside))?;
    fill(&**disk, &beside, snapshot, tables)?;
    pending.replace(&target, Durability::Synced).map_err(Error::io(&target))?;
    Ok(target)
}

fn fill(
    disk: &dyn Disk,
    beside: &Path,
    snapshot: &Snapshot,
    tables: Option<Finish>,
) -> Result<(), Error> {
    let unfit = |reason: String| Error::checkpoint(beside, reason);
    let contents = contents(snapshot).map_err(unfit)?;
    let mut files = BTreeMap::new();
    let contents = contents.iter().map(|(name, bytes)| (name.to_string(), bytes.as_slice()));
    let assets = snapshot.assets.iter().map(|(name, bytes)| (format!("{ASSET}{name}"), bytes));
    for (name, bytes) in contents.chain(assets) {
        let path = beside.join(&name);
        write_synced(disk, &path, bytes).map_err(Error::io(&path))?;
        let blake3 = blake3::hash(bytes).to_hex().to_string();
        files.insert(name, FileEntry { bytes: bytes.len() as u64, blake3 });
    }
    let tables = tables.map_or(Ok(Vec::new()), |finish| finish(beside))?;
    let progress = &snapshot.progress;
    let manifest = Manifest {
        format: FORMAT,
        id: snapshot.id.clone(),
        steps: progress.steps,
        epoch: progress.epoch,
        watched: snapshot.watched,
        micro_batches: Some(snapshot.micro_batches),
        weights_hash: Some(weights_hash(disk, snapshot, &tables)?),
        recovery: snapshot.recovery,
        validation: progress.validation.as_ref().map(|m| m.values()).unwrap_or_default(),
        files,
        tables: sizes(disk, &tables)?,
    };
    let text = manifest.to_text().map_err(|error| unfit(error.to_string()))?;
    let path = beside.join(MANIFEST);
    write_synced(disk, &path, text.as_bytes()).map_err(Error::io(&path))?;
    disk.sync_folder(beside).map_err(Error::io(beside))
}

/// Names and sizes of files.
fn sizes(disk: &dyn Disk, paths: &[PathBuf]) -> Result<BTreeMap<String, u64>, Error> {
    let size = |path: &PathBuf| {
        let file = disk.open(path, Access::Read);
        let bytes = file.and_then(|file| file.length()).map_err(Error::io(path))?;
        Ok((path.file_name().unwrap_or_default().to_string_lossy().into_owned(), bytes))
    };
    paths.iter().map(size).collect()
}

/// The files of a checkpoint.
pub(super) fn contents(snapshot: &Snapshot) -> Result<[(&'static str, Vec<u8>); 4], String> {
    let (tensors, steps) = flatten(&snapshot.optimizers);
    let state = json!({"progress": snapshot.progress, "optimizer_steps": steps});
    Ok([
        (MODEL, to_safetensors(&snapshot.model)?),
        (OPTIMIZER, to_safetensors(&tensors)?),
        (STATE, state.to_string().into_bytes()),
        (EXPERIMENT, snapshot.experiment.clone().into_bytes()),
    ])
}

/// Optimizer state as named tensors (`pass/slot/path`) and step counts (`pass/path`).
fn flatten(states: &OptimizerStates) -> (Vec<(String, TensorData)>, BTreeMap<String, u64>) {
    let mut tensors = Vec::new();
    let mut steps = BTreeMap::new();
    for (pass, params) in states {
        let mut params: Vec<_> = params.iter().collect();
        params.sort_by_key(|(path, _)| *path);
        for (path, state) in params {
            steps.insert(format!("{pass}/{path}"), state.steps);
            for (slot, values) in state.slots.iter().enumerate() {
                let data = TensorData::new(values.clone(), [values.len()]);
                tensors.push((format!("{pass}/{slot}/{path}"), data));
            }
        }
    }
    (tensors, steps)
}

#[cfg(test)]
#[path = "disk_simulation.rs"]
mod simulation;
