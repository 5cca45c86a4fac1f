//! A trained model that was loaded: what it is asked for.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::Instance;
use crate::context::Context;
use crate::evaluate::{AfterBatch, BatchRange, EvaluationPart, evaluate_part};
use crate::example::Example;
use crate::inference::{Answers, ExampleDecoder, Examples, NotAnswered, RecordDecoder, infer};
use crate::predict::{TakePredictions, predict_part};
use crate::tables::{self, Tables};
use crate::trial::{BuildError, Trial};
use crate::{Error, weights};

/// A model with its weights.
pub(super) struct LoadedModel<T: Trial> {
    pub(super) model: T,
    /// The same without what a backward pass needs, made when it is first asked.
    pub(super) asked: OnceCell<T>,
    pub(super) tables: Tables,
    /// Counts look-ups of ids that no row has.
    pub(super) unknown: Option<Arc<AtomicU64>>,
    /// The checkpoint's files with rows.
    pub(super) files: Vec<PathBuf>,
    /// What it was built from.
    pub(super) cx: Context<T::Hparams>,
}

/// Where an exported model has its rows.
pub(super) fn rows_beside(weights: &Path) -> PathBuf {
    weights.with_file_name("tables")
}

impl<T: Trial> Instance for LoadedModel<T> {
    fn evaluate(
        &self,
        part: BatchRange<'_>,
        each: &mut AfterBatch<'_>,
    ) -> Result<EvaluationPart, Error> {
        let found = evaluate_part(&self.model, &self.cx.assets, part, each)?;
        self.tables.check().map(|()| found)
    }

    fn predict(&self, part: BatchRange<'_>, each: &mut TakePredictions<'_>) -> Result<u64, Error> {
        let skipped = predict_part(&self.model, &self.cx.assets, part, each)?;
        self.tables.check().map(|()| skipped)
    }

    fn label_names(&self) -> Vec<String> {
        T::Example::class_names(&self.cx.assets)
    }

    fn class_names(&self) -> Vec<String> {
        let said = T::class_names();
        if said.is_empty() { self.label_names() } else { said }
    }

    fn decoder(&self) -> Arc<dyn RecordDecoder> {
        Arc::new(ExampleDecoder::<T::Example>::new(self.cx.assets.clone()))
    }

    fn infer(&self, examples: Vec<Examples>, most: usize) -> Result<Answers, Box<NotAnswered>> {
        let model = self.asked.get_or_init(|| self.model.valid());
        let answers = infer(model, &self.cx.assets, examples, most)?;
        let gone = |error| NotAnswered { error, examples: Vec::new() }.into();
        self.tables.check().map(|()| answers).map_err(gone)
    }

    fn unknown_ids(&self) -> Option<Arc<AtomicU64>> {
        self.unknown.clone()
    }

    fn export(&self, path: &Path) -> Result<(), Error> {
        self.cx.assets.files().write(path.parent().unwrap_or(Path::new("")))?;
        tables::export(&self.files, &rows_beside(path))?;
        weights::save(&self.model, path)
    }

    fn export_as(&self, format: &str, folder: &Path) -> Result<(), Error> {
        let wrong = |error: BuildError| Error::model::<T>(format!("export as {format}: {error}"));
        self.model.export(format, &self.cx, folder).map_err(wrong)
    }
}
