//! A hub, its trials, their masters and its database, killed thirty times; and trials that are jobs of a cluster.

use std::ffi::OsStr;
use std::path::Path;
use std::time::{Duration, Instant};

use fake_cluster::{Cluster, JOBS, NAMESPACE, Operator, PODS, wait_until};
use serde_json::{Value, json};

use crate::hub::{Hub, kill_often, place, processes_of};
use crate::places::s3_settings;
use crate::postgres::PostgresServer;
use crate::stored::{Bucket, STORE};
use crate::support::{PROGRAM, Workplace};

#[test]
fn nothing_is_lost_or_doubled_by_thirty_kills() {
    kill_often(30, None);
}

#[test]
fn nothing_is_lost_or_doubled_by_thirty_kills_that_hit_the_database_as_well() {
    kill_often(30, Some(&PostgresServer::start()));
}

/// Looks until an experiment is in a state.
fn until(hub: &Hub, experiment: u32, state: &str) {
    let path = format!("/api/v1/experiments/{experiment}");
    let since = Instant::now();
    loop {
        let found = hub.get(&path);
        if found["state"] == state {
            return;
        }
        let is_over = matches!(found["state"].as_str(), Some("failed" | "completed"));
        assert!(!is_over && since.elapsed() < Duration::from_secs(600), "{found:#}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Lengths and metrics of trials, in the order in which they were made; text may have cost a metric its last bit.
fn measured(trials: &Value) -> Vec<(Value, String)> {
    let mut all = trials.as_array().expect("a list").clone();
    all.sort_by_key(|trial| trial["id"].as_u64());
    let metric = |trial: &Value| format!("{:.9}", trial["metric"].as_f64().unwrap_or(f64::NAN));
    all.iter().map(|trial| (trial["length"].clone(), metric(trial))).collect()
}

#[test]
fn trials_of_a_hub_are_jobs_of_a_cluster_through_kills_and_leave_nothing() {
    let name = "trials_of_a_hub_are_jobs_of_a_cluster";
    let Some(bucket) = Bucket::start(name) else { return };
    let (url, place) = (bucket.url(), place());
    let alone: Value = place.ok(&["train", "search.yaml", "--json", "--out", "alone"]).json();
    let cluster = Cluster::of_program(OsStr::new(PROGRAM));
    let _operator = Operator::start(&cluster);
    let s3 = s3_settings(&url);
    let keys: serde_json::Map<_, _> =
        s3.iter().map(|(name, value)| (name.to_string(), json!(value))).collect();
    cluster.put("/api/v1/secrets", "keys", json!({"stringData": keys}));
    let kubeconfig = cluster.server.kubelet.folder().join("kubeconfig").display().to_string();
    let settings = [&s3[..], &[("KUBECONFIG", kubeconfig.as_str())]].concat();
    let options = ["--platform", "kube", "--namespace", NAMESPACE, "--image", "net:1"];
    let options = [&options[..], &["--store-secret", "keys"]].concat();
    let start = |place: &Workplace| Hub::start_with(place, "127.0.0.1:0", &options, &settings);
    let mut hub = start(&place);
    let store = format!("checkpoint_storage.store={STORE}");
    let create = ["experiment", "create", "search.yaml", "--detach"];
    place.ok(&[&create[..], &["--set", &store]].concat());
    // The hub, and whoever follows a job, may die: the job goes on, and is found again.
    wait_until("a job trains", || cluster.server.kubelet.running() > 1);
    hub.kill();
    hub = start(&place);
    let follower = || place.path().join("runs").read_dir().ok()?.flatten().find_map(holder);
    let mut victim = None;
    wait_until("a trial is followed", || {
        victim = follower().and_then(rustix::process::Pid::from_raw);
        victim.is_some()
    });
    let victim = victim.expect("it was there");
    let _ = rustix::process::kill_process(victim, rustix::process::Signal::KILL);
    until(&hub, 1, "completed");
    let end: Value = place.ok(&["experiment", "describe", "1", "--json"]).json();
    assert_eq!(measured(&end["trial_list"]), measured(&alone["trials"]), "{end:#}");
    assert_eq!(end["lineage"]["image"], "net:1", "{end:#}");
    wait_until("no job is left", || cluster.list(JOBS).is_empty() && cluster.list(PODS).is_empty());
    // Whoever came to the end has paused at both rungs and was measured there: an epoch has five
    // steps, and none of these is its last one.
    let measured_at = measured_steps(&place.path().join("runs"));
    let passed = |steps: &Vec<u64>| [16, 32, 64].iter().all(|rung| steps.contains(rung));
    assert!(measured_at.iter().any(passed), "{measured_at:?}");
    // Every step of the best trial, and its checkpoint, have come from the store.
    let best = end["best_run"].as_str().expect("a run");
    let curve = hub.get(&format!("/api/v1/runs/{best}/curves?metrics=loss&points=20000"));
    let steps = curve["curves"][0]["steps"].as_array().expect("steps").len();
    let trials = end["trial_list"].as_array().expect("a list");
    let trained = trials.iter().find(|trial| trial["run"] == best).expect("it is one of them");
    assert_eq!(trained["length"], steps, "{curve}");
    let checkpoints: Value = place.ok(&["checkpoint", "list", best, "--json"]).json();
    assert!(checkpoints.as_array().is_some_and(|all| !all.is_empty()), "{checkpoints:#}");
    place.ok(&["model", "create", "sides"]);
    place.ok(&["model", "register", "sides", best]);
    place.ok(&["evaluate", "model:sides", "--data", "points.csv"]);
    // What is killed leaves nothing on the cluster either.
    let long = "searcher.max_length={batches: 100000000}";
    let single = ["experiment", "create", "single.yaml", "--detach", "--set", long, "--set"];
    place.ok(&[&single[..], &[&store]].concat());
    wait_until("it trains", || cluster.server.kubelet.running() > 1);
    place.ok(&["experiment", "kill", "2"]);
    until(&hub, 2, "canceled");
    wait_until("it is gone", || cluster.list(JOBS).is_empty() && cluster.list(PODS).is_empty());
    let refused = place.run(&["experiment", "create", "search.yaml", "--json"]);
    assert!(refused.err().contains("checkpoint_storage.store"), "{}", refused.err());
    hub.stop();
    wait_until("nobody is left", || processes_of(&place).is_empty());
}

/// The steps at which each trial was measured.
fn measured_steps(runs: &Path) -> Vec<Vec<u64>> {
    let below = |folder: &Path| std::fs::read_dir(folder).into_iter().flatten().flatten();
    let trials = below(runs).flat_map(|run| below(&run.path().join("trials")));
    let steps = |line: &str| {
        let line: Value = serde_json::from_str(line).expect("a whole line");
        line["validation"].is_object().then(|| line["steps"].as_u64()).flatten()
    };
    let of_trial = |folder: std::path::PathBuf| {
        let text = std::fs::read_to_string(folder.join("metrics.jsonl")).expect("its metrics");
        text.lines().filter_map(steps).collect()
    };
    trials.map(|trial| of_trial(trial.path())).collect()
}

/// The process that holds the folder of a search's trial, if one does.
fn holder(run: std::fs::DirEntry) -> Option<i32> {
    let trials = std::fs::read_dir(run.path().join("trials")).ok()?.flatten();
    let pid = |folder: &Path| -> Option<i32> {
        let text = std::fs::read_to_string(folder.join("run.lock")).ok()?;
        let pid = text.trim().parse().ok()?;
        Path::new(&format!("/proc/{pid}/exe")).exists().then_some(pid)
    };
    trials.map(|trial| trial.path()).find_map(|trial| pid(&trial))
}
