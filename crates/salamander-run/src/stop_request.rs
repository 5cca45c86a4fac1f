//! The wish to stop a run in one process, which has no master to ask: a file in its folder that the process looks for.
//! No signal, because a program that uses this library may not expect one, and the folder may be another machine's.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use salamander_core::layout::RunLayout;
use salamander_files::{Durability, replace};

use crate::Error;

/// How often the file is looked for.
const LOOK: Duration = Duration::from_millis(100);

/// Asks the process that trains in a folder to end after its step.
pub(crate) fn ask(run: &RunLayout) -> Result<(), Error> {
    let path = run.stop_request();
    replace(&path, b"", Durability::Unsynced).map_err(Error::io(&path))
}

/// Forgets what was asked of a run that is about to go on.
pub(crate) fn forget(run: &RunLayout) {
    let _ = fs::remove_file(run.stop_request());
}

/// Looks for the wish as long as it lives.
pub(crate) struct StopWatch {
    /// Dropped to end the thread.
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl StopWatch {
    /// Sets `stop` when somebody asks for it.
    pub(crate) fn start(run: &RunLayout, stop: Arc<AtomicBool>) -> Result<Self, Error> {
        let (end, ended) = channel::<()>();
        let path = run.stop_request();
        let look = move || {
            while ended.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                if path.exists() {
                    stop.store(true, Ordering::Relaxed);
                    return;
                }
            }
        };
        let thread = Builder::new().name("stop".to_string()).spawn(look);
        let thread = thread.map_err(Error::system("cannot start a thread"))?;
        Ok(Self { end: Some(end), thread: Some(thread) })
    }
}

impl Drop for StopWatch {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_stopped_by_a_wish_and_by_none_of_earlier() {
        let folder = tempfile::tempdir().expect("a folder");
        let run = RunLayout::new(folder.path());
        ask(&run).expect("asked");
        forget(&run);
        let stop = Arc::new(AtomicBool::new(false));
        let watch = StopWatch::start(&run, Arc::clone(&stop)).expect("started");
        assert!(!stop.load(Ordering::Relaxed));
        ask(&run).expect("asked");
        while !stop.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        drop(watch);
    }

    #[test]
    fn a_watch_ends_with_its_run() {
        let folder = tempfile::tempdir().expect("a folder");
        let stop = Arc::new(AtomicBool::new(false));
        let run = RunLayout::new(folder.path());
        drop(StopWatch::start(&run, Arc::clone(&stop)).expect("started"));
        assert!(!stop.load(Ordering::Relaxed));
        assert_eq!(Arc::strong_count(&stop), 1, "its thread is gone");
    }
}
