//! A hub with real trials: created, looked at, registered, killed at any moment, and nothing is lost or doubled.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::hub_told::is_whole;
use crate::postgres::PostgresServer;
use crate::search::running;
use crate::support::{PROGRAM, Workplace, has_ended, points_csv};

const SINGLE: &str = "\
name: one model
entrypoint: points
data: {training: points.csv, validation: points.csv}
hyperparameters: {global_batch_size: 8, learning_rate: 0.05}
searcher: {metric: loss, max_length: {batches: 2000}}
min_checkpoint_period: {batches: 100}
min_validation_period: {batches: 500}
reproducibility: {experiment_seed: 7}
";

/// A search of longer runs.
pub(crate) fn search() -> String {
    running(&[
        ("entrypoint", "name: a search\nentrypoint"),
        ("batches: 16", "batches: 64"),
        ("strategy: local\nmicro_batches: 2", "min_checkpoint_period: {batches: 8}"),
    ])
}

pub(crate) fn place() -> Workplace {
    let place = Workplace::new();
    place.write("points.csv", &points_csv(40));
    place.write("single.yaml", SINGLE);
    place.write("search.yaml", &search());
    place
}

#[test]
fn an_experiment_without_a_hub_becomes_a_model_by_name() {
    let place = place();
    let file = [
        "experiment",
        "create",
        "single.yaml",
        "--json",
        "--set",
        "searcher.max_length={batches: 40}",
    ];
    let end: Value = place.ok(&file).json();
    assert_eq!((&end["experiment"], &end["state"]), (&json!(1), &json!("completed")), "{end:#}");
    assert_eq!(end["trials"][0]["length"], 40);
    assert!(end["best"]["metric"].is_number(), "{end:#}");
    // A plain run is in the list, too.
    place.train(&["single.yaml", "--set", "searcher.max_length={batches: 20}"]);
    let list: Value = place.ok(&["experiment", "list", "--json", "--sort", "id"]).json();
    let states: Vec<&Value> =
        list.as_array().expect("a list").iter().map(|e| &e["state"]).collect();
    assert_eq!(states, ["completed", "completed"]);
    assert_eq!((&list[0]["origin"], &list[1]["origin"]), (&json!("hub"), &json!("folder")));
    let trial: Value = place.ok(&["trial", "describe", "1.1", "--json"]).json();
    assert_eq!((&trial["steps"], &trial["summary"]["steps"]), (&json!(40), &json!(40)));
    place.ok(&["experiment", "label", "1", "--add", "good"]);
    assert!(place.ok(&["experiment", "list", "--label", "good"]).out().contains("one model"));
    let printed = place.ok(&["experiment", "logs", "1"]).out();
    assert!(printed.contains("console"), "{printed}");
    // From a checkpoint to a name that `evaluate` takes.
    place.ok(&["model", "create", "sides"]);
    place.ok(&["model", "register", "sides", "1.1"]);
    place.ok(&["model", "alias", "sides", "champion", "1"]);
    let named = ["evaluate", "model:sides@champion", "--json"];
    let by_folder = ["evaluate", end["dir"].as_str().expect("a folder"), "--json"];
    assert_eq!(place.ok(&named).json()["metrics"], place.ok(&by_folder).json()["metrics"]);
    let wrong = place.run(&["evaluate", "model:sides@prince"]);
    assert!(wrong.err().contains("there are 1 (champion)"), "{}", wrong.err());
    place.ok(&["experiment", "download", "1", "--out", "fetched"]);
    assert!(place.path().join("fetched").read_dir().expect("made").next().is_some());
    let kept = place.run(&["experiment", "delete", "1"]);
    assert!(kept.err().contains("delete that first"), "{}", kept.err());
    place.ok(&["experiment", "delete", "2"]);
    // A store is nothing that cannot be made again.
    let made = place.ok(&["hub", "rebuild", "--json"]).json();
    assert_eq!(made, json!({"experiments": 1, "runs": 1, "brought": 0}));
    let made = place.ok(&["hub", "token", "ada", "--role", "viewer", "--json"]).json();
    assert_eq!((&made["user"], &made["role"]), (&json!("ada"), &json!("viewer")));
    assert!(made["token"].as_str().is_some_and(|token| token.len() > 20), "{made}");
    assert!(place.ok(&["model", "describe", "sides"]).out().contains("champion"));
    let left: Value = place.ok(&["experiment", "list", "--json"]).json();
    assert_eq!((left.as_array().map(Vec::len), &left[0]["labels"]), (Some(1), &json!(["good"])));
    assert!(place.ok(&["completions", "bash"]).out().contains("_salamander"));
}

#[test]
fn a_mistake_is_told_by_name_and_leaves_nothing_running() {
    let place = place();
    let wrong = ["experiment", "create", "single.yaml", "--set", "hyperparameters.hiden=3"];
    let ended = place.run(&wrong);
    assert_eq!(ended.code(), Some(1));
    assert!(ended.err().contains("unknown field \"hiden\" in hyperparameters"), "{}", ended.err());
    let ended = place.run(&["experiment", "create", "single.yaml", "--detach"]);
    assert!(ended.err().contains("no hub is there to keep the experiment"), "{}", ended.err());
    let ended = place.run(&["experiment", "describe", "99"]);
    assert!(ended.err().contains("there is no experiment 99"), "{}", ended.err());
    let ended = place.run(&["hub", "--listen", "0.0.0.0:0"]);
    assert!(ended.err().contains("can be reached from other machines"), "{}", ended.err());
    assert!(processes_of(&place).is_empty());
}

#[test]
fn nothing_is_lost_or_doubled_when_hub_and_trials_are_killed() {
    kill_often(6, None);
}

/// What the kills of [`kill_often`] have hit.
#[derive(Debug, Default)]
struct Hits {
    hub: usize,
    database: usize,
    masters: usize,
    trials: usize,
}

/// Kills hub, trials, masters and, where there is one, the database so many times while a search, a single run and one
/// with a master go on, and compares with undisturbed ones. What is over too soon is followed by more single runs.
pub(crate) fn kill_often(kills: usize, database: Option<&PostgresServer>) {
    let place = place();
    let ring = ["single.yaml", "--workers", "2", "--set", "searcher.max_length={batches: 600}"];
    let undisturbed: Value =
        place.ok(&["train", "search.yaml", "--json", "--out", "alone", "--slots", "2"]).json();
    let single = place.train(&["single.yaml", "--out", "alone"]);
    let led = place.train(&[&ring[..], &["--out", "alone"]].concat());
    let store = database.map(PostgresServer::database);
    let options: Vec<&str> = store.iter().flat_map(|store| ["--store", store]).collect();
    let start = |place: &Workplace| Hub::start_with(place, "127.0.0.1:0", &options, &[]);
    let mut hub = start(&place);
    let sets = ["--set", "workers=2", "--set", "strategy=allreduce", "--set", ring[4]];
    place.ok(&["experiment", "create", "search.yaml", "--detach"]);
    place.ok(&["experiment", "create", "single.yaml", "--detach"]);
    place.ok(&[&["experiment", "create", "single.yaml", "--detach"], &sets[..]].concat());
    let mut rng = salamander_core::seed::Rng::new(7);
    let mut hits = Hits::default();
    let mut created = 3;
    let count = |hits: &Hits| hits.hub + hits.database + hits.masters + hits.trials;
    while count(&hits) < kills {
        if hub.all_over() {
            place.ok(&["experiment", "create", "single.yaml", "--detach"]);
            created += 1;
        }
        std::thread::sleep(Duration::from_millis(50 + rng.below(400)));
        match (rng.below(4), database) {
            (0, _) => {
                hub.kill();
                hub = start(&place);
                hits.hub += 1;
            }
            (1, Some(database)) => {
                database.restart(Duration::from_millis(rng.below(300)));
                hits.database += 1;
            }
            (choice, _) => {
                let masters = masters_of(&place);
                let (victims, hit) = match choice == 2 && !masters.is_empty() {
                    true => (masters, &mut hits.masters),
                    false => (holders(&place), &mut hits.trials),
                };
                if !victims.is_empty() {
                    let victim = victims[rng.below(victims.len() as u64) as usize];
                    // It may have ended by itself just now.
                    *hit += usize::from(kill_process(victim, Signal::KILL).is_ok());
                }
            }
        }
    }
    eprintln!("measured: killed {hits:?}");
    for id in 1..=created {
        place.ok(&["experiment", "wait", &id.to_string()]);
    }
    let run: Value = place.ok(&["trial", "describe", "3.1", "--json"]).json();
    assert_eq!(run["summary"]["weights_hash"], led["weights_hash"], "the same bits with a master");
    let trials: Value = place.ok(&["experiment", "describe", "1", "--json"]).json();
    let decided = |trials: &Value| {
        let mut all: Vec<Value> = trials.as_array().expect("a list").clone();
        all.sort_by_key(|trial| trial["id"].as_u64());
        let fields = ["id", "state", "hparams", "length", "metric", "reason"];
        let of =
            |trial: &Value| fields.iter().map(|field| trial[*field].clone()).collect::<Vec<_>>();
        all.iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(decided(&trials["trial_list"]), decided(&undisturbed["trials"]));
    for id in (2..=created).filter(|id| *id != 3) {
        let run: Value = place.ok(&["trial", "describe", &format!("{id}.1"), "--json"]).json();
        assert_eq!(run["summary"]["weights_hash"], single["weights_hash"], "the same bits: {id}");
        assert_eq!(run["steps"], 2000);
    }
    let runs = place.path().join("runs");
    is_whole(&hub, &runs);
    place.ok(&["experiment", "delete", "1"]);
    hub.kill();
    let mut hub = start(&place);
    assert_eq!(hub.get("/api/v1/experiments")["total"], created - 1);
    is_whole(&hub, &runs);
    // A store that is lost as well.
    hub.kill();
    place.ok(&[&["hub", "rebuild"], &options[..]].concat());
    let hub = start(&place);
    assert_eq!(hub.get("/api/v1/experiments")["total"], created - 1);
    is_whole(&hub, &runs);
    hub.stop();
    assert!(processes_of(&place).is_empty(), "nothing is left running");
}

/// A hub that is gone when the test is; with one that panics goes all that was started for it.
pub(crate) struct Hub {
    process: Child,
    address: String,
    place: PathBuf,
}

impl Drop for Hub {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.process.kill();
        let _ = self.process.wait();
        if std::thread::panicking() {
            let left = processes_below(&self.place);
            for pid in left.into_iter().filter_map(Pid::from_raw) {
                // It may have ended by itself just now.
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }
}

impl Hub {
    pub(crate) fn start(place: &Workplace) -> Self {
        Self::start_on(place, "127.0.0.1:0")
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn start_on(place: &Workplace, address: &str) -> Self {
        Self::start_with(place, address, &[], &[])
    }

    pub(crate) fn start_with(
        place: &Workplace,
        address: &str,
        options: &[&str],
        settings: &[(&str, &str)],
    ) -> Self {
        let args = ["hub", "--listen", address, "--slots", "4"];
        let mut command = place.command(&[&args[..], options].concat());
        command.envs(settings.iter().copied());
        let mut process = command.stderr(std::process::Stdio::inherit()).spawn().expect("started");
        let mut line = String::new();
        let out = process.stdout.as_mut().expect("its output");
        BufReader::new(out).read_line(&mut line).expect("a line");
        let address = line.trim().rsplit_once("http://").expect("an address").1.to_string();
        Self { process, address, place: place.path().to_path_buf() }
    }

    pub(crate) fn kill(&mut self) {
        self.process.kill().expect("killed");
        self.process.wait().expect("gone");
    }

    pub(crate) fn stop(mut self) {
        let pid = Pid::from_raw(self.process.id() as i32).expect("a process");
        kill_process(pid, Signal::TERM).expect("asked");
        assert!(self.process.wait().expect("gone").success());
    }

    pub(crate) fn get(&self, path: &str) -> Value {
        use std::io::{Read, Write};
        let mut stream = std::net::TcpStream::connect(&self.address).expect("it listens");
        let request = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("answered");
        let body = answer.split_once("\r\n\r\n").expect("a body").1;
        serde_json::from_str(body).unwrap_or_else(|error| panic!("{path}: {error}: {answer}"))
    }

    fn all_over(&self) -> bool {
        let list = self.get("/api/v1/experiments");
        let items = list["items"].as_array().expect("a list");
        items.iter().all(|e| matches!(e["state"].as_str(), Some("completed" | "failed")))
    }
}

/// Masters of runs.
fn masters_of(place: &Workplace) -> Vec<Pid> {
    let is_master = |pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).split('\0').nth(1) == Some("master")
    };
    processes_of(place).into_iter().filter(is_master).filter_map(Pid::from_raw).collect()
}

/// Processes that hold a run's folder: supervisors of single runs and of searches, and trials.
fn holders(place: &Workplace) -> Vec<Pid> {
    let runs = place.path().join("runs");
    let mut folders: Vec<PathBuf> = folders_of(&runs);
    let trials: Vec<PathBuf> =
        folders.iter().flat_map(|run| folders_of(&run.join("trials"))).collect();
    folders.extend(trials);
    let pid = |folder: &PathBuf| {
        let text = fs::read_to_string(folder.join("run.lock")).ok()?;
        let pid: i32 = text.trim().parse().ok()?;
        // A number of a process that has ended may be another's by now.
        is_ours(pid, place.path()).then(|| Pid::from_raw(pid)).flatten()
    };
    folders.iter().filter_map(pid).collect()
}

fn folders_of(parent: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}

fn is_ours(pid: i32, place: &Path) -> bool {
    // Roles and trials call themselves otherwise: the file is what counts.
    let program = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let command = String::from_utf8_lossy(&command);
    let folder = fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default();
    let here = folder.starts_with(place) || command.contains(&*place.to_string_lossy());
    !has_ended(pid.unsigned_abs()) && here && program == Path::new(PROGRAM)
}

pub(crate) fn processes_of(place: &Workplace) -> Vec<i32> {
    processes_below(place.path())
}

fn processes_below(place: &Path) -> Vec<i32> {
    let entries = fs::read_dir("/proc").expect("a list").flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter(|pid| is_ours(*pid, place)).collect()
}
