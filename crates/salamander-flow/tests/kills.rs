//! Pipelines that are killed: a process of its own is killed again and again, at moments that a seed chooses, until
//! it has come to its end; then everything must be as if nothing had happened.
//!
//! The binary is both: with the argument `process` it runs a pipeline, otherwise it is the test.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::thread::sleep;
use std::time::Duration;

use salamander_flow::pipeline::{
    ArtifactManifest, ArtifactStore, Options, Pipeline, PipelineState, PipelineText, run,
};

/// Each step says when it begins, when half of what it leaves is written, and when it ends.
const FILE: &str = r#"
parallel: 2
steps:
  raw:
    run: |
      echo begin raw >> trace
      seq 1 100 > ${out}
      echo half raw >> trace
      seq 101 200 >> ${out}
      echo end raw >> trace
    out: raw.txt
  even:
    run: |
      echo begin even >> trace
      echo x > ${out}
      echo half even >> trace
      sleep 0.02
      grep '[02468]$' ${raw} > ${out}
      echo end even >> trace
    out: even.txt
  odd:
    run: |
      echo begin odd >> trace
      echo x > ${out}
      echo half odd >> trace
      sleep 0.02
      grep '[13579]$' ${raw} > ${out}
      echo end odd >> trace
    out: odd.txt
  part:
    for_each: [1, 2, 3]
    run: echo begin part >> trace; grep ${item} ${raw} > ${out}; sleep 0.01; echo end part >> trace
    out: part.txt
  flaky:
    run: |
      echo begin flaky >> trace
      test -e once || { touch once; exit 1; }
      echo well > ${out}
      echo end flaky >> trace
    out: flaky.txt
    retries: 3
    backoff: 10ms
  join:
    run: |
      echo begin join >> trace
      cat ${even} ${odd} ${part} > ${out.all}
      echo half join >> trace
      sleep 0.02
      echo "{\"lines\":" $(wc -l < ${out.all}) "}"
    out: {all: all.txt}
    values: [lines]
  ship:
    run: echo begin ship >> trace; cp ${join.all} ${out}
    out: shipped.txt
    when: ${join.lines} > 100
    needs: flaky
  none: {run: touch never, when: ${join.lines} > 100000}
"#;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.first().map(String::as_str) {
        Some("process") => process(args.get(1).map(String::as_str)),
        filter => {
            let name = "killed_anywhere_it_goes_on";
            if filter.is_none_or(|filter| filter.starts_with('-') || name.contains(filter)) {
                (1..=20).for_each(killed_anywhere_it_goes_on);
                two_at_once_are_refused();
                a_step_that_another_process_does_is_refused_and_left_alone();
            }
        }
    }
}

/// Runs the pipeline of this folder, or one of its steps.
fn process(only: Option<&str>) {
    let source = PipelineText::of_file(Path::new("p.yaml")).expect("a file");
    let pipeline = Pipeline::read(&source, &[]).expect("a pipeline");
    let mut store = ArtifactStore::open(Path::new("out"), |_| Err("no addresses here".into()))
        .expect("a store");
    if let Err(error) = store.claim(only.is_some()) {
        fs::write("refused", error.to_string()).expect("written");
        std::process::exit(1);
    }
    let stop = AtomicBool::new(false);
    let options = Options { parallel: None, only, stop: &stop };
    let summary = run(&pipeline, &store, options, &mut |_| {}).expect("it runs");
    if only.is_some() && summary.state == PipelineState::Failed {
        fs::write("refused", &summary.steps[0].why).expect("written");
        std::process::exit(1);
    }
    assert_eq!(summary.state, PipelineState::Completed, "{summary:?}");
    let ran: Vec<&str> =
        summary.steps.iter().filter(|step| step.ran).map(|step| step.name.as_str()).collect();
    fs::write("ran", ran.join(" ")).expect("written");
}

fn start(folder: &Path) -> Child {
    start_with(folder, &[])
}

fn start_with(folder: &Path, more: &[&str]) -> Child {
    let program = std::env::current_exe().expect("this program");
    let mut command = Command::new(program);
    command.arg("process").args(more).current_dir(folder).stdin(Stdio::null());
    command.spawn().expect("started")
}

fn finish(folder: &Path) -> String {
    let ended = start(folder).wait().expect("it ends");
    assert!(ended.success(), "{ended}");
    fs::read_to_string(folder.join("ran")).expect("what ran")
}

fn trace(folder: &Path) -> Vec<String> {
    let text = fs::read_to_string(folder.join("trace")).unwrap_or_default();
    text.lines().map(str::to_string).collect()
}

/// What each artifact holds, by its key: everything but how long it took.
fn artifacts(folder: &Path) -> BTreeMap<String, ArtifactManifest> {
    let Ok(entries) = fs::read_dir(folder.join("out/artifacts")) else { return BTreeMap::new() };
    let read = |path: &Path| {
        let bytes = fs::read(path.join("manifest.json")).expect("an artifact has a manifest");
        let mut manifest: ArtifactManifest =
            serde_json::from_slice(&bytes).expect("which is whole");
        for (file, digest) in &manifest.files {
            let content = fs::read(path.join(file)).expect("and all of its files");
            assert_eq!(*digest, blake3::hash(&content).to_hex().to_string(), "{file}");
        }
        (manifest.seconds, manifest.attempts) = (0.0, 0);
        manifest
    };
    let name = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
    entries.flatten().map(|entry| (name(&entry), read(&entry.path()))).collect()
}

fn new_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("p.yaml"), FILE).expect("written");
    folder
}

fn killed_anywhere_it_goes_on(seed: u64) {
    let undisturbed = new_folder();
    let expected = finish(undisturbed.path());
    assert_eq!(expected, "raw even odd part[0] part[1] part[2] flaky join ship");
    assert_eq!(finish(undisturbed.path()), "", "nothing changed");

    let folder = new_folder();
    let folder = folder.path();
    let mut random = seed;
    let mut kills = 0;
    for _ in 0..12 {
        let (before, begun) = (trace(folder).len(), trace(folder));
        let finished: BTreeSet<String> =
            artifacts(folder).into_values().map(|manifest| manifest.step).collect();
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let moment = before + 1 + (random >> 33) as usize % 6;
        let spins = (random >> 40) % 50;
        let mut child = start(folder);
        let over = loop {
            if let Some(ended) = child.try_wait().expect("a child") {
                assert!(ended.success(), "seed {seed}: {ended}");
                break true;
            }
            if trace(folder).len() >= moment {
                // A little later each time, to meet commits and records too.
                (0..spins).for_each(|_| std::thread::yield_now());
                break false;
            }
            sleep(Duration::from_millis(1));
        };
        if !over {
            child.kill().expect("killed");
            child.wait().expect("gone");
            kills += 1;
        }
        for line in &trace(folder)[begun.len()..] {
            let step =
                line.strip_prefix("begin ").map(|step| step.split('[').next().unwrap_or(step));
            // Some items of a list may be over while others are not.
            let again = step.is_some_and(|step| step != "part" && finished.contains(step));
            assert!(!again, "seed {seed}: {line}, though it was over");
        }
        if over {
            break;
        }
    }
    finish(folder);
    assert!(kills > 0, "seed {seed}: it was never killed");
    assert_eq!(finish(folder), "", "seed {seed}: all is done");
    let strip = |all: BTreeMap<String, ArtifactManifest>| -> Vec<ArtifactManifest> {
        all.into_values().collect()
    };
    assert_eq!(strip(artifacts(folder)), strip(artifacts(undisturbed.path())), "seed {seed}");
    let left = fs::read_dir(folder.join("out/unfinished")).expect("a folder").count();
    assert_eq!((left, folder.join("never").exists()), (0, false), "seed {seed}");
}

/// A step that begins and waits.
const WAITING: &str = "\
steps:
  wait: {run: 'touch begun; while test ! -e go; do sleep 0.01; done; echo well > ${out}', out: a}
";

fn wait_for(path: &Path) {
    while !path.exists() {
        sleep(Duration::from_millis(1));
    }
}

fn two_at_once_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    fs::write(at("p.yaml"), WAITING).expect("written");
    let mut first = start(folder.path());
    wait_for(&at("begun"));
    assert!(!start(folder.path()).wait().expect("it ends").success());
    let message = fs::read_to_string(at("refused")).expect("a message");
    let expected = format!("process {} runs a pipeline in this folder", first.id());
    assert!(message.contains(&expected), "{message}");
    fs::write(at("go"), "").expect("written");
    assert!(first.wait().expect("it ends").success());
}

fn a_step_that_another_process_does_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    fs::write(at("p.yaml"), WAITING).expect("written");
    let step = || start_with(folder.path(), &["wait"]);
    let mut first = step();
    wait_for(&at("begun"));
    assert!(!step().wait().expect("it ends").success());
    let message = fs::read_to_string(at("refused")).expect("a message");
    let expected = format!("another process does this step (process {}): wait for it", first.id());
    assert_eq!(message, expected);
    assert_eq!(first.try_wait().expect("a child"), None, "the first goes on");
    // What a process has left that was killed is ended, and its step begun again.
    first.kill().expect("killed");
    first.wait().expect("gone");
    fs::remove_file(at("begun")).expect("removed");
    let mut next = step();
    wait_for(&at("begun"));
    fs::write(at("go"), "").expect("written");
    assert!(next.wait().expect("it ends").success());
    assert_eq!(artifacts(folder.path()).len(), 1);
    let left = fs::read_dir(at("out/unfinished")).expect("a folder").count();
    assert_eq!((left, at("out/logs/wait.lock").exists()), (0, false));
}
