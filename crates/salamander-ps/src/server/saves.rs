//! Copies on their way to files, each on a thread of its own: who asked for one goes on as soon as the
//! copy is made, and asks later whether it was written.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use crate::wire::{Code, Failure};
use crate::{Error, Snapshot, Written};

/// So many files are remembered that nobody has asked about.
const REMEMBERED: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Saves(Arc<SharedSaves>);

#[derive(Debug, Default)]
struct SharedSaves {
    files: Mutex<SaveFiles>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct SaveFiles {
    by_path: HashMap<PathBuf, Save>,
    writers: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
enum Save {
    Writing,
    Ended(Result<Written, String>),
}

impl Saves {
    /// Writes a copy to a file, unless one is being written to it: then the request came twice, because
    /// its answer got lost.
    pub(super) fn write(
        &self,
        path: PathBuf,
        copy: impl FnOnce() -> Result<Snapshot, Error>,
    ) -> Result<(), Error> {
        let mut files = self.0.lock();
        if matches!(files.by_path.get(&path), Some(Save::Writing)) {
            return Ok(());
        }
        let snapshot = copy()?;
        files.forget();
        let (shared, to) = (Arc::clone(&self.0), path.clone());
        let writer = std::thread::Builder::new().name("ps-save".to_string()).spawn(move || {
            let written = snapshot.write(&to).map_err(|error| error.to_string());
            if let Err(reason) = &written {
                tracing::warn!(reason, "a copy of the tables could not be written");
            }
            shared.lock().by_path.insert(to, Save::Ended(written));
            shared.changed.notify_all();
        });
        files.writers.push(writer.map_err(Error::Thread)?);
        files.by_path.insert(path, Save::Writing);
        Ok(())
    }

    /// Waits until a file is written.
    pub(super) fn wait(&self, path: &Path) -> Result<Written, Failure> {
        let mut files = self.0.lock();
        loop {
            match files.by_path.get(path) {
                Some(Save::Ended(Ok(written))) => return Ok(written.clone()),
                Some(Save::Ended(Err(reason))) => return Err(Failure::new(Code::Broken, reason)),
                Some(Save::Writing) => {
                    let woken = self.0.changed.wait(files);
                    files = woken.unwrap_or_else(PoisonError::into_inner);
                }
                None => {
                    let path = path.display();
                    let text = format!("{path}: this server has no copy for it; save again");
                    return Err(Failure::new(Code::NotHere, text));
                }
            }
        }
    }
}

impl Drop for Saves {
    fn drop(&mut self) {
        let writers = std::mem::take(&mut self.0.lock().writers);
        for writer in writers {
            // It has nothing to say but what it has noted.
            let _ = writer.join();
        }
    }
}

impl SharedSaves {
    fn lock(&self) -> MutexGuard<'_, SaveFiles> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SaveFiles {
    /// Lets go of what nobody has asked about for long.
    fn forget(&mut self) {
        self.writers.retain(|writer| !writer.is_finished());
        if self.by_path.len() >= REMEMBERED {
            self.by_path.retain(|_, save| matches!(save, Save::Writing));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Engine, EngineOptions};

    #[test]
    fn who_asks_hears_what_came_of_the_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let engine = Engine::new(EngineOptions::default()).expect("an engine");
        let saves = Saves::default();
        let (good, bad) = (folder.path().join("rows"), folder.path().join("none/rows"));
        for path in [&good, &bad] {
            saves.write(path.clone(), || engine.snapshot()).expect("copied");
        }
        let written = saves.wait(&good).expect("written");
        assert_eq!(written.bytes, std::fs::metadata(&good).expect("a file").len());
        let failed = saves.wait(&bad).expect_err("there is no folder");
        assert!(failed.code == Code::Broken && failed.text.contains("none"), "{failed}");
        let unknown = folder.path().join("other");
        let failed = saves.wait(&unknown).expect_err("nobody saved it");
        assert_eq!(failed.code, Code::NotHere);
    }
}
