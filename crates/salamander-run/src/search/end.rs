//! How a search ended, as people and programs are told.

use std::path::{Path, PathBuf};

use salamander_core::layout::RunLayout;
use salamander_data::Format;
use salamander_search::{Search, Trial, TrialId};
use serde_json::{Value as Json, json};

use super::store::TrialStore;
use super::table::SearchTable;
use crate::Error;
use crate::output_file::{TRIAL_FORMATS, format_of};

/// How a search stands or ended.
pub struct SearchEnd {
    /// Its folder.
    pub layout: RunLayout,
    /// Whether it was stopped before its end; it can be resumed.
    pub interrupted: bool,
    /// How many seconds it has taken, pauses left out.
    pub seconds: f64,
    pub(super) search: Search,
}

impl SearchEnd {
    /// What the search has found.
    pub fn search(&self) -> &Search {
        &self.search
    }

    /// Whether it came to its end, with at least one trial that did not fail.
    pub fn is_completed(&self) -> bool {
        !self.interrupted && !self.search.has_failed()
    }

    /// The folder of a trial.
    pub fn trial_folder(&self, trial: TrialId) -> PathBuf {
        trial_layout(&self.layout, trial).folder().to_path_buf()
    }

    /// Writes all trials to a file that ends in `.parquet`, `.csv` or `.sqlite`, which is there completely or not at
    /// all.
    pub fn write_trials(&self, path: &Path) -> Result<(), Error> {
        match format_of(path, &TRIAL_FORMATS)? {
            Format::Sqlite => TrialStore::write(path, self),
            format => SearchTable::new(self).write(path, format),
        }
    }

    /// One object for programs.
    pub fn to_json(&self) -> Json {
        let state = match (self.interrupted, self.search.has_failed()) {
            (true, _) => "interrupted",
            (false, true) => "failed",
            (false, false) => "completed",
        };
        let trial = |trial: &Trial| {
            json!({
                "id": trial.id,
                "state": trial.state.as_str(),
                "hparams": trial.hparams(),
                "length": trial.length(),
                "metric": trial.metric().filter(|metric| metric.is_finite()),
                "reason": trial.reason,
                "dir": self.trial_folder(trial.id),
            })
        };
        json!({
            "experiment": self.layout.id(),
            "run": self.layout.id(),
            "dir": self.layout.folder(),
            "state": state,
            "metric": self.search.method().metric,
            "seconds": self.seconds,
            "trials": self.search.trials().iter().map(trial).collect::<Vec<Json>>(),
            "best": self.search.best().map(|(best, value)| json!({
                "id": best.id, "metric": value, "hparams": best.hparams(),
                "dir": self.trial_folder(best.id),
            })),
        })
    }
}

/// The run of a trial.
pub(super) fn trial_layout(search: &RunLayout, trial: TrialId) -> RunLayout {
    RunLayout::new(search.folder().join(trial_folder_name(trial)))
}

/// The folder of a trial within that of its search.
pub(super) fn trial_folder_name(trial: TrialId) -> String {
    let trials = RunLayout::new("").trials();
    trials.join(format!("{:05}", trial.0)).display().to_string()
}
