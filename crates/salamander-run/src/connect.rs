//! A distributed run seen and steered from outside: where its master is, and what it can be asked.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use salamander_core::experiment::Strategy;
use salamander_core::layout::{ExportLayout, RunLayout};
use salamander_core::status::{State, Status};
use salamander_files::{Durability, replace};
use salamander_proto::client::{Admin, SessionOptions};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::Error;
use crate::experiment::load;
use crate::folder::holder;
use crate::folder_status::FolderStatus;
use crate::keys::keys;
use crate::same_experiment::first_difference;
use crate::search::{is_search, no_single_run};
use crate::stop_request;

/// How long the master may take to answer.
const ANSWER: Duration = Duration::from_secs(5);

/// How a run stands.
#[derive(Clone, Debug, PartialEq)]
pub enum RunStatus {
    /// It goes on; this is what its master says.
    Running(Box<Status>),
    /// No master answers: it trains in one process, begins or ends just now, or was killed. This is what its folder
    /// tells.
    InFolder(Box<FolderStatus>),
    /// It is over; this is the summary in its folder.
    Ended(Value),
}

impl RunStatus {
    /// What `status --json` prints.
    pub fn to_json(&self) -> Value {
        match self {
            RunStatus::Running(status) => json!(status),
            RunStatus::InFolder(status) => json!(status),
            RunStatus::Ended(summary) => summary.clone(),
        }
    }

    /// Whether it goes on.
    pub fn is_running(&self) -> bool {
        match self {
            RunStatus::Running(status) => {
                !matches!(status.state, State::Completed | State::Interrupted | State::Failed)
            }
            RunStatus::InFolder(status) => status.is_running(),
            RunStatus::Ended(_) => false,
        }
    }
}

/// How a run stands: what its master says, or else what its folder tells. Fails for a folder that is no run's.
pub fn status(run: &RunLayout) -> Result<RunStatus, Error> {
    let folder = run.folder().display();
    if is_search(run.folder()) {
        return Ok(in_folder(run, FolderStatus::read(run)));
    }
    if !run.experiment().is_file() {
        return Err(Error::Invalid(format!("{folder}: no run, for it has no experiment.yaml")));
    }
    if is_exported(run) {
        return Err(Error::Invalid(format!(
            "{folder}: an exported model, which no run trains any more: `salamander evaluate {folder}` measures it"
        )));
    }
    let unanswered = match connect(run).and_then(|mut admin| Ok(admin.status()?)) {
        Ok(status) => return Ok(RunStatus::Running(Box::new(status))),
        Err(error) => error,
    };
    let mut status = FolderStatus::read(run);
    if run.master_address().is_file() && !status.is_running() && !run.summary().is_file() {
        // A master that was started by hand may be alive and only out of reach.
        status.error = Some(format!("its master does not answer: {unanswered}"));
    }
    Ok(in_folder(run, status))
}

/// Nobody has trained in the folder, and it has weights.
fn is_exported(run: &RunLayout) -> bool {
    let is_run = run.lock().is_file() || run.journal().is_file() || run.checkpoints().is_dir();
    !is_run && ExportLayout::new(run.folder()).model().is_file()
}

/// How a run stands that no master answers for.
fn in_folder(run: &RunLayout, status: FolderStatus) -> RunStatus {
    let text = fs::read_to_string(run.summary()).ok().filter(|_| !status.is_running());
    let summary = text.and_then(|text| serde_json::from_str(&text).ok());
    summary.map_or_else(|| RunStatus::InFolder(Box::new(status)), RunStatus::Ended)
}

/// How many processes of a kind a run is to have; what is not named stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scale {
    /// Workers.
    pub workers: Option<u32>,
    /// Parameter servers; partitions move between them while the run goes on.
    pub servers: Option<u32>,
}

/// Changes the number of workers or parameter servers of a run that is going on.
pub fn scale(run: &RunLayout, to: Scale) -> Result<(), Error> {
    if is_search(run.folder()) {
        return Err(no_single_run(run.folder()));
    }
    if is_local(run)? {
        return Err(Error::OneProcess(run.folder().to_path_buf()));
    }
    Ok(connect(run)?.scale(to.workers, to.servers)?)
}

/// Ends a run after its step, at one that all workers agree on where there are several, and a search with the steps of
/// its trials; both can be resumed.
pub fn stop(run: &RunLayout) -> Result<(), Error> {
    if is_search(run.folder()) || is_local(run)? {
        return match holder(run) {
            Some(_) => stop_request::ask(run),
            None => Err(Error::NotTraining(run.folder().to_path_buf())),
        };
    }
    Ok(connect(run)?.stop()?)
}

/// Makes a run's folder from an experiment file, as pods find it in a config map. One that is there stays as it is, and
/// is refused if it has the run of another experiment.
pub fn make_folder(run: &RunLayout, experiment: &Path) -> Result<(), Error> {
    fs::create_dir_all(run.folder()).map_err(Error::io(run.folder()))?;
    let file = run.experiment();
    let wanted = fs::read_to_string(experiment).map_err(Error::io(experiment))?;
    let Ok(known) = fs::read_to_string(&file) else {
        return replace(&file, wanted.as_bytes(), Durability::Synced).map_err(Error::io(&file));
    };
    match first_difference(&known, &wanted) {
        Some(difference) => Err(Error::Invalid(format!(
            "{}: has the run of another experiment ({difference}): remove that folder, or give the job another name",
            run.folder().display()
        ))),
        None => Ok(()),
    }
}

/// Whether a run trains in one process, which no master leads.
fn is_local(run: &RunLayout) -> Result<bool, Error> {
    Ok(load(&run.experiment(), &[])?.strategy == Strategy::Local)
}

/// Writes down where the master of a run listens.
pub(crate) fn note_address(run: &RunLayout, address: SocketAddr) -> std::io::Result<()> {
    replace(&run.master_address(), address.to_string().as_bytes(), Durability::Synced)
}

/// A master that listened there does so no more: whoever has the port next is not to be asked. One that leads by now
/// has written another address.
pub(crate) fn forget_address(run: &RunLayout, address: SocketAddr) {
    let file = run.master_address();
    if fs::read_to_string(&file).is_ok_and(|noted| noted.trim() == address.to_string()) {
        // Left behind it misleads nobody: masters prove themselves.
        let _ = fs::remove_file(&file);
    }
}

fn connect(run: &RunLayout) -> Result<Admin, Error> {
    let folder = run.folder().to_path_buf();
    let Ok(address) = fs::read_to_string(run.master_address()) else {
        return Err(match run.journal().is_file() {
            true => Error::NotTraining(folder),
            false => Error::NotDistributed(folder),
        });
    };
    let options = SessionOptions::of(address.trim(), &keys(run)?);
    Admin::connect(&options, ANSWER).map_err(|cause| Error::NotRunning { folder, cause })
}
