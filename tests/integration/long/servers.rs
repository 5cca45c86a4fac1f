//! Parameter servers in trouble: one that cannot write its part of a checkpoint, and ones that are killed while
//! partitions
//! move. The checkpoint before stays in force, and every record still counts exactly once.

use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tests::chaos::{self, Fire, processes_of};

use crate::elastic::fire;
use crate::interrupted::{start, steps_logged};
use crate::support::{PROGRAM, Workplace};

/// A run with two servers that has begun.
struct Run {
    place: Workplace,
    child: Child,
    folder: PathBuf,
    fire: Fire,
}

impl Run {
    fn begin(fire: Fire) -> Self {
        Self::begin_with(fire, &[])
    }

    fn begin_with(fire: Fire, variables: &[(&str, &str)]) -> Self {
        let place = Workplace::new();
        chaos::prepare(place.path(), &fire);
        let mut command = place.command(&["train", "tally.yaml", "--json"]);
        command.envs(variables.iter().copied());
        let (child, folder) = start(command, &place, 10, Duration::ZERO);
        Self { place, child, folder, fire }
    }

    /// Waits for something that has to happen before the run ends.
    fn until(&mut self, what: &str, mut happened: impl FnMut(&Self) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(90);
        while !happened(self) {
            let ended = self.child.try_wait().expect("a state").is_some();
            assert!(!ended, "the run ended before this: {what}\n{}", self.logs());
            assert!(Instant::now() < deadline, "not within time: {what}\n{}", self.logs());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// All that the run's processes have said.
    fn logs(&self) -> String {
        let files = std::fs::read_dir(self.folder.join("logs")).into_iter().flatten().flatten();
        files.filter_map(|file| std::fs::read_to_string(file.path()).ok()).collect()
    }

    /// How often something was said.
    fn said(&self, text: &str) -> usize {
        self.logs().matches(text).count()
    }

    fn checkpoints(&self) -> PathBuf {
        self.folder.join("checkpoints")
    }

    /// The checkpoints that count, oldest first.
    fn counted(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.checkpoints().join("counted"));
        let text = text.unwrap_or_default();
        text.lines().filter(|line| line.starts_with("step-")).map(str::to_string).collect()
    }

    /// Kills the server in this place among those that are there.
    fn kill_server(&self, number: usize) {
        let servers = processes_of(self.child.id(), "ps");
        let victim = Pid::from_raw(servers[number % servers.len()] as i32).expect("a process");
        kill_process(victim, Signal::KILL).expect("it was there");
    }

    /// Every record must have counted exactly once per epoch.
    fn end(mut self) -> (Value, String) {
        let status = self.child.wait().expect("ended");
        assert!(status.success(), "{}", self.logs());
        let text = std::fs::read_to_string(self.folder.join("summary.json")).expect("a summary");
        let summary: Value = serde_json::from_str(&text).expect("JSON");
        let proven = chaos::prove(Path::new(PROGRAM), self.place.path(), &self.fire, &summary);
        proven.expect("every record exactly once per epoch, and the bits of an undisturbed run");
        (summary, self.logs())
    }
}

/// A folder in the place of the file that the second of two servers begins to write, unless it has begun.
fn block(scratch: &Path) {
    let _ = std::fs::create_dir_all(scratch.join("tables-1-of-2.rows.tmp"));
}

/// The epoch and the number of the last checkpoint of an asynchronous run that servers have begun to write.
fn last_rows(checkpoints: &Path) -> (u64, u64) {
    let entries = std::fs::read_dir(checkpoints).expect("a folder").flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let numbers = names.filter_map(|name| {
        let (epoch, number) = name.strip_prefix(".rows-")?.split_once('-')?;
        Some((epoch.parse::<u64>().ok()?, number.parse::<u64>().ok()?))
    });
    numbers.max().expect("the folder of the last one")
}

/// The step and the generation in a checkpoint's name.
fn parse(name: &str) -> (u64, &str) {
    let rest = name.strip_prefix("step-").expect("a name");
    let (step, generation) = rest.split_once("-g").expect("a generation");
    (step.parse().expect("a number"), generation)
}

#[test]
fn a_part_that_a_server_cannot_write_leaves_the_checkpoint_before_in_force() {
    let mut run = Run::begin(Fire { servers: 2, ..fire(1, 1, 8) });
    run.until("a checkpoint", |run| !run.counted().is_empty());
    let (first, checkpoints) = (run.counted().remove(0), run.checkpoints());
    let (step, generation) = parse(&first);
    for step in step + 1..step + 300 {
        block(&checkpoints.join(format!(".rows-step-{step:08}-g{generation}")));
    }
    run.until("it says so", |run| run.said("a checkpoint was not written") > 0);
    // The second one may have been under way.
    let counted = run.counted();
    let first = counted.last().expect("one").clone();
    let logged = steps_logged(&run.folder);
    run.until("it goes on", |run| steps_logged(&run.folder) > logged + 3);
    assert_eq!(run.counted(), counted);
    // Who begins again begins with what is in force; its generation's checkpoints are in nobody's way.
    run.kill_server(0);
    let back = format!("from checkpoint {first}");
    run.until("it goes back", |run| run.said(&back) > 0);
    run.until("later ones are written", |run| run.counted().last() != Some(&first));
    let (summary, logs) = run.end();
    assert_eq!(summary["restarts"]["ps"], 1, "{summary}\n{logs}");
}

#[test]
fn a_part_that_is_not_written_is_tried_again_while_workers_push() {
    // Long epochs: the next one waits for a checkpoint.
    let fire = Fire { servers: 2, asynchronous: true, epochs: 2, delay_ms: 6, ..fire(1, 2, 24) };
    let mut run = Run::begin(fire);
    run.until("a checkpoint, and none under way", |run| {
        let kept = run.said(" kept") as u64;
        kept > 0 && last_rows(&run.checkpoints()).1 == kept
    });
    let (counted, kept) = (run.counted(), run.said(" kept"));
    let (epoch, last) = last_rows(&run.checkpoints());
    let name = |number: u64| run.checkpoints().join(format!(".rows-{epoch}-{number}"));
    let blocks: Vec<PathBuf> = (last + 1..last + 5).map(name).collect();
    blocks.iter().for_each(|scratch| block(scratch));
    run.until("it says so", |run| run.said("a server did not obey") > 0);
    assert_eq!(run.counted(), counted);
    // What the first server has is in the checkpoint that is in force; what it had since is done again.
    let before = processes_of(run.child.id(), "ps");
    run.kill_server(0);
    let is_new = |pid: &u32| !before.contains(pid);
    run.until("another one", |run| processes_of(run.child.id(), "ps").iter().any(is_new));
    for scratch in blocks {
        // Those that were never asked for are gone as soon as another checkpoint is there.
        std::fs::remove_dir_all(scratch.join("tables-1-of-2.rows.tmp")).ok();
    }
    run.until("a later one is written", |run| run.said(" kept") > kept);
    let (summary, logs) = run.end();
    assert_eq!(summary["restarts"]["ps"], 1, "{summary}\n{logs}");
}

/// The pages that the processes of a run show, at the addresses that their logs name.
fn shown(run: &Run) -> Vec<String> {
    let logs = run.logs();
    let told = logs.lines().filter(|line| line.contains("shows metrics"));
    let addresses =
        told.filter_map(|line| line.split("address=").nth(1)?.split_whitespace().next());
    addresses.filter_map(|address| fake_cluster::page(address, "/metrics").ok()).collect()
}

#[test]
fn processes_show_metrics_where_they_are_asked_to_and_nowhere_else() {
    let fire = Fire { servers: 1, ..fire(1, 2, 6) };
    let slow = Fire { delay_ms: 30, ..fire.clone() };
    let mut run = Run::begin_with(slow, &[("SALAMANDER_HEALTH", "127.0.0.1:0")]);
    run.until("two workers and a server show what they do", |run| {
        let pages = shown(run);
        let has = |line: &str| pages.iter().filter(|page| page.contains(line)).count();
        has("\nsalamander_worker_members 2.0\n") == 2
            && has("\nsalamander_server_partitions 1024\n") == 1
    });
    run.end();
    let run = Run::begin(fire);
    assert_eq!(run.said("shows metrics"), 0, "no port that nobody asked for");
    run.end();
}

/// Changes the number of servers three times and kills one as soon as the master says that the move has begun.
pub(crate) fn killed_in_mid_move(fire: Fire, sign: &str) {
    let mut run = Run::begin(fire);
    let folder = run.folder.display().to_string();
    for (servers, victim) in [(3, 0), (2, 2), (3, 1)] {
        let before = run.said(sign);
        run.place.ok(&["scale", &folder, "--ps", &servers.to_string()]);
        run.until("the move begins", |run| run.said(sign) > before);
        let earlier = processes_of(run.child.id(), "ps");
        run.kill_server(victim);
        // One in the place of the killed one, and none any more that was on its way out.
        run.until("all servers are there", |run| {
            let now = processes_of(run.child.id(), "ps");
            now.len() == servers && now.iter().any(|pid| !earlier.contains(pid))
        });
        let logged = steps_logged(&run.folder);
        run.until("it goes on", |run| {
            // A run that goes back to a checkpoint has logged less than before.
            let now = steps_logged(&run.folder);
            now < logged || now > logged + 5
        });
    }
    let (summary, logs) = run.end();
    assert_eq!(summary["restarts"]["ps"], 3, "{summary}\n{logs}");
}

#[test]
fn servers_killed_in_mid_move_lose_no_record() {
    killed_in_mid_move(Fire { servers: 2, delay_ms: 5, ..fire(1, 2, 14) }, "began: ");
}
