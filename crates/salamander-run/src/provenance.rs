//! What a run was made from besides its experiment file: a fingerprint of its data, so that a model can be traced back
//! to what it has learned from, and the image of a job.
//!
//! The fingerprint is that of contents, not of places: the same files elsewhere have the same one. Small files count
//! whole; of large ones their size and stretches from the first byte to the last. An object of a store counts by its
//! version.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use salamander_core::experiment::Experiment;
use salamander_core::layout::RunLayout;
use salamander_data::{Blob, Format, files};
use salamander_files::{Durability, replace};
use serde::{Deserialize, Serialize};

use crate::Error;

/// Files up to this size count whole.
const WHOLE: u64 = 8 << 20;
/// Of larger ones so many stretches of this length, the first and the last among them.
const STRETCHES: u64 = 32;
const STRETCH: u64 = 64 << 10;

/// What a run was made from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Provenance {
    /// The image with the program, of a run that trains as a job of a cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) image: Option<String>,
    /// `training` and `validation`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) data: BTreeMap<String, DataFingerprint>,
}

/// Some data, in short.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DataFingerprint {
    files: u64,
    bytes: u64,
    fingerprint: String,
}

impl Provenance {
    /// Of an experiment whose data is seen from here.
    pub(crate) fn of(experiment: &Experiment) -> Result<Self, Error> {
        let data = &experiment.data;
        let format = data.format.as_deref().and_then(|name| name.parse::<Format>().ok());
        let named = [("training", &data.training.0), ("validation", &data.validation.0)];
        let mut found = Self::default();
        for (name, paths) in named.into_iter().filter(|(_, paths)| !paths.is_empty()) {
            // What is still being written has no content yet.
            if data.stream && name == "training" {
                continue;
            }
            let paths: Vec<PathBuf> = paths.iter().map(PathBuf::from).collect();
            let print = DataFingerprint::of(&files(&paths, format)?)?;
            found.data.insert(name.to_string(), print);
        }
        Ok(found)
    }

    /// Writes it into a run's folder, where it is not known yet.
    pub(crate) fn note(run: &RunLayout, make: impl FnOnce() -> Result<Self, Error>) {
        let path = run.provenance();
        if path.exists() {
            return;
        }
        let text = make().map(|made| serde_json::to_vec_pretty(&made).unwrap_or_default());
        let written = text
            .and_then(|text| replace(&path, &text, Durability::Unsynced).map_err(Error::io(&path)));
        if let Err(error) = written {
            // Only for people who look: data that cannot be read is told by whoever trains on it.
            tracing::warn!(%error, "what the run is made from is not written down");
        }
    }

    /// Copies that of a search to one of its trials.
    pub(crate) fn inherit(from: &RunLayout, to: &RunLayout) {
        if !to.provenance().exists() {
            // One without it says less, and trains as well.
            let _ = fs::copy(from.provenance(), to.provenance());
        }
    }
}

impl DataFingerprint {
    fn of(files: &[PathBuf]) -> Result<Self, Error> {
        let mut hasher = blake3::Hasher::new();
        let mut bytes = 0;
        for file in files {
            let size = add(&mut hasher, file)?;
            bytes += size;
        }
        let fingerprint = format!("{:.32}", hasher.finalize().to_hex());
        Ok(Self { files: files.len() as u64, bytes, fingerprint })
    }
}

/// Adds a file, or all files of a folder that is one data set; gives its size.
fn add(hasher: &mut blake3::Hasher, file: &Path) -> Result<u64, Error> {
    if file.is_dir() {
        let entries = fs::read_dir(file).map_err(Error::io(file))?;
        let mut within: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        within.sort();
        return within.iter().map(|path| add(hasher, path)).sum();
    }
    let blob = Blob::open(file)?;
    let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let size = blob.size();
    hasher.update(&(name.len() as u64).to_le_bytes()).update(name.as_bytes());
    hasher.update(&size.to_le_bytes());
    if file.to_string_lossy().contains("://") {
        hasher.update(blob.version().as_bytes());
        return Ok(size);
    }
    let handle = blob.handle()?;
    let mut stretch = |from: u64, length: u64| {
        let mut buffer = vec![0; length as usize];
        handle.read_exact_at(&mut buffer, from).map_err(Error::io(file))?;
        hasher.update(&buffer);
        Ok::<(), Error>(())
    };
    match size <= WHOLE {
        true => stretch(0, size)?,
        false => {
            let last = size - STRETCH;
            (0..STRETCHES).try_for_each(|n| stretch(last / (STRETCHES - 1) * n, STRETCH))?;
            stretch(last, STRETCH)?;
        }
    }
    Ok(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_contents_have_the_same_fingerprint_wherever_they_are() {
        let folder = tempfile::tempdir().expect("a folder");
        let print = |place: &str, bytes: &[u8]| {
            let path = folder.path().join(place);
            fs::create_dir_all(path.parent().expect("a parent")).expect("made");
            fs::write(&path, bytes).expect("written");
            DataFingerprint::of(&[path]).expect("read")
        };
        let one = print("a/points.csv", b"x,y\n1,2\n");
        assert_eq!((one.files, one.bytes), (1, 8));
        assert_eq!(one, print("b/points.csv", b"x,y\n1,2\n"));
        assert_ne!(one.fingerprint, print("b/points.csv", b"x,y\n1,3\n").fingerprint);
        let mut large = vec![7; 20 << 20];
        let before = print("a/large.csv", &large);
        *large.last_mut().expect("bytes") = 8;
        assert_ne!(before.fingerprint, print("a/large.csv", &large).fingerprint);
    }

    #[test]
    fn what_is_known_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let run = RunLayout::new(folder.path());
        let image =
            |name: &str| Provenance { image: Some(name.to_string()), ..Provenance::default() };
        Provenance::note(&run, || Ok(image("first")));
        Provenance::note(&run, || Ok(image("second")));
        let text = fs::read_to_string(run.provenance()).expect("there");
        assert!(text.contains("first"), "{text}");
    }
}
