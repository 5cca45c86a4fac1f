//! Files that a process holds while it is at work: they are free again when it ends, however it ends.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, test_kill_process};

/// How long what a killed process has left may hold its lock, and how often that is looked at.
const SETTLED: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(10);

/// Why a step cannot be begun.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LockError {
    /// A process has it: its number, as far as it has said so.
    #[error("another process does this step (process {0}): wait for it")]
    Held(String),
    /// The system does not let us.
    #[error("cannot lock it: {0}")]
    Io(#[from] io::Error),
}

/// Holds a file, alone or with others that share it. Children do not keep it: they get no such file.
pub(crate) fn hold(path: &Path, is_shared: bool) -> Result<File, LockError> {
    let begun = Instant::now();
    loop {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false);
        let mut file = options.open(path)?;
        match if is_shared { file.try_lock_shared() } else { file.try_lock() } {
            Ok(()) if has_name(&file, path) => {
                file.set_len(0)?;
                writeln!(file, "{}", std::process::id())?;
                return Ok(file);
            }
            // Who gave it up has removed it meanwhile.
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let holder = holder(path);
                // A child that was not yet a program of its own when its parent was killed, or gave the lock up.
                let is_own = holder == std::process::id().to_string();
                if !(is_gone(&holder) || is_own) || begun.elapsed() >= SETTLED {
                    return Err(LockError::Held(holder));
                }
                sleep(LOOK);
            }
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
    }
}

/// Keeps other processes from a step, and removes its files when it is given up.
#[derive(Debug, Default)]
pub(crate) struct StepLock {
    held: Vec<(PathBuf, File)>,
}

impl StepLock {
    /// Holds all of these, or none.
    pub(crate) fn of(paths: [PathBuf; 2]) -> Result<Self, LockError> {
        let mut lock = Self::default();
        for path in paths {
            let file = hold(&path, false)?;
            lock.held.push((path, file));
        }
        Ok(lock)
    }
}

impl Drop for StepLock {
    fn drop(&mut self) {
        for (path, _file) in &self.held {
            // One that is left is held again by the next, or removed by the next run.
            let _ = fs::remove_file(path);
        }
    }
}

/// Removes what killed processes have left of their locks; for when nobody is at work in the folder.
pub(crate) fn remove_locks(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|ending| ending == "lock") {
            let _ = fs::remove_file(path);
        }
    }
}

fn has_name(file: &File, path: &Path) -> bool {
    let same = |one: fs::Metadata, other: fs::Metadata| {
        (one.dev(), one.ino()) == (other.dev(), other.ino())
    };
    match (file.metadata(), fs::metadata(path)) {
        (Ok(held), Ok(named)) => same(held, named),
        _ => false,
    }
}

/// Who has said to hold a lock.
fn holder(path: &Path) -> String {
    match fs::read_to_string(path).unwrap_or_default().trim() {
        "" => "another".to_string(),
        pid => pid.to_string(),
    }
}

fn is_gone(holder: &str) -> bool {
    let pid = holder.parse().ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| test_kill_process(pid).is_err())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_was_given_up_leaves_no_file_and_can_be_had_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let paths = || ["a.lock", "b.lock"].map(|name| folder.path().join(name));
        drop(StepLock::of(paths()).expect("a lock"));
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0);
        let lock = StepLock::of(paths()).expect("the lock again");
        // Whoever holds a file that has lost its name holds nothing.
        let [first, _] = paths();
        fs::remove_file(&first).expect("removed");
        let (old, _new) = (&lock.held[0].1, hold(&first, false).expect("another file"));
        assert!(!has_name(old, &first));
        fs::write(folder.path().join("c.lock"), "1").expect("written");
        fs::write(folder.path().join("c.log"), "").expect("written");
        drop(lock);
        remove_locks(folder.path());
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
    }
}
