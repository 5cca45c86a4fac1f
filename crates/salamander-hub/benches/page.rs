//! How fast the dashboard opens a folder of runs beside TensorBoard, and what it takes in Chromium.
//!
//! `SALAMANDER_PEERS=/path/to/python SALAMANDER_PLAYWRIGHT=DIR/node_modules cargo bench -p salamander-hub --bench page`
//! (tensorboard there, playwright-core here). Words behind `--` choose parts: `open`, `browser`.

#[path = "../../../benches/src/record.rs"]
mod record;
#[path = "../tests/page/served.rs"]
mod served;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use record::Record;
use salamander_hub::ingest::Ingester;
use salamander_hub::store::page::ListQuery;
use salamander_hub::store::points::StoredPoint;
use salamander_hub::{Hub, HubClient, RunId};
use served::ServedFolder;

/// Runs of the folder that is opened, with ten metrics of so many points each.
const OPENED: usize = 50;
const POINTS: usize = 1000;
const ROUNDS: usize = 3;

fn main() {
    let chosen: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let is_chosen = |part: &str| chosen.is_empty() || chosen.iter().any(|one| one == part);
    let record = Record::begin("page");
    let line = |what: &str, unit: &str, ours: f64, peer: Option<f64>| {
        record.figure(what, (unit, "less"), ours, peer);
        let ratio = peer.map_or(String::new(), |peer| format!("1/{:.1} of {peer:.2}", peer / ours));
        println!("{:<64} {ours:>10.2}  {ratio}", format!("{what} [{unit}]"));
    };
    if is_chosen("open") {
        let (mut ours, mut peers) = (Vec::new(), Vec::new());
        // In turns, so that both see the same machine.
        for _ in 0..ROUNDS {
            ours.push(open());
            peers.extend(tensorboard());
        }
        let peer = (!peers.is_empty()).then(|| median(&mut peers));
        line("500,000 points of 50 runs opened", "s", median(&mut ours), peer);
    }
    if is_chosen("browser") {
        for (what, unit, value) in browser() {
            line(&what, &unit, value, None);
        }
    }
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn write_run(folder: &Path, metrics: &str) {
    fs::create_dir_all(folder).expect("made");
    fs::write(folder.join("experiment.yaml"), "entrypoint: net\n").expect("written");
    fs::write(folder.join("run.lock"), "").expect("written");
    fs::write(folder.join("metrics.jsonl"), metrics).expect("written");
    fs::write(folder.join("summary.json"), "{\"state\": \"completed\"}").expect("written");
}

/// Seconds from nothing to all points of a folder.
fn open() -> f64 {
    let folder = tempfile::tempdir().expect("a folder");
    for run in 0..OPENED {
        let mut text = String::new();
        for step in 1..=POINTS {
            let value = ((step * 31 + run * 17) as f64).sin();
            let _ = write!(text, "{{\"kind\":\"step\",\"steps\":{step},\"epoch\":0");
            for metric in 0..10 {
                let _ = write!(text, ",\"metric {metric}\":{value}");
            }
            text.push_str("}\n");
        }
        write_run(&folder.path().join(format!("run-{run}")), &text);
    }
    let begun = Instant::now();
    let page = ServedFolder::start(folder.path());
    let client = HubClient::new(&format!("http://{}", page.address), None).expect("an address");
    let query = ListQuery { limit: Some(100), metrics: Some("*".into()), ..ListQuery::default() };
    loop {
        let found = client.runs(&query).expect("listed");
        let whole = |run: &&salamander_hub::store::runs::Run| {
            run.steps == POINTS as i64 && run.metrics.len() == 10
        };
        if found.items.iter().filter(whole).count() == OPENED {
            return begun.elapsed().as_secs_f64();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Seconds that TensorBoard's fast loader takes for the same points, where it is.
fn tensorboard() -> Option<f64> {
    let python = std::env::var("SALAMANDER_PEERS").ok()?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/peers/page.py");
    let ended = Command::new(python).arg(script).output().expect("Python starts");
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    String::from_utf8_lossy(&ended.stdout).trim().parse().ok()
}

/// What Chromium says of long tables and many curves.
fn browser() -> Vec<(String, String, f64)> {
    let Ok(playwright) = std::env::var("SALAMANDER_PLAYWRIGHT") else { return Vec::new() };
    let folder = tempfile::tempdir().expect("a folder");
    fill(folder.path());
    let page = ServedFolder::start(folder.path());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/page.mjs");
    let mut command = Command::new("node");
    command.arg(script).env("URL", format!("http://{}", page.address));
    let ended = command.env("PLAYWRIGHT", playwright).output().expect("node");
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let out = String::from_utf8_lossy(&ended.stdout).into_owned();
    let figure = |line: &str| {
        let mut parts = line.split('\t');
        let (what, unit) = (parts.next()?.to_string(), parts.next()?.to_string());
        Some((what, unit, parts.next()?.trim().parse().ok()?))
    };
    out.lines().filter_map(figure).collect()
}

/// 10,000 runs with ten metrics each, a thousand of which have a curve of 1,000 points; one run with 1,500 metrics.
fn fill(folder: &Path) {
    for run in 0..10_000 {
        write_run(&folder.join(format!("run-{run}")), "");
    }
    let hub = Hub::open(folder, None).expect("opened");
    Ingester::new(hub.clone()).look_at_all().expect("read");
    for run in 1..=10_000i64 {
        let points = if run <= 1000 { 1000 } else { 1 };
        let value = |step: i64| ((step * 31 + run * 17) as f64).sin() + run as f64 / 1000.0;
        let curve = |points: i64| {
            (0..points).map(|step| StoredPoint { step, value: value(step) }).collect()
        };
        let mut all: std::collections::BTreeMap<String, Vec<StoredPoint>> =
            (1..10).map(|metric| (format!("metric {metric}"), curve(1))).collect();
        all.insert("loss".to_string(), curve(points));
        if run == 10_000 {
            all.extend((0..1500).map(|metric| (format!("many/{metric}"), curve(200))));
        }
        hub.store().append_points(RunId::new(run, 1).expect("small"), all).expect("written");
    }
}
