//! One child and all below it: they end together, whether they are done, too slow, or asked to stop.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid,
};
use salamander_core::environment::PARENT;

/// How often a child is looked at.
const LOOK: Duration = Duration::from_millis(10);
/// How long one that is asked to end may take: a training writes a checkpoint first.
const GRACE: Duration = Duration::from_secs(30);
/// How long to wait for processes that were killed.
const KILLED: Duration = Duration::from_secs(10);

/// How a child ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ChildEnd {
    Well,
    /// With this code or signal.
    Badly(String),
    /// It was too slow.
    TimedOut,
    /// It was asked to.
    Stopped,
}

/// What a child is started with.
pub(crate) struct ChildStart<'a> {
    pub(crate) words: &'a [String],
    pub(crate) folder: &'a Path,
    pub(crate) log: &'a File,
    /// Where standard output goes, if not to the log.
    pub(crate) out: Option<File>,
    pub(crate) timeout: Option<Duration>,
    /// Whether it is this program, which can end by itself when the pipeline is killed.
    pub(crate) ends_with_us: bool,
}

/// Runs a command to its end.
pub(crate) fn run(start: ChildStart<'_>, stop: &AtomicBool) -> io::Result<ChildEnd> {
    let Some((program, args)) = start.words.split_first() else {
        return Err(io::Error::other("an empty command"));
    };
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stderr(start.log.try_clone()?);
    command.stdout(match start.out {
        Some(file) => file,
        None => start.log.try_clone()?,
    });
    if !start.folder.as_os_str().is_empty() {
        command.current_dir(start.folder);
    }
    if start.ends_with_us {
        command.env(PARENT, std::process::id().to_string());
    }
    // Ctrl-C is for the pipeline, which ends its steps in order.
    let child = command.process_group(0).spawn().map_err(|error| {
        io::Error::new(error.kind(), format!("cannot start {program}: {error}"))
    })?;
    let mut group = ProcessGroup::new(child)?;
    let begun = Instant::now();
    loop {
        if group.is_over()? {
            return group.reap().map(meaning);
        }
        if stop.load(Ordering::Relaxed) {
            group.end()?;
            return Ok(ChildEnd::Stopped);
        }
        if start.timeout.is_some_and(|longest| begun.elapsed() >= longest) {
            group.end()?;
            return Ok(ChildEnd::TimedOut);
        }
        sleep(LOOK);
    }
}

/// A child that leads a process group.
struct ProcessGroup {
    child: Child,
    pid: Pid,
    reaped: bool,
}

impl ProcessGroup {
    fn new(child: Child) -> io::Result<Self> {
        let pid = Pid::from_raw(child.id() as i32)
            .ok_or_else(|| io::Error::other("the system gave out process 0"))?;
        Ok(Self { child, pid, reaped: false })
    }

    /// Whether the child has ended. It is not reaped, so that its number stays its own.
    fn is_over(&self) -> io::Result<bool> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        match waitid(WaitId::Pid(self.pid), options) {
            Ok(status) => Ok(status.is_some()),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Asks all to end, and kills who does not.
    fn end(&mut self) -> io::Result<()> {
        for signal in [Signal::TERM, Signal::CONT] {
            // They may have ended in this moment.
            let _ = kill_process_group(self.pid, signal);
        }
        let asked = Instant::now();
        while !self.is_over()? && asked.elapsed() < GRACE {
            sleep(LOOK);
        }
        self.reap().map(drop)
    }

    /// Collects the child, and ends what it has left behind.
    fn reap(&mut self) -> io::Result<ExitStatus> {
        let _ = kill_process_group(self.pid, Signal::KILL);
        self.reaped = true;
        self.child.wait()
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if !self.reaped {
            let _ = self.reap();
        }
    }
}

fn meaning(status: ExitStatus) -> ChildEnd {
    match (status.code(), status.signal()) {
        (Some(0), _) => ChildEnd::Well,
        (Some(code), _) => ChildEnd::Badly(format!("exit code {code}")),
        (None, Some(signal)) => ChildEnd::Badly(format!("killed by signal {signal}")),
        (None, None) => ChildEnd::Badly("it ended in an unknown way".to_string()),
    }
}

/// Opens a step's log for this process alone. Processes of a pipeline that was killed may still write to it, and to
/// what the step leaves: they hold the lock, since all of a step's processes have the log open, and are ended first.
pub(crate) fn claim_log(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.read(true).append(true).create(true);
    let file = options.open(path)?;
    let begun = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => break,
            Err(TryLockError::WouldBlock) if begun.elapsed() < KILLED => {
                end_holders(path);
                sleep(LOOK);
            }
            Err(TryLockError::WouldBlock) => {
                let message = "processes of an earlier run still write here: end them first";
                return Err(io::Error::other(message));
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    file.set_len(0)?;
    Ok(file)
}

/// Kills the processes whose output is this file.
fn end_holders(path: &Path) {
    let Ok(whole) = fs::canonicalize(path) else { return };
    let Ok(processes) = fs::read_dir("/proc") else { return };
    for process in processes.flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse::<i32>().ok())
        else {
            continue;
        };
        let writes = |number: &str| {
            let link = process.path().join("fd").join(number);
            fs::read_link(link).is_ok_and(|target| target == whole)
        };
        if pid != std::process::id() as i32
            && (writes("1") || writes("2"))
            && let Some(pid) = Pid::from_raw(pid)
        {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        ["sh", "-c", line].map(str::to_string).to_vec()
    }

    #[test]
    fn a_command_ends_with_all_that_it_has_started() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        let go = |line: &str, timeout: Option<u64>, stop: bool| {
            let log = claim_log(&path).expect("a log that nobody else has");
            let timeout = timeout.map(Duration::from_millis);
            let (words, folder) = (words(line), folder.path());
            let ends_with_us = false;
            let start =
                ChildStart { words: &words, folder, log: &log, out: None, timeout, ends_with_us };
            let ended = run(start, &AtomicBool::new(stop)).expect("it starts");
            (ended, fs::read_to_string(&path).expect("a log"))
        };
        let badly = |what: &str| ChildEnd::Badly(what.to_string());
        assert_eq!(go("echo a; pwd >&2; sleep 600 & exit 0", None, false).0, ChildEnd::Well);
        assert_eq!(go("echo a; exit 3", None, false), (badly("exit code 3"), "a\n".into()));
        assert_eq!(go("kill -9 $$", None, false).0, badly("killed by signal 9"));
        assert_eq!(go("sleep 600", Some(50), false).0, ChildEnd::TimedOut);
        assert_eq!(go("sleep 600 & sleep 600", None, true).0, ChildEnd::Stopped);
        // The log can be had again each time: nobody is left who has it open.
        let log = claim_log(&path).expect("a log");
        let start = ChildStart {
            words: &["/no/program".to_string()],
            folder: folder.path(),
            log: &log,
            out: None,
            timeout: None,
            ends_with_us: false,
        };
        let error = run(start, &AtomicBool::new(false)).expect_err("no such program");
        assert!(error.to_string().starts_with("cannot start /no/program"), "{error}");
    }

    #[test]
    fn processes_that_a_killed_pipeline_left_are_ended() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        let log = claim_log(&path).expect("a log");
        let mut orphan = Command::new("sleep").arg("600").stdout(log).spawn().expect("started");
        claim_log(&path).expect("the log after its holder was ended");
        assert_eq!(orphan.wait().expect("ended").signal(), Some(9));
    }
}
