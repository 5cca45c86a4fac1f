//! The folder of a run: `runs/<id>/` with the experiment in force, metrics, checkpoints and a summary.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use salamander_core::layout::RunLayout;
use salamander_files::{Durability, PendingFolder};
use salamander_net::Token;
use salamander_train::checkpoint::remove_leftovers;

use crate::Error;
use crate::folder_status::run_folders;

/// The name that stands for the run that was started or resumed last.
const LATEST: &str = "latest";
/// How often a lock is tried, and the pause between: whoever looks at a run holds it for a moment.
const TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_millis(10);

/// What a new run is called.
#[derive(Clone, Copy)]
pub(crate) enum RunName<'a> {
    /// After its experiment and the time.
    After(&'a str),
    /// This and nothing else.
    Exactly(&'a str),
}

impl<'a> RunName<'a> {
    /// The id that was asked for, or else a name and the time. An id is one part of a path, and not hidden.
    pub(crate) fn new(name: &'a str, id: Option<&'a str>) -> Result<Self, Error> {
        let Some(id) = id else { return Ok(Self::After(name)) };
        let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if id.is_empty() || id.len() > 128 || id.starts_with('.') || !id.chars().all(fits) {
            let reason = format!("{id:?} cannot be a run's id: letters, digits, - _ .");
            return Err(Error::Invalid(reason));
        }
        Ok(Self::Exactly(id))
    }
}

/// A run's folder, held so that no second process trains in it.
pub(crate) struct RunFolder {
    layout: RunLayout,
    /// Held, not read: the lock ends with the process, however it ends.
    _lock: File,
}

impl RunFolder {
    /// Makes a new folder below `parent`, named after the experiment and the time. It appears together with what `fill`
    /// puts into it: a run that is killed at birth can be resumed, or is not there.
    pub(crate) fn create(
        parent: &Path,
        name: RunName<'_>,
        fill: impl FnOnce(&Path) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        let cannot =
            || Error::system(format!("cannot make a run's folder in {}", parent.display()));
        let is_new = !parent.exists();
        fs::create_dir_all(parent).map_err(cannot())?;
        // Not by the number of this process: containers that share a volume may have the same.
        let beside = parent.join(format!(".new-{:.8}", Token::random()?.to_hex()));
        let pending = PendingFolder::create(&beside).map_err(cannot())?;
        if let Err(error) = fill(&beside) {
            drop(pending);
            if is_new {
                // Only if nobody has put anything into it.
                let _ = fs::remove_dir(parent);
            }
            return Err(error);
        }
        let (id, attempts) = match name {
            RunName::After(name) => {
                let time = jiff::Timestamp::now().strftime("%Y%m%d-%H%M%S").to_string();
                (format!("{}-{time}", slug(name)), 1000)
            }
            RunName::Exactly(id) => (id.to_string(), 2),
        };
        for attempt in 1..attempts {
            let unique = if attempt == 1 { id.clone() } else { format!("{id}-{attempt}") };
            let path = parent.join(unique);
            // Renaming onto a folder that has content fails, so no run is ever replaced.
            match pending.commit(&path, Durability::Unsynced) {
                Ok(()) => return Self::open(&path),
                Err(_) if path.exists() => {}
                Err(error) => return Err(cannot()(error)),
            }
        }
        let parent = parent.display();
        Err(Error::Invalid(match name {
            RunName::After(_) => format!("{parent}: too many runs with the name {id}"),
            RunName::Exactly(_) => format!("{parent}: there is a run {id} already"),
        }))
    }

    /// Takes a folder that exists.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let layout = RunLayout::new(fs::canonicalize(path).map_err(Error::io(path))?);
        let file = layout.lock();
        // Not emptied yet: it may be another process's.
        let lock = OpenOptions::new().write(true).create(true).truncate(false).open(&file);
        let mut lock = lock.map_err(Error::io(&file))?;
        let mut tries = 0;
        while flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            tries += 1;
            if tries == TRIES {
                return Err(Error::Busy(layout.folder().to_path_buf()));
            }
            std::thread::sleep(PAUSE);
        }
        let written = lock.set_len(0).and_then(|()| writeln!(lock, "{}", std::process::id()));
        written.map_err(Error::io(&file))?;
        Ok(Self { layout, _lock: lock })
    }

    /// What is in it.
    pub(crate) fn layout(&self) -> &RunLayout {
        &self.layout
    }
}

/// Removes what killed processes have left among the checkpoints of a run that is held, and has no processes.
pub(crate) fn tidy(run: &RunLayout) {
    if let Err(error) = remove_leftovers(&run.checkpoints()) {
        tracing::warn!(%error, "what killed processes have left among the checkpoints stays there");
    }
}

/// The process that trains in a folder.
pub(crate) struct Holder {
    /// The system's number for it, where it is known.
    pub(crate) pid: Option<u32>,
}

/// Who trains in a folder now, if anybody does.
pub(crate) fn holder(run: &RunLayout) -> Option<Holder> {
    let mut lock = File::open(run.lock()).ok()?;
    if flock(&lock, FlockOperation::NonBlockingLockShared).is_ok() {
        return None;
    }
    let mut text = String::new();
    let read = lock.read_to_string(&mut text);
    Some(Holder { pid: read.ok().and_then(|_| text.trim().parse().ok()) })
}

/// Finds a run by its folder, or by its id below `runs`; `latest` is the one there that was started or resumed last.
pub fn find(run: &str, runs: &Path) -> Result<PathBuf, Error> {
    if run == LATEST
        && let Some(newest) = run_folders(runs).first()
    {
        return Ok(newest.folder().to_path_buf());
    }
    let candidates = [PathBuf::from(run), runs.join(run)];
    if let Some(path) = candidates.iter().find(|path| path.is_dir()) {
        return Ok(path.clone());
    }
    let last: Vec<String> = run_folders(runs).iter().take(3).map(RunLayout::id).collect();
    let hint = match last.as_slice() {
        [] => format!("there are no runs in {}", runs.display()),
        last => format!("the latest in {}: {}", runs.display(), last.join(", ")),
    };
    Err(Error::NoSuchRun { run: run.to_string(), hint })
}

/// A name that is safe in paths.
pub(crate) fn slug(name: &str) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let slug: String = name.chars().map(safe).take(40).collect();
    let slug = slug.trim_matches('-').to_string();
    if slug.is_empty() { "run".to_string() } else { slug }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn experiment(folder: &Path) -> Result<(), Error> {
        fs::write(RunLayout::new(folder).experiment(), "").expect("written");
        Ok(())
    }

    #[test]
    fn a_run_is_locked_and_unique() {
        let parent = tempfile::tempdir().expect("a folder");
        let first = RunFolder::create(parent.path(), RunName::After("My model!"), |_| Ok(()))
            .expect("made");
        let second = RunFolder::create(parent.path(), RunName::After("My model!"), |_| Ok(()))
            .expect("made");
        assert!(first.layout().id().starts_with("my-model-"));
        assert_ne!(first.layout(), second.layout());
        let error = RunFolder::open(first.layout().folder()).err().expect("locked").to_string();
        assert!(error.ends_with("another process is training in this folder"), "{error}");
    }

    #[test]
    fn an_id_is_kept_and_given_once() {
        let parent = tempfile::tempdir().expect("a folder");
        let name = RunName::new("x", Some("my.run-1")).expect("an id");
        let made = RunFolder::create(parent.path(), name, experiment).expect("made");
        assert_eq!(made.layout().id(), "my.run-1");
        let error = RunFolder::create(parent.path(), name, experiment).err().expect("there");
        assert!(error.to_string().ends_with("there is a run my.run-1 already"), "{error}");
        for wrong in ["", "../x", ".x", "a/b", "a b"] {
            assert!(RunName::new("x", Some(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn runs_are_found_by_id_and_path() {
        let parent = tempfile::tempdir().expect("a folder");
        let folder =
            RunFolder::create(parent.path(), RunName::After("x"), experiment).expect("made");
        let run = folder.layout();
        assert_eq!(find(&run.id(), parent.path()).expect("there"), parent.path().join(run.id()));
        assert!(find(&run.folder().to_string_lossy(), Path::new("nowhere")).is_ok());
        let error = find("y", parent.path()).expect_err("absent").to_string();
        assert!(error.contains(&run.id()), "{error}");
    }

    #[test]
    fn latest_is_the_run_that_was_started_or_resumed_last() {
        let parent = tempfile::tempdir().expect("a folder");
        let error = find("latest", parent.path()).expect_err("no runs").to_string();
        assert!(error.contains("there are no runs in"), "{error}");
        let first =
            RunFolder::create(parent.path(), RunName::After("a"), experiment).expect("made");
        let second =
            RunFolder::create(parent.path(), RunName::After("b"), experiment).expect("made");
        let latest = || find("latest", parent.path()).expect("there");
        assert_eq!(latest(), parent.path().join(second.layout().id()));
        // As if resumed a little later: files written in a row can have the same time.
        let file = OpenOptions::new().write(true).open(first.layout().experiment());
        let later = std::time::SystemTime::now() + Duration::from_secs(9);
        file.and_then(|file| file.set_modified(later)).expect("resumed");
        assert_eq!(latest(), parent.path().join(first.layout().id()));
    }
}
