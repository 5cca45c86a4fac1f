//! What ends a training, an evaluation or a prediction.

use std::path::{Path, PathBuf};

use salamander_core::hparams::InvalidHparams;
use salamander_core::yaml;

use crate::Trial;

/// An error of the training crate; each says what was wrong, where, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The data could not be read.
    #[error(transparent)]
    Data(#[from] salamander_data::Error),
    /// The rows of tables could not be used.
    #[error(transparent)]
    Rows(#[from] salamander_ps::Error),
    /// The experiment file is wrong.
    #[error("{0}")]
    Experiment(#[from] yaml::Error),
    /// Training cannot take the course that the experiment describes.
    #[error(transparent)]
    Course(#[from] salamander_core::course::Error),
    /// Something the user chose does not fit.
    #[error("{0}")]
    Invalid(String),
    /// The model did something that training cannot go on with.
    #[error("model {model}: {reason}")]
    Model {
        /// The model's name.
        model: &'static str,
        /// What it did.
        reason: String,
    },
    /// The model refuses its hyperparameters; in a search another trial takes the place of this one.
    #[error("model {model}: {cause}")]
    InvalidHparams {
        /// The model's name.
        model: &'static str,
        /// What does not fit; not an error's source, because the message has it already.
        cause: InvalidHparams,
    },
    /// A loss is not a number, or a gradient is not finite.
    #[error(
        "{what} at epoch {epoch}, step {step}: lower the learning rate, clip the \
         gradients, or look at the records with `salamander data peek EXPERIMENT --epoch {epoch} --step \
         {step}`, EXPERIMENT being the experiment.yaml in the run's folder"
    )]
    NotANumber {
        /// Which of them.
        what: &'static str,
        /// The epoch, from 0.
        epoch: u64,
        /// The step within it, from 0.
        step: u64,
    },
    /// Gradients overflow in the type that is computed in.
    #[error(transparent)]
    Overflow(#[from] salamander_core::loss_scale::Hopeless),
    /// A checkpoint cannot be used.
    #[error("checkpoint {}: {reason}", path.display())]
    Checkpoint {
        /// Its folder.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// The generation that this worker took part in is over; it goes on in the next one.
    #[error("the exchange broke off: {0}")]
    Broken(String),
    /// This worker has come to another state than the others, which none of them can have wanted.
    #[error("{0}")]
    Differs(String),
    /// The servers that hold the rows of tables cannot be reached; the run goes on when they can.
    #[error("the rows of tables cannot be reached: {0}")]
    Unreachable(String),
    /// A server could not write its part of a checkpoint; the one before stays in force.
    #[error("a parameter server could not write its part of a checkpoint: {0}")]
    NotWritten(String),
    /// A checkpoint is on disk, but not in the run's store.
    #[error("a checkpoint could not be put into the store: {0}")]
    NotStored(String),
    /// This worker was told to go, or the run is over; there is nothing wrong.
    #[error("this worker leaves the run")]
    Leaving,
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
}

impl Error {
    /// Whether any other worker would come to the same: what data or model does wrong by itself. Everything else is the
    /// trouble of one worker, whose place another takes.
    pub fn is_of_the_run(&self) -> bool {
        match self {
            Error::Data(error) => !matches!(error, salamander_data::Error::Io { .. }),
            Error::Experiment(_)
            | Error::Course(_)
            | Error::Invalid(_)
            | Error::Model { .. }
            | Error::InvalidHparams { .. }
            | Error::NotANumber { .. }
            | Error::Overflow(_) => true,
            Error::Rows(_)
            | Error::Checkpoint { .. }
            | Error::Differs(_)
            | Error::Broken(_)
            | Error::Unreachable(_)
            | Error::NotWritten(_)
            | Error::NotStored(_)
            | Error::Leaving
            | Error::Io { .. } => false,
        }
    }

    /// For `map_err` on the file operations of `path`.
    pub fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Error {
        let path = path.to_path_buf();
        move |source| Error::Io { path, source }
    }

    /// What a model did wrong.
    pub(crate) fn model<T: Trial>(reason: impl Into<String>) -> Error {
        Error::Model { model: T::NAME, reason: reason.into() }
    }

    /// A checkpoint that cannot be used.
    pub fn checkpoint(path: &Path, reason: impl ToString) -> Error {
        Error::Checkpoint { path: path.to_path_buf(), reason: reason.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_data_and_model_end_a_run() {
        let full = || std::io::Error::from(std::io::ErrorKind::StorageFull);
        let path = PathBuf::from("points.csv");
        let own = [
            Error::Io { path: path.clone(), source: full() },
            Error::Data(salamander_data::Error::Io { path: path.clone(), cause: full() }),
            Error::checkpoint(&path, "it is damaged"),
            Error::Differs("another learning rate".into()),
        ];
        assert!(own.iter().all(|error| !error.is_of_the_run()), "{own:?}");
        let of_all = [
            Error::NotANumber { what: "the loss is not a number", epoch: 0, step: 3 },
            Error::Model { model: "net", reason: "it panicked".into() },
        ];
        assert!(of_all.iter().all(Error::is_of_the_run), "{of_all:?}");
    }
}
