//! How a job ends, and what people see of it: its figures, its logs, and what was wrong.

use salamander_kube::client::Jobs;
use serde_json::{Value, json};

use fake_cluster::{Cluster, JOBS, NAMESPACE, Operator, PODS, job, page, wait_until};

use crate::open_metrics;

const BUDGETS: &str = "/apis/policy/v1/poddisruptionbudgets";

fn status(cluster: &Cluster) -> Value {
    cluster.get(JOBS, "j").expect("there")["status"].clone()
}

#[test]
fn a_job_that_is_done_shows_its_metric_and_keeps_its_logs() {
    let cluster = Cluster::start();
    let _operator = Operator::start(&cluster);
    cluster.submit(&job("j", (1, 2), json!({})));
    cluster.wait_for_members("j", 2);
    cluster.tell_containers("j", "finish");
    wait_until("it is complete", || cluster.phase("j") == "Complete");
    wait_until("nothing runs", || cluster.server.kubelet.running() == 0);
    assert_eq!(status(&cluster)["metric"], "accuracy 0.7500", "{}", status(&cluster));
    let mut lines = Vec::new();
    let jobs = Jobs::new(cluster.client(), NAMESPACE);
    let read = jobs.logs("j", None, |pod, line| lines.push(format!("{pod}: {line}")));
    cluster.runtime.block_on(read).expect("read");
    for worker in ["worker-0", "worker-1"] {
        let last = format!("{worker}: ended: Completed");
        assert!(lines.contains(&last), "{last}: {lines:?}");
    }
}

#[test]
fn nothing_that_a_job_shows_has_its_secrets() {
    let cluster = Cluster::start();
    let _operator = Operator::start(&cluster);
    cluster.submit(&job("j", (1, 2), json!({})));
    cluster.wait_for_members("j", 2);
    let master = cluster.pods("j", "master").remove(0).name;
    cluster.server.kubelet.kill(&cluster.pod_key(&master));
    wait_until("another master", || cluster.get(PODS, "j-master-1").is_some());
    cluster.wait_for_members("j", 2);
    cluster.tell_containers("j", "finish");
    wait_until("it is complete", || cluster.phase("j") == "Complete");
    wait_until("nothing runs", || cluster.server.kubelet.running() == 0);
    let files = cluster.list("/api/v1/secrets").remove(0)["stringData"].clone();
    let text = |name: &str| files[name].as_str().expect("a file").to_string();
    // The first line of a key says only what it is.
    let (token, key) = (text("token"), text("tls.key").lines().nth(1).expect("a key").to_string());
    assert!(token.len() >= 32 && key.len() >= 32, "{token} {key}");
    let mut shown = Vec::new();
    for log in std::fs::read_dir(cluster.server.kubelet.folder().join("logs")).expect("logs") {
        shown.push(std::fs::read_to_string(log.expect("a log").path()).expect("a text"));
    }
    assert!(shown.len() > 3 && shown.iter().any(|log| log.len() > 100), "{}", shown.len());
    for resource in [PODS, JOBS, "/api/v1/configmaps", "/apis/events.k8s.io/v1/events"] {
        shown.extend(cluster.list(resource).iter().map(Value::to_string));
    }
    for text in shown {
        assert!(!text.contains(token.trim()) && !text.contains(&key), "{text}");
    }
}

#[test]
fn a_mistake_fails_a_job_at_once_and_in_words() {
    let cluster = Cluster::start();
    let _operator = Operator::start(&cluster);
    cluster.tell_containers("j", "mistake");
    cluster.submit(&job("j", (1, 1), json!({})));
    wait_until("it has failed", || cluster.phase("j") == "Failed");
    let worker = status(&cluster);
    let message = worker["message"].as_str().expect("a message");
    assert!(message.ends_with(": /data/train.recordio: no such file"), "{message}");
    assert_eq!(worker["restarts"]["worker"], 0, "{worker}");

    cluster.tell_containers("k", "mistake-master");
    cluster.submit(&job("k", (1, 1), json!({})));
    wait_until("it has failed", || cluster.phase("k") == "Failed");
    let master = cluster.get(JOBS, "k").expect("there")["status"].clone();
    assert_eq!(master["message"], "experiment: there is no model mnist_conv17", "{master}");
    assert!(cluster.get(PODS, "k-master-1").is_none(), "another would find the same");
}

#[test]
fn a_journal_that_another_master_holds_is_no_crash() {
    let cluster = Cluster::start();
    let _operator = Operator::start(&cluster);
    cluster.tell_containers("j", "locked-master");
    cluster.submit(&job("j", (1, 1), json!({"master": {"maxCrashes": 0}})));
    cluster.wait_for_members("j", 1);
    wait_until("it runs", || cluster.phase("j") == "Running");
    let restarts = status(&cluster)["restarts"].clone();
    assert_eq!((&restarts["master"], &restarts["masterCrashes"]), (&json!(1), &json!(0)));
}

#[test]
fn servers_have_a_budget_that_follows_their_number_and_a_priority() {
    let cluster = Cluster::start();
    let _operator = Operator::start(&cluster);
    cluster.submit(&job("j", (1, 1), json!({"strategy": "hybrid", "ps": {"replicas": 2}})));
    cluster.wait_for_members("j", 1);
    let least = || cluster.get(BUDGETS, "j-ps").expect("made")["spec"]["minAvailable"].clone();
    assert_eq!(least(), 1);
    for pod in cluster.list(PODS) {
        let role = pod["metadata"]["labels"]["salamander.dev/role"].as_str().expect("a role");
        let class = if role == "worker" { Value::Null } else { json!("salamander-high") };
        assert_eq!(pod["spec"]["priorityClassName"], class, "{role}");
        let volumes = pod["spec"]["volumes"].as_array().expect("volumes");
        assert!(volumes.iter().all(|volume| volume["emptyDir"].is_null()), "drain would refuse");
        let safe =
            &pod["metadata"]["annotations"]["cluster-autoscaler.kubernetes.io/safe-to-evict"];
        assert_eq!(*safe, if role == "ps" { "false" } else { "true" }, "{role}");
    }
    cluster.patch(JOBS, "j", &json!({"spec": {"ps": {"replicas": 3}}}));
    wait_until("the budget follows", || least() == 2);
    cluster.delete(JOBS, "j");
    wait_until("it goes with the job", || cluster.get(BUDGETS, "j-ps").is_none());
}

#[test]
fn a_master_shows_the_figures_of_its_run() {
    let cluster = Cluster::start();
    let _operator = Operator::start(&cluster);
    cluster.submit(&job("j", (1, 2), json!({})));
    cluster.wait_for_members("j", 2);
    let address = cluster.server.kubelet.folder().join("runs/j/health");
    let address = std::fs::read_to_string(address).expect("an address");
    wait_until("its figures are there", || {
        let page = page(&address, "/metrics").expect("answered");
        let (_, figures) = page.split_once("\r\n\r\n").expect("a body");
        assert!(open_metrics::check(figures, "salamander_run_") > 8, "{page}");
        let has = |line: &str| page.contains(&format!("\nsalamander_run_{line}"));
        has("workers 2\n") && has("wanted_workers 2\n") && has("generations ") && has("loss 0.")
    });
}
