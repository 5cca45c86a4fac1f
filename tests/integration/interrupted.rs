//! Runs that are cut: by signals at any moment, by broken checkpoints. Each must end, resumed, with
//! the weights of a run that was left alone, bit for bit.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::{Workplace, digits_experiment, weights_of};

/// Dropout, BatchNorm, momentum, a schedule, and two batches per step: everything that must come
/// back from a checkpoint.
fn experiment(place: &Workplace) -> String {
    let rest = "hyperparameters: {global_batch_size: 32}\n\
                optimizations: {aggregation_frequency: 2}\n\
                min_checkpoint_period: {batches: 6}\n\
                min_validation_period: {batches: 40}\n\
                searcher: {metric: accuracy, smaller_is_better: false, max_length: {batches: 150}}\n";
    place.write("resilient.yaml", &digits_experiment("resilient", rest)).display().to_string()
}

pub(crate) fn signal(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(child.id() as i32).expect("a process id");
    match kill_process(pid, signal) {
        // It has ended by itself, and was waited for.
        Ok(()) | Err(Errno::SRCH) => {}
        Err(errno) => panic!("{signal:?}: {errno}"),
    }
}

/// The only run of a workplace, once its folder is there.
fn the_run(place: &Workplace) -> PathBuf {
    let runs = place.path().join("runs");
    let start = Instant::now();
    loop {
        let entries = std::fs::read_dir(&runs).into_iter().flatten().flatten();
        let mut names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        // A name with a dot is a folder that is still being made.
        match names.find(|name| !name.starts_with('.')) {
            Some(name) => return runs.join(name),
            None => assert!(start.elapsed() < Duration::from_secs(60), "no run appears"),
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Lines of the metrics file: how far a run is.
pub(crate) fn steps_logged(run: &Path) -> usize {
    std::fs::read_to_string(run.join("metrics.jsonl")).map_or(0, |text| text.lines().count())
}

/// Starts training, waits until the run has logged so many lines, and a little longer.
pub(crate) fn start(
    mut command: Command,
    place: &Workplace,
    lines: usize,
    longer: Duration,
) -> (Child, PathBuf) {
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let mut child = command.spawn().expect("the program starts");
    let run = the_run(place);
    while steps_logged(&run) < lines {
        let ended = child.try_wait().expect("a state");
        // It may have gone on, and come to its end, between the two looks.
        let whole = ended.is_none() || steps_logged(&run) >= lines;
        assert!(whole, "it ended before {lines} lines: make it longer");
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(longer);
    (child, run)
}

fn resume(place: &Workplace, run: &Path) -> Value {
    place.train(&["--resume", &run.display().to_string()])
}

fn uncut() -> (Vec<u8>, Value) {
    let place = Workplace::new();
    let summary = place.train(&[&experiment(&place)]);
    (weights_of(&summary), summary)
}

fn ledger_is_clean(summary: &Value) {
    for line in summary["ledger"].as_array().expect("a list") {
        assert_eq!(line["duplicated"], 0, "{line}");
        assert_eq!(line["intact"], true, "{line}");
    }
}

#[test]
fn killed_and_resumed_it_ends_with_the_same_weights() {
    killed_at([0, 7, 13, 18]);
}

/// Kills a process; whether that was its end.
pub(crate) fn kill(child: &mut Child) -> bool {
    signal(child, Signal::KILL);
    child.wait().expect("it ends").signal() == Some(9)
}

/// Tries again where a signal came too late, as it may on a busy machine: the run was over.
pub(crate) fn in_time<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
    (0..20).find_map(|_| attempt()).expect("a run is cut before its end: make it longer")
}

/// Kills a run at each of these moments, of which there are twenty, and goes on with it.
pub(crate) fn killed_at(moments: impl IntoIterator<Item = u64>) {
    let (expected, whole) = uncut();
    for moment in moments {
        let (place, run) = in_time(|| cut_at(moment));
        let summary = resume(&place, &run);
        assert_eq!(summary["state"], "completed", "moment {moment}");
        assert_eq!(weights_of(&summary), expected, "killed at moment {moment}");
        assert!(summary["weights_hash"].is_string(), "{summary}");
        assert_eq!(summary["weights_hash"], whole["weights_hash"], "moment {moment}");
        assert_eq!(summary["metrics"], whole["metrics"], "moment {moment}");
        assert_eq!(summary["ledger"], whole["ledger"], "moment {moment}");
        ledger_is_clean(&summary);
        let log = std::fs::read_to_string(run.join("metrics.jsonl")).expect("metrics");
        let steps: Vec<u64> = log
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).expect("a line"))
            .filter(|line| line["kind"] == "step")
            .filter_map(|line| line["steps"].as_u64())
            .collect();
        let total = whole["steps"].as_u64().expect("a number");
        assert!(steps.into_iter().eq(1..=total), "each step is logged once");
    }
}

/// A run that was killed at a moment; nothing if it was over then.
fn cut_at(moment: u64) -> Option<(Workplace, PathBuf)> {
    let place = Workplace::new();
    let file = experiment(&place);
    // Spread over the run, at different places within a step, and some steps before its end.
    let lines = (moment * 37 % 61) as usize;
    let longer = Duration::from_micros(moment * 1717 % 9000);
    let (mut child, run) = start(place.command(&["train", &file]), &place, lines, longer);
    let mut killed = kill(&mut child);
    if killed && moment.is_multiple_of(3) {
        // A second life that is cut as well.
        let again = place.command(&["train", "--resume", &run.display().to_string()]);
        // A whole run has 76 lines.
        let lines = (steps_logged(&run) + 5).min(66);
        let (mut child, _) = start(again, &place, lines, longer);
        killed = kill(&mut child);
    }
    killed.then_some((place, run))
}

#[test]
fn control_c_finishes_the_step_and_says_how_to_resume() {
    let (expected, _) = uncut();
    let place = Workplace::new();
    let file = experiment(&place);
    let mut child = place.command(&["train", "--json", &file]).spawn().expect("starts");
    let run = the_run(&place);
    while steps_logged(&run) < 10 {
        std::thread::sleep(Duration::from_millis(1));
    }
    signal(&child, Signal::INT);
    let status = child.wait().expect("it ends");
    let output = child.wait_with_output().expect("its output");
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(status.code(), Some(130), "{err}");
    assert!(err.contains("train --resume"), "{err}");
    let line: Value = serde_json::from_str(out.lines().last().expect("a line")).expect("JSON");
    assert_eq!(line["state"], "interrupted");
    assert!(line["checkpoint"].is_string());
    assert_eq!(weights_of(&resume(&place, &run)), expected);
}

#[test]
fn a_second_control_c_ends_at_once() {
    let place = Workplace::new();
    place.write("ids.csv", "id\n0\n1\n2\n3\n");
    // A step of ten minutes, which the first Ctrl-C waits for.
    let text = format!(
        "entrypoint: tally\n\
         data: {{training: ids.csv}}\n\
         hyperparameters: {{global_batch_size: 4, records: 4, delay_ms: 600000, phases: \"{}\"}}\n",
        place.path().display()
    );
    let file = place.write("slow.yaml", &text).display().to_string();
    let mut child = place.command(&["train", &file]).spawn().expect("starts");
    let (run, phase) = (the_run(&place), place.path().join(format!("phase-{}", child.id())));
    while !phase.exists() {
        assert!(child.try_wait().expect("a state").is_none(), "it ended before its first step");
        std::thread::sleep(Duration::from_millis(5));
    }
    // Two that come before the first is looked at are one; however many come, it ends long before its step.
    while child.try_wait().expect("a state").is_none() {
        signal(&child, Signal::INT);
        std::thread::sleep(Duration::from_millis(50));
    }
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(130));
    assert!(!run.join("summary.json").exists(), "it ended before it could sum up");
}

#[test]
fn callbacks_stop_training_and_keep_their_state_over_a_resume() {
    // It stops by itself soon: on a fast machine perhaps before the signal arrives, and then it is tried again.
    let interrupted = || {
        let place = Workplace::new();
        place.write("points.csv", &crate::support::points_csv(4000));
        let text = "entrypoint: points\ndata: {training: points.csv}\n\
                    hyperparameters: {global_batch_size: 8, stop_after: 1400}\n\
                    searcher: {max_length: {epochs: 3}}\n";
        let file = place.write("x.yaml", text).display().to_string();
        let (mut child, run) = start(place.command(&["train", &file]), &place, 50, Duration::ZERO);
        signal(&child, Signal::INT);
        let code = child.wait().expect("it ends").code();
        assert!(matches!(code, Some(0 | 130)), "{code:?}");
        (code == Some(130)).then_some((place, run))
    };
    let (place, run) = (0..20).find_map(|_| interrupted()).expect("interrupted before its end");
    let summary = resume(&place, &run);
    assert_eq!(summary["steps"], 1400, "the callback counted on where it was");
    assert_eq!(summary["state"], "completed");
}

#[test]
fn broken_checkpoints_are_refused_and_the_one_before_is_used() {
    let (expected, _) = uncut();
    for damage in ["truncate", "flip", "manifest", "state"] {
        let place = Workplace::new();
        let file = experiment(&place);
        let (mut child, run) =
            start(place.command(&["train", &file]), &place, 40, Duration::from_millis(1));
        signal(&child, Signal::INT);
        child.wait().expect("it ends");
        let checkpoints = run.join("checkpoints");
        let mut ids: Vec<PathBuf> = std::fs::read_dir(&checkpoints)
            .expect("checkpoints")
            .map(|entry| entry.expect("an entry").path())
            .collect();
        ids.sort();
        assert!(ids.len() >= 2, "the one before is kept: {ids:?}");
        let newest = ids.last().expect("one").clone();
        break_it(&newest, damage);
        let args = ["train", "--json", "--resume", &run.display().to_string()];
        let ended = place.ok(&args);
        let id = newest.file_name().expect("a name").to_string_lossy().into_owned();
        let warned = ended.err();
        assert!(warned.contains("warning: checkpoint") && warned.contains(&id), "{warned}");
        assert_eq!(weights_of(&ended.json()), expected, "{damage}");
    }
}

fn break_it(checkpoint: &Path, damage: &str) {
    let model = checkpoint.join("model.safetensors");
    match damage {
        "truncate" => {
            let bytes = std::fs::read(&model).expect("weights");
            std::fs::write(&model, &bytes[..bytes.len() / 2]).expect("written");
        }
        "flip" => {
            let mut bytes = std::fs::read(&model).expect("weights");
            let middle = bytes.len() / 2;
            bytes[middle] ^= 4;
            std::fs::write(&model, bytes).expect("written");
        }
        "manifest" => std::fs::remove_file(checkpoint.join("manifest.json")).expect("removed"),
        _ => std::fs::write(checkpoint.join("state.json"), "{}").expect("written"),
    }
}

#[test]
fn a_run_is_trained_by_one_process_at_a_time() {
    let place = Workplace::new();
    let file = experiment(&place);
    let (mut child, run) = start(place.command(&["train", &file]), &place, 3, Duration::ZERO);
    signal(&child, Signal::STOP);
    let error = place.run(&["train", "--resume", &run.display().to_string()]).err();
    signal(&child, Signal::KILL);
    child.wait().expect("it ends");
    assert!(error.contains("another process is training in this folder"), "{error}");
}
