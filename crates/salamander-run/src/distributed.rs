//! A distributed run on this machine: this process is the parent of master and workers, shows how training goes,
//! and leaves nothing behind.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with, sockopt,
};
use salamander_core::elastic::Ending;
use salamander_core::experiment::{Experiment, Strategy};
use salamander_core::layout::RunLayout;
use salamander_core::progress::Progress;
use salamander_core::report::EndReport;
use salamander_master::local::{LocalPlatform, LocalRole};
use salamander_proto::client::{Admin, SessionOptions};
use salamander_proto::v1;
use salamander_train::callback::Callback;
use salamander_train::checkpoint::CheckpointStore;
use salamander_train::trainer::{Outcome, Timings, open_all};

use crate::Error;
use crate::connect::{Scale, forget_address};
use crate::event::{Event, Forward};
use crate::facts::Facts;
use crate::keys::ensure_keys;
use crate::roles::{Duty, Processes};
use crate::run::{Process, RunShared};

/// How often somebody else's wish to stop is looked at.
const LOOK: Duration = Duration::from_millis(50);
/// How long a call to the master may take.
const CALL: Duration = Duration::from_secs(5);
/// How long processes have to end once the run is over.
const FAREWELL: Duration = Duration::from_secs(20);

/// What is trained and how.
pub(crate) struct Launch<'a> {
    pub(crate) run: &'a RunLayout,
    pub(crate) experiment: &'a Experiment,
    /// Its number among the runs of a search that train at a time: each begins with another device.
    pub(crate) slot: u32,
    /// Goes on with a run, from this checkpoint if the journal knows none.
    pub(crate) resume: Option<Option<String>>,
    /// How many processes the command line asks for: it goes before what the run was scaled to.
    pub(crate) asked: Scale,
    /// What the handle of the run sees, and asks for.
    pub(crate) shared: &'a RunShared,
    pub(crate) events: Forward,
}

/// Runs master and workers to the end of the run.
pub(crate) fn train(launch: &Launch<'_>) -> Result<(Outcome, Facts), Error> {
    let started = Instant::now();
    let run = launch.run;
    let keys = ensure_keys(run)?;
    let processes = Processes::new(run.folder(), run, launch.experiment.workers.max)?;
    // Once and for all workers; what is wrong with the data is said before anything starts.
    let mut told: Vec<Box<dyn Callback>> = vec![Box::new(launch.events.clone())];
    open_all(launch.experiment, run.folder(), &mut told, &launch.shared.stop)?;
    let _ = fs::remove_file(run.end());
    let (_held, address) = hold_port().map_err(Error::system("no port for the master"))?;
    let session = SessionOptions::of(address.to_string(), &keys);
    let start = launch.resume.clone().flatten();
    let first_device = launch.slot.saturating_mul(launch.experiment.workers.max);
    let mut options = processes.platform(session.clone(), move |role| {
        let (master, start) = (address.to_string(), start.clone());
        match role {
            LocalRole::Server(seat) => Duty::Server { master, seat },
            LocalRole::Worker(slot) => {
                Duty::Worker { master, slot, device: first_device.saturating_add(slot), start }
            }
            LocalRole::Master => Duty::Master { listen: address, resume: None },
        }
    });
    let resumed = launch.resume.as_ref().map(|_| launch.asked);
    options.master = Some(Box::new(move |before| {
        let resume = resumed.filter(|_| before == 0);
        processes.command(LocalRole::Master, Duty::Master { listen: address, resume })
    }));
    let platform = LocalPlatform::start(options)?;
    let ending = follow(launch, &platform, &session);
    let master_restarts = platform.master_restarts();
    // In any case: every process of the run ends before this one goes on.
    platform.shutdown();
    forget_address(run, address);
    launch.shared.set_processes(Vec::new());
    let (outcome, facts) = finish(run, launch.experiment, ending?, started)?;
    Ok((outcome, Facts { master_restarts, ..facts }))
}

/// What a run whose master has ended leaves behind.
pub(crate) fn finish(
    run: &RunLayout,
    experiment: &Experiment,
    ending: Ending,
    started: Instant,
) -> Result<(Outcome, Facts), Error> {
    let mut facts = Facts::read(run);
    if experiment.strategy == Strategy::Ps {
        // There are no memberships: each worker works for itself.
        (facts.workers, facts.generations) = (u64::from(experiment.workers.max), 1);
    }
    match ending {
        Ending::Failed(reason) => Err(Error::Failed(reason)),
        ending => Ok((outcome(run, &ending, started)?, facts)),
    }
}

/// A port for the master, over its restarts. A socket that is bound to it but does not listen keeps others from
/// getting it by chance; servers, which may use an address again, can still listen there.
fn hold_port() -> std::io::Result<(OwnedFd, SocketAddr)> {
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
) -> Result<Ending, Error> {
    let events = watch(session.clone());
    let mut asked = false;
    let mut over = None;
    loop {
        match events.recv_timeout(LOOK) {
            Ok(event) => {
                if let Some(v1::event::Event::Ended(_)) = &event.event {
                    over.get_or_insert_with(Instant::now);
                }
                forward(event, &launch.events);
            }
            Err(RecvTimeoutError::Disconnected) => std::thread::sleep(LOOK),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if let Some(ending) = platform.wait(Duration::ZERO) {
            events.try_iter().for_each(|event| forward(event, &launch.events));
            return Ok(ending);
        }
        let running = platform.running().into_iter();
        launch.shared.set_processes(running.map(|(role, pid)| Process { role, pid }).collect());
        if launch.shared.stop.load(Ordering::Relaxed) && !asked {
            // A master that is just being restarted is asked again.
            let stopped = Admin::connect(session, CALL).and_then(|mut a| a.stop());
            asked = stopped.is_ok();
        }
        if over.is_some_and(|over: Instant| over.elapsed() > FAREWELL) {
            let left = "the run is over, but some of its processes do not end";
            return Err(Error::Failed(left.to_string()));
        }
    }
}

fn forward(event: v1::Event, to: &Forward) {
    match event.event {
        // A report of another version of this program is no reason to fail.
        Some(v1::event::Event::Report(report)) => {
            if let Ok(report) = report.try_into() {
                to.send(Event::Report(report));
            }
        }
        Some(v1::event::Event::Note(text)) => to.send(Event::Note(text)),
        Some(v1::event::Event::Ended(_) | v1::event::Event::Result(_)) | None => {}
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

fn outcome(run: &RunLayout, ending: &Ending, started: Instant) -> Result<Outcome, Error> {
    let checkpoints = run.checkpoints();
    let latest =
        CheckpointStore::list(&checkpoints)?.pop().map(|manifest| checkpoints.join(&manifest.id));
    let interrupted = *ending == Ending::Interrupted;
    let EndReport { progress, ranks } = match fs::read(run.end()) {
        Ok(text) => {
            let end = serde_json::from_slice(&text).map_err(Error::broken(&run.end()))?;
            write_stats(run, &end).map_err(Error::io(&run.stats()))?;
            end
        }
        // Stopped before there was anything to tell.
        Err(_) if interrupted => {
            let progress = Progress { interrupted, ..Progress::default() };
            EndReport { progress, ..EndReport::default() }
        }
        Err(error) => {
            return Err(Error::Failed(format!("the run ended without a word: {error}")));
        }
    };
    let timings = ranks.first().copied().unwrap_or_default();
    let timings = Timings { wall: started.elapsed(), ..timings };
    Ok(Outcome { interrupted, progress, timings, ranks, checkpoint: latest })
}

/// Where each worker's time went, one line each, appended: a resumed run adds its own.
fn write_stats(run: &RunLayout, end: &EndReport) -> std::io::Result<()> {
    let EndReport { progress, ranks } = end;
    let path = run.stats();
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

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use salamander_core::progress::StepCount;

    use super::*;

    fn run() -> (tempfile::TempDir, RunLayout) {
        let folder = tempfile::tempdir().expect("a folder");
        let run = RunLayout::new(folder.path());
        (folder, run)
    }

    fn experiment() -> Experiment {
        Experiment::parse("workers: 2\nstrategy: allreduce\n", &[]).expect("an experiment")
    }

    #[test]
    fn a_held_port_is_the_masters_also_after_a_restart() {
        let (_held, address) = hold_port().expect("a port");
        // The standard library's listeners may use an address again, as a master's do.
        drop(TcpListener::bind(address).expect("the master listens"));
        TcpListener::bind(address).expect("and the next one");
        let (_other, another) = hold_port().expect("a port");
        assert_ne!(address, another);
    }

    #[test]
    fn a_run_says_how_it_ended() {
        let (_folder, run) = run();
        let end = |ending| finish(&run, &experiment(), ending, Instant::now());
        let failed = end(Ending::Failed("no data".into())).expect_err("failed");
        assert_eq!(failed.to_string(), "no data");
        let unexplained = end(Ending::Completed).expect_err("nothing was told").to_string();
        assert!(unexplained.starts_with("the run ended without a word"), "{unexplained}");
        let (stopped, facts) = end(Ending::Interrupted).expect("stopped before its first step");
        assert!(stopped.interrupted && stopped.progress.interrupted);
        assert_eq!((stopped.checkpoint, facts.generations), (None, 0));
    }

    #[test]
    fn the_end_of_a_run_is_read_and_each_ranks_time_is_kept() {
        let (_folder, run) = run();
        let progress = Progress { steps: StepCount(7), records: 70, ..Progress::default() };
        let ranks = vec![Timings::default(); 2];
        let told = serde_json::to_vec(&EndReport { progress, ranks }).expect("JSON");
        fs::write(run.end(), told).expect("written");
        for lives in 1..=2 {
            let ended = finish(&run, &experiment(), Ending::Completed, Instant::now());
            let (outcome, _) = ended.expect("completed");
            assert_eq!((outcome.progress.steps.0, outcome.ranks.len()), (7, 2));
            let stats = fs::read_to_string(run.stats()).expect("there");
            assert_eq!(stats.lines().count(), 1 + 2 * lives, "one header: {stats}");
            assert!(stats.ends_with("1,2,7,70,0.000,0.000,0.000,0.000\n"), "{stats}");
        }
    }
}
