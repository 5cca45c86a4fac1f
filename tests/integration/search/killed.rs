//! Searches that are killed at seeded moments, and what must not have changed when they have ended.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{Workplace, points_csv};

/// How long anything is waited for: far longer than it takes on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(600);

/// When a search is killed: as often, after up to two more lines of its journal and up to so long.
#[derive(Clone, Copy)]
pub(crate) struct SearchKills {
    pub(crate) count: u64,
    pub(crate) seed: u64,
    pub(crate) longest: Duration,
}

impl SearchKills {
    /// For searches whose trials take no time.
    pub(crate) fn quick(count: u64, seed: u64) -> Self {
        Self { count, seed, longest: Duration::from_millis(60) }
    }
}

/// What must not depend on how a search was disturbed: trials, decisions and all that was learned.
pub(crate) fn decisions(end: &Value) -> Vec<Value> {
    let trials = end["trials"].as_array().expect("a list");
    let fields = ["id", "state", "hparams", "length", "metric", "reason"];
    let decided = |trial: &Value| {
        let mut all: Vec<Value> = fields.iter().map(|field| trial[*field].clone()).collect();
        all.push(summary(trial["dir"].as_str().expect("a folder"))["weights_hash"].clone());
        Value::from(all)
    };
    trials.iter().map(decided).collect()
}

/// How a trial's run ended; null where it never began.
pub(crate) fn summary(folder: &str) -> Value {
    let text = std::fs::read_to_string(Path::new(folder).join("summary.json"));
    text.map_or(Value::Null, |text| serde_json::from_str(&text).expect("a summary"))
}

/// The folder of the only search below `runs`.
pub(crate) fn only_search(place: &Workplace, runs: &str) -> Option<PathBuf> {
    let mut folders = std::fs::read_dir(place.path().join(runs)).ok()?.flatten();
    // One that is killed at its birth stays as a hidden folder, which is no search yet.
    let is_born = |name: &std::ffi::OsStr| !name.to_string_lossy().starts_with('.');
    let found = folders
        .find(|entry| is_born(&entry.file_name()) && entry.path().join("search.json").is_file());
    found.map(|entry| entry.path())
}

/// Lines of a search's journal so far.
pub(crate) fn journaled(search: &Path) -> usize {
    std::fs::read_to_string(search.join("search.jsonl")).unwrap_or_default().lines().count()
}

/// Waits until something is there; `None` when the search has ended before.
pub(crate) fn wait_for<T>(search: &mut Child, mut found: impl FnMut() -> Option<T>) -> Option<T> {
    let begun = Instant::now();
    loop {
        let over = search.try_wait().expect("asked").is_some();
        if let Some(found) = found() {
            return Some(found);
        }
        if over {
            return None;
        }
        assert!(begun.elapsed() < PATIENCE, "the search does nothing");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Waits until no process has a folder among its arguments: trials end together with their search.
pub(crate) fn nobody_is_left(folder: &Path) {
    let name = folder.display().to_string();
    let is_there = || {
        let processes = std::fs::read_dir("/proc").expect("processes").flatten();
        processes.into_iter().any(|process| {
            let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).split('\0').any(|part| part.starts_with(&name))
        })
    };
    let begun = Instant::now();
    while is_there() {
        assert!(begun.elapsed() < PATIENCE, "a process of {name} outlives its search");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The lines about steps of a run's curve, with the time at which each was.
pub(crate) fn steps(folder: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(folder.join("metrics.jsonl")).unwrap_or_default();
    let is_step = |line: &&str| line.contains("\"kind\":\"step\"");
    text.lines().filter(is_step).map(str::to_string).collect()
}

/// What may never be lost again, as it was when a search was killed: its journal, and of each trial the logs, and the
/// steps up to its last checkpoint, which are not done a second time.
#[derive(Default)]
struct KeptRecords {
    texts: BTreeMap<PathBuf, String>,
    steps: BTreeMap<PathBuf, Vec<String>>,
}

impl KeptRecords {
    fn read(search: &Path) -> Self {
        let mut kept = Self::default();
        let journal = search.join("search.jsonl");
        let text = std::fs::read_to_string(&journal).unwrap_or_default();
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        kept.texts.insert(journal, text[..whole].to_string());
        for trial in folders(&search.join("trials")) {
            for log in folders(&trial.join("logs")) {
                let text = std::fs::read_to_string(&log).expect("a log");
                kept.texts.insert(log, text);
            }
            let number = |path: &PathBuf| {
                path.file_name()?.to_str()?.strip_prefix("step-")?.parse::<usize>().ok()
            };
            let last = folders(&trial.join("checkpoints")).iter().filter_map(number).max();
            let done = steps(&trial).into_iter().take(last.unwrap_or(0)).collect();
            kept.steps.insert(trial, done);
        }
        kept
    }

    /// Everything is there still, word for word.
    fn is_kept(&self) {
        for (path, before) in &self.texts {
            let now = std::fs::read_to_string(path).expect("it is there");
            assert!(now.starts_with(before), "{}: {before:?}, now {now:?}", path.display());
        }
        for (trial, before) in &self.steps {
            let now = steps(trial);
            let folder = trial.display();
            assert!(now.starts_with(before), "{folder}: steps were done again: {before:?} {now:?}");
        }
    }
}

fn folders(of: &Path) -> Vec<PathBuf> {
    let found = std::fs::read_dir(of).into_iter().flatten().flatten();
    found.map(|entry| entry.path()).collect()
}

/// SearchKills a search at as many seeded moments, and lets it end then.
pub(crate) fn killed_and_resumed(place: &Workplace, file: &str, kills: SearchKills) -> Value {
    let runs = format!("killed-{}", kills.seed);
    let mut rng = salamander_core::seed::Rng::new(kills.seed);
    let mut kept = Vec::new();
    for _ in 0..kills.count {
        let folder = only_search(place, &runs);
        let name = folder.as_ref().map(|folder| folder.display().to_string());
        let slots = (1 + rng.below(3)).to_string();
        let mut args = vec!["train", "--slots", &slots, "--out", &runs];
        match &name {
            Some(name) => args.extend(["--resume", name]),
            None => args.push(file),
        }
        let mut search = place.command(&args).spawn().expect("started");
        let before = folder.as_deref().map_or(0, journaled);
        let more = rng.below(3) as usize;
        let reached = || only_search(place, &runs).filter(|all| journaled(all) >= before + more);
        let reached = wait_for(&mut search, reached);
        std::thread::sleep(Duration::from_millis(rng.below(kills.longest.as_millis() as u64)));
        // On a slow machine it may be over by now, which is as good.
        let _ = search.kill();
        search.wait().expect("gone");
        if let Some(folder) = reached.or_else(|| only_search(place, &runs)) {
            nobody_is_left(&folder);
            kept.push(KeptRecords::read(&folder));
        }
    }
    let folder = only_search(place, &runs).expect("a search").display().to_string();
    let end = place.ok(&["train", "--resume", &folder, "--slots", "2", "--json"]).json();
    kept.iter().for_each(KeptRecords::is_kept);
    end
}

/// A search undisturbed, and the same one killed at many moments.
pub(crate) fn is_not_changed_by_kills(place: &Workplace, file: &str, all: &[SearchKills]) {
    place.write("points.csv", &points_csv(40));
    let file = place.write("x.yaml", file).display().to_string();
    let end: Value = place.ok(&["train", &file, "--json", "--out", "one"]).json();
    assert_eq!(end["state"], "completed");
    for kills in all {
        let again = killed_and_resumed(place, &file, *kills);
        assert_eq!(decisions(&again), decisions(&end), "seed {}", kills.seed);
        assert_eq!(again["best"]["id"], end["best"]["id"], "seed {}", kills.seed);
        assert_eq!(best_weights(&again), best_weights(&end), "seed {}", kills.seed);
    }
}

/// The weights of a search's best trial, as they are on the disk.
fn best_weights(end: &Value) -> Vec<u8> {
    let best = Path::new(end["best"]["dir"].as_str().expect("a folder"));
    let checkpoints = folders(&best.join("checkpoints"));
    let last = checkpoints.iter().filter(|path| path.is_dir()).max().expect("a checkpoint");
    std::fs::read(last.join("model.safetensors")).expect("weights")
}

/// In order of arrival: the journal replays to the same decisions, and every trial has the curve that it has alone.
pub(crate) fn trials_are_what_they_are_alone(place: &Workplace, end: &Value) {
    let folder = end["dir"].as_str().expect("a folder");
    let again: Value = place.ok(&["search", "table", folder, "--json"]).json();
    assert_eq!(again["trials"], end["trials"], "the replay is identical");
    for trial in end["trials"].as_array().expect("a list") {
        let run = Path::new(trial["dir"].as_str().expect("a folder"));
        let experiment = run.join("experiment.yaml").display().to_string();
        let out = format!("alone-{}", trial["id"]);
        let alone = place.train(&[&experiment, "--out", &out]);
        let there = summary(&run.display().to_string());
        assert_eq!(alone["weights_hash"], there["weights_hash"], "{trial}");
        let metric = end["metric"].as_str().expect("a name");
        assert_eq!(alone["metrics"]["validation"][metric], trial["metric"]);
        let length = trial["length"].as_u64().expect("a number") as usize;
        // All but the times at which steps were.
        let told = |folder: &Path| -> Vec<String> {
            let before = |line: &String| line.split(",\"time\":").next().map(str::to_string);
            steps(folder).iter().filter_map(before).collect()
        };
        let (there, alone) = (told(run), told(Path::new(alone["dir"].as_str().expect("one"))));
        assert_eq!(there.len(), length, "each step is there once");
        assert_eq!(there, alone[..length], "bit for bit");
    }
}
