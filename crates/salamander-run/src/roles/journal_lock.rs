//! A master in a pod may find the journal locked by one on a node that does not answer any more: the volume lets go of
//! that lock after a while. Waiting for it is no crash.

use std::fs::{OpenOptions, TryLockError};
use std::path::Path;
use std::time::Duration;

use salamander_net::Backoff;
use tracing::warn;

use crate::Error;

/// How often the lock is tried.
const PAUSE: Duration = Duration::from_millis(500);

/// Waits until nobody holds the journal; false if somebody still does after `patience`.
pub(super) fn wait_for_journal(journal: &Path, patience: Duration) -> Result<bool, Error> {
    if !journal.exists() {
        return Ok(true);
    }
    let file = OpenOptions::new().read(true).write(true).open(journal);
    let file = file.map_err(Error::io(journal))?;
    let mut backoff = Backoff::every(PAUSE.min(patience)).within(patience);
    loop {
        match file.try_lock() {
            // Given back with the file; the journal takes it for good.
            Ok(()) => return Ok(true),
            Err(TryLockError::Error(cause)) => return Err(Error::io(journal)(cause)),
            Err(TryLockError::WouldBlock) => {
                let Some(wait) = backoff.wait() else { return Ok(false) };
                warn!(journal = %journal.display(), "another master still holds the journal");
                std::thread::sleep(wait);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_that_is_held_is_waited_for_and_one_that_is_not_is_free_at_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("journal");
        let wait = |patience| wait_for_journal(&path, patience).expect("tried");
        assert!(wait(Duration::ZERO), "there is none yet");
        let holder = std::fs::File::create(&path).expect("made");
        holder.lock().expect("held");
        assert!(!wait(Duration::ZERO));
        let waiting = std::thread::spawn({
            let path = path.clone();
            move || wait_for_journal(&path, Duration::from_secs(600))
        });
        drop(holder);
        assert!(waiting.join().expect("no panic").expect("tried"));
    }
}
