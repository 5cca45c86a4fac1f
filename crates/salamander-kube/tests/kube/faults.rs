//! What a real API server does to its clients: it forgets, refuses, breaks connections and loses answers. And
//! nodes vanish.

use std::time::Duration;

use salamander_kube::platform;
use serde_json::json;

use fake_cluster::{Cluster, How, JOBS, Operator, PODS, job, wait_until};

#[test]
fn watches_that_break_or_expire_lose_nothing() {
    let cluster = Cluster::start();
    let _operator = Operator::start(&cluster);
    cluster.submit(&job("j", (1, 2), json!({})));
    cluster.wait_for_members("j", 2);
    for gone in [false, true, false, true] {
        let before = cluster.workers("j");
        // The deaths fall into the time in which nobody watches.
        cluster.server.store().cut_watches(gone);
        cluster.server.kubelet.kill(&cluster.pod_key(&before[0]));
        wait_until("it is replaced", || {
            let now = cluster.workers("j");
            now.len() == 2 && now[0] != before[0]
        });
        cluster.wait_for_members("j", 2);
    }
}

#[test]
fn a_lost_answer_creates_no_second_pod() {
    let cluster = Cluster::start();
    let _operator = Operator::start(&cluster);
    cluster.fault("POST", "/pods", 1, How::DropAfter);
    cluster.submit(&job("j", (1, 3), json!({})));
    cluster.wait_for_members("j", 3);
    cluster.fault("POST", "/pods", 1, How::DropAfter);
    cluster.fault("POST", "/pods", 1, How::DropBefore);
    cluster.fault(
        "POST",
        "/pods",
        1,
        How::Refuse(429, "TooManyRequests", "please try again later"),
    );
    let quota = "pods \"x\" is forbidden: exceeded quota: compute, requested: pods=1, used: pods=4";
    cluster.fault("POST", "/pods", 1, How::Refuse(403, "Forbidden", quota));
    let before = cluster.workers("j");
    for victim in &before {
        cluster.server.kubelet.kill(&cluster.pod_key(victim));
    }
    wait_until("all are replaced", || {
        let now = cluster.workers("j");
        now.len() == 3 && now.iter().all(|name| !before.contains(name))
    });
    cluster.wait_for_members("j", 3);
    assert_eq!(cluster.pods("j", "worker").len(), 3);
    assert_eq!(cluster.pods("j", "master").len(), 1);
}

#[test]
fn refusals_and_conflicts_of_status_and_objects_pass() {
    let cluster = Cluster::start();
    let _operator = Operator::start(&cluster);
    cluster.fault(
        "PATCH",
        "/status",
        2,
        How::Refuse(409, "Conflict", "the object has been modified"),
    );
    cluster.fault(
        "PATCH",
        "/services/",
        1,
        How::Refuse(500, "InternalError", "etcdserver: request timed out"),
    );
    cluster.fault("PATCH", "/roles/", 1, How::DropBefore);
    cluster.fault(
        "GET",
        "/pods",
        1,
        How::Refuse(503, "ServiceUnavailable", "apiserver is shutting down"),
    );
    cluster.submit(&job("j", (1, 1), json!({})));
    wait_until("it runs", || cluster.phase("j") == "Running");
    // Somebody else set a field of an object that is ours: the operator takes it back.
    let key = ("/api/v1/services".to_string(), "ml".to_string(), "j-master".to_string());
    let theirs = json!({"spec": {"selector": {"salamander.dev/job": "other"}}});
    cluster.server.store().apply(key, &theirs, ("kubectl", true, false)).expect("applied");
    cluster.patch(JOBS, "j", &json!({"spec": {"workers": {"template": {"labels": {"a": "b"}}}}}));
    wait_until("it is ours again", || {
        let service = cluster.get("/api/v1/services", "j-master").expect("there");
        service["spec"]["selector"]["salamander.dev/job"] == "j"
    });
}

#[test]
fn a_lost_node_is_not_waited_for() {
    let cluster = Cluster::start();
    let _operator = Operator::start(&cluster);
    cluster.submit(&job("j", (1, 2), json!({})));
    cluster.wait_for_members("j", 2);
    let victim = cluster.workers("j")[1].clone();
    cluster.server.kubelet.lose_node(&cluster.server, &cluster.pod_key(&victim));
    wait_until("its pod is removed by force", || cluster.get(PODS, &victim).is_none());
    wait_until("it is replaced", || cluster.workers("j").len() == 2);
    cluster.wait_for_members("j", 2);
    // The node of the master.
    let master = cluster.pods("j", "master").remove(0).name;
    let workers = cluster.workers("j");
    cluster.server.kubelet.lose_node(&cluster.server, &cluster.pod_key(&master));
    wait_until("another master leads", || {
        cluster.get(PODS, "j-master-1").is_some() && cluster.progress("j").workers == 2
    });
    assert_eq!(cluster.workers("j"), workers);
}

#[test]
fn an_account_without_rights_gets_a_clear_error() {
    let cluster = Cluster::start();
    let message = "trainingjobs.salamander.dev is forbidden: User \"system:serviceaccount:ml:op\" cannot list \
                   resource \"trainingjobs\"";
    cluster.fault("GET", "/trainingjobs", 1, How::Refuse(403, "Forbidden", message));
    let error = Operator::start(&cluster).finish(&cluster).expect_err("no rights").to_string();
    assert!(
        error.starts_with("listing training jobs: ") && error.contains("cannot list"),
        "{error}"
    );
    assert!(error.contains("docs/kubernetes.md#rights"), "{error}");

    // The master's own account.
    let _operator = Operator::start(&cluster);
    let message = "pods is forbidden: User \"system:serviceaccount:ml:j-master\" cannot create resource \"pods\"";
    cluster.submit(&job("j", (1, 1), json!({})));
    wait_until("the master runs", || !cluster.pods("j", "master").is_empty());
    cluster.fault("POST", "/pods", 9, How::Refuse(403, "Forbidden", message));
    wait_until("it runs or has failed", || {
        ["Running", "Failed"].contains(&cluster.phase("j").as_str())
    });
    if cluster.phase("j") == "Running" {
        let worker = cluster.workers("j").remove(0);
        cluster.server.kubelet.kill(&cluster.pod_key(&worker));
    }
    wait_until("it is given up", || cluster.phase("j") == "Failed");
    let text = cluster.get(JOBS, "j").expect("there")["status"]["message"].to_string();
    assert!(text.contains("its pod cannot be created: pods is forbidden"), "{text}");
}

#[test]
fn what_an_earlier_job_of_the_same_name_left_is_not_taken_for_ones_own() {
    let cluster = Cluster::start();
    cluster.server.controllers.hold_collector(true);
    let _operator = Operator::start(&cluster);
    let owner = json!([{"apiVersion": "salamander.dev/v1alpha1", "kind": "TrainingJob", "name": "j", "uid": "old"}]);
    let key =
        |resource: &str, name: &str| (resource.to_string(), "ml".to_string(), name.to_string());
    let maps = "/api/v1/configmaps";
    let map =
        json!({"metadata": {"ownerReferences": owner}, "data": {"experiment.yaml": "name: old"}});
    cluster.server.store().create(key(maps, "j-config"), map).expect("created");
    // Its master has finished, which says nothing about the new one.
    let labels = json!({"salamander.dev/job": "j", "salamander.dev/role": "master", "salamander.dev/process": "0"});
    let pod = json!({"metadata": {"ownerReferences": owner, "labels": labels}});
    cluster.server.store().create(key(PODS, "j-master-0"), pod).expect("created");
    cluster
        .server
        .store()
        .update(&key(PODS, "j-master-0"), |pod| pod["status"]["phase"] = "Succeeded".into());
    cluster.submit(&job("j", (1, 1), json!({})));
    wait_until("it waits for the garbage collector", || cluster.phase("j") == "Blocked");
    let status = cluster.get(JOBS, "j").expect("there")["status"].clone();
    let message = status["message"].as_str().expect("a message").to_string();
    assert!(message.contains("\"j-config\" of an earlier job is still being deleted"), "{message}");
    cluster.delete(maps, "j-config");
    cluster.wait_for_members("j", 1);
    assert!(cluster.get(PODS, "j-master-1").is_some(), "the old pod has the first name");
    wait_until("it runs", || cluster.phase("j") == "Running");
    let restarts = cluster.get(JOBS, "j").expect("there")["status"]["restarts"].clone();
    assert_eq!(restarts["master"], 0, "its own first master is no restart: {restarts}");
}

#[test]
fn a_server_that_starts_late_is_waited_for() {
    let cluster = Cluster::start();
    let late = How::Refuse(503, "ServiceUnavailable", "the server is starting");
    cluster.fault("GET", "/trainingjobs", 2, late.clone());
    let _operator = Operator::start(&cluster);
    cluster.submit(&job("j", (1, 1), json!({})));
    wait_until("the master is created", || cluster.get(PODS, "j-master-0").is_some());
    cluster.fault("GET", "/pods/j-master-0", 2, late);
    cluster.fault("GET", "/pods/j-master-0", 1, How::DropBefore);
    cluster.wait_for_members("j", 1);
    assert!(cluster.get(PODS, "j-master-1").is_none(), "it did not have to be started again");
}

#[test]
fn a_platform_without_its_pod_says_so() {
    let cluster = Cluster::start();
    let resource = job("j", (1, 1), json!({}));
    let job = salamander_kube::job::Job::from_resource(&resource).expect("a job");
    let session = salamander_proto::client::SessionOptions::new("127.0.0.1:1", "c0ffee");
    let options = platform::PlatformOptions::new(job, "j-master-0", session);
    let client = cluster.client();
    let ended = cluster.runtime.block_on(async {
        let never = std::future::pending();
        tokio::time::timeout(Duration::from_secs(20), platform::run(options, client, never)).await
    });
    let error = ended.expect("at once").expect_err("no pod").to_string();
    assert!(error.starts_with("looking at the master's pod j-master-0: "), "{error}");
}

#[test]
fn an_experiment_with_a_mistake_is_told_and_can_come_later() {
    let cluster = Cluster::start();
    let _operator = Operator::start(&cluster);
    let source = json!({"inline": null, "configMap": {"name": "mnist", "key": "experiment.yaml"}});
    cluster.submit(&job("j", (1, 1), json!({"experiment": source})));
    let message = || cluster.get(JOBS, "j").expect("there")["status"]["message"].to_string();
    wait_until("it is missed", || message().contains("there is no config map"));
    assert_eq!(cluster.phase("j"), "Invalid");
    let put = |text: &str| {
        let key = ("/api/v1/configmaps".to_string(), "ml".to_string(), "mnist".to_string());
        let object = json!({"metadata": {"name": "mnist"}, "data": {"experiment.yaml": text}});
        let mut store = cluster.server.store();
        if store.create(key.clone(), object.clone()).is_err() {
            store.replace(key, object).expect("replaced");
        }
    };
    let touch = |value: &str| {
        cluster.patch(JOBS, "j", &json!({"metadata": {"annotations": {"touched": value}}}));
    };
    put("entrypoint: mnist\nsercher: {}\n");
    touch("1");
    wait_until("the mistake is shown", || {
        message().contains("line 2") && message().contains("searcher")
    });
    put("entrypoint: mnist\ndata: {training: /data/train.recordio}\n");
    touch("2");
    wait_until("it runs", || cluster.phase("j") == "Running");
    let config = cluster.get("/api/v1/configmaps", "j-config").expect("made");
    let text = config["data"]["experiment.yaml"].as_str().expect("an experiment").to_string();
    assert!(text.contains("experiment_seed"), "{text}");
    let token = cluster.list("/api/v1/secrets").remove(0)["stringData"]["token"].to_string();
    assert_eq!(token.len(), 66);
    assert!(
        !config.to_string().contains(token.trim_matches('"')),
        "the token is in its secret only"
    );
}
