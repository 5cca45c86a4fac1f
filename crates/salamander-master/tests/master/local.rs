//! Real processes: killed ones come back, and nothing is left behind.

use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use salamander_core::elastic::Ending;
use salamander_master::local::{DEPOSED, LocalOptions, LocalPlatform, LocalRole, die_with_parent};
use salamander_master::{Config, Error, PlatformKind};
use salamander_proto::client::{Admin, SessionOptions};
use tempfile::TempDir;

use crate::support::{Run, TIMEOUTS, TOKEN, wait_until};

/// Set for a copy of this test program that is a master: its folder and address.
const ROLE: &str = "SALAMANDER_TEST_MASTER";

fn served(config: &mut Config) {
    config.platform = PlatformKind::Served;
    config.max_restarts = 0;
}

fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

fn kill(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(pid as i32).expect("a process");
    kill_process(pid, signal).expect("signalled");
}

fn sleeper(_role: LocalRole) -> Command {
    let mut command = Command::new("sh");
    // The sleep is a process of its own, which must not be left either.
    command.args(["-c", "sleep 1000 & wait"]);
    command
}

fn workers(platform: &LocalPlatform) -> Vec<(LocalRole, u32)> {
    let running = platform.running().into_iter();
    running.filter(|(role, _)| *role != LocalRole::Master).collect()
}

fn children_of(pid: u32) -> Vec<u32> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

#[test]
fn a_killed_worker_is_started_again_and_none_is_left() {
    let run = Run::with(2, served);
    let session = SessionOptions::new(run.master(), TOKEN);
    let platform = LocalPlatform::start(LocalOptions::new(session, sleeper)).expect("started");
    wait_until("both run", || workers(&platform).len() == 2);
    let (_, victim) = workers(&platform)[1];
    kill(victim, Signal::KILL);
    wait_until("another runs", || {
        let workers = workers(&platform);
        workers.len() == 2 && workers.iter().all(|(_, pid)| *pid != victim)
    });
    // A stopped one ends as well.
    let left: Vec<u32> = workers(&platform).iter().map(|(_, pid)| *pid).collect();
    wait_until("they sleep", || left.iter().all(|pid| !children_of(*pid).is_empty()));
    let sleeps: Vec<u32> = left.iter().flat_map(|pid| children_of(*pid)).collect();
    kill(left[0], Signal::STOP);
    platform.shutdown();
    assert!(left.iter().all(|pid| !is_alive(*pid)));
    wait_until("nothing is left", || sleeps.iter().all(|pid| !is_alive(*pid)));
    assert_eq!(run.status()["state"], "gathering");
}

#[test]
fn a_crash_is_quoted_from_its_log() {
    let mut run = Run::with(1, served);
    let log = run.folder.path().join("worker.log");
    let session = SessionOptions::new(run.master(), TOKEN);
    let script = format!("echo no such file: shard-1 > {}; exit 3", log.display());
    let mut options = LocalOptions::new(session, move |_| {
        let mut command = Command::new("sh");
        command.args(["-c", &script]);
        command
    });
    options.log = Box::new(move |_| Some(log.clone()));
    let platform = LocalPlatform::start(options).expect("started");
    let Ok(Ending::Failed(reason)) = run.finish() else { panic!("it fails") };
    assert!(reason.contains("exit code 3: no such file: shard-1"), "{reason}");
    let ending = platform.wait(Duration::from_secs(10));
    assert_eq!(ending, Some(Ending::Failed(reason)));
}

#[test]
fn a_program_that_is_not_there_is_an_end_with_a_reason() {
    let mut run = Run::with(1, served);
    let session = SessionOptions::new(run.master(), TOKEN);
    let options = LocalOptions::new(session, |_| Command::new("/nonexistent/salamander"));
    let platform = LocalPlatform::start(options).expect("started");
    let Ok(Ending::Failed(reason)) = run.finish() else { panic!("it fails") };
    assert!(reason.contains("cannot start /nonexistent/salamander"), "{reason}");
    drop(platform);
}

/// Not a test: the master of the next one, in a process of its own.
#[test]
fn as_a_master() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let [parent, folder, address]: [&str; 3] =
        role.split(' ').collect::<Vec<_>>().try_into().expect("three words");
    die_with_parent(parent.parse().expect("a process")).expect("a parent");
    let mut config = Config::new(folder, TOKEN, 2);
    (config.timeouts, config.platform) = (TIMEOUTS, PlatformKind::Served);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let ending = runtime.expect("a runtime").block_on(async {
        let listener = tokio::net::TcpListener::bind(address).await.expect("the port");
        salamander_master::run(config, listener, std::future::pending()).await
    });
    match ending {
        Err(Error::Journal(error)) if error.is_deposed() => std::process::exit(DEPOSED),
        ending => drop(ending.expect("ended")),
    }
}

fn with_master(folder: &TempDir) -> (LocalPlatform, String) {
    let (mut options, address) = options_with_master(folder);
    options.grace = Duration::from_millis(500);
    (LocalPlatform::start(options).expect("started"), address)
}

fn options_with_master(folder: &TempDir) -> (LocalOptions, String) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound").to_string();
    drop(listener);
    let mut options = LocalOptions::new(SessionOptions::new(address.clone(), TOKEN), sleeper);
    let role = format!("{} {} {address}", std::process::id(), folder.path().display());
    options.master = Some(Box::new(move |_| {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["--exact", "local::as_a_master", "--nocapture"]).env(ROLE, &role);
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        command
    }));
    (options, address)
}

fn admin(address: &str) -> Admin {
    let mut admin = None;
    wait_until("the master answers", || {
        admin = Admin::connect(&SessionOptions::new(address, TOKEN), Duration::from_secs(5)).ok();
        admin.is_some()
    });
    admin.expect("connected")
}

#[test]
fn a_killed_master_is_started_again_and_takes_over() {
    let folder = tempfile::tempdir().expect("a folder");
    let (platform, address) = with_master(&folder);
    wait_until("both workers run", || workers(&platform).len() == 2);
    let before = workers(&platform);
    for round in 1..=2 {
        let masters = platform.running().into_iter().filter(|(role, _)| *role == LocalRole::Master);
        masters.for_each(|(_, pid)| kill(pid, Signal::KILL));
        wait_until("another master", || platform.master_restarts() == round);
        let term = admin(&address).status().expect("a status").term;
        assert_eq!(u64::from(term.0), round + 1);
    }
    assert_eq!(workers(&platform), before);
    // Nobody trains, so that the end comes at once.
    admin(&address).stop().expect("asked");
    let pids: Vec<u32> = platform.running().iter().map(|(_, pid)| *pid).collect();
    assert_eq!(platform.wait(Duration::from_secs(30)), Some(Ending::Interrupted));
    assert!(pids.iter().all(|pid| !is_alive(*pid)));
}

#[test]
fn a_master_that_cannot_start_is_given_up() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("journal"), "something else").expect("written");
    let (platform, _) = with_master(&folder);
    let Some(Ending::Failed(reason)) = platform.wait(Duration::from_secs(30)) else {
        panic!("it fails")
    };
    assert!(reason.contains("the master crashed 6 times"), "{reason}");
}

#[test]
fn workers_of_a_master_whose_run_another_one_leads_end_with_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut options, _) = options_with_master(&folder);
    // Neither a heartbeat nor a request ends these, and they would have more time than the test.
    options.grace = Duration::from_secs(60);
    options.process = Box::new(|_| {
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' TERM; while true; do sleep 1000 & wait; done"]);
        command
    });
    let platform = LocalPlatform::start(options).expect("started");
    wait_until("both run", || workers(&platform).len() == 2);
    let left: Vec<u32> = workers(&platform).iter().map(|(_, pid)| *pid).collect();
    std::fs::write(folder.path().join(".term-2"), "").expect("written");
    let Some(Ending::Failed(reason)) = platform.wait(Duration::from_secs(30)) else {
        panic!("it is over, and so are its processes")
    };
    assert!(reason.contains("another master leads this run"), "{reason}");
    assert!(left.iter().all(|pid| !is_alive(*pid)));
}
