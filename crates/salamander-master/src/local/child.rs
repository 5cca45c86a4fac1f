//! A process of a run: started in a group of its own, watched by a thread, ended with all that it started.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use salamander_core::elastic::Ended;
use tracing::debug;

/// The exit code of a process that left because it was asked to, or was preempted (`EX_TEMPFAIL`).
pub const LEFT_ON_REQUEST: i32 = 75;
/// The exit code of a master whose run another one leads.
pub const DEPOSED: i32 = 76;
/// The exit code of a process that was given something wrong, which another one would find as well (`EX_CONFIG`).
pub const MISTAKE: i32 = 78;
/// How much of a log a crash quotes.
const QUOTED_BYTES: u64 = 4_096;
const QUOTED_LINES: usize = 5;
/// What the error that a process ends with begins with, in its log.
const ERROR: &str = "error: ";

/// A process and the thread that waits for its end.
#[derive(Debug)]
pub(super) struct Child {
    child: std::process::Child,
    pid: Pid,
    watcher: Option<JoinHandle<()>>,
    pub(super) since: Instant,
    /// When it gets the next, harder signal.
    pub(super) deadline: Option<Instant>,
    asked: bool,
}

impl Child {
    /// Starts a process; `ended` is called from another thread when it has ended, before it is reaped.
    pub(super) fn start(
        mut command: Command,
        ended: impl FnOnce(u32) + Send + 'static,
    ) -> io::Result<Self> {
        // Ctrl-C is for the supervisor, which ends the others in order.
        let mut child = command.process_group(0).spawn()?;
        let id = child.id();
        let Some(pid) = Pid::from_raw(id as i32) else {
            return Err(io::Error::other("the system gave out process 0"));
        };
        let watch = move || {
            // Not reaped yet, so that its number stays its own until nobody signals it any more.
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            while let Err(rustix::io::Errno::INTR) = waitid(WaitId::Pid(pid), options) {}
            ended(id);
        };
        let watcher = std::thread::Builder::new().name(format!("wait-{id}")).spawn(watch);
        let watcher = watcher.inspect_err(|_| {
            // Unwatched processes must not run; it may have ended by itself.
            let _ = child.kill().and_then(|()| child.wait());
        })?;
        let since = Instant::now();
        let watcher = Some(watcher);
        Ok(Self { child, pid, watcher, since, deadline: None, asked: false })
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Asks it to end; the second time, which comes after the grace, it is not asked any more.
    pub(super) fn end(&mut self, grace: Duration) {
        self.deadline = Some(Instant::now() + grace);
        let first = !std::mem::replace(&mut self.asked, true);
        self.signal(if first { Signal::TERM } else { Signal::KILL });
        if first {
            // One that is stopped cannot do what it is asked to.
            self.signal(Signal::CONT);
        }
    }

    /// Ends it at once.
    pub(super) fn kill(&mut self, grace: Duration) {
        self.asked = true;
        self.end(grace);
    }

    pub(super) fn was_asked(&self) -> bool {
        self.asked
    }

    /// Collects a process that has ended, and ends what it has left behind.
    pub(super) fn reap(mut self) -> io::Result<ExitStatus> {
        self.signal(Signal::KILL);
        let status = self.child.wait();
        if let Some(watcher) = self.watcher.take()
            && watcher.join().is_err()
        {
            debug!(pid = self.child.id(), "the thread that waited for a process panicked");
        }
        status
    }

    fn signal(&self, signal: Signal) {
        // It may have ended in this moment; then there is nobody to signal.
        if let Err(error) = kill_process_group(self.pid, signal) {
            debug!(pid = self.child.id(), ?signal, %error, "not signalled");
        }
    }
}

/// What an end means: whoever is killed is not to blame.
pub(super) fn meaning(status: ExitStatus, log: Option<&Path>) -> Ended {
    let quoted = || log.map(last_lines).unwrap_or_default();
    let crashed = |what: String| match quoted() {
        lines if lines.is_empty() => Ended::Crashed(what),
        lines => Ended::Crashed(format!("{what}: {lines}")),
    };
    match (status.code(), status.signal()) {
        (Some(0), _) => Ended::Finished,
        (Some(LEFT_ON_REQUEST), _) => Ended::Killed("it left on request".into()),
        (Some(MISTAKE), _) => Ended::Mistaken(log.and_then(last_error).unwrap_or_else(|| {
            format!(
                "exit code {MISTAKE}: what it was given is wrong, and its log does not say what"
            )
        })),
        (Some(code), _) => crashed(format!("exit code {code}")),
        // Rust aborts when there is no memory; that is not the program's doing either.
        (None, Some(6)) if quoted().contains("memory allocation of") => {
            Ended::Killed("out of memory".into())
        }
        (None, Some(signal)) if is_own_doing(signal) => crashed(name(signal)),
        (None, Some(signal)) => Ended::Killed(name(signal)),
        (None, None) => crashed("it ended in an unknown way".into()),
    }
}

/// Signals that a program brings upon itself.
fn is_own_doing(signal: i32) -> bool {
    matches!(
        name(signal).as_str(),
        "SIGILL" | "SIGTRAP" | "SIGABRT" | "SIGBUS" | "SIGFPE" | "SIGSEGV" | "SIGSYS"
    )
}

fn name(signal: i32) -> String {
    let names = [
        (Signal::HUP, "SIGHUP"),
        (Signal::INT, "SIGINT"),
        (Signal::QUIT, "SIGQUIT"),
        (Signal::ILL, "SIGILL"),
        (Signal::TRAP, "SIGTRAP"),
        (Signal::ABORT, "SIGABRT"),
        (Signal::BUS, "SIGBUS"),
        (Signal::FPE, "SIGFPE"),
        (Signal::KILL, "SIGKILL"),
        (Signal::USR1, "SIGUSR1"),
        (Signal::SEGV, "SIGSEGV"),
        (Signal::USR2, "SIGUSR2"),
        (Signal::PIPE, "SIGPIPE"),
        (Signal::ALARM, "SIGALRM"),
        (Signal::TERM, "SIGTERM"),
        (Signal::XCPU, "SIGXCPU"),
        (Signal::SYS, "SIGSYS"),
    ];
    let known = names.iter().find(|(known, _)| known.as_raw() == signal);
    known.map_or_else(|| format!("signal {signal}"), |(_, name)| name.to_string())
}

/// The end of a log, on one line; empty if it cannot be read.
fn last_lines(path: &Path) -> String {
    let lines = tail(path);
    lines[lines.len().saturating_sub(QUOTED_LINES)..].join(" | ")
}

/// The error that a log ends with, on one line: it may have several in the log. Without one, the last line.
fn last_error(path: &Path) -> Option<String> {
    let lines = tail(path);
    let error = lines.iter().rposition(|line| line.starts_with(ERROR));
    let from = error.unwrap_or(lines.len().checked_sub(1)?);
    let text = lines[from..].join(" | ");
    Some(text.strip_prefix(ERROR).unwrap_or(&text).to_string())
}

/// The last lines of a log that are not empty; none if it cannot be read.
fn tail(path: &Path) -> Vec<String> {
    let read = || -> io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(QUOTED_BYTES)))?;
        let mut bytes = Vec::new();
        file.take(QUOTED_BYTES).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.map(str::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(raw: i32, log: &str, expected: Ended) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        std::fs::write(&path, log).expect("written");
        assert_eq!(meaning(ExitStatus::from_raw(raw), Some(&path)), expected);
    }

    #[test]
    fn who_is_killed_is_not_to_blame() {
        check(0, "", Ended::Finished);
        check(9, "x", Ended::Killed("SIGKILL".into()));
        check(15, "x", Ended::Killed("SIGTERM".into()));
        check(75 << 8, "x", Ended::Killed("it left on request".into()));
        let hunger = "memory allocation of 9 bytes failed\n";
        check(6, hunger, Ended::Killed("out of memory".into()));
        check(6, "", Ended::Crashed("SIGABRT".into()));
        check(11, "oh\n", Ended::Crashed("SIGSEGV: oh".into()));
        let log = "1\n2\n3\n\n4\n5\n  6\n";
        check(101 << 8, log, Ended::Crashed("exit code 101: 2 | 3 | 4 | 5 | 6".into()));
    }

    #[test]
    fn a_mistake_is_told_in_the_words_of_its_process() {
        let log =
            "INFO begins\nerror: one\nINFO again\nerror: model net: it has\n  several passes\n";
        check(78 << 8, log, Ended::Mistaken("model net: it has | several passes".into()));
        check(78 << 8, "INFO begins\nno such file\n", Ended::Mistaken("no such file".into()));
        let Ended::Mistaken(silent) = meaning(ExitStatus::from_raw(78 << 8), None) else {
            panic!("it is a mistake without a log, too")
        };
        assert!(silent.starts_with("exit code 78: "), "{silent}");
        check(1 << 8, "error: x\n", Ended::Crashed("exit code 1: error: x".into()));
    }

    #[test]
    fn a_crash_without_a_log_has_its_code() {
        let status = ExitStatus::from_raw(1 << 8);
        assert_eq!(meaning(status, None), Ended::Crashed("exit code 1".into()));
        let gone = meaning(status, Some(Path::new("/nonexistent")));
        assert_eq!(gone, Ended::Crashed("exit code 1".into()));
    }
}
