//! The dashboard in a real browser: what is drawn is what the store has.
//!
//! Needs node, Debian's chromium, and `playwright-core` from npm in the folder that SALAMANDER_PLAYWRIGHT names
//! (`npm install --prefix DIR playwright-core`, then DIR/node_modules). Pictures go to SALAMANDER_SCREENSHOTS, if it is
//! set.

mod playwright;
mod served;

use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use playwright::playwright;
use salamander_hub::server::Listen;
use salamander_hub::store::users::UserRole;
use salamander_hub::{Daemon, DaemonOptions, Hub, ui};
use served::ServedFolder;

/// A name that would do harm if anybody took it for HTML.
const HOSTILE: &str = "<img src=x onerror='window.hurt=1'><script>window.hurt=1</script>\"'&";
/// What a checkpoint's file has.
const WEIGHTS: &str = "these are weights";
/// Points of the long run, and where its spike is.
const LONG: u64 = 1_000_000;
const SPIKE: u64 = 654_321;

fn experiment(name: &str, rate: f64) -> String {
    let name = serde_json::Value::from(name);
    let width = 16 + (rate * 25.0).round() as u64 % 3;
    format!(
        "name: {name}\nentrypoint: net\nlabels: [first]\nsearcher: {{metric: accuracy, smaller_is_better: false}}\n\
         hyperparameters: {{learning_rate: {rate}, global_batch_size: 8, layers: {{width: {width}}}}}\n"
    )
}

fn step(step: u64, loss: f64) -> String {
    let time = 1_700_000_000.0 + step as f64 / 100.0;
    format!(
        "{{\"kind\":\"step\",\"steps\":{step},\"epoch\":0,\"loss\":{loss},\"learning_rate\":0.1,\"time\":{time}}}\n"
    )
}

/// A run that has ended, with these losses from step 1 on.
fn write_run(folder: &Path, name: &str, rate: f64, losses: impl Iterator<Item = f64>) {
    fs::create_dir_all(folder.join("logs")).expect("made");
    fs::write(folder.join("experiment.yaml"), experiment(name, rate)).expect("written");
    fs::write(folder.join("run.lock"), "1\n").expect("written");
    let mut text = String::new();
    let mut steps = 0;
    for loss in losses {
        steps += 1;
        text.push_str(&step(steps, loss));
    }
    text.push_str(&format!(
        "{{\"kind\":\"epoch\",\"steps\":{steps},\"epoch\":0,\"complete\":true,\"training\":{{\"loss\":0.5}},\
         \"validation\":{{\"accuracy\":{},\"<b>bold</b>\":1}},\"seconds\":1,\"best\":true}}\n",
        1.0 - rate
    ));
    fs::write(folder.join("metrics.jsonl"), text).expect("written");
    let plan = format!(
        "{{\"done\":0,\"total\":{steps},\"steps_per_epoch\":10,\"epochs\":2,\"parameters\":7}}"
    );
    fs::write(folder.join("plan.json"), plan).expect("written");
    let summary = "{\"state\":\"completed\",\"error\":null,\"workers\":2,\"generations\":3,\
        \"restarts\":{\"worker\":1,\"ps\":0,\"master\":0},\
        \"timings\":{\"compute_s\":3.0,\"exchange_s\":1.0,\"data_s\":0.5,\"test_s\":0.5,\"wall_s\":5.0},\
        \"ledger\":[{\"epoch\":0,\"records\":80,\"applied\":80,\"missing\":0,\"duplicated\":0,\"skipped\":0,\
        \"overflowed\":0,\"intact\":true}]}";
    fs::write(folder.join("summary.json"), summary).expect("written");
    let row = |name: &str| {
        format!(
            "{{\"name\":\"{name}\",\"precision\":0.9,\"recall\":0.8,\"f1\":0.85,\"support\":10}}"
        )
    };
    let report = format!(
        "{{\"accuracy\":0.85,\"rows\":[{},{}],\"macro_avg\":{},\"weighted_avg\":{},\
         \"confusion\":{{\"names\":[\"cat\",\"dog\"],\"counts\":[[8,2],[1,9]]}}}}",
        row("cat"),
        row("dog"),
        row("macro"),
        row("weighted")
    );
    fs::write(folder.join("report.json"), report).expect("written");
    let log = format!(
        "2026-11-18T06:57:34Z  INFO \u{1b}[31mstarts\u{1b}[0m {HOSTILE}\n2026-11-18T06:57:35Z  WARN lease expired\n"
    );
    fs::write(folder.join("logs/worker-0.log"), log).expect("written");
    write_checkpoint(folder, steps);
}

fn write_checkpoint(run: &Path, steps: u64) {
    let folder = run.join(format!("checkpoints/step-{steps:08}"));
    fs::create_dir_all(&folder).expect("made");
    fs::write(folder.join("model.safetensors"), WEIGHTS).expect("written");
    let files = serde_json::json!({"model.safetensors": {"bytes": WEIGHTS.len(), "hash": ""}});
    let manifest = serde_json::json!({"steps": steps, "epoch": 0, "files": files, "weights_hash": "00ff00ff00ff00ff"});
    fs::write(folder.join("manifest.json"), manifest.to_string()).expect("written");
}

/// What a run of two workers has been through: a kill, a generation without one, another one; and where time went.
fn write_course(run: &Path) {
    let log = [
        "00Z  INFO worker aa joined: slot 0, process 11",
        "00Z  INFO worker bb joined: slot 1, process 12",
        "01Z  INFO generation 1.1 began: 2 members, from a new model, after 3 ms",
        "10Z  INFO worker bb: slot 1, process 12 was killed: signal 9",
        "10Z  INFO worker bb dropped: its process was killed",
        "11Z  INFO generation 1.2 began: 1 member, from version 9 of worker aa, after 30 ms",
        "14Z  INFO worker cc joined: slot 1, process 13",
        "15Z  INFO generation 1.3 began: 2 members, from version 12 of worker aa, after 20 ms",
        "20Z  INFO checkpoint step-00000050 kept, version 50",
    ];
    let log = log.map(|line| format!("2026-11-18T06:57:{line}\n")).concat();
    fs::write(run.join("logs/master.log"), log).expect("written");
    fs::create_dir_all(run.join("profile")).expect("made");
    for (process, work) in [("worker-0", 0.6), ("worker-1", 0.3), ("master", 0.0)] {
        let line = |at: u32| {
            let time = 1_700_000_000.0 + f64::from(at) / 4.0;
            let line = serde_json::json!({
                "time": time, "seconds": 0.25, "steps": if work > 0.0 { at } else { 0 }, "cpu": 0.2,
                "memory": 1_000_000 * (at + 1),
                "received": 1000, "sent": 500, "compute": 0.25 * work, "exchange": 0.25 * (work / 3.0), "data": 0.0,
                "test": 0.0, "save": 0.0,
            });
            format!("{line}\n")
        };
        let lines: String = (0..100).map(line).collect();
        fs::write(run.join(format!("profile/{process}.jsonl")), lines).expect("written");
    }
    // Lines of ten million characters and bytes that are no text.
    let mut bytes = b"2026-11-18T06:57:40Z  INFO broken \xff\xfe\xc3( text\n".to_vec();
    bytes.extend(std::iter::repeat_n(b'x', 10_000_000));
    bytes.push(b'\n');
    fs::write(run.join("logs/worker-1.log"), bytes).expect("written");
}

fn write_all(runs: &Path) {
    let wave = |step: u64| 1.0 + 0.5 * ((step as f64) / 40_000.0).sin();
    let long = (1..=LONG).map(|at| if at == SPIKE { 9.0 } else { wave(at) });
    write_run(&runs.join("long-1"), "long", 0.1, long);
    write_run(&runs.join("hostile-1"), HOSTILE, 0.2, (1..=50).map(|at| 1.0 / f64::from(at)));
    write_course(&runs.join("hostile-1"));
    write_run(&runs.join("live-1"), "live", 0.3, (1..=20).map(|at| 2.0 / f64::from(at)));
    write_search(runs);
}

/// A pipeline whose picture would run a script if it were part of the page.
fn write_pipeline(folder: &Path) {
    fs::create_dir_all(folder).expect("made");
    let picture = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"40\" height=\"20\">\
        <script>parent.hurt = 1; window.hurt = 1</script><rect width=\"40\" height=\"20\"/></svg>";
    fs::write(folder.join("graph.svg"), picture).expect("written");
    fs::write(folder.join("summary.json"), "{\"state\": \"completed\"}").expect("written");
}

/// A search of 20 trials, as its journal tells it.
fn write_search(runs: &Path) {
    let search = runs.join("tuning-1");
    fs::create_dir_all(&search).expect("made");
    let file = "name: tuning\nentrypoint: net\nsearcher: {name: random, metric: accuracy, smaller_is_better: false, \
        max_trials: 20, max_length: {batches: 30}}\n\
        hyperparameters: {learning_rate: {type: double, minval: 0, maxval: 1}, \
        width: {type: int, minval: 4, maxval: 64}}\n";
    let kept = serde_json::json!({"base": "/", "seed": 1, "slots": 2, "file": file});
    fs::write(search.join("search.json"), kept.to_string()).expect("written");
    fs::write(search.join("run.lock"), "1\n").expect("written");
    let mut journal = fs::File::create(search.join("search.jsonl")).expect("made");
    for trial in 1..=20u64 {
        let rate = trial as f64 / 25.0;
        let losses = (1..=30u32).map(move |at| rate + 1.0 / f64::from(at));
        write_run(
            &search.join(format!("trials/{trial:05}")),
            &format!("trial {trial}"),
            rate,
            losses,
        );
        let metric: f64 = 1.0 - rate;
        let report = serde_json::json!({"trial": trial, "length": 30, "metric": metric, "bits": metric.to_bits()});
        let event = serde_json::json!({"report": report, "seconds": trial as f64});
        writeln!(journal, "{event}").expect("written");
    }
}

fn node(script: &str) -> Command {
    let mut command = Command::new("node");
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/page").join(script));
    command
}

#[test]
fn every_view_shows_what_the_store_has() {
    let Some(playwright) = playwright() else { return };
    let place = tempfile::tempdir().expect("a folder");
    let runs = place.path().join("runs");
    write_all(&runs);
    write_pipeline(&place.path().join("pipelines/digits"));
    let served = ServedFolder::start(&runs);
    let mut command = node("browser.mjs");
    command.env("LANG", "en_US.UTF-8").env("PLAYWRIGHT", playwright);
    command.env("URL", format!("http://{}", served.address)).env("RUNS", &runs);
    command
        .env("SPIKE", SPIKE.to_string())
        .env("LONG", LONG.to_string())
        .env("HOSTILE", HOSTILE)
        .env("WEIGHTS", WEIGHTS);
    let output = command.output().expect("node");
    let said = String::from_utf8_lossy(&output.stdout);
    println!("{said}");
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn users_log_in_on_the_page() {
    let Some(playwright) = playwright() else { return };
    let runs = tempfile::tempdir().expect("a folder");
    write_run(&runs.path().join("live-1"), "live", 0.3, (1..=20).map(|at| 2.0 / f64::from(at)));
    let hub = Hub::open(runs.path(), None).expect("opened");
    hub.store().set_user("ada", UserRole::Viewer, 0).expect("made");
    let token = hub.store().new_token("ada", 0, None).expect("made");
    hub.store().set_user("eve", UserRole::Editor, 0).expect("made");
    let editor = hub.store().new_token("eve", 0, None).expect("made");
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let listen = Listen { address, tls: None, proxy: None, login: true };
    let options = DaemonOptions {
        listen,
        slots: 0,
        log_retention_days: None,
        programs: Vec::new(),
        routes: None,
        platform: None,
    };
    let daemon = Daemon::start(hub, options).expect("started");
    let mut command = node("login.mjs");
    command.env("LANG", "en_US.UTF-8").env("PLAYWRIGHT", playwright);
    command.env("URL", format!("http://{}", daemon.address())).env("TOKEN", token);
    command.env("EDITOR", editor);
    let output = command.output().expect("node");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

#[test]
fn what_needs_no_browser_is_tried_without_one() {
    let Ok(output) = node("pure.mjs").output() else {
        assert!(std::env::var_os("SALAMANDER_NO_SKIPS").is_none(), "there is no node");
        println!("SKIPPED: there is no node");
        return;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn other_machines_are_refused() {
    let runs = tempfile::tempdir().expect("a folder");
    let stop = Arc::new(AtomicBool::new(true));
    let error = ui::run(runs.path(), SocketAddr::from(([0, 0, 0, 0], 0)), |_| {}, &stop);
    assert!(error.expect_err("refused").to_string().contains("no login"));
}
