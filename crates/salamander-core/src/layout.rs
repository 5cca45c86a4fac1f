//! The names of a run's files, each written once: `runs/<id>/` and an exported model.
//!
//! ```
//! use salamander_core::layout::RunLayout;
//!
//! let run = RunLayout::new("runs/mnist-1");
//! assert_eq!(run.experiment(), std::path::Path::new("runs/mnist-1/experiment.yaml"));
//! ```

use std::path::{Path, PathBuf};

/// The experiment in force, of a run, a checkpoint and an exported model.
pub const EXPERIMENT: &str = "experiment.yaml";
/// Trained weights, of a checkpoint and an exported model; names are module paths.
pub const MODEL: &str = "model.safetensors";
/// The master's journal.
pub const JOURNAL: &str = "journal";
/// Steps and validations, one JSON object per line.
pub const METRICS: &str = "metrics.jsonl";
/// The state of asynchronous training that its master keeps.
pub const BOOKS: &str = "books.json";
/// The folder of checkpoints, and the list of those that count within it.
pub const CHECKPOINTS: &str = "checkpoints";
/// Checkpoints that the master has journaled, one id per line.
pub const COUNTED: &str = "counted";

/// A run's folder, by the names of what is in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunLayout {
    folder: PathBuf,
}

impl RunLayout {
    /// The layout of a folder, which need not be there.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The run's id: the folder's name.
    pub fn id(&self) -> String {
        self.folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// A file by its name in the folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The experiment in force.
    pub fn experiment(&self) -> PathBuf {
        self.file(EXPERIMENT)
    }

    /// Held by the process that trains here, and has its number.
    pub fn lock(&self) -> PathBuf {
        self.file("run.lock")
    }

    /// The secret of the run's connections.
    pub fn token(&self) -> PathBuf {
        self.file("token")
    }

    /// The folder of certificates, for runs on several hosts.
    pub fn certificates(&self) -> PathBuf {
        self.file("tls")
    }

    /// Where the master listens.
    pub fn master_address(&self) -> PathBuf {
        self.file("master.address")
    }

    /// The master's journal.
    pub fn journal(&self) -> PathBuf {
        self.file(JOURNAL)
    }

    /// Which report the master took last.
    pub fn reported(&self) -> PathBuf {
        self.file("reported")
    }

    /// How long the run will be, as its start was told.
    pub fn plan(&self) -> PathBuf {
        self.file("plan.json")
    }

    /// Steps and validations, one JSON object per line.
    pub fn metrics(&self) -> PathBuf {
        self.file(METRICS)
    }

    /// The state of asynchronous training.
    pub fn books(&self) -> PathBuf {
        self.file(BOOKS)
    }

    /// How training ended, as its workers tell it.
    pub fn end(&self) -> PathBuf {
        self.file("end.json")
    }

    /// How the run ended, as people and programs are told.
    pub fn summary(&self) -> PathBuf {
        self.file("summary.json")
    }

    /// How good a classifier is, by class.
    pub fn report(&self) -> PathBuf {
        self.file("report.json")
    }

    /// Which classes are taken for which, as a picture.
    pub fn confusion(&self) -> PathBuf {
        self.file("confusion.svg")
    }

    /// Where each worker's time went.
    pub fn stats(&self) -> PathBuf {
        self.file("stats.csv")
    }

    /// The folder of logs.
    pub fn logs(&self) -> PathBuf {
        self.file("logs")
    }

    /// The log of a process, such as `worker-0`.
    pub fn log(&self, process: &str) -> PathBuf {
        self.logs().join(format!("{process}.log"))
    }

    /// The folder of checkpoints.
    pub fn checkpoints(&self) -> PathBuf {
        self.file(CHECKPOINTS)
    }

    /// The checkpoints that count.
    pub fn counted(&self) -> PathBuf {
        self.checkpoints().join(COUNTED)
    }

    /// What the tasks of an evaluation or a prediction are, in their own folder within the run's.
    pub fn job(&self) -> PathBuf {
        self.file("job.json")
    }
}

/// The folder of an exported model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportLayout {
    folder: PathBuf,
}

impl ExportLayout {
    /// The layout of a folder, which need not be there.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// The weights.
    pub fn model(&self) -> PathBuf {
        self.folder.join(MODEL)
    }

    /// The experiment that they were trained by.
    pub fn experiment(&self) -> PathBuf {
        self.folder.join(EXPERIMENT)
    }
}
