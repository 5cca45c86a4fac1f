//! What a checkpoint says of itself, with a checksum of its own: a bit that flips in the name of a part that may be
//! absent would otherwise read as its absence, and a checkpoint without its rows as whole.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::FORMAT;
use crate::Error;
use crate::progress::StepCount;

/// What stands between a manifest and its checksum, which is the last thing in it.
const CHECKSUM: &str = ",\n  \"checksum\": \"";
/// What follows the checksum.
const END: &str = "\"\n}";

/// What a checkpoint says of itself; written last.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// The layout.
    pub format: u32,
    /// The folder's name.
    pub id: String,
    /// Optimizer steps done.
    pub steps: StepCount,
    /// The epoch of the next step.
    pub epoch: u64,
    /// The watched metric at this point, smaller being better.
    pub watched: Option<f64>,
    /// Slices of a batch: a run never changes it, since other slices add up to other bits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub micro_batches: Option<u32>,
    /// The hash of all parameters, running values, optimizer state and rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights_hash: Option<String>,
    /// Whether it is only to recover from: it goes when there are newer ones, whatever the policy.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub recovery: bool,
    /// Values of the last validation.
    #[serde(with = "salamander_core::metrics::numbers")]
    pub validation: BTreeMap<String, f64>,
    /// Size and checksum of each file.
    pub files: BTreeMap<String, FileEntry>,
    /// Files with the rows of tables and their sizes; they carry checksums of their own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tables: BTreeMap<String, u64>,
}

/// A file of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// Its size.
    pub bytes: u64,
    /// Its BLAKE3 hash.
    pub blake3: String,
}

impl Manifest {
    /// What is written. The checksum is that of the bytes before it, so that readers of any version can tell.
    pub(super) fn to_text(&self) -> Result<String, serde_json::Error> {
        let text = serde_json::to_string_pretty(self)?;
        let said = text.strip_suffix("\n}").unwrap_or(&text);
        Ok(format!("{said}{CHECKSUM}{}{END}", checksum(said)))
    }
}

/// The manifest of the checkpoint at this place; those of earlier releases have no checksum.
pub(crate) fn parse_manifest(path: &Path, text: &[u8]) -> Result<Manifest, Error> {
    let broken =
        |reason: String| Error::checkpoint(path, format!("its manifest is broken: {reason}"));
    let text = std::str::from_utf8(text).map_err(|error| broken(error.to_string()))?;
    if let Some((said, sum)) = text.rsplit_once(CHECKSUM)
        && sum.strip_suffix(END) != Some(checksum(said).as_str())
    {
        return Err(broken("its checksum is wrong".to_string()));
    }
    let manifest: Manifest =
        serde_json::from_str(text).map_err(|error| broken(error.to_string()))?;
    match manifest.format {
        FORMAT => Ok(manifest),
        other => Err(Error::checkpoint(path, format!("its format {other} is not known here"))),
    }
}

fn checksum(said: &str) -> String {
    blake3::hash(said.as_bytes()).to_hex().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        let entry = FileEntry { bytes: 3, blake3: checksum("abc") };
        Manifest {
            format: FORMAT,
            id: "step-00000002".to_string(),
            steps: StepCount(2),
            epoch: 1,
            watched: Some(0.5),
            micro_batches: Some(8),
            weights_hash: Some(checksum("weights")),
            recovery: true,
            validation: BTreeMap::from([
                ("loss".to_string(), 0.5),
                ("odd".to_string(), f64::INFINITY),
            ]),
            files: BTreeMap::from([("model.safetensors".to_string(), entry)]),
            tables: BTreeMap::from([("0.rows".to_string(), 7)]),
        }
    }

    fn read(text: &[u8]) -> Result<Manifest, Error> {
        parse_manifest(Path::new("here"), text)
    }

    #[test]
    fn any_flipped_bit_or_lost_end_of_a_manifest_is_found_or_changes_nothing() {
        let text = manifest().to_text().expect("JSON").into_bytes();
        assert_eq!(read(&text).expect("whole"), manifest());
        for at in 0..text.len() {
            for bit in 0..8 {
                let mut flipped = text.clone();
                flipped[at] ^= 1 << bit;
                let found = read(&flipped);
                assert!(found.is_err() || found.ok() == Some(manifest()), "byte {at}, bit {bit}");
            }
            assert!(read(&text[..at]).is_err(), "cut after {at}");
        }
    }

    #[test]
    fn manifests_without_a_checksum_are_read_still() {
        let old = serde_json::to_vec_pretty(&manifest()).expect("JSON");
        assert_eq!(read(&old).expect("whole"), manifest());
        // What later releases add is covered by the checksum, and left out here.
        let said = String::from_utf8(old).expect("text").replacen('{', "{\"later\": 1,", 1);
        let said = said.strip_suffix("\n}").expect("an object");
        let later = format!("{said}{CHECKSUM}{}{END}", checksum(said));
        assert_eq!(read(later.as_bytes()).expect("whole"), manifest());
        assert!(read(later.replacen("\"later\": 1", "\"later\": 2", 1).as_bytes()).is_err());
    }
}
