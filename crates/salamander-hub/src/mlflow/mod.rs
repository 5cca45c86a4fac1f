//! MLflow's REST API, so that its unmodified clients log to this hub, read what was trained here, and use its registry.
//!
//! What clients say is kept in a journal, values of metrics in a file for each run, artifacts in folders: all below
//! `.hub/mlflow` among the runs, so that nothing of it is lost with the store. Runs of our own are shown as well; their
//! folders are their truth, and clients cannot change them.
//!
//! # Layout
//! - [`Mlflow`]: what was said and what was measured; `events`, `measured`: the files
//! - `tracked`, `registry`: what there is; `ours`: our own runs in those words; `mirror`: theirs in our lists
//! - `api`: the calls; `asked`, `refusal`: requests and errors; `filter`: searches; `artifacts`: files

mod api;
mod artifacts;
mod asked;
mod events;
mod filter;
mod measured;
mod mirror;
mod ours;
mod refusal;
mod registry;
mod tracked;

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use api::routes;
pub(crate) use api::{is_call, refuse};
use events::{Tracked, TrackingEvent};
use refusal::MlflowRefusal;
use salamander_core::layout::METRICS;
use tracked::{Latest, LifecycleStage, MetricValue, MlflowExperiment, MlflowRun};

use crate::journal::Journal;
use crate::{Error, Hub, OWN_FOLDER, now};

/// The experiment of clients that name none.
const DEFAULT_EXPERIMENT: &str = "0";

/// Runs that are shown at a time, at most.
const SHOWING: usize = 64;

/// What clients have said to a hub; clones share it.
#[derive(Clone)]
pub struct Mlflow {
    shared: Arc<MlflowInner>,
}

struct MlflowInner {
    hub: Hub,
    folder: PathBuf,
    said: Mutex<MlflowRecords>,
    /// Runs that the store could not take at the time.
    unshown: Mutex<BTreeSet<String>>,
    /// Held while values of a run are kept and shown, each by some of the runs.
    showing: [Mutex<()>; SHOWING],
}

/// What was said, and the last values of the runs that were looked at.
struct MlflowRecords {
    journal: Journal<TrackingEvent>,
    tracked: Tracked,
    latest: HashMap<String, Arc<Latest>>,
}

impl Mlflow {
    /// Of a hub, with what was said to it before.
    pub fn open(hub: &Hub) -> Result<Self, Error> {
        let folder = hub.runs().join(OWN_FOLDER).join("mlflow");
        std::fs::create_dir_all(&folder).map_err(Error::io(&folder))?;
        let (journal, events) = Journal::open(&folder.join("journal.jsonl"), 0)?;
        let mut tracked = Tracked::default();
        events.into_iter().for_each(|(event, _)| tracked.apply(event));
        let said = Mutex::new(MlflowRecords { journal, tracked, latest: HashMap::new() });
        let (unshown, showing) = (Mutex::default(), std::array::from_fn(|_| Mutex::new(())));
        let shared = MlflowInner { hub: hub.clone(), folder, said, unshown, showing };
        let mlflow = Self { shared: Arc::new(shared) };
        mlflow.said().make_default()?;
        mlflow.show_all()?;
        Ok(mlflow)
    }

    fn hub(&self) -> &Hub {
        &self.shared.hub
    }

    fn folder(&self) -> &Path {
        &self.shared.folder
    }

    fn said(&self) -> MutexGuard<'_, MlflowRecords> {
        // What a panic leaves is what the journal says.
        self.shared.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unshown(&self) -> MutexGuard<'_, BTreeSet<String>> {
        // A set that a panic leaves is whole.
        self.shared.unshown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Held by whoever shows a run: what comes next in a curve is worked out from what is there. Nobody holds two.
    fn showing(&self, run: &str) -> MutexGuard<'_, ()> {
        let add = |sum: usize, byte| sum.wrapping_mul(31).wrapping_add(usize::from(byte));
        let number = run.bytes().fold(0, add) % SHOWING;
        self.shared.showing[number].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the values of a run are.
    fn metrics_file(&self, run: &str) -> PathBuf {
        self.folder().join("runs").join(run).join(METRICS)
    }

    /// The last value of each metric of a run that a client made.
    fn latest(&self, run: &str) -> Result<Arc<Latest>, Error> {
        if let Some(latest) = self.said().latest.get(run) {
            return Ok(Arc::clone(latest));
        }
        // Under the lock: values that come meanwhile would be forgotten otherwise.
        let mut said = self.said();
        let latest = Arc::new(measured::latest(&self.metrics_file(run))?);
        said.latest.insert(run.to_string(), Arc::clone(&latest));
        Ok(latest)
    }

    /// Keeps values of a run.
    fn measure(&self, run: &str, values: Vec<(String, MetricValue)>) -> Result<(), Error> {
        let file = self.metrics_file(run);
        // They are shown in the order in which they are kept.
        let showing = self.showing(run);
        {
            let mut said = self.said();
            measured::append(&file, &values)?;
            if let Some(latest) = said.latest.get_mut(run) {
                let latest = Arc::make_mut(latest);
                values.iter().cloned().for_each(|(key, value)| measured::take(latest, key, value));
            }
        }
        let shown = self.show_one(run, values);
        drop(showing);
        if shown {
            self.show_unshown();
        }
        Ok(())
    }
}

impl MlflowRecords {
    /// Keeps what was said, and takes it in.
    fn say(&mut self, events: Vec<TrackingEvent>) -> Result<(), Error> {
        self.journal.append(&events)?;
        events.into_iter().for_each(|event| self.tracked.apply(event));
        Ok(())
    }

    fn make_default(&mut self) -> Result<(), Error> {
        if self.tracked.experiments.contains_key(&0) {
            return Ok(());
        }
        let time = now();
        self.say(vec![TrackingEvent::Experiment(MlflowExperiment {
            id: DEFAULT_EXPERIMENT.to_string(),
            name: "Default".to_string(),
            artifacts: artifacts::location(DEFAULT_EXPERIMENT),
            stage: LifecycleStage::Active,
            created: time,
            updated: time,
            tags: Default::default(),
        })])
    }

    /// A run that a client made.
    fn run(&self, id: &str) -> Result<&MlflowRun, MlflowRefusal> {
        if ours::run_id(id).is_some() {
            let reason = format!("run {id} is one of Salamander's own: its folder says what it is");
            return Err(MlflowRefusal::state(reason));
        }
        let missing = || MlflowRefusal::missing(format!("Run with id={id} not found"));
        self.tracked.runs.get(id).ok_or_else(missing)
    }

    /// A run that is not deleted, to which something may be added.
    fn open_run(&self, id: &str) -> Result<&MlflowRun, MlflowRefusal> {
        let run = self.run(id)?;
        if run.stage == LifecycleStage::Deleted {
            let reason = format!("The run {id} must be in the 'active' state: it is deleted");
            return Err(MlflowRefusal::invalid(reason));
        }
        Ok(run)
    }
}

/// A name that nothing else has: 32 hexadecimal digits, as clients expect of a run.
fn new_id() -> Result<String, Error> {
    let mut bytes = [0; 16];
    let path = Path::new("/dev/urandom");
    let drawn = std::fs::File::open(path)
        .and_then(|mut file| std::io::Read::read_exact(&mut file, &mut bytes));
    drawn.map_err(Error::io(path))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
