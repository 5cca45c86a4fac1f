//! What the master of asynchronous training is given by the program that knows the model.

use std::path::PathBuf;
use std::sync::Arc;

use super::Course;
use crate::asynchronous::{ServerCheckpoint, Settings};
use crate::callback::Callbacks;
use crate::elastic::Millis;
use crate::progress::Progress;

/// What the master leads by: workers lease names of micro-batches instead of being members.
pub struct LeasePlan {
    /// Names of micro-batches, and how far workers may run apart.
    pub settings: Settings,
    /// Others wait for a worker for so long before it is replaced.
    pub hang: Millis,
    /// The course of training, with nothing done,
    pub course: Course,
    /// and the file that it is kept in.
    pub file: PathBuf,
    /// The model's callbacks.
    pub callbacks: Callbacks,
    /// Parameters that are trained.
    pub parameters: u64,
    /// Batches of a validation; 0: there is none.
    pub validation_batches: u64,
    /// The file with the rows that the run begins with.
    pub initial: PathBuf,
    /// The folder of the run's checkpoints.
    pub checkpoints: PathBuf,
    /// Makes their folders.
    pub make_folder: MakeFolder,
}

/// Makes the folder of a checkpoint, on a thread of its own; returns its name, and where training stands in it.
pub type MakeFolder = Arc<dyn Fn(KeptRows) -> Result<(String, Progress), String> + Send + Sync>;

/// A checkpoint that counts: the servers' files, and where training stood.
#[derive(Clone, Debug)]
pub struct KeptRows {
    /// The checkpoint.
    pub checkpoint: ServerCheckpoint,
    /// A file of each server.
    pub files: Vec<PathBuf>,
    /// What was reported so far. Counts and ledger are read from the files.
    pub progress: Progress,
    /// The watched metric of this state, if it was just measured.
    pub watched: Option<f64>,
    /// Whether it is only to recover from.
    pub recovery: bool,
}
