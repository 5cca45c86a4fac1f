//! Copies on their way to files, each on a thread of its own: who asked for one goes on as soon as the
//! copy is made, and asks later whether it was written.

use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use super::service::refuse;
use crate::wire::{Code, Failure};
use crate::{Error, Snapshot, Written};

/// So many files are remembered; the oldest ones are forgotten first.
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
    /// The files that were written, or not, in that order.
    ended: VecDeque<PathBuf>,
    writers: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
enum Save {
    Writing,
    Ended(Result<Written, Unwritten>),
}

/// Why a file was not written, and whether it helps to try again.
#[derive(Clone, Debug)]
struct Unwritten {
    code: Code,
    reason: String,
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
        files.writers.retain(|writer| !writer.is_finished());
        let (shared, to) = (Arc::clone(&self.0), path.clone());
        let writer = std::thread::Builder::new().name("ps-save".to_string()).spawn(move || {
            let written = catch_unwind(AssertUnwindSafe(|| snapshot.write(&to)));
            shared.end(to, written.unwrap_or(Err(Error::Gone)));
        });
        files.writers.push(writer.map_err(Error::Thread)?);
        files.begin(path);
        Ok(())
    }

    /// Waits until a file is written.
    pub(super) fn wait(&self, path: &Path) -> Result<Written, Failure> {
        let mut files = self.0.lock();
        loop {
            match files.by_path.get(path) {
                Some(Save::Ended(Ok(written))) => return Ok(written.clone()),
                Some(Save::Ended(Err(Unwritten { code, reason }))) => {
                    return Err(Failure::new(*code, reason));
                }
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

    /// Notes what came of a file.
    fn end(&self, path: PathBuf, written: Result<Written, Error>) {
        let written = written.map_err(|error| {
            tracing::warn!(%error, path = %path.display(), "a copy of the tables was not written");
            let Failure { code, text, .. } = refuse(error);
            Unwritten { code, reason: text }
        });
        let mut files = self.lock();
        files.by_path.insert(path.clone(), Save::Ended(written));
        files.ended.push_back(path);
        self.changed.notify_all();
    }
}

impl SaveFiles {
    /// A file is being written; what came of it before is of no use.
    fn begin(&mut self, path: PathBuf) {
        self.ended.retain(|ended| *ended != path);
        // Those that were written last are the ones that somebody may still ask about.
        while self.ended.len() >= REMEMBERED
            && let Some(oldest) = self.ended.pop_front()
        {
            self.by_path.remove(&oldest);
        }
        self.by_path.insert(path, Save::Writing);
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
    #[test]
    fn the_newest_files_are_the_last_to_be_forgotten() {
        let folder = tempfile::tempdir().expect("a folder");
        let engine = Engine::new(EngineOptions::default()).expect("an engine");
        let saves = Saves::default();
        let path = |number: usize| folder.path().join(number.to_string());
        for number in 0..REMEMBERED + 10 {
            saves.write(path(number), || engine.snapshot()).expect("copied");
            if number > 0 {
                // The one before was asked about by nobody when this one came.
                saves.wait(&path(number - 1)).expect("remembered");
            }
        }
        let oldest = saves.wait(&path(0)).expect_err("it had to make room");
        assert_eq!(oldest.code, Code::NotHere);
    }
}
