//! The folder of a run: `runs/<id>/` with the experiment in force, metrics, checkpoints and a summary.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rustix::fs::{FlockOperation, flock};

const EXPERIMENT: &str = "experiment.yaml";

/// A run's folder, held so that no second process trains in it.
pub struct RunFolder {
    path: PathBuf,
    /// Held, not read: the lock ends with the process, however it ends.
    _lock: File,
}

impl RunFolder {
    /// Makes a new folder below `parent`, named after the experiment and the time. It appears
    /// together with its experiment: a run that is killed at birth can be resumed, or is not there.
    pub fn create(parent: &Path, name: &str, experiment: &str) -> Result<Self> {
        let cannot = || format!("cannot make a run's folder in {}", parent.display());
        fs::create_dir_all(parent).with_context(cannot)?;
        let beside = parent.join(format!(".new-{}", std::process::id()));
        fs::create_dir_all(&beside).with_context(cannot)?;
        fs::write(beside.join(EXPERIMENT), experiment).with_context(cannot)?;
        let time = jiff::Timestamp::now().strftime("%Y%m%d-%H%M%S").to_string();
        let id = format!("{}-{time}", slug(name));
        for attempt in 1..1000 {
            let unique = if attempt == 1 { id.clone() } else { format!("{id}-{attempt}") };
            let path = parent.join(unique);
            // Renaming onto a folder that has content fails, so no run is ever replaced.
            match fs::rename(&beside, &path) {
                Ok(()) => return Self::open(&path),
                Err(error) if path.exists() => drop(error),
                Err(error) => return Err(error).with_context(cannot),
            }
        }
        bail!("{}: too many runs with the name {id}", parent.display())
    }

    /// Takes a folder that exists.
    pub fn open(path: &Path) -> Result<Self> {
        let path = fs::canonicalize(path).with_context(|| path.display().to_string())?;
        let file = path.join("run.lock");
        let lock = File::create(&file).with_context(|| file.display().to_string())?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            bail!("{}: another process is training in this folder", path.display());
        }
        Ok(Self { path, _lock: lock })
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The run's name.
    pub fn id(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// The experiment in force.
    pub fn experiment(&self) -> PathBuf {
        self.path.join(EXPERIMENT)
    }
}

/// Finds a run by its folder, or by its id below `runs`.
pub fn find(run: &str, runs: &Path) -> Result<PathBuf> {
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
    bail!("there is no run \"{run}\" ({hint})")
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
        let first = RunFolder::create(parent.path(), "My model!", "x").expect("made");
        let second = RunFolder::create(parent.path(), "My model!", "x").expect("made");
        assert!(first.id().starts_with("my-model-"));
        assert_ne!(first.path(), second.path());
        let error = RunFolder::open(first.path()).err().expect("locked").to_string();
        assert!(error.ends_with("another process is training in this folder"), "{error}");
    }

    #[test]
    fn runs_are_found_by_id_and_path() {
        let parent = tempfile::tempdir().expect("a folder");
        let run = RunFolder::create(parent.path(), "x", "").expect("made");
        assert_eq!(find(&run.id(), parent.path()).expect("there"), parent.path().join(run.id()));
        assert!(find(&run.path().to_string_lossy(), Path::new("nowhere")).is_ok());
        let error = find("y", parent.path()).expect_err("absent").to_string();
        assert!(error.contains(&run.id()), "{error}");
    }
}
