//! Flows that worker processes share: the same bytes as in one process, whoever is killed, at the cost of the killed
//! tasks alone. Its main is also the worker.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use salamander_flow::flow::{
    Error, FlowContext, FlowJob, FlowSummary, Flows, Join, TSet, aggregates, col,
};
use salamander_flow::flows;
use salamander_run::flow::FlowWorkers;
use salamander_run::{Program, Sharing, TaskEvent};
use salamander_train::model::Models;
use serde::{Deserialize, Serialize};

const RECORDS: u64 = 2000;
const TASKS: u64 = 200;
const KILLS: u64 = 20;
const WORKERS: u32 = 3;

#[derive(Serialize, Deserialize)]
struct WordSample {
    id: i64,
    word: String,
}

/// Says in a file that a task begins, and takes its time.
fn noted(cx: &FlowContext) -> Result<TSet, Error> {
    if let Some(path) = cx.text_parameter("begun") {
        let file = OpenOptions::new().create(true).append(true).open(path);
        let noted = file.and_then(|mut file| writeln!(file, "{}", std::process::id()));
        noted.map_err(|cause| Error::Io { path: path.into(), cause })?;
    }
    cx.input()?.map("note", |sample: WordSample| {
        std::thread::sleep(Duration::from_millis(1));
        match sample.id % 500 {
            0 => Err(format!("{} is refused", sample.id)),
            _ => Ok(WordSample { word: sample.word.to_uppercase(), ..sample }),
        }
    })
}

fn grouped(cx: &FlowContext) -> Result<TSet, Error> {
    let count = aggregates::count(col("id")).alias("many");
    let counts = cx.input()?.key_by(&["word"]).reduce(vec![count])?;
    cx.input()?.join(counts, Join::Inner, &["word"])
}

fn failing(cx: &FlowContext) -> Result<TSet, Error> {
    cx.input()?.compute("fail", || {
        |_: Vec<WordSample>| Err::<Vec<WordSample>, _>("no sample is good".to_string())
    })
}

fn all() -> Flows {
    flows![noted, grouped, failing]
}

fn main() {
    let program = Program::enter_with_flows(Models::new(Vec::new()), all(), |_| {});
    let tests: [(&str, fn(&Program)); 4] = [
        ("killed_workers_cost_their_tasks_alone", killed_workers_cost_their_tasks_alone),
        ("shuffled_shards_are_those_of_one_process", shuffled_shards_are_those_of_one_process),
        ("rows_that_meet_survive_their_workers", rows_that_meet_survive_their_workers),
        ("what_fails_leaves_nothing", what_fails_leaves_nothing),
    ];
    let wanted = std::env::args().skip(1).find(|word| !word.starts_with('-'));
    for (name, test) in tests {
        if wanted.as_deref().is_none_or(|wanted| name.contains(wanted)) {
            test(&program);
            println!("test {name} ... ok");
        }
    }
}

struct FlowPlace {
    folder: tempfile::TempDir,
}

impl FlowPlace {
    fn new() -> Self {
        Self::with(RECORDS, 37)
    }

    /// So many records, and so many words in them.
    fn with(records: u64, words: u64) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let file = fs::File::create(folder.path().join("in.csv")).expect("created");
        let mut file = BufWriter::new(file);
        writeln!(file, "id,word").expect("written");
        for id in 0..records {
            writeln!(file, "{id},word{}", id % words).expect("written");
        }
        file.flush().expect("written");
        Self { folder }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn job(&self, flow: &str) -> FlowJob {
        let mut job = FlowJob::named(flow, &[&self.at("in.csv").display().to_string()]);
        job.sink.shards = Some(TASKS);
        job
    }

    fn shared(
        &self,
        job: &FlowJob,
        out: &str,
        watch: &mut dyn FnMut(TaskEvent),
    ) -> Result<FlowSummary, Error> {
        let stop = AtomicBool::new(false);
        let sharing = Sharing { workers: WORKERS, stop: &stop, watch };
        job.run(&all(), &self.at(out), &mut FlowWorkers::new(sharing))
    }
}

fn killed_workers_cost_their_tasks_alone(_: &Program) {
    let place = FlowPlace::new();
    let mut job = place.job("noted");
    let alone = job.run_here(&all(), &place.at("alone")).expect("it runs");
    assert_eq!((alone.rows, alone.bad_rows, alone.shards), (RECORDS - 4, 4, TASKS));

    let begun = place.at("begun");
    job.parameters = BTreeMap::from([("begun".to_string(), begun.display().to_string())]);
    let (mut done, mut killed) = (0, 0);
    let shared = place.shared(&job, "shared", &mut |event| {
        done += u64::from(event == TaskEvent::Done);
        // Evenly over the job, so that the last ones meet workers too.
        if event == TaskEvent::Done && done % (TASKS / (KILLS + 5)) == 0 && killed < KILLS {
            killed += u64::from(signal_a_worker(Signal::KILL));
        }
    });
    let shared = shared.expect("it runs");
    assert_eq!((shared.digest, shared.rows, shared.bad_rows), (alone.digest, alone.rows, 4));
    assert!(killed >= KILLS / 2, "only {killed} workers were there to be killed");
    let read = |out: &str, file: &str| fs::read(place.at(out).join(file)).expect("there");
    assert_eq!(read("alone", "bad_rows.jsonl"), read("shared", "bad_rows.jsonl"));
    // Once by the one that plans, once for each task, and again for those whose worker was killed.
    let begun = fs::read_to_string(begun).expect("notes").lines().count() as u64;
    assert!((1 + TASKS..=1 + TASKS + killed).contains(&begun), "{begun} begun, {killed} killed");
    nothing_is_left(place.folder.path(), 4);
}

fn shuffled_shards_are_those_of_one_process(_: &Program) {
    let place = FlowPlace::new();
    let mut job = place.job("noted");
    job.sink.shards = Some(5);
    job.sink.split = vec![0.7, 0.3];
    job.sink.stratify = Some("word".to_string());
    job.sink.statistics = true;
    job.sink.vocabularies = vec!["word".to_string()];
    let alone = job.run_here(&all(), &place.at("alone")).expect("it runs");
    let shared = place.shared(&job, "shared", &mut |_| {}).expect("it runs");
    assert_eq!((&shared.digest, &shared.parts), (&alone.digest, &alone.parts));
    for file in ["stats.json", "vocabulary/word.txt", "manifest.json"] {
        let read = |out: &str| fs::read_to_string(place.at(out).join(file)).expect("there");
        assert_eq!(read("alone"), read("shared"), "{file}");
    }
    nothing_is_left(place.folder.path(), 3);
}

/// Three stages with a join and a shuffle, and one that sorts shards: workers are killed in all of them, most of them
/// when stages before are over, and one is stopped, which only its silence tells. With `SALAMANDER_ROWS` of as many
/// rows as it says.
fn rows_that_meet_survive_their_workers(_: &Program) {
    let asked = std::env::var("SALAMANDER_ROWS").ok().and_then(|rows| rows.parse().ok());
    let rows: u64 = asked.unwrap_or(RECORDS);
    let place = FlowPlace::with(rows, rows / 50);
    let mut job = place.job("grouped");
    job.sink.shards = Some(12);
    job.partitions = Some(16);
    let alone = job.run_here(&all(), &place.at("alone")).expect("it runs");
    assert_eq!((alone.rows, alone.bad_rows), (rows, 0));
    let by = |workers: u32, out: &str| {
        let stop = AtomicBool::new(false);
        let sharing = Sharing { workers, stop: &stop, watch: &mut |_| {} };
        job.run(&all(), &place.at(out), &mut FlowWorkers::new(sharing)).expect("it runs")
    };
    for workers in [1, 4] {
        assert_eq!(by(workers, &format!("by-{workers}")).digest, alone.digest, "{workers} workers");
    }

    let (mut stages, mut done, mut killed, mut stopped) = (0, 0, 0, false);
    let shared = place.shared(&job, "shared", &mut |event| match event {
        TaskEvent::Planned(_) => stages += 1,
        TaskEvent::Done => {
            done += 1;
            if stages == 3 {
                // Nobody kills the one that is stopped.
                stopped = stopped || signal_a_worker(Signal::STOP);
            } else if done % 2 == 0 && killed < KILLS {
                killed += u64::from(signal_a_worker(Signal::KILL));
            }
        }
        _ => {}
    });
    let shared = shared.expect("it runs");
    assert_eq!((shared.digest, shared.rows), (alone.digest, rows));
    assert!(stages >= 4 && stopped, "{stages} stages, stopped: {stopped}");
    assert!(killed >= KILLS / 4, "only {killed} workers were there to be killed");
    nothing_is_left(place.folder.path(), 5);
}

fn what_fails_leaves_nothing(_: &Program) {
    let place = FlowPlace::new();
    let error = place.shared(&place.job("failing"), "out", &mut |_| {}).expect_err("it fails");
    assert!(error.to_string().contains("fail: no sample is good"), "{error}");
    nothing_is_left(place.folder.path(), 1);
}

/// Kills or stops one of our workers, if there is one.
fn signal_a_worker(signal: Signal) -> bool {
    let mut children = Vec::new();
    for task in fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let text = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        children.extend(text.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
    }
    let pid = children.first().copied().and_then(Pid::from_raw);
    pid.is_some_and(|pid| kill_process(pid, signal).is_ok())
}

fn nothing_is_left(folder: &Path, expected: usize) {
    let names: Vec<_> =
        fs::read_dir(folder).expect("a folder").flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(names.len(), expected, "{names:?}");
}
