//! Training on data that is still being written: by whoever writes files, killed and resumed, with the weights of
//! files that were there from the beginning.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tests::chaos::processes_of;

use crate::interrupted::{kill, start, steps_logged};
use crate::support::{Workplace, points_csv};

/// Records of the partitions, which are 803 in all; a batch has 37.
const PARTS: [usize; 5] = [120, 75, 1, 400, 207];
/// Steps of an epoch.
const STEPS: usize = 22;

/// A folder of partitions, written as a script would do it: a file, and then a line.
struct WrittenParts {
    folder: PathBuf,
    rows: Vec<String>,
    written: usize,
}

impl WrittenParts {
    fn new(place: &Workplace, name: &str) -> Self {
        let folder = place.path().join(name);
        std::fs::create_dir(&folder).expect("made");
        let rows = points_csv(PARTS.iter().sum::<usize>() as u64);
        let rows = rows.lines().skip(1).map(str::to_string).collect();
        Self { folder, rows, written: 0 }
    }

    fn line(&self, line: &str) {
        let list = self.folder.join("salamander-parts.jsonl");
        let mut list =
            std::fs::OpenOptions::new().create(true).append(true).open(list).expect("opened");
        writeln!(list, "{line}").expect("written");
    }

    fn add(&mut self) {
        let (number, records) = (self.written, PARTS[self.written]);
        let before: usize = PARTS[..number].iter().sum();
        let rows = self.rows[before..before + records].join("\n");
        // In the order of names they would be others: 10 comes before 9.
        let file = format!("part-{}.csv", 8 + number);
        std::fs::write(self.folder.join(&file), format!("x,y,side\n{rows}\n")).expect("written");
        self.line(&format!("{{\"part\": {{\"file\": \"{file}\", \"records\": {records}}}}}"));
        self.written += 1;
    }

    /// The rest, and the end.
    fn finish(&mut self) {
        while self.written < PARTS.len() {
            self.add();
        }
        let (parts, records) = (PARTS.len(), self.rows.len());
        self.line(&format!("{{\"end\": {{\"parts\": {parts}, \"records\": {records}}}}}"));
    }
}

/// An experiment on a folder of partitions.
fn experiment(place: &Workplace, folder: &str, stream: bool) -> String {
    place.write("valid.csv", &points_csv(101));
    let text = format!(
        "entrypoint: points\n\
         data: {{training: {folder}, validation: valid.csv, shuffle: partition, stream: {stream}}}\n\
         micro_batches: 4\n\
         min_checkpoint_period: {{batches: 2}}\n\
         hyperparameters: {{global_batch_size: 37, learning_rate: 0.01}}\n\
         searcher: {{metric: loss, max_length: {{epochs: 3}}}}\n\
         reproducibility: {{experiment_seed: 5}}\n"
    );
    place.write(&format!("{folder}-{stream}.yaml"), &text).display().to_string()
}

/// What training on the finished files comes to.
fn finished() -> Value {
    let place = Workplace::new();
    WrittenParts::new(&place, "finished").finish();
    let summary = place.train(&[&experiment(&place, "finished", false)]);
    assert_eq!(summary["steps"], 3 * STEPS, "{summary}");
    summary
}

/// Waits until a run has logged so many lines, which are its steps as long as no epoch has ended.
fn await_lines(child: &mut Child, run: &Path, lines: usize) {
    let start = Instant::now();
    while steps_logged(run) < lines {
        let (ended, logged) = (child.try_wait().expect("a state"), steps_logged(run));
        assert!(ended.is_none(), "it ended with {logged} of {lines} lines: {}", summed_up(run));
        assert!(start.elapsed() < Duration::from_secs(300), "{logged} of {lines} lines");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What a run has said in the end.
fn summed_up(run: &Path) -> Value {
    let text = std::fs::read_to_string(run.join("summary.json")).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

fn assert_same(found: &Value, expected: &Value) {
    assert_eq!(found["state"], "completed", "{found}");
    for field in ["ledger", "steps", "weights_hash"] {
        assert_eq!(found[field], expected[field], "{field} of {found}");
    }
    assert!(found["weights_hash"].is_string(), "{found}");
    let validation = |summary: &Value| summary["metrics"]["validation"].clone();
    assert_eq!(validation(found), validation(expected));
}

#[test]
fn streamed_data_that_is_killed_and_resumed_gives_the_bits_of_finished_files() {
    let (expected, place) = (finished(), Workplace::new());
    let mut parts = WrittenParts::new(&place, "parts");
    parts.add();
    let file = experiment(&place, "parts", true);
    // Three whole steps, and some records that are not enough for another: it waits, and cannot have ended.
    let (mut child, run) = start(place.command(&["train", &file]), &place, 3, Duration::ZERO);
    parts.add();
    await_lines(&mut child, &run, 5);
    assert!(kill(&mut child), "{}", summed_up(&run));
    parts.add();
    parts.add();
    let run_name = run.display().to_string();
    let mut again = place.command(&["train", "--resume", &run_name]);
    again.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = again.spawn().expect("it starts");
    await_lines(&mut child, &run, 16);
    assert!(kill(&mut child), "{}", summed_up(&run));
    parts.finish();
    assert_same(&place.train(&["--resume", &run_name]), &expected);
}

#[test]
fn workers_of_streamed_data_may_be_killed_while_all_wait() {
    let (expected, place) = (finished(), Workplace::new());
    let mut parts = WrittenParts::new(&place, "parts");
    parts.add();
    let file = experiment(&place, "parts", true);
    let command = place.command(&["train", &file, "--workers", "2"]);
    // Three steps can be done; the last one of them is told once another is.
    let (mut child, run) = start(command, &place, 2, Duration::ZERO);
    let workers = processes_of(child.id(), "worker");
    let first = workers.first().and_then(|pid| Pid::from_raw(*pid as i32));
    let first = first.unwrap_or_else(|| panic!("there are no workers: {}", summed_up(&run)));
    // It is a process of a run that waits for records, and is replaced.
    kill_process(first, Signal::KILL).expect("killed");
    parts.add();
    await_lines(&mut child, &run, 4);
    parts.finish();
    let status = child.wait().expect("it ends");
    assert!(status.success(), "{status}: {}", summed_up(&run));
    assert_same(&summed_up(&run), &expected);
}

#[test]
fn data_that_cannot_be_streamed_is_refused_by_name() {
    let place = Workplace::new();
    let file = experiment(&place, "parts", true);
    let refused = |set: &str| place.run(&["train", &file, "--set", set]).err();
    let said = refused("data.shuffle=full");
    assert!(said.contains("data.shuffle: an order over all records needs their number"), "{said}");
    let said = refused("data.fit=true");
    assert!(said.contains("data.fit: statistics and vocabularies need all records"), "{said}");
    let mut parts = WrittenParts::new(&place, "parts");
    parts.add();
    let said = refused("data.stream=false");
    assert!(said.contains("its end is not marked"), "{said}");
    parts.line("{\"part\": {\"file\": \"part-9.csv\", \"records\": 3}}");
    std::fs::write(parts.folder.join("part-9.csv"), "x,y,side\n1,2,0\n").expect("written");
    let said = refused("data.stream=true");
    assert!(said.contains("it has 1 records, and salamander-parts.jsonl says 3"), "{said}");
}
