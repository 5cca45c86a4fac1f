//! What a namespace refuses is told where people look: in the job's status and events.

use serde_json::{Value, json};

use fake_cluster::{Cluster, JOBS, Operator, QUOTAS, job, wait_until};

fn told(cluster: &Cluster, words: &str) {
    wait_until(words, || {
        let status = cluster.get(JOBS, "j").expect("there")["status"].clone();
        status["message"].as_str().is_some_and(|message| message.contains(words))
    });
    let status = cluster.get(JOBS, "j").expect("there")["status"].clone();
    assert_eq!(status["phase"], "Blocked", "{status}");
    assert!(!status["message"].to_string().contains("roles"), "no role is to blame: {status}");
    let blocked =
        |condition: &Value| condition["type"] == "Blocked" && condition["status"] == "True";
    assert!(status["conditions"].as_array().expect("conditions").iter().any(blocked), "{status}");
    let warned = |event: &Value| event["note"].as_str().is_some_and(|note| note.contains(words));
    wait_until("people are warned", || {
        cluster.list("/apis/events.k8s.io/v1/events").iter().any(warned)
    });
}

#[test]
fn a_quota_on_pods_is_shown_and_the_job_begins_when_there_is_room() {
    let cluster = Cluster::start();
    let _operator = Operator::start(&cluster);
    cluster.set_quota("pods", 0);
    cluster.submit(&job("j", (1, 1), json!({})));
    told(&cluster, "exceeded quota: compute, requested: pods=1");
    cluster.delete(QUOTAS, "compute");
    cluster.wait_for_members("j", 1);
    wait_until("it runs", || cluster.phase("j") == "Running");
}

#[test]
fn a_quota_on_claims_is_shown() {
    let cluster = Cluster::start();
    let _operator = Operator::start(&cluster);
    cluster.set_quota("persistentvolumeclaims", 0);
    cluster.submit(&job("j", (1, 1), json!({"storage": {"hostPath": null, "size": "1Gi"}})));
    told(&cluster, "exceeded quota: compute, requested: persistentvolumeclaims=1");
    cluster.delete(QUOTAS, "compute");
    cluster.wait_for_members("j", 1);
}

#[test]
fn the_pod_security_of_a_namespace_is_quoted() {
    let cluster = Cluster::start();
    let _operator = Operator::start(&cluster);
    cluster.enforce_pod_security("restricted");
    cluster.submit(&job("j", (1, 1), json!({})));
    told(&cluster, "violates PodSecurity \"restricted:latest\": restricted volume types");
    // Everything else of a job's pods is what the level wants.
    let storage = json!({"storage": {"hostPath": null, "size": "1Gi"}});
    let mut other = job("k", (1, 1), storage);
    other.metadata.name = Some("k".to_string());
    cluster.submit(&other);
    cluster.wait_for_members("k", 1);
}
