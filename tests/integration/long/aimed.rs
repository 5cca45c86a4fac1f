//! Faults that are aimed: at the moment in which a state is sent, a checkpoint is read or written; at single bits of
//! files; at the port of a master; at the disk below its journal. A fault that missed its moment does not count.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant, SystemTime};

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};
use serde_json::Value;
use tests::chaos::{self, Fire, left_behind, names, processes_of};

use crate::elastic::fire;
use crate::faults::SmallDisk;
use crate::interrupted::{signal, start, steps_logged};
use crate::support::{PROGRAM, Workplace, copy_folder, has_ended, may_change_host, skip};

/// A moment in the life of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AimedAt {
    /// A state is sent to it.
    Transfer,
    /// It reads a checkpoint.
    Loading,
    /// A checkpoint is being written.
    Writing,
}

/// A run that faults are aimed at.
struct Aimed {
    place: Workplace,
    child: Child,
    run: PathBuf,
    fire: Fire,
}

impl Aimed {
    /// A run that is slow until somebody removes the file `slow`.
    fn begin(fire: Fire) -> Self {
        let place = Workplace::new();
        chaos::prepare(place.path(), &fire);
        let slow = place.write("slow", "").display().to_string();
        let slow = format!("hyperparameters.slow_file={slow}");
        let command = place.command(&["train", "tally.yaml", "--json", "--set", &slow]);
        let (child, run) = start(command, &place, 3, Duration::ZERO);
        Self { place, child, run, fire }
    }

    /// Waits for something that happens before the run ends, looking all the time.
    fn until<T>(&mut self, what: &str, mut found: impl FnMut(&Self) -> Option<T>) -> T {
        let deadline = Instant::now() + Duration::from_secs(90);
        loop {
            if let Some(found) = found(self) {
                return found;
            }
            let ended = self.child.try_wait().expect("a state");
            assert!(ended.is_none(), "the run ended before this: {what}");
            assert!(Instant::now() < deadline, "not within time: {what}");
            std::thread::sleep(Duration::from_micros(300));
        }
    }

    fn kill(&self, pid: u32) -> bool {
        let pid = Pid::from_raw(pid as i32).expect("a process");
        kill_process(pid, Signal::KILL).is_ok()
    }

    fn workers(&self) -> Vec<u32> {
        processes_of(self.child.id(), "worker")
    }

    /// A worker that was started since, and whose last word is that it begins so: its slot and its process.
    fn begins(&self, how: &str, before: &[u32]) -> Option<(usize, u32)> {
        let begins = |slot: usize| {
            let text = self.log(slot);
            let is_so = text.lines().last().is_some_and(|last| is_begin(last, how));
            let number = |line: &str| line.split_once("pid=")?.1.trim().parse().ok();
            let process: u32 = text.lines().rev().find_map(number)?;
            let is_new = is_so && text.ends_with('\n') && !before.contains(&process);
            is_new.then_some((slot, process))
        };
        (0..self.fire.workers as usize).find_map(begins)
    }

    fn log(&self, slot: usize) -> String {
        fs::read_to_string(self.run.join(format!("logs/worker-{slot}.log"))).unwrap_or_default()
    }

    /// The workers, once there are as many as wanted and each has done a step: all of them hold the state.
    fn workers_at_work(&mut self) -> Vec<u32> {
        let wanted = self.fire.workers as usize;
        self.until("all workers train", |run| {
            let workers = run.workers();
            let is_at_work = workers.len() >= wanted && workers.iter().all(|pid| run.steps(*pid));
            is_at_work.then_some(workers)
        })
    }

    /// Whether a worker has begun a step: it says so in a file of its own.
    fn steps(&self, pid: u32) -> bool {
        self.place.path().join(format!("phase-{pid}")).exists()
    }

    /// Whether a writer has begun something since then and not finished it. Those that were killed before have left
    /// something, too.
    fn is_writing(&self, since: SystemTime) -> bool {
        let folder = self.run.join("checkpoints");
        let begun =
            |name: &String| fs::metadata(folder.join(name)).and_then(|data| data.modified());
        let unfinished = names(&folder, |name| name.starts_with(".step-"));
        unfinished.iter().any(|name| begun(name).is_ok_and(|begun| begun > since))
    }

    /// Kills a worker in a moment; whether it was that moment.
    fn hit(&mut self, target: AimedAt) -> bool {
        let before = self.workers_at_work();
        let (begin, victims) = match target {
            AimedAt::Writing => return self.hit_writing(&before),
            // Nobody has the state any more.
            AimedAt::Loading => ("part=Load(Some(", before.as_slice()),
            AimedAt::Transfer => ("part=Receive", &before[before.len() - 1..]),
        };
        for pid in victims {
            self.kill(*pid);
        }
        let (slot, pid) = self.until("a worker begins", |run| run.begins(begin, &before));
        // One that has its state goes on to steps.
        let has_stepped = self.steps(pid);
        let is_last = self.log(slot).lines().last().is_some_and(|last| is_begin(last, begin));
        self.kill(pid) && is_last && !has_stepped
    }

    /// Kills all workers while one of them writes; what it has not finished proves it.
    fn hit_writing(&mut self, workers: &[u32]) -> bool {
        let since = SystemTime::now();
        let is_writing = |run: &Self| run.is_writing(since).then_some(());
        self.until("a checkpoint is being written", is_writing);
        let killed = workers.iter().filter(|pid| self.kill(**pid)).count();
        killed > 0 && self.is_writing(since)
    }

    /// So many checkpoints count.
    fn await_counted(&mut self, count: usize) {
        self.until("checkpoints count", |run| {
            let list = fs::read_to_string(run.run.join("checkpoints/counted")).unwrap_or_default();
            (list.matches("step-").count() >= count).then_some(())
        });
    }

    /// Lets the run go on quickly.
    fn hurry(&self) {
        fs::remove_file(self.place.path().join("slow")).expect("it was slow");
    }

    /// Its weights are those of an undisturbed run, every record counted once, and nothing is left behind.
    fn end(mut self) {
        let status = self.child.wait().expect("ended");
        assert!(status.success(), "{status}: {}", self.log(0));
        let text = fs::read_to_string(self.run.join("summary.json")).expect("a summary");
        let summary: Value = serde_json::from_str(&text).expect("JSON");
        let proven = chaos::prove(Path::new(PROGRAM), self.place.path(), &self.fire, &summary);
        proven.expect("every record exactly once per epoch, and the bits of an undisturbed run");
        assert_eq!(left_behind(&self.run), Vec::<String>::new());
    }
}

/// Whether a line of a log says that a generation begins in this way.
fn is_begin(line: &str, how: &str) -> bool {
    line.contains(" begins ") && line.contains(how)
}

#[test]
fn workers_killed_while_states_are_sent_read_and_written_lose_nothing() {
    let mut run = Aimed::begin(Fire { delay_ms: 25, ..fire(1, 3, 28) });
    run.await_counted(1);
    let targets = [AimedAt::Transfer, AimedAt::Loading, AimedAt::Writing];
    let mut hits = targets.map(|target| (target, 0));
    // A kill may come too late for its moment; then it is tried again.
    for _ in 0..5 {
        for (target, hits) in hits.iter_mut().filter(|(_, hits)| *hits < 2) {
            *hits += u32::from(run.hit(*target));
        }
    }
    run.hurry();
    assert!(hits.iter().all(|(_, hits)| *hits > 0), "some moments were never hit: {hits:?}");
    run.end();
}

/// The state of a run that was killed, with one bit of one file changed: it goes on with the weights of an undisturbed
/// run, or says what is wrong.
#[test]
fn a_flipped_bit_in_any_file_of_a_run_is_found_or_changes_nothing() {
    let mut run = Aimed::begin(Fire { servers: 1, delay_ms: 10, ..fire(1, 2, 4) });
    run.await_counted(2);
    let processes = chaos::children_of(run.child.id());
    signal(&run.child, Signal::KILL);
    run.child.wait().expect("ended");
    while !processes.iter().all(|pid| has_ended(*pid)) {
        std::thread::sleep(Duration::from_millis(5));
    }
    run.hurry();
    let expected = {
        let alone = ["--set", "strategy=local", "--set", "workers=1", "--out", "alone"];
        let args = [&["tally.yaml", "--set", "hyperparameters.delay_ms=0"][..], &alone].concat();
        run.place.train(&args)["weights_hash"].clone()
    };
    let kept = run.place.path().join("kept");
    fs::rename(&run.run, &kept).expect("moved");
    let mut files = Vec::new();
    list_files(&kept, &mut files);
    let (mut same, mut refused) = (Vec::new(), Vec::new());
    for file in files {
        let _ = fs::remove_dir_all(&run.run);
        copy_folder(&kept, &run.run);
        let path = run.run.join(file.strip_prefix(&kept).expect("within"));
        let mut bytes = fs::read(&path).expect("a file");
        let middle = bytes.len() / 2;
        if bytes.is_empty() {
            continue;
        }
        bytes[middle] ^= 1;
        fs::write(&path, bytes).expect("written");
        let ended = run.place.run(&["train", "--json", "--resume", &run.run.display().to_string()]);
        let name = path.display();
        match ended.code() {
            Some(0) => {
                assert_eq!(ended.json()["weights_hash"], expected, "{name}\n{}", ended.err());
                same.push(name.to_string());
            }
            _ => {
                let told = ended.err();
                assert!(told.contains("error: ") && !told.contains("panicked"), "{name}: {told}");
                refused.push(name.to_string());
            }
        }
    }
    // Files that decide what is trained cannot be made up for; everything else is.
    assert!(same.len() > 2 * refused.len(), "{same:?} went on, these not: {refused:?}");
    assert!(same.iter().any(|name| name.ends_with(".rows")), "rows are among them: {same:?}");
}

fn list_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        match path.is_dir() {
            // What was said is nobody's input.
            true if path.ends_with("logs") => {}
            true => list_files(&path, files),
            false => files.push(path),
        }
    }
}

#[test]
fn two_thousand_idle_connections_hold_up_no_run() {
    let mut run = Aimed::begin(Fire { epochs: 2, delay_ms: 40, ..fire(1, 2, 4) });
    // More than most shells allow a process; the run's own have begun with that.
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).expect("raised");
    let address = fs::read_to_string(run.run.join("master.address")).expect("an address");
    let connect = |_| TcpStream::connect(address.trim()).expect("the port is open");
    let idle: Vec<TcpStream> = (0..2_000).map(connect).collect();
    let before = steps_logged(&run.run);
    run.until("it goes on", |run| (steps_logged(&run.run) > before + 5).then_some(()));
    // Whoever belongs to the run is still let in: a command, and a worker in the place of another.
    run.place.ok(&["status", &run.run.display().to_string()]);
    let workers = run.workers();
    run.kill(workers[0]);
    run.until("another worker begins", |run| run.begins("part=Receive", &workers));
    run.hurry();
    run.end();
    drop(idle);
}

/// A journal on a disk of its own, which has no room for ten seconds.
#[test]
fn a_journal_without_room_is_waited_for() {
    let test = "a_journal_without_room_is_waited_for";
    let place = Workplace::new();
    let small = place.path().join("small");
    fs::create_dir(&small).expect("a folder");
    if !may_change_host(test) {
        return;
    }
    let Some(_disk) = SmallDisk::mount(&small) else {
        return skip(test, "tmpfs cannot be mounted here (needs root)");
    };
    let fire = Fire { epochs: 2, delay_ms: 100, ..fire(1, 2, 4) };
    chaos::prepare(place.path(), &fire);
    let slow = place.write("slow", "").display().to_string();
    let slow = format!("hyperparameters.slow_file={slow}");
    let prepared = place.ok(&["train", "tally.yaml", "--prepare", "--set", &slow]).out();
    let run = PathBuf::from(prepared.trim());
    std::os::unix::fs::symlink(small.join("journal"), run.join("journal")).expect("a link");
    let shown = run.display().to_string();
    let log = fs::File::create(place.path().join("log")).expect("a log");
    let mut command = place.command(&["train", "--json", "--resume", &shown]);
    let mut child = command.stdout(Stdio::null()).stderr(log).spawn().expect("it starts");
    let said = |text: &str| {
        let logs = fs::read_to_string(run.join("logs/master.log")).unwrap_or_default();
        logs.contains(text)
    };
    wait(&mut child, "it trains", || steps_logged(&run) > 3);
    // All of the room, and then changes until the journal needs more than it has.
    let _ = fs::write(small.join("fill"), vec![0; 2 << 20]);
    let mut asked = Vec::new();
    while !said("waiting for room") {
        assert!(asked.len() < 100, "the journal never wants room");
        let number = 1 + asked.len() % 2;
        let mut scale = place.command(&["scale", &shown, "--workers", &number.to_string()]);
        let mut scaling =
            scale.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
        wait(&mut child, "an answer, or a wait", || {
            said("waiting for room") || scaling.try_wait().expect("a state").is_some()
        });
        asked.push(scaling);
    }
    std::thread::sleep(Duration::from_secs(10));
    assert!(child.try_wait().expect("a state").is_none(), "it waits");
    fs::remove_file(small.join("fill")).expect("removed");
    fs::remove_file(place.path().join("slow")).expect("removed");
    asked.iter_mut().for_each(|scaling| drop(scaling.wait()));
    assert!(child.wait().expect("ended").success());
    let text = fs::read_to_string(run.join("summary.json")).expect("a summary");
    let summary: Value = serde_json::from_str(&text).expect("JSON");
    chaos::prove(Path::new(PROGRAM), place.path(), &fire, &summary).expect("nothing was lost");
    assert_eq!(summary["restarts"]["master"], 0, "{summary}");
}

fn wait(child: &mut Child, what: &str, mut happened: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(90);
    while !happened() {
        assert!(child.try_wait().expect("a state").is_none(), "the run ended before this: {what}");
        assert!(Instant::now() < deadline, "not within time: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
