//! How fast a hub takes metrics in, lists runs, reads curves and searches logs, beside MLflow with SQLite.
//!
//! `SALAMANDER_PEERS=/path/to/python cargo bench -p salamander-hub --bench hub` (mlflow there)

#[path = "../../../benches/src/record.rs"]
mod record;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use record::Record;
use salamander_hub::Hub;
use salamander_hub::ingest::Ingester;
use salamander_hub::store::logs::LogQuery;
use salamander_hub::store::page::ListQuery;
use salamander_hub::store::points::{Point, Window};

const STEPS: u64 = 250_000;
const RUNS: u64 = 1000;
const METRICS: u64 = 10;
const CURVES: u64 = 50;
const LOG_BYTES: usize = 256 << 20;
const ROUNDS: usize = 7;

fn main() {
    let peers = peers();
    let record = Record::begin("hub");
    println!("{:<48} {:>12} {:>12} {:>8}", "what", "ours", "MLflow", "ratio");
    let line = |what: &str, (unit, better): (&str, &str), ours: f64, key: &str| {
        let peer = peers.iter().find(|(name, _)| name == key).map(|(_, value)| *value);
        record.figure(what, (unit, better), ours, peer);
        let shown = peer.map_or("-".to_string(), |peer| format!("{peer:.1}"));
        let ratio = peer.map_or("-".to_string(), |peer| format!("{:.1}", ours / peer));
        println!("{:<48} {ours:>12.1} {shown:>12} {ratio:>8}", format!("{what} [{unit}]"));
    };
    line("points from a run's folder", ("points/s", "more"), ingest(), "ingest");
    let (page, curves) = lists();
    line("1000 runs x 10 metrics listed", ("ms", "less"), page, "list");
    line("50 curves of 1000 points read", ("ms", "less"), curves, "curves");
    let (megabytes, first, rare) = logs();
    line("logs taken in", ("MB/s", "more"), megabytes, "");
    line("first 100 hits of a common word in 256 MB", ("ms", "less"), first, "");
    line("a line of its own in 256 MB", ("ms", "less"), rare, "");
}

fn hub(folder: &Path) -> (Hub, Ingester) {
    let hub = Hub::open(folder, None).expect("opened");
    (hub.clone(), Ingester::new(hub))
}

fn write_run(folder: &Path, metrics: &str, log: &str) {
    fs::create_dir_all(folder.join("logs")).expect("made");
    fs::write(folder.join("experiment.yaml"), "entrypoint: net\n").expect("written");
    fs::write(folder.join("run.lock"), "").expect("written");
    fs::write(folder.join("metrics.jsonl"), metrics).expect("written");
    fs::write(folder.join("logs/worker-0.log"), log).expect("written");
    fs::write(folder.join("summary.json"), "{\"state\": \"completed\"}").expect("written");
}

/// Points of a second, from a file of steps with four metrics each.
fn ingest() -> f64 {
    let folder = tempfile::tempdir().expect("a folder");
    let mut text = String::new();
    for step in 1..=STEPS {
        let loss = 1.0 / step as f64;
        let _ = writeln!(
            text,
            "{{\"kind\":\"step\",\"steps\":{step},\"epoch\":0,\"batches\":{step},\"records\":64,\"loss\":{loss},\
             \"learning_rate\":0.05,\"gradient_norm\":{loss},\"skipped\":false,\"loss_scale\":1024.0}}"
        );
    }
    write_run(&folder.path().join("a"), &text, "");
    let (_hub, mut ingester) = hub(folder.path());
    let begun = Instant::now();
    ingester.look_at_all().expect("read");
    (STEPS * 4) as f64 / begun.elapsed().as_secs_f64()
}

/// Milliseconds for a page of runs with all their metrics, and for curves.
fn lists() -> (f64, f64) {
    let folder = tempfile::tempdir().expect("a folder");
    for run in 0..RUNS {
        write_run(&folder.path().join(format!("run-{run}")), "", "");
    }
    let (hub, mut ingester) = hub(folder.path());
    ingester.look_at_all().expect("read");
    for run in 1..=RUNS as i64 {
        let id = salamander_hub::RunId::new(run, 1).expect("small");
        let points = if run <= CURVES as i64 { 1000 } else { 1 };
        let curve: Vec<Point> =
            (0..points).map(|step| Point { step, value: (step as f64).sin() }).collect();
        let all = (0..METRICS).map(|metric| (format!("metric {metric}"), curve.clone()));
        hub.store().append_points(id, all.collect()).expect("written");
    }
    let query = ListQuery { limit: Some(1000), metrics: Some("*".into()), ..ListQuery::default() };
    let page = median(|| {
        let page = hub.store().runs(&query).expect("read");
        assert_eq!(page.items.len(), RUNS as usize);
        serde_json::to_vec(&page).expect("JSON").len()
    });
    let window = Window { from: i64::MIN, to: i64::MAX, stretches: 1000 };
    let curves = median(|| {
        let curve = |run| {
            let id = salamander_hub::RunId::new(run, 1).expect("small");
            hub.store().curve(id, "metric 0", &window).expect("read").expect("there")
        };
        let all: Vec<_> = (1..=CURVES as i64).map(curve).collect();
        serde_json::to_vec(&all).expect("JSON").len()
    });
    (page, curves)
}

/// Megabytes of logs taken in per second, and milliseconds of searches.
fn logs() -> (f64, f64, f64) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut text = String::with_capacity(LOG_BYTES + 200);
    let mut number = 0u64;
    while text.len() < LOG_BYTES {
        let hash = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let _ = writeln!(
            text,
            "2026-11-18T06:57:34.471190Z  INFO lease granted worker={} batch={number} token={hash:016x}",
            number % 8
        );
        number += 1;
    }
    write_run(&folder.path().join("a"), "", &text);
    let (hub, mut ingester) = hub(folder.path());
    let begun = Instant::now();
    ingester.look_at_all().expect("read");
    let speed = text.len() as f64 / 1e6 / begun.elapsed().as_secs_f64();
    let search = |words: String, hits: usize| {
        let query = LogQuery { search: Some(words), limit: Some(100), ..LogQuery::default() };
        median(|| {
            let found = hub.store().search_logs(&query).expect("read");
            assert_eq!(found.len(), hits);
            found.len()
        })
    };
    let rare = 12_345u64.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (speed, search("lease granted".into(), 100), search(format!("{rare:016x}"), 1))
}

/// The median of a few rounds, in milliseconds; the first one warms up.
fn median(mut act: impl FnMut() -> usize) -> f64 {
    let mut times: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let begun = Instant::now();
            std::hint::black_box(act());
            begun.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[ROUNDS / 2]
}

/// What MLflow takes for the same, where there is one.
fn peers() -> Vec<(String, f64)> {
    let Ok(python) = std::env::var("SALAMANDER_PEERS") else { return Vec::new() };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/peers/hub.py");
    let ended = Command::new(python).arg(script).output().expect("Python starts");
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let out = String::from_utf8_lossy(&ended.stdout).into_owned();
    let pair = |line: &str| {
        let (name, value) = line.split_once(' ')?;
        Some((name.to_string(), value.trim().parse().ok()?))
    };
    out.lines().filter_map(pair).collect()
}
