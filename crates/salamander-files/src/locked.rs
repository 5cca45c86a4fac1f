//! A folder for as long as it is in use: beside what it is for, and removed even if its process is killed.

use std::fs::{self, File, TryLockError};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};

/// How the name of a folder ends that is not locked yet.
const NEW: &str = ".new";
/// Others remove a folder that is not locked yet if they come just then; so often it is made anew.
const TRIES: usize = 16;

/// A folder that is removed when this is dropped. Whoever makes one removes what killed processes have left: folders
/// of the same kind whose lock nobody holds.
#[derive(Debug)]
pub struct LockedFolder {
    path: PathBuf,
    lock: String,
    /// Held, not read: a folder whose lock is free was left by a process that was killed.
    _held: File,
}

impl LockedFolder {
    /// Makes a folder with a name of chance after `prefix`, by which folders of one kind know each other. It has a
    /// locked file of the name `lock`.
    pub fn create(parent: &Path, prefix: &str, lock: &str) -> io::Result<Self> {
        remove_abandoned(parent, prefix, lock);
        let mut tries = 1;
        loop {
            match Self::try_create(parent, prefix, lock) {
                Err(error) if is_disturbed(&error) && tries < TRIES => tries += 1,
                made => return made,
            }
        }
    }

    /// It has its name only when it is locked: one that still has the other is of nobody, or about to be made anew.
    fn try_create(parent: &Path, prefix: &str, lock: &str) -> io::Result<Self> {
        // Not the number of the process: in each pod that is the same.
        let chance = RandomState::new().hash_one(prefix);
        let path = parent.join(format!("{prefix}{chance:016x}"));
        let new = parent.join(format!("{prefix}{chance:016x}{NEW}"));
        fs::create_dir(&new)?;
        let held = File::create(new.join(lock))?;
        held.try_lock().map_err(|error| match error {
            TryLockError::Error(error) => error,
            TryLockError::WouldBlock => io::ErrorKind::WouldBlock.into(),
        })?;
        fs::rename(&new, &path)?;
        Ok(Self { path, lock: lock.to_string(), _held: held })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for LockedFolder {
    fn drop(&mut self) {
        // What cannot be removed now is removed by the next one.
        let _ = remove(&self.path, &self.lock);
    }
}

/// Whether a folder was taken for an abandoned one while it was made, or its name was there already. If the folder
/// above has gone the last try says so.
fn is_disturbed(error: &io::Error) -> bool {
    use io::ErrorKind::{AlreadyExists, NotFound, WouldBlock};
    matches!(error.kind(), AlreadyExists | NotFound | WouldBlock)
}

/// Removes what processes have left that were killed; what cannot be removed is only a waste of room.
fn remove_abandoned(parent: &Path, prefix: &str, lock: &str) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if !is_folder || !entry.file_name().to_string_lossy().starts_with(prefix) {
            continue;
        }
        let path = entry.path();
        match File::open(path.join(lock)) {
            Ok(file) if file.try_lock().is_ok() => drop(remove(&path, lock)),
            // It was being made or removed. Only if it is empty: who makes one has its lock in it at once.
            Err(error) if error.kind() == io::ErrorKind::NotFound => drop(fs::remove_dir(&path)),
            _ => {}
        }
    }
}

/// Removes the lock last: what is left of a folder without one would stay for ever.
fn remove(path: &Path, lock: &str) -> io::Result<()> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let removed = match entry.file_type()?.is_dir() {
            true => fs::remove_dir_all(entry.path()),
            false if entry.file_name() == lock => Ok(()),
            false => fs::remove_file(entry.path()),
        };
        match removed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    fs::remove_dir_all(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PREFIX: &str = ".out.flow-";

    fn create(parent: &Path) -> LockedFolder {
        LockedFolder::create(parent, PREFIX, "lock").expect("made")
    }

    #[test]
    fn what_a_killed_process_left_is_removed_and_what_is_in_use_is_not() {
        let parent = tempfile::tempdir().expect("a folder");
        let used = create(parent.path());
        fs::create_dir(used.path().join("parts")).expect("made");
        let left = |name: &str| parent.path().join(format!("{PREFIX}{name}"));
        // Killed at work, before it had its name, and before it had its lock.
        for name in ["1", "2.new", "3.new"] {
            fs::create_dir(left(name)).expect("made");
        }
        for name in ["1/rows", "1/lock", "2.new/lock"] {
            fs::write(left(name), "x").expect("written");
        }
        let other = parent.path().join(".other.flow-1");
        fs::create_dir(&other).expect("made");
        // What a link leads to is not in this place.
        let elsewhere = tempfile::tempdir().expect("a folder");
        fs::write(elsewhere.path().join("lock"), "x").expect("written");
        std::os::unix::fs::symlink(elsewhere.path(), left("4")).expect("linked");
        let next = create(parent.path());
        assert!(["1", "2.new", "3.new"].iter().all(|name| !left(name).exists()));
        assert!(other.exists() && used.path().join("parts").exists());
        assert!(elsewhere.path().join("lock").exists());
        assert_ne!(used.path(), next.path());
        let paths = [used.path().to_path_buf(), next.path().to_path_buf()];
        drop((used, next));
        assert!(paths.iter().all(|path| !path.exists()));
    }

    #[test]
    fn files_beside_that_have_no_lock_stay() {
        let parent = tempfile::tempdir().expect("a folder");
        let kept = parent.path().join(format!("{PREFIX}mine"));
        fs::create_dir(&kept).expect("made");
        fs::write(kept.join("rows"), "x").expect("written");
        create(parent.path());
        assert!(kept.join("rows").exists());
    }

    #[test]
    fn many_at_once_disturb_nobody() {
        let parent = tempfile::tempdir().expect("a folder");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let made = create(parent.path());
                        assert!(made.path().join("lock").exists());
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(parent.path()).expect("there").count(), 0);
    }

    #[test]
    fn no_folder_is_made_in_one_that_is_not_there() {
        let parent = tempfile::tempdir().expect("a folder").path().join("gone");
        let error = LockedFolder::create(&parent, PREFIX, "lock").expect_err("no folder");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
