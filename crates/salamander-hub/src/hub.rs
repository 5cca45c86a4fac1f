//! The hub: the store, the journal that it is made from, and all that may be said.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use salamander_core::layout::RunLayout;

use crate::Error;
use crate::ids::{ExperimentId, RunId};
use crate::journal::Journal;
use crate::operation::{Entry, Operation, Wanted};
use crate::store::limits::Allowance;
use crate::store::{Store, StoreAccess, StoreUrl, get_meta, set_meta};

/// The folder of the hub's own files among the runs.
pub const OWN_FOLDER: &str = ".hub";
/// Until where the journal is in the store.
const JOURNAL_END: &str = "journal_end";

/// A hub without its queue and its API; clones share it.
#[derive(Clone)]
pub struct Hub {
    shared: Arc<HubInner>,
}

struct HubInner {
    runs: PathBuf,
    store: Store,
    journal: Mutex<Journal<Entry>>,
    /// Folders of runs on other machines, by their names.
    remotes: Mutex<HashMap<String, String>>,
    /// Held: a second hub for the same runs is refused, and reads in it where this one is.
    lock: File,
}

/// Who says something.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Speaker(pub String);

/// A checkpoint that becomes the next version of a model.
#[derive(Clone, Copy, Debug)]
pub struct Registration<'a> {
    /// The model's name.
    pub model: &'a str,
    /// The run that the checkpoint is of.
    pub run: RunId,
    /// The checkpoint's name.
    pub checkpoint: &'a str,
    /// What people write of the version.
    pub notes: &'a str,
}

impl Hub {
    /// Opens the hub of a folder of runs, with its store (by default a file among the runs).
    pub fn open(runs: &Path, store: Option<&StoreUrl>) -> Result<Self, Error> {
        let own = runs.join(OWN_FOLDER);
        fs::create_dir_all(&own).map_err(Error::io(&own))?;
        let runs = fs::canonicalize(runs).map_err(Error::io(runs))?;
        let lock = lock(&own.join("lock"))?;
        let store = Store::at(store.unwrap_or(&own_store(&own)), StoreAccess::Alone)?;
        let end = store.meta(JOURNAL_END)?.and_then(|end| end.parse().ok()).unwrap_or(0);
        let (journal, entries) = Journal::open(&own.join("journal.jsonl"), end)?;
        let hub = Self {
            shared: Arc::new(HubInner {
                runs,
                store,
                journal: Mutex::new(journal),
                remotes: Mutex::default(),
                lock,
            }),
        };
        if end > hub.journal().end() {
            // Of another journal.
            hub.store().write(|tx| set_meta(tx, JOURNAL_END, "0"))?;
        }
        for part in entries.chunks(1000) {
            hub.project(part.to_vec())?;
        }
        Ok(hub)
    }

    /// Removes the store of a folder of runs, so that opening makes it again. Users and tokens go with it.
    pub fn forget_store(runs: &Path, store: Option<&StoreUrl>) -> Result<(), Error> {
        let own = runs.join(OWN_FOLDER);
        let _lock = own.is_dir().then(|| lock(&own.join("lock"))).transpose()?;
        store.unwrap_or(&own_store(&own)).remove()
    }

    /// The store.
    pub fn store(&self) -> &Store {
        &self.shared.store
    }

    /// Tells whoever opens the hub of the same runs where this one is.
    pub(crate) fn note_address(&self, url: &str) {
        // Without it, whoever is refused is told of the process only.
        let _ = writeln!(&self.shared.lock, "{url}");
    }

    /// The folder of runs.
    pub fn runs(&self) -> &Path {
        &self.shared.runs
    }

    /// Folders of runs on other machines, by their names.
    pub(crate) fn remotes(&self) -> MutexGuard<'_, HashMap<String, String>> {
        self.shared.remotes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The hub's own files of an experiment.
    pub(crate) fn own_folder(&self, experiment: ExperimentId) -> PathBuf {
        self.runs().join(OWN_FOLDER).join("experiments").join(experiment.to_string())
    }

    /// The experiment in force of a folder below the runs.
    pub(crate) fn config_in_force(&self, folder: &str) -> Result<String, Error> {
        let path = RunLayout::new(self.runs().join(folder)).experiment();
        fs::read_to_string(&path).map_err(Error::io(&path))
    }

    /// Experiments that the hub has files of.
    pub(crate) fn own_folders(&self) -> Vec<ExperimentId> {
        let entries = fs::read_dir(self.runs().join(OWN_FOLDER).join("experiments"));
        let names = entries.into_iter().flatten().flatten().map(|entry| entry.file_name());
        names.filter_map(|name| name.to_str()?.parse().ok()).collect()
    }

    /// Says something about an experiment that is there.
    pub fn say(&self, by: &Speaker, operation: Operation) -> Result<(), Error> {
        self.say_after(by, |_| Ok(vec![operation])).map(drop)
    }

    /// Says what follows from a look at the store, before anybody else says anything.
    pub(crate) fn say_after(
        &self,
        by: &Speaker,
        operations: impl FnOnce(&Store) -> Result<Vec<Operation>, Error>,
    ) -> Result<Vec<Operation>, Error> {
        let mut journal = self.journal();
        // What the store could not take at the time comes first: numbers are given by what it has.
        self.catch_up(&mut journal)?;
        let operations = operations(self.store())?;
        if operations.is_empty() {
            return Ok(operations);
        }
        let time = now();
        let entry = |operation| Entry { time, user: by.0.clone(), operation };
        let entries: Vec<Entry> = operations.iter().cloned().map(entry).collect();
        let ends = journal.append(&entries)?;
        journal.pending.extend(entries.into_iter().zip(ends));
        let later = |error| {
            let reason = "it was heard, and is done as soon as the store can be written";
            Error::Unwritable(format!("{reason}: {error}"))
        };
        self.catch_up(&mut journal).map_err(later)?;
        Ok(operations)
    }

    /// Puts what is in the journal and not in the store there.
    fn catch_up(&self, journal: &mut Journal<Entry>) -> Result<(), Error> {
        if !journal.pending.is_empty() {
            self.project(journal.pending.clone())?;
            journal.pending.clear();
        }
        Ok(())
    }

    fn project(&self, entries: Vec<(Entry, u64)>) -> Result<(), Error> {
        self.store().write(move |tx| {
            // A commit whose answer was lost may have been made.
            let seen = get_meta(tx, JOURNAL_END)?.and_then(|end| end.parse().ok()).unwrap_or(0);
            for (entry, end) in entries.iter().filter(|(_, end)| *end > seen) {
                entry.apply(tx)?;
                set_meta(tx, JOURNAL_END, &end.to_string())?;
            }
            Ok(())
        })
    }

    /// Gives folders that somebody else made a number each.
    pub(crate) fn found(&self, folders: &[String]) -> Result<(), Error> {
        self.say_after(&Speaker::default(), |store| {
            let mut next = store.next_experiment()?;
            let mut operations = Vec::new();
            for folder in folders {
                if store.experiment_of(folder)?.is_none() {
                    let (experiment, folder) = (next, folder.clone());
                    operations.push(Operation::Found { experiment, folder });
                    next.0 += 1;
                }
            }
            Ok(operations)
        })
        .map(drop)
    }

    /// What is wanted of an experiment from now on.
    pub fn want(&self, by: &Speaker, id: ExperimentId, wanted: Wanted) -> Result<(), Error> {
        self.say_after(by, |store| {
            let experiment = store.experiment(id)?;
            let is_over = matches!(experiment.state.as_str(), "completed" | "canceled" | "failed");
            if experiment.origin != "hub" && wanted != Wanted::Deleted {
                return Err(Error::Conflict(format!(
                    "experiment {id} was not started by this hub: `salamander stop {}` asks it to stop",
                    experiment.folder
                )));
            }
            match wanted {
                Wanted::Run | Wanted::Paused | Wanted::Canceled | Wanted::Killed
                    if experiment.state == "deleting" =>
                {
                    Err(Error::Conflict(format!("experiment {id} is being deleted")))
                }
                Wanted::Run if store.usage(id)?.exhausted().is_some() => {
                    let reason = store.usage(id)?.exhausted().unwrap_or_default();
                    let advice = "`salamander job update` gives it more";
                    Err(Error::Conflict(format!("experiment {id}: {reason}: {advice}")))
                }
                Wanted::Run if experiment.state == "completed" => {
                    Err(Error::Conflict(format!("experiment {id} is completed")))
                }
                Wanted::Paused | Wanted::Canceled | Wanted::Killed if is_over => {
                    let state = experiment.state;
                    Err(Error::Conflict(format!("experiment {id} is over: {state}")))
                }
                Wanted::Deleted
                    if !is_over && !matches!(experiment.state.as_str(), "interrupted" | "deleting") =>
                {
                    let advice = "kill it first, so that nothing is deleted under a process that trains";
                    Err(Error::Conflict(format!("experiment {id} is {}: {advice}", experiment.state)))
                }
                Wanted::Deleted if store.is_source(id)? => Err(Error::Conflict(format!(
                    "a version of a model comes from experiment {id}: delete that first"
                ))),
                Wanted::Deleted if store.is_started_from(id)? => Err(Error::Conflict(format!(
                    "an experiment that is not completed starts from experiment {id}: delete that first"
                ))),
                _ => Ok(vec![Operation::Want { experiment: id, wanted }]),
            }
        })
        .map(drop)
    }

    /// Ends a trial at once. The other trials of its search go on; the only trial of an experiment is the experiment.
    pub fn kill_run(&self, by: &Speaker, run: RunId) -> Result<(), Error> {
        let state = self.store().run(run)?.state;
        let experiment = self.store().experiment(run.experiment())?;
        // By its folder: the store may know a trial before it knows that there are others.
        let layout = RunLayout::new(self.runs().join(&experiment.folder));
        if !layout.search().is_file() || experiment.origin != "hub" {
            return self.want(by, experiment.id, Wanted::Killed);
        }
        let is_over =
            |state: &str| matches!(state, "completed" | "canceled" | "failed" | "invalid");
        if is_over(&state) || is_over(&experiment.state) {
            return Err(Error::Conflict(format!("trial {run} is over: {state}")));
        }
        self.say(by, Operation::KillTrial { run })
    }

    /// Gives an experiment another allowance.
    pub fn allow(&self, by: &Speaker, id: ExperimentId, allowance: Allowance) -> Result<(), Error> {
        let fits = |ms: Option<i64>| ms.is_none_or(|ms| ms > 0);
        if !fits(allowance.max_ms) || !fits(allowance.max_slot_ms) {
            return Err(Error::Invalid("a budget is hours above 0".to_string()));
        }
        if self.store().experiment(id)?.origin != "hub" {
            let reason = format!("experiment {id} was not started by this hub");
            return Err(Error::Conflict(reason));
        }
        self.say(by, Operation::Allow { experiment: id, allowance })
    }

    /// Registers a checkpoint as the next version of a model; gives its number.
    pub fn register(&self, by: &Speaker, asked: Registration<'_>) -> Result<i64, Error> {
        let Registration { model, run, checkpoint, notes } = asked;
        let mut number = 0;
        self.say_after(by, |store| {
            let last = store.last_version(model)?;
            let checkpoint = store.checkpoint(run, checkpoint)?;
            if checkpoint.state != "completed" || store.is_garbage(run, &checkpoint.name)? {
                let name = checkpoint.name;
                return Err(Error::Conflict(format!("checkpoint {name} of run {run} is deleted")));
            }
            number = last + 1;
            let (model, notes) = (model.to_string(), notes.to_string());
            let checkpoint = checkpoint.name;
            Ok(vec![Operation::Register { model, version: number, run, checkpoint, notes }])
        })?;
        Ok(number)
    }

    fn journal(&self) -> MutexGuard<'_, Journal<Entry>> {
        // A panic while it was held leaves a journal whose end is known.
        self.shared.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The store of a hub that was told of no other.
fn own_store(own: &Path) -> StoreUrl {
    StoreUrl::Sqlite(own.join("hub.sqlite"))
}

/// The time, in milliseconds since 1970.
pub fn now() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

/// How long a hub is waited for that is about to end: what it has just started holds its lock, too, until that is a
/// program of its own.
const ENDING: Duration = Duration::from_secs(1);

fn lock(path: &Path) -> Result<File, Error> {
    let file = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(path);
    let mut file = file.map_err(Error::io(path))?;
    let begun = Instant::now();
    let mut locked = flock(&file, FlockOperation::NonBlockingLockExclusive);
    while locked.is_err() && begun.elapsed() < ENDING {
        std::thread::sleep(Duration::from_millis(10));
        locked = flock(&file, FlockOperation::NonBlockingLockExclusive);
    }
    if locked.is_err() {
        let mut who = String::new();
        let _ = file.read_to_string(&mut who);
        let mut lines = who.lines();
        let process = lines.next().unwrap_or_default();
        let at = lines.next().map_or(String::new(), |url| format!(" at {url}"));
        let folder = path.parent().and_then(Path::parent).unwrap_or(path).display();
        let reason =
            format!("{folder}: a hub for these runs is there already{at} (process {process})");
        return Err(Error::Conflict(reason));
    }
    let written = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
    written.map_err(Error::io(path))?;
    Ok(file)
}
