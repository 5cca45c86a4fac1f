//! Why a run could not be started, followed, steered or used.

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use salamander_core::words::program_name;

/// An error of the run API; each says what was wrong, where, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The experiment file is wrong.
    #[error("experiment {}: {reason}", file.display())]
    Experiment {
        /// The file.
        file: PathBuf,
        /// What is wrong in it.
        reason: String,
    },
    /// What was asked for does not fit.
    #[error("{0}")]
    Invalid(String),
    /// There is no such run.
    #[error("there is no run \"{run}\" ({hint})")]
    NoSuchRun {
        /// As it was asked for.
        run: String,
        /// The runs that there are.
        hint: String,
    },
    /// Another process trains in the folder.
    #[error("{}: another process is training in this folder", .0.display())]
    Busy(PathBuf),
    /// The run never had a master.
    #[error("{} has not begun: no master has led it yet", .0.display())]
    NotDistributed(PathBuf),
    /// The run has no workers whose number could be changed.
    #[error(
        "{run} trains in one process and has no workers to change: stop it (`{program} stop {run}`), and go on with \
         `{program} train --resume {run} --workers N`", run = .0.display(), program = program_name()
    )]
    OneProcess(PathBuf),
    /// Nobody trains in the folder.
    #[error("{} does not run now", .0.display())]
    NotTraining(PathBuf),
    /// The run's master does not answer.
    #[error("{} does not run now: {cause}", folder.display())]
    NotRunning {
        /// The run's folder.
        folder: PathBuf,
        /// What was said instead.
        cause: salamander_proto::client::Error,
    },
    /// A token or a certificate cannot be used.
    #[error("{what}: {reason}")]
    Secret {
        /// Which one.
        what: String,
        /// Why not.
        reason: String,
    },
    /// The run has failed, for the reason that it gave.
    #[error("{0}")]
    Failed(String),
    /// Stopped before there was a result.
    #[error("it was stopped before the end")]
    Interrupted,
    /// A process of a run was started, but its program does not begin with `Program::enter`.
    #[error(
        "this process was started as a {0} of a run: let `main` begin with `Program::enter(models)`"
    )]
    NotEntered(String),
    /// A file could not be read or written.
    #[error("{}: {cause}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's answer; not an error's source, because the message has it already.
        cause: io::Error,
    },
    /// The system refused something else.
    #[error("{what}: {cause}")]
    System {
        /// What was tried.
        what: String,
        /// The system's answer.
        cause: io::Error,
    },
    /// Training, evaluation or prediction failed.
    #[error(transparent)]
    Train(#[from] salamander_train::Error),
    /// The data could not be read or written.
    #[error(transparent)]
    Data(#[from] salamander_data::Error),
    /// The master failed.
    #[error(transparent)]
    Master(#[from] salamander_master::Error),
    /// The journal cannot be used.
    #[error(transparent)]
    Journal(#[from] salamander_master::journal::Error),
    /// The processes of a run could not be started.
    #[error(transparent)]
    Platform(#[from] salamander_master::local::Error),
    /// The master could not be talked to.
    #[error(transparent)]
    Client(#[from] salamander_proto::client::Error),
    /// A parameter server failed.
    #[error(transparent)]
    Server(#[from] salamander_ps::role::Error),
    /// A connection failed.
    #[error(transparent)]
    Net(#[from] salamander_net::Error),
    /// The cluster said no.
    #[cfg(feature = "kube")]
    #[error(transparent)]
    Cluster(#[from] salamander_kube::Error),
}

impl Error {
    /// Whether it is about what a process was given, so that another one would find the same.
    pub fn is_mistake(&self) -> bool {
        use salamander_train::Error as TrainError;
        let missing = |cause: &io::Error| cause.kind() == io::ErrorKind::NotFound;
        match self {
            Error::Experiment { .. } | Error::Invalid(_) | Error::NoSuchRun { .. } => true,
            #[cfg(feature = "kube")]
            Error::Cluster(salamander_kube::Error::Invalid(_)) => true,
            Error::Train(TrainError::Data(salamander_data::Error::Io { cause, .. }))
            | Error::Data(salamander_data::Error::Io { cause, .. }) => missing(cause),
            Error::Train(error) => matches!(
                error,
                TrainError::Experiment(_)
                    | TrainError::Invalid(_)
                    | TrainError::InvalidHparams { .. }
                    | TrainError::Course(_)
                    | TrainError::Model { .. }
            ),
            _ => false,
        }
    }

    /// Whether only room on a disk was missing: the same goes on when there is some.
    pub fn is_disk_full(&self) -> bool {
        use io::ErrorKind::{QuotaExceeded, StorageFull};
        let by_kind = match self {
            Error::Io { cause, .. } | Error::System { cause, .. } => Some(cause.kind()),
            Error::Train(salamander_train::Error::Io { source, .. }) => Some(source.kind()),
            _ => None,
        };
        // What other processes of a run have met comes as words, with the system's number at their end.
        let told = self.to_string();
        let is_told =
            |errno: &Errno| told.contains(&format!("(os error {})", errno.raw_os_error()));
        matches!(by_kind, Some(StorageFull | QuotaExceeded))
            || [Errno::NOSPC, Errno::DQUOT].iter().any(is_told)
    }

    /// Whether the model has refused its hyperparameters.
    pub(crate) fn refuses_hparams(&self) -> bool {
        matches!(self, Error::Train(salamander_train::Error::InvalidHparams { .. }))
    }

    /// For `map_err` on the file operations of `path`.
    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> Error {
        let path = path.to_path_buf();
        move |cause| Error::Io { path, cause }
    }

    /// For `map_err` on what has no path.
    pub(crate) fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        let what = what.into();
        move |cause| Error::System { what, cause }
    }

    /// For `map_err` on a file that is not what it should be.
    pub(crate) fn broken<E: ToString>(path: &Path) -> impl FnOnce(E) -> Error {
        let path = path.to_path_buf();
        move |error: E| Error::Io { path, cause: io::Error::other(error.to_string()) }
    }
}

#[cfg(test)]
mod tests {
    use salamander_train::Error as TrainError;

    use super::*;

    #[test]
    fn a_full_disk_is_known_by_its_kind_and_by_the_words_of_other_processes() {
        let path = PathBuf::from("runs/1/checkpoints");
        let io = |cause: io::Error| Error::Io { path: path.clone(), cause };
        let words = format!("worker 1: {}", io::Error::from(Errno::NOSPC));
        let source = io::ErrorKind::QuotaExceeded.into();
        let full = [
            io(io::ErrorKind::StorageFull.into()),
            io(Errno::DQUOT.into()),
            Error::Train(TrainError::Io { path: path.clone(), source }),
            Error::Train(TrainError::checkpoint(&path, &words)),
            Error::Failed(words),
        ];
        for error in full {
            assert!(error.is_disk_full(), "{error:?}");
        }
        let others = [
            io(Errno::IO.into()),
            io(io::ErrorKind::PermissionDenied.into()),
            Error::Failed("the machine went down".into()),
            Error::Failed("a loss is not a number".into()),
        ];
        for error in others {
            assert!(!error.is_disk_full(), "{error:?}");
        }
    }

    #[test]
    fn a_mistake_is_what_another_process_would_find_as_well() {
        let data = |kind: io::ErrorKind| {
            let path = PathBuf::from("points.csv");
            Error::Train(TrainError::Data(salamander_data::Error::Io { path, cause: kind.into() }))
        };
        let mistakes = [
            Error::Invalid("it has no data".into()),
            Error::Train(TrainError::Model { model: "net", reason: "it has tables".into() }),
            Error::Train(TrainError::Invalid("no records in points.csv".into())),
            data(io::ErrorKind::NotFound),
        ];
        for error in mistakes {
            assert!(error.is_mistake(), "{error:?}");
        }
        let path = PathBuf::from("runs/1/checkpoints");
        let source = io::ErrorKind::StorageFull.into();
        let troubles = [
            data(io::ErrorKind::StorageFull),
            data(io::ErrorKind::TimedOut),
            Error::Train(TrainError::Io { path: path.clone(), source }),
            Error::Io { path: path.clone(), cause: io::ErrorKind::StorageFull.into() },
            Error::Train(TrainError::checkpoint(&path, "it is damaged")),
            Error::Train(TrainError::Differs("another learning rate".into())),
            Error::Train(TrainError::Unreachable("no server answers".into())),
            Error::Train(TrainError::Leaving),
            Error::Failed("the machine went down".into()),
        ];
        for error in troubles {
            assert!(!error.is_mistake(), "{error:?}");
        }
    }
}
