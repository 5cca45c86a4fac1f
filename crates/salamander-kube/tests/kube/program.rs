//! The real program as the containers of a job: SALAMANDER_KUBE_PROGRAM names it (built with the feature
//! `kube`). It trains MNIST while its workers and its master are killed, and its ledger must be clean.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::jobs::Operator;
use crate::support::{Cluster, JOBS, PROGRAM, job, wait_until};

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../model_zoo/mnist/data");

#[test]
fn the_real_program_trains_through_kills_and_counts_every_record() {
    let Some(program) = std::env::var_os(PROGRAM) else {
        println!("SKIPPED: {PROGRAM} names no program");
        return;
    };
    let cluster = Cluster::of_program(&program);
    let _operator = Operator::start(&cluster);
    let data = Path::new(DATA).canonicalize().expect("the sample of MNIST");
    let inline = json!({
        "name": "mnist", "entrypoint": "mnist_mlp",
        "data": {
            "training": data.join("mnist-train.recordio"),
            "validation": data.join("mnist-valid.recordio"),
        },
        "hyperparameters": {"global_batch_size": 64},
        "searcher": {"metric": "accuracy", "smaller_is_better": false, "max_length": {"epochs": 16}},
        "elastic": {"silence": 2.0},
    });
    cluster.submit(&job("mnist", (1, 3), json!({"experiment": {"inline": inline}})));
    cluster.wait_for_members("mnist", 3);
    let steps = |more: u64| {
        let now = cluster.progress("mnist").step.unwrap_or(0);
        wait_until("it trains on", || {
            cluster.progress("mnist").step.is_some_and(|step| step > now + more) || over(&cluster)
        });
    };
    steps(5);
    let worker = cluster.workers("mnist").remove(1);
    cluster.server.kubelet.kill(&cluster.pod_key(&worker));
    steps(5);
    let master = cluster.pods("mnist", "master").remove(0).name;
    cluster.server.kubelet.kill(&cluster.pod_key(&master));
    steps(5);
    assert!(!over(&cluster), "it was over before it was killed: make it longer");
    wait_until("it is over", || over(&cluster));
    let status = cluster.get(JOBS, "mnist").expect("there")["status"].clone();
    assert_eq!(status["phase"], "Complete", "{status}");
    let run = cluster.server.kubelet.folder().join("runs/mnist");
    let ledger =
        Command::new(&program).arg("ledger").arg(&run).arg("--json").output().expect("started");
    let text = String::from_utf8_lossy(&ledger.stdout).into_owned();
    let ledger: Value =
        serde_json::from_str(text.trim()).unwrap_or_else(|error| panic!("{error}: {text}"));
    let pages = ledger.as_array().or(ledger["ledger"].as_array()).expect("pages").clone();
    assert_eq!(pages.len(), 16, "{text}");
    for page in pages {
        assert_eq!((&page["missing"], &page["duplicated"]), (&json!(0), &json!(0)), "{page}");
    }
}

fn over(cluster: &Cluster) -> bool {
    ["Complete", "Failed", "Invalid"].contains(&cluster.phase("mnist").as_str())
}
