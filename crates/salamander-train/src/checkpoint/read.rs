//! Reading a checkpoint: every checksum is verified before any value is believed.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use burn::tensor::TensorData;
use salamander_files::{Access, Disk, DiskFile, real};
use serde::Deserialize;

use super::tensor_file::hash_of;
use super::{
    ASSET, EXPERIMENT, FileEntry, MANIFEST, MODEL, Manifest, OPTIMIZER, OptimizerStates, Restored,
    STATE, TensorFile, from_safetensors, parse_manifest,
};
use crate::Error;
use crate::example::AssetFiles;
use crate::optimize::ParamState;
use crate::progress::Progress;

/// A checkpoint that was read and found intact.
#[derive(Debug)]
pub struct Checkpoint {
    /// Its folder.
    pub path: PathBuf,
    /// What it says of itself.
    pub manifest: Manifest,
    /// What it holds; where it was read to be used, without what optimizers kept and without
    /// [weights](Self::weights).
    pub state: Restored,
    /// Its weights, where it was read to be used: they are verified, and not in memory yet.
    pub weights: Option<TensorFile>,
    /// The configuration in force.
    pub experiment: String,
    /// What records are read with.
    pub assets: AssetFiles,
}

impl Checkpoint {
    /// The files with the rows of tables.
    pub fn table_files(&self) -> Vec<PathBuf> {
        self.manifest.tables.keys().map(|name| self.path.join(name)).collect()
    }
}

#[derive(Deserialize)]
struct StateFile {
    progress: Progress,
    optimizer_steps: BTreeMap<String, u64>,
}

/// What of a checkpoint is kept in memory; all of it is verified.
#[derive(Clone, Copy, PartialEq, Eq)]
enum KeptParts {
    All,
    /// No weights, which are read when there is a model for them, and no optimizer, which has twice the weights or
    /// more.
    ToUse,
}

impl KeptParts {
    fn has(self, name: &str) -> bool {
        self == Self::All || (name != MODEL && name != OPTIMIZER)
    }
}

/// Reads only what a checkpoint says of itself.
pub(crate) fn read_manifest(path: &Path) -> Result<Manifest, Error> {
    read_manifest_on(&*real(), path)
}

/// [`read_manifest`] on a given disk.
pub(super) fn read_manifest_on(disk: &dyn Disk, path: &Path) -> Result<Manifest, Error> {
    let file = path.join(MANIFEST);
    let text = disk.read(&file).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Error::checkpoint(path, "it has no manifest"),
        _ => Error::checkpoint(path, error),
    })?;
    parse_manifest(path, &text)
}

/// Reads and verifies a whole checkpoint.
pub(crate) fn read(path: &Path) -> Result<Checkpoint, Error> {
    read_on(&*real(), path)
}

/// [`read`] on a given disk.
pub(super) fn read_on(disk: &dyn Disk, path: &Path) -> Result<Checkpoint, Error> {
    read_parts(disk, path, KeptParts::All)
}

/// Reads what is needed to use a model, and verifies everything.
pub(super) fn read_to_use(path: &Path) -> Result<Checkpoint, Error> {
    read_parts(&*real(), path, KeptParts::ToUse)
}

fn read_parts(disk: &dyn Disk, path: &Path, parts: KeptParts) -> Result<Checkpoint, Error> {
    let manifest = read_manifest_on(disk, path)?;
    let unfit = |reason: String| Error::checkpoint(path, reason);
    let (mut contents, mut weights) = (HashMap::new(), None);
    for (name, entry) in &manifest.files {
        if parts.has(name) {
            let bytes = disk.read(&path.join(name));
            let bytes = bytes.map_err(|error| unfit(format!("{name}: {error}")))?;
            check(entry, bytes.len() as u64, || Ok(blake3::hash(&bytes)))
                .map_err(|reason| unfit(format!("{name}{reason}")))?;
            contents.insert(name.as_str(), bytes);
            continue;
        }
        let file = opened(disk, &path.join(name), entry);
        let file = file.map_err(|reason| unfit(format!("{name}{reason}")))?;
        if name == MODEL {
            let file = TensorFile::of(file).map_err(|reason| unfit(format!("{name}: {reason}")))?;
            weights = Some(file);
        }
    }
    for (name, bytes) in &manifest.tables {
        let file = disk.open(&path.join(name), Access::Read);
        let found = file.and_then(|file| file.length());
        if found.as_ref().ok() != Some(bytes) {
            return Err(unfit(format!("{name} has not the {bytes} bytes that were written")));
        }
    }
    let rows: Vec<PathBuf> = manifest.tables.keys().map(|name| path.join(name)).collect();
    salamander_ps::checkpoint::held_on(disk, &rows).map_err(|error| unfit(error.to_string()))?;
    let experiment = contents.remove(EXPERIMENT).unwrap_or_default();
    let experiment = String::from_utf8(experiment).map_err(|error| unfit(error.to_string()))?;
    let state = match parts {
        KeptParts::All => decode(&mut contents),
        KeptParts::ToUse => match &weights {
            Some(_) => decode_progress(&mut contents).map(|(state, _)| state),
            None => Err(format!("it has no {MODEL}")),
        },
    };
    let state = state.map_err(unfit)?;
    let asset =
        |(name, bytes): (&str, Vec<u8>)| Some((name.strip_prefix(ASSET)?.to_string(), bytes));
    let assets = AssetFiles::stored(contents.into_iter().filter_map(asset));
    Ok(Checkpoint { path: path.to_path_buf(), manifest, state, weights, experiment, assets })
}

/// A file that was found to be what was written, of which little was in memory at a time.
fn opened(disk: &dyn Disk, path: &Path, entry: &FileEntry) -> Result<Box<dyn DiskFile>, String> {
    let file = disk.open(path, Access::Read);
    let told = |error: std::io::Error| format!(": {error}");
    let file = file.map_err(told)?;
    let length = file.length().map_err(told)?;
    check(entry, length, || hash_of(&*file))?;
    Ok(file)
}

/// Whether a file of so many bytes and this hash is the one that was written; the hash only where it is asked for.
fn check(
    entry: &FileEntry,
    length: u64,
    hash: impl FnOnce() -> std::io::Result<blake3::Hash>,
) -> Result<(), String> {
    if length != entry.bytes {
        return Err(format!(" has {length} bytes instead of {}", entry.bytes));
    }
    match hash() {
        Ok(hash) if hash.to_hex().as_str() == entry.blake3 => Ok(()),
        Ok(_) => Err(": its checksum is wrong".to_string()),
        Err(error) => Err(format!(": {error}")),
    }
}

/// The state in the files of a checkpoint.
pub(super) fn decode(contents: &mut HashMap<&str, Vec<u8>>) -> Result<Restored, String> {
    let (state, steps) = decode_progress(contents)?;
    let model = from_safetensors(&take(contents, MODEL)?)?.into_iter().collect();
    let slots = from_safetensors(&take(contents, OPTIMIZER)?)?;
    Ok(Restored { model, optimizers: unflatten(slots, &steps)?, ..state })
}

/// Where training stood, and the steps of optimizers.
fn decode_progress(
    contents: &mut HashMap<&str, Vec<u8>>,
) -> Result<(Restored, BTreeMap<String, u64>), String> {
    let StateFile { progress, optimizer_steps } = serde_json::from_slice(&take(contents, STATE)?)
        .map_err(|error| format!("{STATE}: {error}"))?;
    let (model, optimizers) = (HashMap::new(), OptimizerStates::new());
    Ok((Restored { progress, model, optimizers }, optimizer_steps))
}

fn take(contents: &mut HashMap<&str, Vec<u8>>, name: &str) -> Result<Vec<u8>, String> {
    contents.remove(name).ok_or_else(|| format!("it has no {name}"))
}

fn unflatten(
    tensors: Vec<(String, TensorData)>,
    steps: &BTreeMap<String, u64>,
) -> Result<OptimizerStates, String> {
    let mut tensors: HashMap<String, TensorData> = tensors.into_iter().collect();
    let mut states = OptimizerStates::new();
    for (key, steps) in steps {
        let (pass, path) = key.split_once('/').ok_or_else(|| format!("{key} has no pass"))?;
        let mut slots = Vec::new();
        while let Some(data) = tensors.remove(&format!("{pass}/{}/{path}", slots.len())) {
            slots.push(data.try_into_vec::<f32>().map_err(|error| format!("{key}: {error:?}"))?);
        }
        let state = ParamState { steps: *steps, slots };
        states.entry(pass.to_string()).or_default().insert(path.to_string(), state);
    }
    Ok(states)
}
