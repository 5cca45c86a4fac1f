//! Reading a checkpoint: every checksum is verified before any value is believed.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use burn::tensor::TensorData;
use salamander_files::{Access, Disk, real};
use serde::Deserialize;

use super::{
    ASSET, EXPERIMENT, FORMAT, MANIFEST, MODEL, Manifest, OPTIMIZER, OptimizerStates, Restored,
    STATE, from_safetensors,
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
    /// What it holds; without what optimizers kept where it was read to be used.
    pub state: Restored,
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
    /// No optimizer, which has twice the weights or more.
    ToUse,
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

/// The manifest of the checkpoint at this place.
pub(crate) fn parse_manifest(path: &Path, text: &[u8]) -> Result<Manifest, Error> {
    let manifest: Manifest = serde_json::from_slice(text)
        .map_err(|error| Error::checkpoint(path, format!("its manifest is broken: {error}")))?;
    match manifest.format {
        FORMAT => Ok(manifest),
        other => Err(Error::checkpoint(path, format!("its format {other} is not known here"))),
    }
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
    let mut contents = HashMap::new();
    for (name, entry) in &manifest.files {
        let bytes = disk.read(&path.join(name));
        let bytes = bytes.map_err(|error| unfit(format!("{name}: {error}")))?;
        if bytes.len() as u64 != entry.bytes {
            let (found, expected) = (bytes.len(), entry.bytes);
            return Err(unfit(format!("{name} has {found} bytes instead of {expected}")));
        }
        if blake3::hash(&bytes).to_hex().as_str() != entry.blake3 {
            return Err(unfit(format!("{name}: its checksum is wrong")));
        }
        if parts == KeptParts::All || name != OPTIMIZER {
            contents.insert(name.as_str(), bytes);
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
        KeptParts::ToUse => decode_model(&mut contents).map(|(state, _)| state),
    };
    let state = state.map_err(unfit)?;
    let asset =
        |(name, bytes): (&str, Vec<u8>)| Some((name.strip_prefix(ASSET)?.to_string(), bytes));
    let assets = AssetFiles::stored(contents.into_iter().filter_map(asset));
    Ok(Checkpoint { path: path.to_path_buf(), manifest, state, experiment, assets })
}

/// The state in the files of a checkpoint.
pub(super) fn decode(contents: &mut HashMap<&str, Vec<u8>>) -> Result<Restored, String> {
    let (state, steps) = decode_model(contents)?;
    let slots = from_safetensors(&take(contents, OPTIMIZER)?)?;
    Ok(Restored { optimizers: unflatten(slots, &steps)?, ..state })
}

/// The state without what optimizers kept, and the steps of those.
fn decode_model(
    contents: &mut HashMap<&str, Vec<u8>>,
) -> Result<(Restored, BTreeMap<String, u64>), String> {
    let StateFile { progress, optimizer_steps } = serde_json::from_slice(&take(contents, STATE)?)
        .map_err(|error| format!("{STATE}: {error}"))?;
    let model = from_safetensors(&take(contents, MODEL)?)?.into_iter().collect();
    Ok((Restored { progress, model, optimizers: OptimizerStates::new() }, optimizer_steps))
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
