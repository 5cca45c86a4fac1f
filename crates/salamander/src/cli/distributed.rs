//! A distributed run on this machine: this process is the parent of master and workers, shows how training goes,
//! and leaves nothing behind.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with, sockopt,
};
use salamander_core::elastic::Ending;
use salamander_core::experiment::{Experiment, Strategy};
use salamander_master::local::{LocalPlatform, Options, Role};
use salamander_proto::client::{Admin, SessionOptions};
use salamander_proto::v1;
use salamander_train::checkpoint::Store;
use salamander_train::progress::Progress;
use salamander_train::trainer::{Outcome, Timings, open_all};
use serde::Deserialize;

use super::keys::ensure_keys;
use super::signals::Signals;
use crate::run::RunFolder;
use crate::ui::{Bar, Facts, Follower, Out};

/// How often signals are looked at.
const LOOK: Duration = Duration::from_millis(50);
/// How long a call to the master may take.
const CALL: Duration = Duration::from_secs(5);
/// How long processes have to end once the run is over.
const FAREWELL: Duration = Duration::from_secs(20);

/// What is trained and how.
pub(super) struct Launch<'a> {
    pub(super) folder: &'a RunFolder,
    pub(super) experiment: &'a Experiment,
    /// Goes on with a run, from this checkpoint if the journal knows none.
    pub(super) resume: Option<Option<String>>,
    pub(super) signals: &'a Signals,
    pub(super) out: Out,
    /// A demonstration, in which a worker is killed this often.
    pub(super) demo: Option<Duration>,
}

/// Runs master and workers to the end of the run.
pub(super) fn train(launch: &Launch<'_>) -> Result<(Outcome, Facts)> {
    let started = Instant::now();
    let folder = launch.folder.path();
    let keys = ensure_keys(folder)?;
    fs::create_dir_all(folder.join("logs"))?;
    // Once and for all workers; what is wrong with the data is said before anything starts.
    open_all(launch.experiment, folder, &mut vec![Box::new(Bar::new())])?;
    let _ = fs::remove_file(folder.join("end.json"));
    let (_held, address) = hold_port()?;
    let address = address.to_string();
    let session = SessionOptions::of(&address, &keys);
    let mut options = Options::new(session.clone(), process_command(launch, &address)?);
    options.master = Some(Box::new(master_command(launch, &address)?));
    let logs = folder.join("logs");
    options.log = Box::new(move |role| Some(log_file(&logs, role)));
    let platform = LocalPlatform::start(options)?;
    let ending = follow(launch, &platform, &session);
    let master_restarts = platform.master_restarts();
    // In any case: every process of the run ends before this one goes on.
    platform.shutdown();
    let mut facts = Facts { master_restarts, ..Facts::read(folder) };
    if launch.experiment.strategy == Strategy::Ps {
        // There are no memberships: each worker works for itself.
        (facts.workers, facts.generations) = (u64::from(launch.experiment.workers.max), 1);
    }
    match ending? {
        Ending::Failed(reason) => bail!("{reason}"),
        ending => Ok((outcome(folder, &ending, started)?, facts)),
    }
}

/// A port for the master, over its restarts. A socket that is bound to it but does not listen keeps others from
/// getting it by chance; servers, which may use an address again, can still listen there.
fn hold_port() -> Result<(OwnedFd, SocketAddr)> {
    let flags = SocketFlags::CLOEXEC;
    let held = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&held, true)?;
    bind(&held, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    let address = SocketAddr::try_from(getsockname(&held)?)?;
    Ok((held, address))
}

fn follow(
    launch: &Launch<'_>,
    platform: &LocalPlatform,
    session: &SessionOptions,
) -> Result<Ending> {
    let events = watch(session.clone());
    let mut follower = Follower::new(launch.out);
    let mut asked = false;
    let mut over = None;
    let mut kills = launch.demo.map(|every| Kills { every, last: Instant::now(), count: 0 });
    loop {
        match events.recv_timeout(LOOK) {
            Ok(event) => {
                if let Some(v1::event::Event::Ended(_)) = &event.event {
                    over.get_or_insert_with(Instant::now);
                }
                follower.take(&event);
            }
            Err(RecvTimeoutError::Disconnected) => std::thread::sleep(LOOK),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if let Some(ending) = platform.wait(Duration::ZERO) {
            events.try_iter().for_each(|event| follower.take(&event));
            follower.finish();
            return Ok(ending);
        }
        if let (Some(kills), None) = (&mut kills, over) {
            kills.maybe(platform, follower.begun());
        }
        if launch.signals.asked() && !asked {
            // A master that is just being restarted is asked again.
            let stopped = Admin::connect(session, CALL).and_then(|mut a| a.stop());
            asked = stopped.is_ok();
        }
        if over.is_some_and(|over: Instant| over.elapsed() > FAREWELL) {
            bail!("the run is over, but some of its processes do not end");
        }
    }
}

/// The demonstration's kills.
struct Kills {
    every: Duration,
    last: Instant,
    count: usize,
}

impl Kills {
    fn maybe(&mut self, platform: &LocalPlatform, begun: bool) {
        if !begun || self.last.elapsed() < self.every {
            return;
        }
        self.last = Instant::now();
        let running = platform.running();
        let workers: Vec<u32> = running
            .into_iter()
            .filter_map(|(role, pid)| matches!(role, Role::Worker(_)).then_some(pid))
            .collect();
        // Each in its turn.
        let Some(pid) = workers.get(self.count % workers.len().max(1)) else { return };
        if let Some(pid) = rustix::process::Pid::from_raw(*pid as i32) {
            eprintln!("killing worker process {pid}");
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        self.count += 1;
    }
}

/// Watches the master's events on a thread of its own, from the first one on.
fn watch(session: SessionOptions) -> Receiver<v1::Event> {
    let (sender, events) = channel();
    std::thread::spawn(move || {
        let mut last = 0;
        loop {
            if let Ok(mut admin) = Admin::connect(&session, CALL) {
                let watched = admin.watch(last, |event| {
                    last = event.number;
                    match sender.send(event) {
                        Ok(()) => std::ops::ControlFlow::Continue(()),
                        Err(_) => std::ops::ControlFlow::Break(()),
                    }
                });
                if watched.is_ok() {
                    return;
                }
            }
            std::thread::sleep(LOOK);
        }
    });
    events
}

fn process_command(
    launch: &Launch<'_>,
    address: &str,
) -> Result<impl FnMut(Role) -> Command + Send + 'static> {
    let program = std::env::current_exe().context("this program cannot be found")?;
    let folder = launch.folder.path().to_path_buf();
    let address = address.to_string();
    let start = launch.resume.clone().flatten();
    let demo = launch.demo.is_some();
    let workers = launch.experiment.workers.max;
    Ok(move |process: Role| {
        let mut command = role(&program, &folder, &folder.join("logs"), process);
        command.args(["--master", &address]);
        let slot = match process {
            Role::Server(seat) => {
                command.args(["--seat", &seat.to_string()]);
                return command;
            }
            Role::Worker(slot) => slot,
            Role::Master => 0,
        };
        command.args(["--slot", &slot.to_string()]);
        command.args(start.iter().flat_map(|id| ["--start", id]));
        command.args(demo.then_some("--demo"));
        share_cores(&mut command, workers);
        command
    })
}

/// Several workers share the cores; whoever sets this knows better.
pub(super) fn share_cores(command: &mut Command, workers: u32) {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let share = (cores / workers.max(1) as usize).max(1);
    if std::env::var_os("RAYON_NUM_THREADS").is_none() {
        command.env("RAYON_NUM_THREADS", share.to_string());
    }
}

fn master_command(
    launch: &Launch<'_>,
    address: &str,
) -> Result<impl FnMut(u64) -> Command + Send + 'static> {
    let program = std::env::current_exe().context("this program cannot be found")?;
    let folder = launch.folder.path().to_path_buf();
    let (address, resume) = (address.to_string(), launch.resume.is_some());
    Ok(move |before: u64| {
        let mut command = role(&program, &folder, &folder.join("logs"), Role::Master);
        command.args(["--listen", &address, "--served"]);
        command.args((resume && before == 0).then_some("--resume"));
        command
    })
}

/// A process of the run, recognisable by its command line whatever the program is called.
pub(super) fn role(program: &Path, folder: &Path, logs: &Path, role: Role) -> Command {
    let mut command = Command::new(program);
    command.arg0("salamander").arg(match role {
        Role::Master => "master",
        Role::Worker(_) => "worker",
        Role::Server(_) => "ps",
    });
    command.arg(folder).args(["--parent", &std::process::id().to_string()]);
    let log = log_file(logs, role);
    let file = OpenOptions::new().create(true).append(true).open(log);
    let streams = file.and_then(|file| Ok((file.try_clone()?, file)));
    command.stdin(Stdio::null());
    match streams {
        Ok((out, err)) => command.stdout(out).stderr(err),
        // Without a log the process is still of use.
        Err(_) => command.stdout(Stdio::null()).stderr(Stdio::null()),
    };
    command
}

pub(super) fn log_file(logs: &Path, role: Role) -> PathBuf {
    logs.join(match role {
        Role::Master => "master.log".to_string(),
        Role::Worker(slot) => format!("worker-{slot}.log"),
        Role::Server(seat) => format!("ps-{seat}.log"),
    })
}

#[derive(Deserialize)]
struct End {
    progress: Progress,
    ranks: Vec<Timings>,
}

fn outcome(folder: &Path, ending: &Ending, started: Instant) -> Result<Outcome> {
    let checkpoints = folder.join("checkpoints");
    let latest = Store::list(&checkpoints).last().map(|manifest| checkpoints.join(&manifest.id));
    let text = match fs::read(folder.join("end.json")) {
        Ok(text) => text,
        // Stopped before there was anything to tell.
        Err(_) if *ending == Ending::Interrupted => {
            let progress = Progress { interrupted: true, ..Progress::default() };
            let timings = Timings { wall: started.elapsed(), ..Timings::default() };
            let (interrupted, ranks) = (true, Vec::new());
            return Ok(Outcome { interrupted, progress, timings, ranks, checkpoint: latest });
        }
        Err(error) => return Err(anyhow!("the run ended without a word: {error}")),
    };
    let End { progress, ranks } = serde_json::from_slice(&text).context("end.json")?;
    write_stats(folder, &progress, &ranks)?;
    let mut timings = ranks.first().copied().unwrap_or_default();
    timings.wall = started.elapsed();
    let interrupted = *ending == Ending::Interrupted;
    Ok(Outcome { interrupted, progress, timings, ranks, checkpoint: latest })
}

/// Where each worker's time went, one line each, appended: a resumed run adds its own.
fn write_stats(folder: &Path, progress: &Progress, ranks: &[Timings]) -> Result<()> {
    let path = folder.join("stats.csv");
    let new = !path.exists();
    let mut file = OpenOptions::new().create(true).append(true).open(&path)?;
    if new {
        writeln!(file, "rank,workers,steps,records,compute_s,exchange_s,data_s,test_s")?;
    }
    for (rank, timings) in ranks.iter().enumerate() {
        let seconds = [timings.compute, timings.exchange, timings.data, timings.test]
            .map(|time| format!("{:.3}", time.as_secs_f64()));
        let (workers, steps) = (ranks.len(), progress.steps);
        writeln!(file, "{rank},{workers},{steps},{},{}", progress.records, seconds.join(","))?;
    }
    Ok(())
}
