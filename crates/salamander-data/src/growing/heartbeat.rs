//! Heartbeats of who writes partitions: `salamander-parts.alive` changes every few seconds as long as it is at work.
//! The lock says the same, but only on the machine of who holds it: not every disk that hosts share shares locks.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use salamander_files::{Durability, replace};

use super::list::ALIVE;

/// How often it changes.
const EVERY: Duration = Duration::from_secs(2);
/// Who was silent for so long is not heard any more.
const SILENCE: Duration = Duration::from_secs(15);
/// Another one after each start of a machine.
const MACHINE: &str = "/proc/sys/kernel/random/boot_id";

/// Writes heartbeats until it is dropped.
#[derive(Debug)]
pub(super) struct Heartbeats {
    path: PathBuf,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Heartbeats {
    /// For who writes to a folder. Without heartbeats it is at work all the same.
    pub(super) fn begin(folder: &Path) -> Self {
        let path = folder.join(ALIVE);
        let (stop, stopped) = channel();
        let (own, machine) = (path.clone(), machine());
        let beat = move || {
            let mut beats: u64 = 0;
            loop {
                let text = format!("{machine} {} {beats}\n", std::process::id());
                let _ = replace(&own, text.as_bytes(), Durability::Unsynced);
                beats += 1;
                if !matches!(stopped.recv_timeout(EVERY), Err(RecvTimeoutError::Timeout)) {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("heartbeats".to_string()).spawn(beat).ok();
        Self { path, stop: Some(stop), thread }
    }
}

impl Drop for Heartbeats {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        // Who ends says so, and need not be waited for.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The heartbeats of a folder, as they are heard.
#[derive(Debug, Default)]
pub(super) struct HeardBeats {
    last: Vec<u8>,
    changed: Option<Instant>,
}

/// What is heard of who writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// There are no heartbeats.
    Nothing,
    /// The last one is new.
    Beats {
        /// Whether it comes from this machine, whose locks are seen.
        from_here: bool,
    },
    /// There were some, and the last one is old.
    Silence {
        /// Whether they came from this machine.
        from_here: bool,
    },
}

impl HeardBeats {
    /// What is heard now. The clock is that of who listens: those of other machines may go otherwise.
    pub(super) fn listen(&mut self, folder: &Path, now: Instant) -> Heard {
        let Ok(beat) = std::fs::read(folder.join(ALIVE)) else {
            *self = Self::default();
            return Heard::Nothing;
        };
        if beat != self.last {
            (self.last, self.changed) = (beat, Some(now));
        }
        let here = machine();
        let from_here = !here.is_empty() && self.last.starts_with(here.as_bytes());
        let is_old = |since: Instant| now.saturating_duration_since(since) >= SILENCE;
        match self.changed.is_some_and(is_old) {
            true => Heard::Silence { from_here },
            false => Heard::Beats { from_here },
        }
    }
}

fn machine() -> String {
    std::fs::read_to_string(MACHINE).unwrap_or_default().trim().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beats_are_heard_until_they_stay_the_same_for_too_long() {
        let folder = tempfile::tempdir().unwrap();
        let (mut heard, begin) = (HeardBeats::default(), Instant::now());
        let beat = |text: &str| std::fs::write(folder.path().join(ALIVE), text).unwrap();
        let mut at = |seconds| heard.listen(folder.path(), begin + Duration::from_secs(seconds));
        assert_eq!(at(0), Heard::Nothing);
        beat("elsewhere 7 0\n");
        assert_eq!(at(1), Heard::Beats { from_here: false });
        assert_eq!(at(15), Heard::Beats { from_here: false });
        assert_eq!(at(16), Heard::Silence { from_here: false });
        beat("elsewhere 7 1\n");
        assert_eq!(at(40), Heard::Beats { from_here: false });
        beat(&format!("{} 8 0\n", machine()));
        assert_eq!(at(41), Heard::Beats { from_here: true });
        assert_eq!(at(60), Heard::Silence { from_here: true });
    }

    #[test]
    fn who_ends_takes_its_heartbeats_along() {
        let folder = tempfile::tempdir().unwrap();
        let beats = Heartbeats::begin(folder.path());
        let mut heard = HeardBeats::default();
        while heard.listen(folder.path(), Instant::now()) == Heard::Nothing {
            std::thread::yield_now();
        }
        drop(beats);
        assert_eq!(heard.listen(folder.path(), Instant::now()), Heard::Nothing);
    }
}
