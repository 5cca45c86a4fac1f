//! Runs whose data a flow makes while they train (`data.flow`): the bits of finished files, whoever is killed; and what
//! a flow refuses ends the run with its words.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{salamander, summary};

/// Partitions of the 2,000 digits, each a task of its own.
const PARTS: usize = 100;

struct BesidePlace {
    folder: tempfile::TempDir,
}

impl BesidePlace {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder") }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// An experiment on `parts`, with more about its data.
    fn experiment(&self, name: &str, data: &str) -> String {
        let digits = digits();
        let text = format!(
            "entrypoint: mnist_mlp\n\
             data:\n  training: parts\n  validation: {digits}\n  shuffle: partition\n{data}\
             hyperparameters: {{global_batch_size: 64}}\n\
             micro_batches: 2\n\
             min_checkpoint_period: {{batches: 5}}\n\
             searcher: {{metric: accuracy, smaller_is_better: false, max_length: {{epochs: 2}}}}\n\
             reproducibility: {{experiment_seed: 3}}\n"
        );
        fs::write(self.path().join(name), text).expect("written");
        name.to_string()
    }

    /// One whose partitions are made while it trains.
    fn with_flow(&self) -> String {
        let (digits, records) = (digits(), 2000 / PARTS);
        let flow = format!("  flow: {{run: digits, in: {digits}, shard_records: {records}}}\n");
        self.experiment("with_flow.yaml", &flow)
    }

    fn train(&self, args: &[&str]) -> Value {
        let line = [&["train", "--json"], args].concat();
        summary(&salamander(self.path(), &line).unwrap_or_else(|told| panic!("{args:?}: {told}")))
    }

    fn start(&self, args: &[&str]) -> Child {
        let mut command = Command::new(env!("CARGO_BIN_EXE_salamander"));
        command.arg("train").args(args).current_dir(self.path());
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts")
    }

    fn list(&self) -> String {
        fs::read_to_string(self.path().join("parts/salamander-parts.jsonl")).unwrap_or_default()
    }

    /// Waits until the flow has named a partition; the first line says what makes them.
    fn await_partition(&self) {
        let begun = Instant::now();
        while self.list().lines().count() < 2 {
            assert!(begun.elapsed() < Duration::from_secs(300), "there is no partition");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// What training on the finished partitions comes to.
    fn finished(&self) -> Value {
        let list = self.list();
        assert!(list.lines().last().is_some_and(|line| line.contains("\"end\"")), "{list}");
        assert_eq!(list.lines().count(), PARTS + 2);
        self.train(&[&self.experiment("finished.yaml", "")])
    }
}

fn digits() -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("mnist/data/mnist-valid.recordio");
    file.display().to_string()
}

/// The processes of flows that runs have started which were started in a folder.
fn flows_below(folder: &Path) -> Vec<u32> {
    let folder = fs::canonicalize(folder).expect("there");
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let is_flow = |path: &PathBuf| {
        let line = fs::read(path.join("cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
        let is_flow = matches!(words.as_slice(), [_, b"flow", _, b"--assignment", ..]);
        is_flow && fs::read_link(path.join("cwd")).is_ok_and(|place| place == folder)
    };
    let found = processes.map(|entry| entry.path()).filter(is_flow);
    found.filter_map(|path| path.file_name()?.to_str()?.parse().ok()).collect()
}

fn kill(process: u32) {
    let killed = Command::new("kill").args(["-9", &process.to_string()]).stderr(Stdio::null());
    killed.status().expect("kill starts");
}

fn the_run(folder: &Path) -> PathBuf {
    let mut runs = fs::read_dir(folder.join("runs")).expect("runs").flatten();
    runs.next().expect("a run").path()
}

fn assert_same(found: &Value, expected: &Value) {
    assert_eq!(found["state"], "completed", "{found}");
    assert!(found["weights_hash"].is_string(), "{found}");
    for field in ["steps", "records", "weights_hash"] {
        assert_eq!(found[field], expected[field], "{field} of {found}");
    }
}

#[test]
fn a_run_starts_the_flow_of_its_data_and_has_the_bits_of_finished_files() {
    let place = BesidePlace::new();
    let file = place.with_flow();
    let beside = place.train(&[&file]);
    assert!(the_run(place.path()).join("logs/flow.log").is_file());
    assert_same(&beside, &place.finished());
    // What is there is kept: the next run finds it, and two workers do the same.
    assert_same(&place.train(&[&file, "--workers", "2"]), &beside);
    assert_eq!(place.list().lines().count(), PARTS + 2);
}

#[test]
fn a_run_and_its_flow_may_be_killed() {
    let place = BesidePlace::new();
    let file = place.with_flow();
    let mut child = place.start(&[&file]);
    place.await_partition();
    // Started again by the run.
    flows_below(place.path()).into_iter().for_each(kill);
    let named = place.list().lines().count();
    let begun = Instant::now();
    while place.list().lines().count() < (named + 5).min(PARTS + 2) {
        assert!(begun.elapsed() < Duration::from_secs(300), "the flow does not go on");
        std::thread::sleep(Duration::from_millis(2));
    }
    child.kill().expect("killed");
    child.wait().expect("ended");
    // It ends with the run.
    let begun = Instant::now();
    while !flows_below(place.path()).is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(60), "the flow outlives its run");
        std::thread::sleep(Duration::from_millis(5));
    }
    let resumed = place.train(&["--resume", "latest"]);
    assert_same(&resumed, &place.finished());
}

#[test]
fn what_a_flow_refuses_ends_its_run_with_the_reason() {
    let place = BesidePlace::new();
    let train = |flow: &str| {
        let file = place.experiment("wrong.yaml", &format!("  flow: {flow}\n"));
        salamander(place.path(), &["train", &file]).expect_err(flow)
    };
    let said = train(&format!("{{run: digit, in: {}}}", digits()));
    assert!(said.contains("data.flow: no flow \"digit\" (there are: digits"), "{said}");
    assert!(!place.path().join("runs").exists(), "it is refused before there is a run");
    let said = train(&format!("{{sql: select nothing from input, in: {}}}", digits()));
    assert!(said.contains("data.flow: the flow of SQL failed: "), "{said}");
    assert!(said.contains("nothing"), "{said}");
    let run = the_run(place.path());
    let ended = fs::read_to_string(run.join("summary.json")).expect("a summary");
    assert!(ended.contains("\"failed\"") && ended.contains("the flow of SQL failed"), "{ended}");
    assert_eq!(flows_below(place.path()), [0; 0]);
}
