//! What a model's records are read with, made from the training data before any run.

use std::fs;
use std::path::{Path, PathBuf};

use salamander_files::{Durability, replace};
use salamander_train::example::{AssetSpec, fit};
use salamander_train::trainer::open_data;

use crate::experiment::{in_file, load};
use crate::{Error, Program};

/// Makes the statistics and vocabularies that an experiment's model reads its records with from the training data, and
/// puts them beside the experiment file. Returns the files; those that are there stay unless they are to be replaced.
pub fn fit_assets(program: &Program, file: &Path, replaced: bool) -> Result<Vec<PathBuf>, Error> {
    let experiment = load(file, &[])?;
    let wrong = |error| in_file(file, error);
    let model = program.models().find(experiment.model()).map_err(wrong)?;
    let folder = file.parent().unwrap_or(Path::new(""));
    let there = |spec: &&AssetSpec| spec.is_fitted() && folder.join(spec.file).exists();
    if let Some(spec) = model.assets().iter().find(there).filter(|_| !replaced) {
        let path = folder.join(spec.file);
        return Err(Error::Invalid(format!(
            "{} is there already: --force replaces it",
            path.display()
        )));
    }
    let data = &experiment.data;
    if data.stream {
        return Err(Error::Invalid(format!(
            "{}: data.stream: statistics and vocabularies need all records: make them from a finished folder",
            file.display()
        )));
    }
    let training = open_data("data.training", &data.training.0, data).map_err(wrong)?;
    let mut written = Vec::new();
    for (name, bytes) in fit(model.assets(), &training).map_err(wrong)? {
        let path = folder.join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(Error::io(parent))?;
        }
        replace(&path, &bytes, Durability::Unsynced).map_err(Error::io(&path))?;
        written.push(path);
    }
    Ok(written)
}
