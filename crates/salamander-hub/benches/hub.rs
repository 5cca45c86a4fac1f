//! How fast a hub takes metrics in, lists runs, reads curves and searches logs, beside MLflow with SQLite and
//! TensorBoard.
//!
//! `SALAMANDER_PEERS=/path/to/python cargo bench -p salamander-hub --bench hub` (mlflow and tensorboard there). Words
//! behind `--` choose parts: `points`, `list`, `curves`, `many`, `logs`. `many` and `logs` take some 8 GB of disk.

#[path = "../../../benches/src/record.rs"]
mod record;

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use record::Record;
use salamander_hub::ingest::Ingester;
use salamander_hub::server::Listen;
use salamander_hub::store::logs::LogQuery;
use salamander_hub::store::page::ListQuery;
use salamander_hub::store::points::StoredPoint;
use salamander_hub::{Daemon, DaemonOptions, Hub, HubClient, RunId};

const STEPS: u64 = 250_000;
const CURVES: i64 = 50;
const LOG_BYTES: u64 = 1 << 30;
const ROUNDS: usize = 7;

fn main() {
    let chosen: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let is_chosen = |part: &str| chosen.is_empty() || chosen.iter().any(|one| one == part);
    let peers = peers();
    let record = Record::begin("hub");
    println!("{:<56} {:>12} {:>12} {:>8}", "what", "ours", "peer", "ratio");
    let line = |what: &str, (unit, better): (&str, &str), ours: f64, key: &str| {
        let peer = peers.iter().find(|(name, _)| name == key).map(|(_, value)| *value);
        record.figure(what, (unit, better), ours, peer);
        let shown = peer.map_or("-".to_string(), |peer| format!("{peer:.1}"));
        let ratio = peer.map_or("-".to_string(), |peer| match better {
            "more" => format!("{:.1}", ours / peer),
            _ => format!("1/{:.1}", peer / ours),
        });
        println!("{:<56} {ours:>12.2} {shown:>12} {ratio:>8}", format!("{what} [{unit}]"));
    };
    if is_chosen("points") {
        line("points from a run's folder", ("points/s", "more"), ingest(), "ingest");
    }
    if is_chosen("list") {
        line("1000 runs x 10 metrics listed", ("ms", "less"), list(), "list");
    }
    if is_chosen("curves") {
        line("50 curves of 1000 points over HTTP", ("ms", "less"), curves(), "curves");
    }
    if is_chosen("many") {
        let [written, newest, all, sorted, next, searched] = many_metrics();
        line("10,000 runs x 1,500 metrics taken in", ("points/s", "more"), written, "");
        line("10,000 runs x 1,500 metrics: the newest 50", ("ms", "less"), newest, "");
        line("10,000 runs x 1,500 metrics: these with all metrics", ("ms", "less"), all, "");
        line("10,000 runs x 1,500 metrics: the best 50 by a metric", ("ms", "less"), sorted, "");
        line("10,000 runs x 1,500 metrics: the next best 50", ("ms", "less"), next, "");
        line("10,000 runs x 1,500 metrics: 50 by a part of a name", ("ms", "less"), searched, "");
    }
    if is_chosen("logs") {
        let [megabytes, first, rare] = logs();
        line("logs taken in", ("MB/s", "more"), megabytes, "");
        line("first 100 hits of a common word in 1 GB", ("ms", "less"), first, "");
        line("a line of its own in 1 GB", ("ms", "less"), rare, "");
    }
    if let Some(memory) = peak_memory() {
        line("memory at its peak", ("MB", "less"), memory, "");
    }
}

fn hub(folder: &Path) -> (Hub, Ingester) {
    let hub = Hub::open(folder, None).expect("opened");
    (hub.clone(), Ingester::new(hub))
}

fn write_run(folder: &Path, metrics: &str) {
    fs::create_dir_all(folder.join("logs")).expect("made");
    fs::write(folder.join("experiment.yaml"), "entrypoint: net\n").expect("written");
    fs::write(folder.join("run.lock"), "").expect("written");
    fs::write(folder.join("metrics.jsonl"), metrics).expect("written");
    fs::write(folder.join("summary.json"), "{\"state\": \"completed\"}").expect("written");
}

/// A hub with so many runs, and so many metrics of so many points each; and the seconds that these took.
fn filled(folder: &Path, runs: i64, metrics: usize, points: i64) -> (Hub, f64) {
    for run in 0..runs {
        write_run(&folder.join(format!("run-{run}")), "");
    }
    let (hub, mut ingester) = hub(folder);
    ingester.look_at_all().expect("read");
    let begun = Instant::now();
    let names: Vec<String> = (0..metrics).map(|metric| format!("metric {metric}")).collect();
    for run in 1..=runs {
        let value = |step: i64| ((step * 31 + run * 17) as f64).sin();
        let curve: Vec<StoredPoint> =
            (0..points).map(|step| StoredPoint { step, value: value(step) }).collect();
        let all = names.iter().map(|name| (name.clone(), curve.clone())).collect();
        hub.store().append_points(id(run), all).expect("written");
    }
    (hub, begun.elapsed().as_secs_f64())
}

fn id(experiment: i64) -> RunId {
    RunId::new(experiment, 1).expect("small")
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
    write_run(&folder.path().join("a"), &text);
    let (hub, mut ingester) = hub(folder.path());
    let begun = Instant::now();
    ingester.look_at_all().expect("read");
    let seconds = begun.elapsed().as_secs_f64();
    let metrics = hub.store().metrics(id(1)).expect("read");
    let points: u64 = metrics.iter().map(|metric| metric.points).sum();
    assert!(points >= STEPS * 4, "{metrics:?}");
    points as f64 / seconds
}

/// Milliseconds for a page of runs with all their metrics.
fn list() -> f64 {
    let folder = tempfile::tempdir().expect("a folder");
    let (hub, _) = filled(folder.path(), 1000, 10, 1);
    let query = ListQuery { limit: Some(1000), metrics: Some("*".into()), ..ListQuery::default() };
    median(|| {
        let page = hub.store().runs(&query).expect("read");
        assert_eq!((page.items.len(), page.items[0].metrics.len()), (1000, 10));
        serde_json::to_vec(&page).expect("JSON").len()
    })
}

/// Milliseconds for curves of several runs over HTTP, read and understood.
fn curves() -> f64 {
    let folder = tempfile::tempdir().expect("a folder");
    let (hub, _) = filled(folder.path(), CURVES, 1, 1000);
    let address = "127.0.0.1:0".parse().expect("an address");
    let listen = Listen { address, tls: None, proxy: None, login: false };
    let programs = vec![std::env::current_exe().expect("a program")];
    let options = DaemonOptions {
        listen,
        slots: 1,
        programs,
        log_retention_days: None,
        routes: None,
        platform: None,
    };
    let daemon = Daemon::start(hub, options).expect("started");
    let client = HubClient::new(&format!("http://{}", daemon.address()), None).expect("an address");
    let runs: Vec<String> = (1..=CURVES).map(|run| id(run).to_string()).collect();
    let query = serde_json::json!({"runs": runs.join(","), "metrics": "metric 0", "points": 1000});
    median(|| {
        let all: Vec<serde_json::Value> = client.get("api/v1/curves", &query).expect("read");
        let points =
            |run: &serde_json::Value| run["curves"][0]["steps"].as_array().map_or(0, Vec::len);
        assert_eq!(all.iter().map(points).sum::<usize>(), 50_000);
        all.len()
    })
}

/// Points of a second, and milliseconds of pages of a long list of runs with many metrics.
fn many_metrics() -> [f64; 6] {
    const RUNS: i64 = 10_000;
    const METRICS: usize = 1500;
    let folder = tempfile::tempdir().expect("a folder");
    let (hub, seconds) = filled(folder.path(), RUNS, METRICS, 1);
    let page = |query: &ListQuery| {
        median(|| {
            let page = hub.store().runs(query).expect("read");
            assert_eq!(page.items.len(), 50);
            serde_json::to_vec(&page).expect("JSON").len()
        })
    };
    let wanted = Some("metric 0,metric 700,metric 1499".to_string());
    let newest = ListQuery { metrics: wanted, ..ListQuery::default() };
    let all = ListQuery { metrics: Some("*".into()), ..ListQuery::default() };
    let sorted = ListQuery { sort: Some("-metric:metric 700".into()), ..newest.clone() };
    let cursor = hub.store().runs(&sorted).expect("read").next;
    let next = ListQuery { cursor, ..sorted.clone() };
    let searched = ListQuery { name: Some("run-9".into()), ..newest.clone() };
    let speed = RUNS as f64 * METRICS as f64 / seconds;
    [speed, page(&newest), page(&all), page(&sorted), page(&next), page(&searched)]
}

/// Megabytes of logs taken in per second, and milliseconds of searches.
fn logs() -> [f64; 3] {
    let folder = tempfile::tempdir().expect("a folder");
    let run = folder.path().join("a");
    write_run(&run, "");
    let mut log = BufWriter::new(File::create(run.join("logs/worker-0.log")).expect("made"));
    let (mut number, mut written) = (0u64, 0);
    while written < LOG_BYTES {
        let hash = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let line = format!(
            "2026-11-18T06:57:34.471190Z  INFO lease granted worker={} batch={number} token={hash:016x}\n",
            number % 8
        );
        log.write_all(line.as_bytes()).expect("written");
        written += line.len() as u64;
        number += 1;
    }
    log.flush().expect("written");
    let (hub, mut ingester) = hub(folder.path());
    let begun = Instant::now();
    ingester.look_at_all().expect("read");
    let speed = written as f64 / 1e6 / begun.elapsed().as_secs_f64();
    let search = |words: String, hits: usize| {
        let query = LogQuery { search: Some(words), limit: Some(100), ..LogQuery::default() };
        median(|| {
            let found = hub.store().search_logs(&query).expect("read");
            assert_eq!(found.len(), hits);
            found.len()
        })
    };
    let rare = 12_345u64.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    [speed, search("lease granted".into(), 100), search(format!("{rare:016x}"), 1)]
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

/// The most memory that this process had, in megabytes.
fn peak_memory() -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix(" kB")?.trim().parse::<f64>().ok()? / 1e3)
}

/// What MLflow and TensorBoard take for the same, where they are.
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
