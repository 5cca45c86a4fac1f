//! What people, queues and the cluster change while a job is there: it is looked after all the same, and whoever
//! changed something that has no effect is told.

use serde_json::{Value, json};

use fake_cluster::{Cluster, JOBS, Operator, PODS, job, wait_until};

const MAPS: &str = "/api/v1/configmaps";
const SECRETS: &str = "/api/v1/secrets";
const SERVICES: &str = "/api/v1/services";
const ACCOUNTS: &str = "/api/v1/serviceaccounts";

fn message(cluster: &Cluster, job: &str) -> String {
    let status = cluster.get(JOBS, job).expect("there")["status"].clone();
    status["message"].as_str().unwrap_or_default().to_string()
}

fn is_told(cluster: &Cluster, reason: &str, words: &str) {
    let fits = |event: &Value| {
        event["reason"] == reason && event["note"].as_str().is_some_and(|note| note.contains(words))
    };
    wait_until(&format!("{reason}: {words}"), || {
        cluster.list("/apis/events.k8s.io/v1/events").iter().any(fits)
    });
}

fn suspend(cluster: &Cluster, suspend: bool) {
    cluster.patch(JOBS, "j", &json!({"spec": {"suspend": suspend}}));
}

fn place_workers(cluster: &Cluster, on: &str) {
    let template = json!({"nodeSelector": {"flavor": on}});
    cluster.patch(JOBS, "j", &json!({"spec": {"workers": {"template": template}}}));
}

/// An operator that is started again looks at everything anew.
fn start_again(cluster: &Cluster, operator: Operator) -> Operator {
    operator.leave(cluster).expect("in order");
    Operator::start(cluster)
}

/// The master is looked after: one that is killed is replaced.
fn lose_the_master(cluster: &Cluster) {
    let master = cluster.pods("j", "master").remove(0).name;
    cluster.server.kubelet.kill(&cluster.pod_key(&master));
    wait_until("another master", || cluster.get(PODS, "j-master-1").is_some());
    cluster.wait_for_members("j", 1);
}

#[test]
fn a_job_that_is_created_suspended_takes_nothing_and_starts_as_its_queue_leaves_it() {
    let cluster = Cluster::start();
    let _operator = Operator::start(&cluster);
    let storage = json!({"hostPath": null, "size": "1Gi"});
    cluster.submit(&job("j", (1, 1), json!({"suspend": true, "storage": storage})));
    wait_until("it is suspended", || cluster.phase("j") == "Suspended");
    for kind in [PODS, MAPS, SECRETS, SERVICES, ACCOUNTS, fake_cluster::CLAIMS] {
        assert_eq!(cluster.list(kind), Vec::<Value>::new(), "{kind}");
    }
    place_workers(&cluster, "spot");
    suspend(&cluster, false);
    cluster.wait_for_members("j", 1);
    let worker = cluster.get(PODS, &cluster.workers("j")[0]).expect("there");
    assert_eq!(worker["spec"]["nodeSelector"]["flavor"], "spot", "{worker}");
    place_workers(&cluster, "reserved");
    is_told(&cluster, "ChangeIgnored", "workers.template: workers and parameter servers are made");
}

#[test]
fn nothing_that_the_cluster_refuses_keeps_a_job_from_being_suspended() {
    let cluster = Cluster::start();
    let _operator = Operator::start(&cluster);
    cluster.submit(&job("j", (1, 1), json!({})));
    cluster.wait_for_members("j", 1);
    cluster.delete(SERVICES, "j-master");
    cluster.put(SERVICES, "j-master", json!({"metadata": {}}));
    suspend(&cluster, true);
    wait_until("it is suspended", || cluster.phase("j") == "Suspended");
    wait_until("its pods are given back", || cluster.server.kubelet.running() == 0);
    suspend(&cluster, false);
    wait_until("it says what is in its way", || {
        message(&cluster, "j").contains("the Service \"j-master\" is there already")
    });
    cluster.delete(SERVICES, "j-master");
    cluster.wait_for_members("j", 1);
    let master = cluster.pods("j", "master").remove(0).name;
    let args = cluster.get(PODS, &master).expect("there")["spec"]["containers"][0]["args"].clone();
    assert!(args.as_array().expect("arguments").contains(&json!("--resume")), "{args}");
}

#[test]
fn a_quota_that_is_used_up_does_not_keep_a_job_from_being_looked_after() {
    let cluster = Cluster::start();
    let operator = Operator::start(&cluster);
    cluster.submit(&job("j", (1, 1), json!({})));
    cluster.wait_for_members("j", 1);
    cluster.set_quota("secrets", cluster.list(SECRETS).len());
    let _operator = start_again(&cluster, operator);
    lose_the_master(&cluster);
    // Where there is no room for what is missing, nothing is started.
    cluster.submit(&job("k", (1, 1), json!({})));
    let refused = "exceeded quota: compute, requested: secrets=1";
    wait_until("it is told", || message(&cluster, "k").contains(refused));
    assert_eq!(cluster.phase("k"), "Blocked");
    assert!(cluster.pods("k", "master").is_empty() && cluster.get(MAPS, "k-config").is_none());
}

#[test]
fn a_job_that_trains_does_not_need_its_source_any_more() {
    let cluster = Cluster::start();
    let operator = Operator::start(&cluster);
    let text = "entrypoint: mnist\ndata: {training: /data/train.recordio}\n";
    cluster.put(MAPS, "mnist", json!({"metadata": {}, "data": {"experiment.yaml": text}}));
    let source = json!({"inline": null, "configMap": {"name": "mnist", "key": "experiment.yaml"}});
    cluster.submit(&job("j", (1, 1), json!({"experiment": source})));
    cluster.wait_for_members("j", 1);
    cluster.delete(MAPS, "mnist");
    let _operator = start_again(&cluster, operator);
    is_told(&cluster, "MistakeIgnored", "there is no config map \"mnist\" yet; the job goes on");
    wait_until("it runs", || cluster.phase("j") == "Running");
    lose_the_master(&cluster);
    cluster.tell_containers("j", "finish");
    wait_until("it is complete", || cluster.phase("j") == "Complete");
}

#[test]
fn a_volume_that_is_changed_while_the_job_runs_is_not_that_of_its_next_master() {
    let cluster = Cluster::start();
    let _operator = Operator::start(&cluster);
    cluster.submit(&job("j", (1, 1), json!({})));
    cluster.wait_for_members("j", 1);
    let other = json!({"hostPath": "/other", "size": null});
    cluster.patch(JOBS, "j", &json!({"spec": {"storage": other}}));
    is_told(&cluster, "ChangeIgnored", "storage: ");
    lose_the_master(&cluster);
    let master = cluster.get(PODS, "j-master-1").expect("there");
    let volumes = master["spec"]["volumes"].to_string();
    assert!(volumes.contains("/var/salamander") && !volumes.contains("/other"), "{volumes}");
}
