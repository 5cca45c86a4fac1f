//! The folder of a run: `runs/<id>/` with the experiment in force, metrics, checkpoints and a summary.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use salamander_core::layout::RunLayout;
use salamander_files::{Durability, PendingFolder};

use crate::Error;

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
        name: &str,
        fill: impl FnOnce(&Path) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        let cannot =
            || Error::system(format!("cannot make a run's folder in {}", parent.display()));
        let is_new = !parent.exists();
        fs::create_dir_all(parent).map_err(cannot())?;
        let beside = parent.join(format!(".new-{}", std::process::id()));
        let pending = PendingFolder::create(&beside).map_err(cannot())?;
        if let Err(error) = fill(&beside) {
            drop(pending);
            if is_new {
                // Only if nobody has put anything into it.
                let _ = fs::remove_dir(parent);
            }
            return Err(error);
        }
        let time = jiff::Timestamp::now().strftime("%Y%m%d-%H%M%S").to_string();
        let id = format!("{}-{time}", slug(name));
        for attempt in 1..1000 {
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
        Err(Error::Invalid(format!("{parent}: too many runs with the name {id}")))
    }

    /// Takes a folder that exists.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let layout = RunLayout::new(fs::canonicalize(path).map_err(Error::io(path))?);
        let file = layout.lock();
        let lock = File::create(&file).map_err(Error::io(&file))?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(Error::Busy(layout.folder().to_path_buf()));
        }
        Ok(Self { layout, _lock: lock })
    }

    /// What is in it.
    pub(crate) fn layout(&self) -> &RunLayout {
        &self.layout
    }
}

/// Finds a run by its folder, or by its id below `runs`.
pub fn find(run: &str, runs: &Path) -> Result<PathBuf, Error> {
    let candidates = [PathBuf::from(run), runs.join(run)];
    if let Some(path) = candidates.iter().find(|path| path.is_dir()) {
        return Ok(path.clone());
    }
    let mut known: Vec<String> = fs::read_dir(runs)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| !name.starts_with('.'))
        .collect();
    known.sort();
    let last: Vec<&str> = known.iter().rev().take(3).map(String::as_str).collect();
    let hint = match last.as_slice() {
        [] => format!("there are no runs in {}", runs.display()),
        last => format!("the latest in {}: {}", runs.display(), last.join(", ")),
    };
    Err(Error::NoSuchRun { run: run.to_string(), hint })
}

/// A name that is safe in paths.
fn slug(name: &str) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let slug: String = name.chars().map(safe).take(40).collect();
    let slug = slug.trim_matches('-').to_string();
    if slug.is_empty() { "run".to_string() } else { slug }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_locked_and_unique() {
        let parent = tempfile::tempdir().expect("a folder");
        let first = RunFolder::create(parent.path(), "My model!", |_| Ok(())).expect("made");
        let second = RunFolder::create(parent.path(), "My model!", |_| Ok(())).expect("made");
        assert!(first.layout().id().starts_with("my-model-"));
        assert_ne!(first.layout(), second.layout());
        let error = RunFolder::open(first.layout().folder()).err().expect("locked").to_string();
        assert!(error.ends_with("another process is training in this folder"), "{error}");
    }

    #[test]
    fn runs_are_found_by_id_and_path() {
        let parent = tempfile::tempdir().expect("a folder");
        let folder = RunFolder::create(parent.path(), "x", |_| Ok(())).expect("made");
        let run = folder.layout();
        assert_eq!(find(&run.id(), parent.path()).expect("there"), parent.path().join(run.id()));
        assert!(find(&run.folder().to_string_lossy(), Path::new("nowhere")).is_ok());
        let error = find("y", parent.path()).expect_err("absent").to_string();
        assert!(error.contains(&run.id()), "{error}");
    }
}
