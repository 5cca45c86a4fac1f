//! A run's place in an object store, beside its checkpoints: what the master keeps there, and how a run's folder comes
//! back on a machine that has nothing of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use salamander_core::experiment::{CheckpointStorage, Experiment, Strategy};
use salamander_core::push;
use salamander_master::journal::Journal;
use salamander_master::record::Record;
use salamander_train::Error;
use salamander_train::checkpoint::{COUNTED, Vault, write_atomic};

use super::experiment::load;

const JOURNAL: &str = "journal";
const EXPERIMENT: &str = "experiment.yaml";
/// Files of the run that are of use to whoever goes on with it, the one that says what counts last.
const FILES: [&str; 4] = [EXPERIMENT, "books.json", "metrics.jsonl", JOURNAL];
/// The pause after a first failure, and the longest one.
const PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// Keeps the master's files in the run's store, on a thread of its own.
pub(super) struct Clerk {
    desk: Arc<Desk>,
    wake: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

struct Desk {
    vault: Vault,
    folder: PathBuf,
    patience: Duration,
    /// Held while files are put, so that no older ones come last.
    putting: Mutex<()>,
}

impl Clerk {
    pub(super) fn start(vault: Vault, folder: &Path, storage: &CheckpointStorage) -> Result<Self> {
        let patience = Duration::from_secs(storage.store_patience);
        let desk = Desk { vault, folder: folder.to_path_buf(), patience, putting: Mutex::new(()) };
        let desk = Arc::new(desk);
        let (wake, woken) = sync_channel(1);
        let own = Arc::clone(&desk);
        let thread =
            std::thread::Builder::new().name("clerk".into()).spawn(move || own.work(&woken))?;
        Ok(Self { desk, wake: Some(wake), thread: Some(thread) })
    }

    /// Puts the files now; what cannot be put is put later.
    pub(super) fn put(&self) {
        if let Err(error) = self.desk.put() {
            tracing::warn!(%error, "the journal is not in the store yet");
            self.note();
        }
    }

    /// The files have changed.
    pub(super) fn note(&self) {
        // A full channel: the thread has not looked yet.
        let _ = self.wake.as_ref().map(|wake| wake.try_send(()));
    }
}

impl Drop for Clerk {
    fn drop(&mut self) {
        self.note();
        drop(self.wake.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Desk {
    fn work(&self, woken: &Receiver<()>) {
        while woken.recv().is_ok() {
            let (mut pause, mut until) = (PAUSES.0, None);
            while let Err(error) = self.put() {
                let store = self.vault.url();
                tracing::warn!(%error, store, "the run's files are not in the store yet; trying again");
                if let Err(RecvTimeoutError::Disconnected) = woken.recv_timeout(pause) {
                    let until = *until.get_or_insert_with(|| Instant::now() + self.patience);
                    if Instant::now() > until {
                        tracing::error!(%error, store, "the run's files are not in the store");
                        return;
                    }
                    std::thread::sleep(pause);
                }
                pause = (pause * 2).min(PAUSES.1);
            }
        }
    }

    fn put(&self) -> Result<(), Error> {
        let _putting = self.putting.lock().unwrap_or_else(PoisonError::into_inner);
        // Read before the journal: what counts there must be in the journal that is there.
        let counted = fs::read(self.folder.join("checkpoints").join(COUNTED)).ok();
        FILES.iter().try_for_each(|name| self.vault.put(&self.folder, name))?;
        counted.map_or(Ok(()), |counted| self.vault.put_bytes(COUNTED, counted))
    }
}

/// Asks a store for a run that is about to begin or to go on, so that what is wrong with it is said at once.
pub(super) fn check(experiment: &Experiment) -> Result<()> {
    if let Some(vault) = Vault::of_run(&experiment.checkpoint_storage, Path::new(""))? {
        vault.complete().context("the store cannot be used (checkpoint_storage.store)")?;
    }
    Ok(())
}

/// The folder of a run that is gone on with: below `runs`, or made anew from its place in a store.
pub(super) fn find(run: &str, runs: &Path, store: Option<&str>) -> Result<PathBuf> {
    let (url, id) = match (run.contains("://"), store) {
        (true, _) => match run.trim_end_matches('/').rsplit_once('/') {
            Some((url, id)) if !url.ends_with('/') => (url, id),
            _ => bail!("{run}: name the run as well, as in s3://bucket/prefix/RUN"),
        },
        (false, Some(store)) if crate::run::find(run, runs).is_err() => (store, run),
        _ => return crate::run::find(run, runs),
    };
    let folder = runs.join(id);
    if folder.is_dir() {
        return Ok(folder);
    }
    let vault = Vault::open(url, id)?;
    // It appears when all of it is there.
    let beside = runs.join(format!(".brought-{}", std::process::id()));
    let brought = bring_back(&vault, &beside, None);
    let named = brought.and_then(|found| match found {
        true => Ok(fs::rename(&beside, &folder)?),
        false => bail!("there is no run at {}", vault.url()),
    });
    let _ = fs::remove_dir_all(&beside);
    named?;
    eprintln!("brought {} from {}", folder.display(), vault.url());
    Ok(folder)
}

/// [`bring_back`], as often as it takes while the store does not answer.
pub(super) fn bring_back_patiently(
    vault: &Vault,
    folder: &Path,
    experiment: &Experiment,
) -> Result<bool> {
    let patience = Duration::from_secs(experiment.checkpoint_storage.store_patience);
    let (until, mut pause) = (Instant::now() + patience, PAUSES.0);
    loop {
        let error = match bring_back(vault, folder, Some(experiment)) {
            Err(error) if Instant::now() < until => error,
            brought => return brought,
        };
        tracing::warn!(%error, store = vault.url(), "the run cannot be brought yet; trying again");
        std::thread::sleep(pause);
        pause = (pause * 2).min(PAUSES.1);
    }
}

/// Makes a run's folder from its place in a store; false if nothing is there. The journal comes last: whoever is killed
/// meanwhile begins again. A master, which knows its experiment, leaves the checkpoint to workers unless it is the one
/// that hands it out.
fn bring_back(vault: &Vault, folder: &Path, experiment: Option<&Experiment>) -> Result<bool> {
    let Some(text) = vault.get(EXPERIMENT)? else { return Ok(false) };
    let checkpoints = folder.join("checkpoints");
    fs::create_dir_all(&checkpoints)?;
    if !folder.join(EXPERIMENT).exists() {
        write_atomic(&folder.join(EXPERIMENT), &text)?;
    }
    let strategy = match experiment {
        Some(experiment) => experiment.strategy,
        None => load(&folder.join(EXPERIMENT), &[])?.strategy,
    };
    let mut newest = None;
    if experiment.is_none() || strategy == Strategy::Ps {
        newest = vault.newest(&checkpoints, &mut |error| {
            eprintln!("warning: {error}; trying the one before it");
        })?;
    }
    if let (Some(id), Strategy::Ps) = (&newest, strategy) {
        link_rows(&checkpoints, id)?;
    }
    for name in ["metrics.jsonl", "books.json"] {
        if let Some(bytes) = vault.get(name)? {
            write_atomic(&folder.join(name), &bytes)?;
        }
    }
    if let Some(list) = vault.get(COUNTED)? {
        write_atomic(&checkpoints.join(COUNTED), &list)?;
    }
    if let Some(bytes) = vault.get(JOURNAL)? {
        rewrite(folder, &bytes, newest.as_deref())?;
    }
    Ok(true)
}

/// The number of an asynchronous checkpoint, at the end of its name.
fn ending(id: &str) -> Option<(u32, u32)> {
    let mut parts = id.rsplit('-');
    let number = parts.next()?.parse().ok()?;
    Some((parts.next()?.parse().ok()?, number))
}

/// Servers of asynchronous training begin with files in a folder of their own.
fn link_rows(checkpoints: &Path, id: &str) -> Result<()> {
    let Some((epoch, number)) = ending(id) else { return Ok(()) };
    let rows = checkpoints.join(format!(".rows-{epoch}-{number}"));
    fs::create_dir_all(&rows)?;
    for entry in fs::read_dir(checkpoints.join(id))?.flatten() {
        let to = rows.join(entry.file_name());
        if entry.path().extension().is_some_and(|ending| ending == "rows") && !to.exists() {
            fs::hard_link(entry.path(), &to).or_else(|_| fs::copy(entry.path(), &to).map(drop))?;
        }
    }
    Ok(())
}

/// The journal without asynchronous checkpoints that were not in the store yet.
fn rewrite(folder: &Path, bytes: &[u8], newest: Option<&str>) -> Result<()> {
    let (whole, fit) = (folder.join(".journal.whole"), folder.join(".journal.fit"));
    fs::write(&whole, bytes)?;
    let (_, mut records) = Journal::<Record>::open(&whole)?;
    fs::remove_file(&whole)?;
    let kept = newest.and_then(ending);
    records.retain(|record| match record {
        Record::Names { entry: push::Entry::Kept(checkpoint), .. } => {
            Some((checkpoint.id.epoch, checkpoint.id.number)) == kept
        }
        _ => true,
    });
    let is_kept =
        |record: &Record| matches!(record, Record::Names { entry: push::Entry::Kept(_), .. });
    if kept.is_some() && !records.iter().any(is_kept) {
        let newest = newest.unwrap_or_default();
        bail!("the journal in the store does not know checkpoint {newest}, which counts there");
    }
    let _ = fs::remove_file(&fit);
    Journal::<Record>::open(&fit)?.0.append(&records)?;
    Ok(fs::rename(&fit, folder.join(JOURNAL))?)
}
