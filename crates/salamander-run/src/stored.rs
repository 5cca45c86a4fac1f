//! A run's place in an object store, beside its checkpoints: what the master keeps there, and how a run's folder comes
//! back on a machine that has nothing of it.

mod claim;
mod told;
mod uploads;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use salamander_core::asynchronous::{AsynchronousEntry, ServerCheckpoint};
use salamander_core::experiment::{Experiment, Strategy};
use salamander_core::layout::{COUNTED, COURSE, EXPERIMENT, JOURNAL, METRICS, RunLayout};
use salamander_data::ObjectVersion;
use salamander_files::{Durability, PendingFolder, replace};
use salamander_master::journal::{Journal, records_of};
use salamander_master::record::Record;
use salamander_net::{Backoff, Token, retry};
use salamander_train::checkpoint::RemoteCheckpoints;

use crate::Error;
use crate::experiment::load;

pub use told::bring_runs;
pub(crate) use told::keep;
pub(crate) use uploads::StoredJournal;

/// The pause after a first failure, and the longest one.
const PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// Asks a store for a run that is about to begin or to go on, so that what is wrong with it is said at once.
pub(crate) fn check(experiment: &Experiment) -> Result<(), Error> {
    if let Some(remote) = RemoteCheckpoints::of_run(&experiment.checkpoint_storage, Path::new(""))?
    {
        let unusable = |error| {
            Error::Invalid(format!("the store cannot be used (checkpoint_storage.store): {error}"))
        };
        remote.complete().map_err(unusable)?;
        // The journal of a master is in it.
        if experiment.strategy != Strategy::Local {
            let probe = format!(".probe-{:.16}", Token::random()?.to_hex());
            remote.check_conditions(&probe).map_err(unusable)?;
        }
    }
    Ok(())
}

/// The folder of a run that is gone on with: below `runs`, or made anew from its place in a store.
pub(crate) fn find(
    run: &str,
    runs: &Path,
    store: Option<&str>,
    note: &mut dyn FnMut(String),
) -> Result<PathBuf, Error> {
    let (url, id) = match (run.contains("://"), store) {
        (true, _) => match run.trim_end_matches('/').rsplit_once('/') {
            Some((url, id)) if !url.ends_with('/') => (url, id),
            _ => {
                let advice = "name the run as well, as in s3://bucket/prefix/RUN";
                return Err(Error::Invalid(format!("{run}: {advice}")));
            }
        },
        (false, Some(store)) if crate::folder::find(run, runs).is_err() => (store, run),
        _ => return crate::folder::find(run, runs),
    };
    let folder = runs.join(id);
    if folder.is_dir() {
        return Ok(folder);
    }
    let remote = RemoteCheckpoints::open(url, id)?;
    // It appears when all of it is there.
    let beside = runs.join(format!(".brought-{:.8}", Token::random()?.to_hex()));
    let pending = PendingFolder::create(beside).map_err(Error::io(runs))?;
    let journal = remote.get(JOURNAL)?;
    if !bring_back(&remote, &RunLayout::new(pending.path()), journal, None, note)? {
        return Err(Error::Invalid(format!("there is no run at {}", remote.url())));
    }
    pending.commit(&folder, Durability::Unsynced).map_err(Error::io(&folder))?;
    note(format!("brought {} from {}", folder.display(), remote.url()));
    Ok(folder)
}

/// What a master goes on from.
pub(crate) struct TakenOver {
    /// Whether its folder was made from the store.
    pub(crate) brought: bool,
    /// The journal in the store that it goes on from; none if there was none.
    pub(crate) seen: Option<ObjectVersion>,
}

/// Makes a run's folder from its place in a store if it has no journal, or if another master has led since. As often as
/// it takes while the store does not answer.
pub(crate) fn take_over(
    remote: &RemoteCheckpoints,
    run: &RunLayout,
    experiment: &Experiment,
) -> Result<TakenOver, Error> {
    let patience = Duration::from_secs(experiment.checkpoint_storage.store_patience);
    let backoff = Backoff::new(PAUSES.0, PAUSES.1).within(patience);
    let mut note = |note| tracing::warn!("{note}");
    let attempt = || {
        let (journal, seen) = remote.get_versioned(JOURNAL)?.unzip();
        let own = fs::read(run.journal()).ok().and_then(|own| opened(&own));
        let is_current = match (&own, journal.as_deref().and_then(opened)) {
            (Some(own), Some(stored)) => goes_on_from(own, &stored),
            (own, _) => own.is_some(),
        };
        let brought = !is_current && bring_back(remote, run, journal, Some(experiment), &mut note)?;
        Ok(TakenOver { brought, seen })
    };
    retry(backoff, attempt, |error: &Error| {
        tracing::warn!(%error, store = remote.url(), "the run cannot be brought yet; trying again");
        true
    })
}

/// The records of a journal, if it can be read and a master has opened it.
fn opened(journal: &[u8]) -> Option<Vec<Record>> {
    let records: Vec<Record> = records_of(journal).ok()?;
    let is_opened =
        |record: &Record| matches!(record, Record::Entry { .. } | Record::MicroBatches { .. });
    records.iter().any(is_opened).then_some(records)
}

/// Whether a journal has all that the one in the store has. A term in it proves nothing: a master that could not claim
/// it has written it all the same, and who leads may have put more since.
fn goes_on_from(own: &[Record], stored: &[Record]) -> bool {
    // A folder that was made from the store has left out asynchronous checkpoints, but for the newest.
    let plain = |records: &[Record]| -> Vec<Record> {
        records.iter().filter(|record| kept(record).is_none()).cloned().collect()
    };
    let newest = stored.iter().rev().find(|record| kept(record).is_some());
    plain(own).starts_with(&plain(stored)) && newest.is_none_or(|newest| own.contains(newest))
}

/// The asynchronous checkpoint that a record is about.
fn kept(record: &Record) -> Option<&ServerCheckpoint> {
    match record {
        Record::MicroBatches { entry: AsynchronousEntry::Kept(checkpoint), .. } => Some(checkpoint),
        _ => None,
    }
}

/// Brings what a run has in its place in a store into a folder that is here: the files that a hub shows, and the newest
/// checkpoint. What was there before is replaced.
#[cfg(feature = "kube")]
pub(crate) fn bring(
    remote: &RemoteCheckpoints,
    run: &RunLayout,
    note: &mut dyn FnMut(String),
) -> Result<(), Error> {
    bring_back(remote, run, None, None, note).map(drop)
}

/// Makes a run's folder from its place in a store and the journal that was there; false if nothing is. The journal
/// comes last: whoever is killed meanwhile begins again. A master, which knows its experiment, leaves the checkpoint
/// to workers unless it is the one that hands it out.
fn bring_back(
    remote: &RemoteCheckpoints,
    run: &RunLayout,
    journal: Option<Vec<u8>>,
    experiment: Option<&Experiment>,
    note: &mut dyn FnMut(String),
) -> Result<bool, Error> {
    let Some(text) = remote.get(EXPERIMENT)? else { return Ok(false) };
    let checkpoints = run.checkpoints();
    fs::create_dir_all(&checkpoints).map_err(Error::io(&checkpoints))?;
    if !run.experiment().exists() {
        write(&run.experiment(), &text)?;
    }
    let strategy = match experiment {
        Some(experiment) => experiment.strategy,
        None => load(&run.experiment(), &[])?.strategy,
    };
    let mut newest = None;
    if experiment.is_none() || strategy == Strategy::Ps {
        newest = remote.newest(&checkpoints, &mut |error| {
            note(format!("warning: {error}; trying the one before it"));
        })?;
    }
    if let (Some(id), Strategy::Ps) = (&newest, strategy) {
        link_rows(&checkpoints, id).map_err(Error::io(&checkpoints))?;
    }
    for (name, path) in [(METRICS, run.metrics()), (COURSE, run.course()), (COUNTED, run.counted())]
    {
        if let Some(bytes) = remote.get(name)? {
            write(&path, &bytes)?;
        }
    }
    if let Some(bytes) = journal {
        rewrite(run, &bytes, newest.as_deref())?;
    }
    Ok(true)
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    replace(path, bytes, Durability::Synced).map_err(Error::io(path))
}

/// The number of an asynchronous checkpoint, at the end of its name.
fn ending(id: &str) -> Option<(u32, u32)> {
    let mut parts = id.rsplit('-');
    let number = parts.next()?.parse().ok()?;
    Some((parts.next()?.parse().ok()?, number))
}

/// Servers of asynchronous training begin with files in a folder of their own.
fn link_rows(checkpoints: &Path, id: &str) -> std::io::Result<()> {
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
fn rewrite(run: &RunLayout, bytes: &[u8], newest: Option<&str>) -> Result<(), Error> {
    let (whole, fit) = (run.file(".journal.whole"), run.file(".journal.fit"));
    fs::write(&whole, bytes).map_err(Error::io(&whole))?;
    let (_, mut records) = Journal::<Record>::open(&whole)?;
    fs::remove_file(&whole).map_err(Error::io(&whole))?;
    let stored = newest.and_then(ending);
    let is_stored = |checkpoint: &ServerCheckpoint| {
        Some((checkpoint.id.term.0, checkpoint.id.number)) == stored
    };
    records.retain(|record| kept(record).is_none_or(is_stored));
    if stored.is_some() && !records.iter().any(|record| kept(record).is_some()) {
        return Err(Error::Invalid(format!(
            "the journal in the store does not know checkpoint {}, which counts there",
            newest.unwrap_or_default()
        )));
    }
    let _ = fs::remove_file(&fit);
    Journal::<Record>::open(&fit)?.0.append(&records)?;
    fs::rename(&fit, run.journal()).map_err(Error::io(&fit))
}

#[cfg(test)]
mod tests {
    use salamander_core::asynchronous::{Map, MapVersion};
    use salamander_core::elastic::{Generation, MembershipEntry, Term};

    use super::*;

    fn run() -> (tempfile::TempDir, RunLayout) {
        let folder = tempfile::tempdir().expect("a folder");
        let run = RunLayout::new(folder.path());
        (folder, run)
    }

    /// The record of a checkpoint that counts.
    fn counted(number: u32) -> Record {
        let id = Generation { term: Term(1), number };
        let map = Map { number: MapVersion(id), servers: 1 };
        let entry = AsynchronousEntry::Kept(ServerCheckpoint { id, map, epochs: 0 });
        Record::MicroBatches { term: Term(1), entry }
    }

    /// The bytes of a journal, as a store has them.
    fn journal(records: &[Record]) -> Vec<u8> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("journal");
        let (mut journal, _) = Journal::<Record>::open(&path).expect("new");
        journal.append(records).expect("written");
        drop(journal);
        fs::read(&path).expect("read")
    }

    #[test]
    fn names_of_asynchronous_checkpoints_end_with_their_number() {
        assert_eq!(ending("step-00000120-2-7"), Some((2, 7)));
        assert_eq!(ending("step-00000120-g1.3"), None);
        assert_eq!(ending("best"), None);
    }

    #[test]
    fn a_journal_goes_on_from_the_stores_only_if_it_has_all_of_it() {
        let entry = |term| Record::Entry { term: Term(term), entry: MembershipEntry::Opened };
        assert_eq!(opened(&journal(&[Record::Restarts(1)])), None, "no master has opened it");
        assert_eq!(opened(&journal(&[entry(1)])), Some(vec![entry(1)]));
        let stored = [entry(1), Record::Restarts(1)];
        assert!(goes_on_from(&stored, &stored));
        assert!(goes_on_from(&[entry(1), Record::Restarts(1), entry(2)], &stored));
        assert!(!goes_on_from(&[entry(1)], &stored), "more was put since");
        assert!(!goes_on_from(&[entry(1), entry(2)], &stored), "a term that nobody granted");
        let counted_there = [entry(1), counted(1), counted(2)];
        assert!(goes_on_from(&[entry(1), counted(2)], &counted_there), "it was left out");
        assert!(!goes_on_from(&[entry(1), counted(1)], &counted_there), "it was put since");
    }

    #[test]
    fn a_journal_keeps_the_checkpoint_that_is_in_the_store_and_no_later_one() {
        let (_folder, run) = run();
        let records = [counted(1), Record::Restarts(3), counted(2)];
        rewrite(&run, &journal(&records), Some("step-00000010-1-1")).expect("fits");
        let (_, found) = Journal::<Record>::open(&run.journal()).expect("a journal");
        assert_eq!(found, records[..2]);
        let left = fs::read_dir(run.folder()).expect("a folder").count();
        assert_eq!(left, 1, "nothing but the journal is left");
    }

    #[test]
    fn a_journal_that_does_not_know_the_stores_checkpoint_is_refused() {
        let (_folder, run) = run();
        let wrong = rewrite(&run, &journal(&[counted(1)]), Some("step-00000010-1-9"));
        let error = wrong.expect_err("another run's").to_string();
        assert!(error.contains("does not know checkpoint step-00000010-1-9"), "{error}");
        assert!(!run.journal().exists());
    }

    #[test]
    fn servers_begin_with_the_rows_of_a_checkpoint_and_nothing_else_of_it() {
        let (_folder, run) = run();
        let from = run.checkpoints().join("step-00000010-1-4");
        fs::create_dir_all(&from).expect("made");
        for file in ["0.rows", "1.rows", "model.safetensors"] {
            fs::write(from.join(file), file).expect("written");
        }
        // Twice: whoever was killed meanwhile begins again.
        for _ in 0..2 {
            link_rows(&run.checkpoints(), "step-00000010-1-4").expect("linked");
        }
        let rows = fs::read_dir(run.checkpoints().join(".rows-1-4")).expect("a folder");
        let mut names: Vec<_> = rows.flatten().map(|entry| entry.file_name()).collect();
        names.sort();
        assert_eq!(names, ["0.rows", "1.rows"]);
    }

    #[test]
    fn a_place_in_a_store_names_its_run() {
        let (folder, _) = run();
        let find = |run: &str, store| find(run, folder.path(), store, &mut |_| {});
        for place in ["s3://", "s3://bucket"] {
            let error = find(place, None).expect_err("no run").to_string();
            assert!(error.contains("s3://bucket/prefix/RUN"), "{place}: {error}");
        }
        // What is here already is not asked for.
        fs::create_dir(folder.path().join("x")).expect("made");
        for (run, store) in [("s3://bucket/runs/x", None), ("x", Some("s3://bucket/runs"))] {
            assert_eq!(find(run, store).expect("here"), folder.path().join("x"));
        }
    }
}
