//! Trained weights, wherever they come from.

use std::path::Path;

use burn::tensor::Device;
use salamander_core::experiment::Experiment;

use crate::Error;
use crate::checkpoint::Checkpoint;
use crate::example::{AssetFiles, AssetSpec};

/// Trained weights and what they were trained with.
pub struct Trained<'a> {
    /// The experiment.
    pub experiment: &'a Experiment,
    /// The weights.
    pub weights: Weights<'a>,
    /// Where to compute.
    pub device: &'a Device,
    /// Rows of tables of so many bytes are kept in memory, and the others read from the checkpoint when they are asked
    /// for; all of them are in memory when absent.
    pub table_memory: Option<usize>,
}

impl Trained<'_> {
    /// The files that its examples were read with.
    pub fn assets(&self, specs: &[AssetSpec]) -> Result<AssetFiles, Error> {
        match self.weights {
            Weights::File(path) => AssetFiles::read(specs, path.parent().unwrap_or(Path::new(""))),
            Weights::Foreign(folder) => AssetFiles::find(specs, &[folder]),
            Weights::Checkpoint(checkpoint) => {
                let is_absent = |spec: &&AssetSpec| {
                    !spec.is_optional() && checkpoint.assets.get(spec.file).is_none()
                };
                match specs.iter().find(is_absent) {
                    None => Ok(checkpoint.assets.clone()),
                    Some(spec) => {
                        let reason = format!("it has no copy of {}, {}", spec.file, spec.purpose());
                        Err(Error::checkpoint(&checkpoint.path, reason))
                    }
                }
            }
        }
    }
}

/// Where weights come from.
pub enum Weights<'a> {
    /// A checkpoint of a run.
    Checkpoint(&'a Checkpoint),
    /// An exported file.
    File(&'a Path),
    /// A folder of another program, which the model itself reads: [`pretrained`](crate::trial::Trial::pretrained).
    Foreign(&'a Path),
}
