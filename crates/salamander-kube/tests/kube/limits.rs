//! What bounds a job in time, in what it uses, and in who looks after it.

use serde_json::{Value, json};

use fake_cluster::{Cluster, JOBS, Operator, PODS, job, wait_until};

const GROUPS: &str = "/apis/scheduling.x-k8s.io/v1alpha1/podgroups";

#[test]
fn a_job_that_is_done_goes_when_its_time_has_come() {
    let cluster = Cluster::start();
    let _operator = Operator::start(&cluster);
    cluster.submit(&job("j", (1, 1), json!({"ttlSecondsAfterFinished": 0})));
    cluster.wait_for_members("j", 1);
    cluster.tell_containers("j", "finish");
    wait_until("the job is gone", || cluster.get(JOBS, "j").is_none());
    wait_until("so is all that was made for it", || {
        cluster.list(PODS).is_empty() && cluster.list("/api/v1/secrets").is_empty()
    });
}

#[test]
fn a_job_that_takes_too_long_fails_and_gives_its_pods_back() {
    let cluster = Cluster::start();
    let _operator = Operator::start(&cluster);
    cluster.submit(&job("j", (1, 2), json!({"activeDeadlineSeconds": 1})));
    wait_until("it has failed", || cluster.phase("j") == "Failed");
    let message = cluster.get(JOBS, "j").expect("there")["status"]["message"].to_string();
    assert!(message.contains("activeDeadlineSeconds"), "{message}");
    wait_until("nothing runs", || cluster.server.kubelet.running() == 0);
}

#[test]
fn a_job_stays_within_its_cap_and_one_that_cannot_is_told() {
    let cluster = Cluster::start();
    let _operator = Operator::start(&cluster);
    let resources = json!({"requests": {"cpu": 1}});
    let with =
        |cap: &str| json!({"resourceCap": {"cpu": cap}, "workers": {"resources": resources}});
    cluster.submit(&job("j", (1, 3), with("2500m")));
    cluster.wait_for_members("j", 2);
    wait_until("it is shown", || {
        cluster.get(JOBS, "j").expect("there")["status"]["workers"]["wanted"] == 2
    });
    assert_eq!(cluster.workers("j").len(), 2);
    cluster.submit(&job("k", (2, 3), with("2")));
    wait_until("it is told", || {
        let status = cluster.get(JOBS, "k").expect("there")["status"].clone();
        status["message"]
            .as_str()
            .is_some_and(|text| text.contains("resourceCap lets 1 workers run"))
    });
}

#[test]
fn a_job_of_another_manager_is_left_alone() {
    let cluster = Cluster::start();
    let _operator = Operator::start(&cluster);
    cluster.submit(&job("theirs", (1, 1), json!({"managedBy": "kueue.x-k8s.io/multikueue"})));
    cluster.submit(&job("ours", (1, 1), json!({"managedBy": "salamander.dev/operator"})));
    cluster.wait_for_members("ours", 1);
    let theirs = cluster.get(JOBS, "theirs").expect("there");
    assert!(theirs["status"].is_null() && theirs["spec"]["workers"]["replicas"].is_null());
}

#[test]
fn queues_and_gangs_know_the_pods_of_a_job() {
    let cluster = Cluster::start();
    let _operator = Operator::start(&cluster);
    let mut queued = job("j", (2, 3), json!({"workers": {"gang": "Coscheduling"}}));
    let labels = [("kueue.x-k8s.io/queue-name", "team-a"), ("other", "label")];
    queued.metadata.labels =
        Some(labels.map(|(key, value)| (key.to_string(), value.to_string())).into());
    cluster.submit(&queued);
    cluster.wait_for_members("j", 3);
    for pod in cluster.list(PODS) {
        let labels = &pod["metadata"]["labels"];
        assert_eq!(labels["kueue.x-k8s.io/queue-name"], "team-a", "{labels}");
        assert!(labels["other"].is_null(), "{labels}");
        let worker = labels["salamander.dev/role"] == "worker";
        let group = if worker { json!("j") } else { Value::Null };
        assert_eq!(labels["scheduling.x-k8s.io/pod-group"], group, "{labels}");
    }
    assert_eq!(cluster.get(GROUPS, "j").expect("made")["spec"]["minMember"], 2);
}
