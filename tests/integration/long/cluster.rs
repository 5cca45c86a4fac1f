//! The real program on a cluster: its own commands submit, follow, scale and stop jobs, its roles are the containers of
//! their pods, and whatever pod is killed, every record counts exactly once. The cluster is the one of
//! salamander-kube's tests.

mod assets;
mod mistakes;
mod stage;

use std::path::Path;

use fake_cluster::{How, JOBS, PODS, wait_until};
use salamander_core::seed::Rng;
use serde_json::json;
use tests::chaos::{self, Fire};

use self::stage::{SHARED, Stage};
use crate::elastic::fire;
use crate::places::s3_settings;
use crate::stored::{Bucket, STORE};
use crate::support::{PROGRAM, Workplace};

/// Long enough that a job does not end before the test lets it.
fn job(servers: u32, asynchronous: bool) -> Fire {
    Fire { epochs: 12, servers, asynchronous, delay_ms: 30, ..fire(1, 3, 3) }
}

/// Trains through the death of a worker, of a parameter server if there are any, and of the master, by signals and by
/// deletions.
fn trains_through_kills(fire: &Fire) {
    let mut stage = Stage::new(fire, SHARED);
    stage.train(&[]);
    stage.hit("worker", 1, Stage::kill);
    if fire.servers > 0 {
        stage.hit("ps", 0, Stage::kill);
        stage.hit("ps", 1, Stage::delete);
    }
    stage.hit("master", 0, Stage::kill);
    stage.hit("worker", 0, Stage::delete);
    let summary = stage.finish();
    let restarts = &summary["restarts"];
    assert_eq!((&restarts["worker"], &restarts["master"]), (&json!(2), &json!(1)), "{restarts}");
    assert_eq!(restarts["ps"], if fire.servers > 0 { 2 } else { 0 }, "{restarts}");
    stage.leaves_nothing();
}

#[test]
fn a_ring_of_pods_counts_every_record_once() {
    trains_through_kills(&job(0, false));
}

#[test]
fn tables_on_server_pods_count_every_record_once() {
    trains_through_kills(&job(2, false));
}

#[test]
fn server_pods_without_waiting_count_every_record_once() {
    trains_through_kills(&job(2, true));
}

/// Scaled, out of memory, evicted, suspended and resumed.
fn trains_through_changes(fire: &Fire) {
    let mut stage = Stage::new(fire, SHARED);
    stage.train(&[]);
    stage.trains_on();
    stage.scale(&["--workers", "2"], "worker", 2);
    stage.scale(&["--ps", "3"], "ps", 3);
    stage.scale(&["--workers", "3", "--ps", "2"], "ps", 2);
    stage.hit("ps", 0, Stage::starve);
    stage.hit("ps", 1, Stage::evict);
    stage.suspend_and_resume();
    let summary = stage.finish();
    assert_eq!(summary["restarts"]["master"], 0, "{summary}");
    stage.leaves_nothing();
}

#[test]
fn tables_on_server_pods_are_scaled_starved_evicted_and_suspended() {
    trains_through_changes(&job(2, false));
}

#[test]
fn server_pods_without_waiting_are_scaled_starved_evicted_and_suspended() {
    trains_through_changes(&job(2, true));
}

/// Whoever is told to go hands over first, and those who stay are the same for coordinator and platform, also after low
/// places were taken by newcomers. In the end the weights are those of a run that nobody disturbed.
#[test]
fn scaled_down_and_up_twenty_times_among_replacements_no_step_is_done_twice() {
    // More epochs than a busy machine comes to before it was scaled so often: the rest is done in a moment.
    let fire = Fire { epochs: 150, delay_ms: 60, ..job(0, false) };
    let mut stage = Stage::new(&fire, SHARED);
    stage.train(&[]);
    let mut rng = Rng::new(31);
    let mut replaced = 0;
    for _ in 0..20 {
        let how =
            [None, Some(Stage::kill as fn(&Stage, &str)), Some(Stage::delete), Some(Stage::evict)];
        if let Some(how) = how[rng.below(4) as usize] {
            stage.hit("worker", rng.below(3) as u32, how);
            replaced += 1;
        }
        stage.scale(&["--workers", "1"], "worker", 1);
        stage.scale(&["--workers", "3"], "worker", 3);
    }
    assert!(replaced > 5, "{replaced}");
    assert_eq!(stage.went_back, 0, "the run began at a checkpoint again");
    let summary = stage.finish();
    assert_eq!(summary["restarts"]["worker"], replaced, "{summary}");
    stage.leaves_nothing();
}

/// Nothing of the run is in a checkpoint when the node of a server is emptied, of one after the other.
fn servers_are_evicted_before_the_first_checkpoint(asynchronous: bool) {
    // Epochs that are long: each ends with a checkpoint.
    let fire = Fire { epochs: 2, records: 11_533, ..job(2, asynchronous) };
    let mut stage = Stage::new(&fire, SHARED);
    let never = ["--set", "min_checkpoint_period={batches: 100000}", "--set", "recovery_period=0"];
    stage.train(&never);
    assert!(!stage.run().join("checkpoints/counted").exists(), "there is no checkpoint yet");
    for index in [0, 1] {
        stage.hit("ps", index, Stage::evict);
        assert_eq!(stage.went_back, 0, "steps are done again");
    }
    let summary = stage.finish();
    assert_eq!(summary["restarts"]["ps"], 2, "{summary}");
    stage.leaves_nothing();
}

#[test]
fn servers_with_tables_that_are_evicted_before_the_first_checkpoint_cost_no_step() {
    servers_are_evicted_before_the_first_checkpoint(false);
}

#[test]
fn servers_without_waiting_that_are_evicted_before_the_first_checkpoint_cost_no_step() {
    servers_are_evicted_before_the_first_checkpoint(true);
}

/// Workers and servers show what they do where the platform's monitoring looks for it.
#[test]
fn workers_and_servers_in_pods_show_their_figures() {
    let mut stage = Stage::new(&job(2, false), SHARED);
    stage.train(&[]);
    stage.trains_on();
    let has = |page: &str, line: &str| page.contains(&format!("\nsalamander_{line}"));
    stage.wait("a worker's figures", |stage| {
        let page = stage.metrics("worker", 2);
        let is_zero = |name: &str| has(&page, &format!("worker_{name} 0.0\n"));
        let times = ["compute_seconds", "exchange_seconds", "steps", "records", "loss"];
        page.starts_with("HTTP/1.1 200")
            && has(&page, "worker_members 3.0\n")
            && !times.into_iter().any(is_zero)
    });
    stage.wait("a server's figures", |stage| {
        let page = stage.metrics("ps", 1);
        has(&page, "server_partitions 512\n")
            && has(&page, "server_table_rows{table=")
            && !has(&page, "server_steps 0\n")
    });
    stage.finish();
}

/// As `kubectl salamander get` runs it.
#[test]
fn the_plugin_of_kubectl_shows_a_job_and_scales_it() {
    let mut stage = Stage::new(&Fire { epochs: 20, ..job(0, false) }, SHARED);
    stage.train(&[]);
    stage.wait("the list of jobs", |stage| {
        let listed = stage.plugin(&["get"]).out();
        listed.lines().any(|line| line.starts_with("tally ") && line.contains("Running"))
    });
    stage.wait("the job with its pods", |stage| {
        let shown = stage.plugin(&["get", "tally"]).out();
        shown.contains("3 of 3 workers") && shown.lines().any(|line| line.starts_with("master"))
    });
    stage.wait("what each worker does", |stage| {
        let top = stage.plugin(&["top", "tally"]).out();
        top.lines().filter(|line| line.starts_with(char::is_numeric)).count() == 3
    });
    let early = stage.plugin(&["ledger", "tally"]);
    assert!(early.code() == Some(1) && early.err().contains("no ledger yet"), "{}", early.err());
    let scaled = stage.plugin(&["scale", "tally", "--workers", "2"]);
    assert_eq!((scaled.code(), scaled.out().trim()), (Some(0), "scaled"), "{}", scaled.err());
    stage.wait("two workers", |stage| stage.cluster.pods("tally", "worker").len() == 2);
    stage.trains_on();
    let epochs = stage.finish()["ledger"].as_array().map_or(0, Vec::len);
    let ledger = stage.plugin(&["ledger", "tally"]);
    assert_eq!(ledger.out().matches("intact").count(), epochs, "{}", ledger.err());
}

#[test]
fn a_job_that_is_deleted_while_it_trains_leaves_nothing() {
    let mut stage = Stage::new(&job(2, false), SHARED);
    stage.train(&[]);
    stage.trains_on();
    stage.cluster.delete(JOBS, "tally");
    stage.is_told("there is no job \"tally\"");
    wait_until("nothing is left", || {
        stage.cluster.list(PODS).is_empty() && stage.cluster.server.kubelet.running() == 0
    });
}

#[test]
fn an_account_without_rights_is_told_what_it_may_not_do() {
    let stage = Stage::new(&job(2, false), SHARED);
    let words = "trainingjobs.salamander.dev is forbidden: User \"jo\" cannot create resource";
    stage.cluster.fault("POST", "/trainingjobs", 1, How::Refuse(403, "Forbidden", words));
    let err = stage.submit(&[]).output().expect("the program starts").stderr;
    let err = String::from_utf8_lossy(&err).into_owned();
    assert!(err.contains(words) && err.contains("the cluster's roles do not allow it"), "{err}");
}

/// The master's folder is its pod's own, and so are the workers': everything that lasts is in the store.
#[test]
fn a_ring_with_an_object_store_needs_no_volume() {
    let Some(bucket) = Bucket::start("a_ring_with_an_object_store_needs_no_volume") else { return };
    let fire = job(0, false);
    let spec = "checkpoints: {objectStore: {secretName: keys}}\n";
    let mut stage = Stage::new(&fire, spec);
    let keys: serde_json::Map<_, _> = s3_settings(&bucket.url())
        .map(|(name, value)| (name.to_string(), value.into()))
        .into_iter()
        .collect();
    stage.cluster.put("/api/v1/secrets", "keys", json!({"stringData": keys}));
    stage.train(&["--store", STORE]);
    stage.wait("a checkpoint in the store", |_| bucket.counted() > 0);
    stage.hit("master", 0, Stage::kill);
    // All at once: nobody holds a state.
    for index in 0..3 {
        stage.strike("worker", index, Stage::kill);
    }
    stage.trains_on();
    let restarts = stage.end();
    assert_eq!(restarts["master"], 1, "{restarts}");
    let (_elsewhere, summary) = bucket.resume_elsewhere("tally");
    let proven = chaos::prove(Path::new(PROGRAM), stage.place.path(), &fire, &summary);
    proven.expect("every record exactly once per epoch, and the bits of an undisturbed run");
}

#[test]
fn a_manifest_has_parameter_servers_and_says_what_they_need() {
    let place = Workplace::new();
    let servers = Fire { servers: 2, ..fire(1, 2, 1) };
    chaos::prepare(place.path(), &servers);
    let base = ["manifest", "tally.yaml", "--image", "i", "--job", "tally", "--set"];
    let data = ["data.training=/data/ids.csv"];
    let error = place.run(&[base.as_slice(), &data].concat()).err();
    assert!(error.contains("storage that all pods share"), "{error}");
    let storage = ["--storage-size", "1Gi", "--ps", "3"];
    let text = place.ok(&[base.as_slice(), &data, &storage].concat()).out();
    assert!(text.contains("salamander.dev/wanted-ps: \"3\""), "{text}");
    assert!(text.contains("servers: 3") && text.contains("kind: NetworkPolicy"), "{text}");
}
