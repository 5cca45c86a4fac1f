//! Where versions of a model come from: the checkpoints of a run, or an exported folder.

use std::fs;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use salamander_core::layout::{ExportLayout, RunLayout};
use salamander_serve::{Loaded, Source};
use salamander_train::checkpoint::{Store, Which};
use salamander_train::model::Models;
use salamander_train::threads;

use super::ModelToServe;
use super::asked::AskedModel;
use crate::trained::TrainedFiles;
use crate::{Error, Program};

/// A folder whose checkpoints are versions.
pub(super) struct CheckpointSource {
    models: Arc<Models>,
    model: ModelToServe,
    /// The model's name where it was trained.
    name: String,
    device: String,
    threads: usize,
    /// The most rows that are computed at once.
    rows: usize,
}

impl CheckpointSource {
    /// Looks whether there is something to serve; `(threads, rows)` are what its model may take.
    pub(super) fn new(
        program: &Program,
        model: &ModelToServe,
        device: &str,
        (threads, rows): (usize, usize),
    ) -> Result<Self, Error> {
        let models = program.models_shared();
        let found = TrainedFiles::open(&model.folder, &model.checkpoint, device, 0)?;
        let name = models.find(found.experiment.model())?.name().to_string();
        let (model, device) = (model.clone(), device.to_string());
        Ok(Self { models, model, name, device, threads, rows })
    }

    pub(super) fn model_name(&self) -> &str {
        &self.name
    }

    fn newest_version(&self) -> Result<String, Error> {
        let checkpoints = RunLayout::new(&self.model.folder).checkpoints();
        if !checkpoints.is_dir() {
            return self.exported_version();
        }
        let id = match &self.model.checkpoint {
            Which::Id(id) => return Ok(id.clone()),
            Which::Best => Store::best(&checkpoints)?,
            Which::Latest => None,
        };
        let newest = match id {
            Some(best) => Some(best),
            None => Store::list(&checkpoints)?.pop(),
        };
        let none = || Error::Invalid(format!("{} has no checkpoint", checkpoints.display()));
        newest.map(|manifest| manifest.id).ok_or_else(none)
    }

    /// Another one after another export.
    fn exported_version(&self) -> Result<String, Error> {
        let weights = ExportLayout::new(&self.model.folder).model();
        let about = fs::metadata(&weights).map_err(Error::io(&weights))?;
        let changed = about.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        Ok(format!("exported-{}", changed.unwrap_or_default().as_secs()))
    }

    fn open(&self, version: &str) -> Result<Loaded, Error> {
        let ModelToServe { folder, .. } = &self.model;
        let which = Which::Id(version.to_string());
        let found = TrainedFiles::open(folder, &which, &self.device, 0)?;
        let model = self.models.find(found.experiment.model())?;
        let files = found.trained().assets(model.assets())?;
        let names = (model.label_names(&files)?, model.class_names(&files)?);
        let instance = model.load(found.trained())?;
        AskedModel::new(instance, model.name(), names, self.rows).loaded()
    }
}

impl Source for CheckpointSource {
    fn newest(&self) -> Result<String, String> {
        self.newest_version().map_err(|error| error.to_string())
    }

    fn load(&self, version: &str) -> Result<Loaded, String> {
        threads::join(Some(self.threads));
        self.open(version).map_err(|error| error.to_string())
    }
}
