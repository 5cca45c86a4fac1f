//! The process of an experiment: started in a group of its own, found again by a hub that was started anew.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use salamander_core::environment;
use salamander_files::{Durability, replace};
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::hub::now;

/// What is kept of a process beside its console.
const KEPT: &str = "process.json";
/// How much of a console is looked through for what went wrong.
const QUOTED: u64 = 8192;

/// A process.
pub(super) struct QueueProcess {
    kept: ProcessRecord,
    /// While this hub is its parent.
    child: Option<Child>,
    /// The hub's folder for the experiment.
    own: PathBuf,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ProcessRecord {
    pid: u32,
    /// When it was started, so that another process with its number is told from it.
    started: u64,
    slots: u32,
    /// When that was, in milliseconds since 1970.
    #[serde(default)]
    since: i64,
    /// Whether it was asked to end. Kept, since asking twice would end it at once.
    #[serde(default)]
    asked: bool,
}

impl ProcessRecord {
    fn write(&self, own: &Path) -> Result<(), Error> {
        let path = own.join(KEPT);
        let json = serde_json::to_vec(self).unwrap_or_default();
        replace(&path, &json, Durability::Unsynced).map_err(Error::io(&path))
    }
}

/// What is to be started.
pub(super) struct ProcessStart<'a> {
    pub(super) program: &'a Path,
    pub(super) arguments: Vec<String>,
    pub(super) folder: PathBuf,
    /// The hub's folder for the experiment.
    pub(super) own: &'a Path,
    pub(super) slots: u32,
}

impl QueueProcess {
    /// Starts it; what it prints goes to its console.
    pub(super) fn start(start: &ProcessStart<'_>) -> Result<Self, Error> {
        let console = start.own.join("console.log");
        let out = File::options().create(true).append(true).open(&console);
        let out = out.map_err(Error::io(&console))?;
        let err = out.try_clone().map_err(Error::io(&console))?;
        let child = Command::new(start.program)
            .args(&start.arguments)
            .current_dir(&start.folder)
            // The hub sees its folder.
            .env_remove(environment::HUB.name)
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            // Neither a Ctrl-C nor the end of the hub is for it.
            .process_group(0)
            .spawn()
            .map_err(Error::io(start.program))?;
        let pid = child.id();
        let (started, slots) = (started(pid).unwrap_or(0), start.slots);
        let kept = ProcessRecord { pid, started, slots, since: now(), asked: false };
        // Without it a hub that is started anew finds the process by the lock of its folder. It has begun: nobody would
        // wait for it, or end it, if this were an error.
        if let Err(error) = kept.write(start.own) {
            tracing::warn!(pid, %error, "it is not written down that a process was started");
        }
        Ok(Self { kept, child: Some(child), own: start.own.to_path_buf() })
    }

    /// Finds the process that a hub before this one started, or the one that holds the run's folder.
    pub(super) fn find(own: &Path, holder: Option<u32>, slots: u32) -> Option<Self> {
        let kept = fs::read(own.join(KEPT)).ok();
        let kept: Option<ProcessRecord> =
            kept.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let alive = kept.filter(|kept| started(kept.pid) == Some(kept.started));
        let held = || {
            let pid = holder.filter(|pid| *pid > 0)?;
            Some(ProcessRecord { pid, started: started(pid)?, slots, since: now(), asked: false })
        };
        let kept = alive.or_else(held)?;
        Some(Self { kept, child: None, own: own.to_path_buf() })
    }

    pub(super) fn slots(&self) -> u32 {
        self.kept.slots
    }

    /// When it was started, in milliseconds since 1970.
    pub(super) fn since(&self) -> i64 {
        self.kept.since
    }

    /// Whether it was asked to end.
    pub(super) fn asked(&self) -> bool {
        self.kept.asked
    }

    /// Whether it has ended, with its exit code if that is known.
    pub(super) fn ended(&mut self) -> Option<Option<i32>> {
        match &mut self.child {
            Some(child) => match child.try_wait() {
                Ok(None) => None,
                Ok(Some(status)) => Some(status.code()),
                // Somebody else has waited for it.
                Err(_) => Some(None),
            },
            None => (started(self.kept.pid) != Some(self.kept.started)).then_some(None),
        }
    }

    /// Asks it to end with a checkpoint; asking twice would end it at once.
    pub(super) fn interrupt(&mut self) {
        if !std::mem::replace(&mut self.kept.asked, true) {
            self.signal(kill_process, Signal::TERM);
            // A hub that is killed before this asks once more, which is better than never.
            if let Err(error) = self.kept.write(&self.own) {
                tracing::warn!(%error, "it is not written down that it was asked to end");
            }
        }
    }

    /// Ends it, and what it has started in its group; what else it has started ends with it.
    pub(super) fn kill(&mut self) {
        self.kept.asked = true;
        self.signal(kill_process_group, Signal::KILL);
    }

    fn signal(&self, send: fn(Pid, Signal) -> rustix::io::Result<()>, signal: Signal) {
        // A number that is another process's by now is left alone.
        let is_it = self.child.is_some() || started(self.kept.pid) == Some(self.kept.started);
        if let Some(pid) = Pid::from_raw(self.kept.pid as i32).filter(|_| is_it)
            && let Err(error) = send(pid, signal)
        {
            tracing::debug!(pid = self.kept.pid, %error, "not signalled");
        }
    }
}

/// When the last process was started, and with how many slots, whether it runs or not.
pub(super) fn kept(own: &Path) -> Option<(i64, u32)> {
    let kept: ProcessRecord = serde_json::from_slice(&fs::read(own.join(KEPT)).ok()?).ok()?;
    Some((kept.since, kept.slots)).filter(|(since, _)| *since > 0)
}

/// Forgets a process that has ended.
pub(super) fn forget(own: &Path) {
    let _ = fs::remove_file(own.join(KEPT));
}

/// When a process was started, in the system's own count; `None`: there is none of this number, or it has ended.
fn started(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, which may have anything in it, is in brackets.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    let (state, started) = (fields.first()?, fields.get(19)?);
    if *state == "Z" { None } else { started.parse().ok() }
}

/// What a process said last of what went wrong.
pub(super) fn last_error(own: &Path) -> Option<String> {
    let mut file = File::open(own.join("console.log")).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(QUOTED))).ok()?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    text.lines().rev().find_map(|line| line.strip_prefix("error: ").map(str::to_string))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_cannot_be_written_down_is_kept_all_the_same() {
        let own = tempfile::tempdir().expect("a folder");
        // No file can take its place.
        fs::create_dir(own.path().join(KEPT)).expect("made");
        let start = ProcessStart {
            program: Path::new("/bin/sleep"),
            arguments: vec!["1000".into()],
            folder: own.path().to_path_buf(),
            own: own.path(),
            slots: 1,
        };
        let mut process = QueueProcess::start(&start).expect("started");
        process.kill();
        while process.ended().is_none() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_process_is_found_again_and_another_of_its_number_is_not_it() {
        let own = tempfile::tempdir().expect("a folder");
        let start = ProcessStart {
            program: Path::new("/bin/sh"),
            arguments: vec![
                "-c".into(),
                "trap : TERM; echo error: broken; while :; do read x </dev/zero; done".into(),
            ],
            folder: own.path().to_path_buf(),
            own: own.path(),
            slots: 2,
        };
        let mut process = QueueProcess::start(&start).expect("started");
        let mut found = QueueProcess::find(own.path(), None, 1).expect("found");
        assert_eq!((found.slots(), found.ended()), (2, None));
        while last_error(own.path()).is_none() {
            std::thread::yield_now();
        }
        assert_eq!(last_error(own.path()).as_deref(), Some("broken"));
        assert!(!found.asked());
        process.interrupt();
        let again = QueueProcess::find(own.path(), None, 1).expect("it does not listen");
        assert!(again.asked(), "the next hub does not ask twice, which would end it at once");
        assert!(kept(own.path()).is_some_and(|(since, slots)| since > 0 && slots == 2));
        found.kill();
        while process.ended().is_none() {
            std::thread::yield_now();
        }
        assert_eq!(found.ended(), Some(None));
        assert!(QueueProcess::find(own.path(), None, 1).is_none());
    }
}
