//! The life of a job: it starts, loses what can be lost, grows, shrinks, pauses, ends, and leaves nothing behind.

use std::time::Instant;

use salamander_core::progress::StepCount;
use salamander_kube::progress::JobProgress;
use serde_json::{Value, json};

use fake_cluster::{Cluster, JOBS, Operator, PODS, job, wait_until};

fn crash_message(cluster: &Cluster, name: &str) -> String {
    let status = cluster.get(JOBS, name).expect("there")["status"].clone();
    status["lastCrash"].as_str().unwrap_or_default().to_string()
}

#[test]
fn a_job_goes_on_when_workers_and_masters_are_killed_and_ends() {
    let cluster = Cluster::start();
    let _operator = Operator::start(&cluster);
    let applied = Instant::now();
    cluster.submit(&job("j", (1, 3), json!({})));
    wait_until("the first step", || cluster.progress("j").step.is_some());
    println!("from apply to the first step: {:?}", applied.elapsed());
    cluster.wait_for_members("j", 3);

    let (before, group) = (cluster.workers("j"), cluster.progress("j").generation);
    let killed = Instant::now();
    cluster.server.kubelet.kill(&cluster.pod_key(&before[1]));
    wait_until("it is replaced", || {
        let now = cluster.workers("j");
        now.len() == 3 && now[1] != before[1]
    });
    wait_until("all three are a new group", || {
        let progress = cluster.progress("j");
        progress.workers == 3 && progress.generation != group && progress.restarts > 0
    });
    println!("from a worker's death to its replacement in the group: {:?}", killed.elapsed());
    wait_until("people are told why it left", || {
        let events = cluster.list("/apis/events.k8s.io/v1/events");
        events.iter().any(|event| event["reason"] == "WorkerDropped")
    });

    let before = cluster.workers("j");
    let master = cluster.pods("j", "master").remove(0).name;
    assert_eq!(master, "j-master-0");
    let killed = Instant::now();
    cluster.server.kubelet.kill(&cluster.pod_key(&master));
    wait_until("another master", || {
        cluster.progress("j").restarts > 0 || cluster.get(PODS, "j-master-1").is_some()
    });
    wait_until("it leads", || {
        cluster.get(PODS, "j-master-1").is_some() && cluster.progress("j").workers == 3
    });
    println!("from a master's death to a master that leads: {:?}", killed.elapsed());
    let second = cluster.get(PODS, "j-master-1").expect("there")["metadata"]["annotations"].clone();
    let told = second["salamander.dev/progress-before"].as_str().expect("it learns how far it was");
    let told = JobProgress::from_annotation(told).expect("progress");
    assert!(told.step.is_some() && told.counted.is_some(), "{told:?}");
    assert_eq!(cluster.workers("j"), before, "no worker was started again");

    cluster.delete(PODS, &before[0]);
    wait_until("a deleted pod is replaced", || {
        let now = cluster.workers("j");
        now.len() == 3 && now[0] != before[0]
    });
    cluster.wait_for_members("j", 3);
    cluster.tell_containers("j", "finish");
    wait_until("it is complete", || cluster.phase("j") == "Complete");
    let status = cluster.get(JOBS, "j").expect("there")["status"].clone();
    assert!(status["step"].as_u64().expect("steps") > 1, "{status}");
    assert_eq!(status["restarts"]["master"], 1, "{status}");
    assert_eq!(status["restarts"]["masterCrashes"], 0, "being killed is no crash: {status}");
    assert!(status["goodput"].is_string() && status["completionTime"].is_string(), "{status}");
    wait_until("all containers have ended", || cluster.server.kubelet.running() == 0);
}

#[test]
fn deleting_a_job_leaves_nothing_behind() {
    let cluster = Cluster::start();
    let _operator = Operator::start(&cluster);
    let storage = json!({"storage": {"hostPath": null, "size": "1Gi"}});
    cluster.submit(&job("j", (1, 2), storage));
    cluster.wait_for_members("j", 2);
    let kinds = [
        "/api/v1/serviceaccounts",
        "/api/v1/secrets",
        "/api/v1/configmaps",
        "/api/v1/services",
        "/api/v1/persistentvolumeclaims",
        "/apis/rbac.authorization.k8s.io/v1/roles",
        "/apis/rbac.authorization.k8s.io/v1/rolebindings",
        "/apis/networking.k8s.io/v1/networkpolicies",
        PODS,
    ];
    for kind in kinds {
        let objects = cluster.list(kind);
        assert!(!objects.is_empty(), "{kind}");
        for object in objects {
            assert_eq!(object["metadata"]["ownerReferences"][0]["kind"], "TrainingJob", "{object}");
            assert!(!object["metadata"]["ownerReferences"][0]["uid"].is_null());
        }
    }
    cluster.delete(JOBS, "j");
    wait_until("nothing is left", || kinds.iter().all(|kind| cluster.list(kind).is_empty()));
    wait_until("no process is left", || cluster.server.kubelet.running() == 0);
}

#[test]
fn a_job_uses_what_is_free_and_grows_when_more_is() {
    let cluster = Cluster::start();
    let _operator = Operator::start(&cluster);
    cluster.server.kubelet.set_capacity(&cluster.server, 2);
    cluster.submit(&job("j", (1, 3), json!({})));
    cluster.wait_for_members("j", 1);
    wait_until("people see why it is small", || {
        let status = cluster.get(JOBS, "j").expect("there")["status"].clone();
        let message = status["message"].as_str().unwrap_or_default().to_string();
        status["workers"]["pending"] == 2 && message.contains("Insufficient cpu")
    });
    wait_until("it runs all the same", || cluster.phase("j") == "Running");
    let ready = |name: &str| {
        let conditions =
            cluster.get(PODS, name).unwrap_or_default()["status"]["conditions"].clone();
        let conditions = conditions.as_array().cloned().unwrap_or_default();
        conditions.iter().any(|c| c["type"] == "salamander.dev/member" && c["status"] == "True")
    };
    cluster.server.kubelet.set_capacity(&cluster.server, 4);
    cluster.wait_for_members("j", 3);
    wait_until("all that train are ready", || cluster.workers("j").iter().all(|name| ready(name)));
    // A more important pod takes a place: training goes on with those that are left.
    cluster.server.kubelet.set_capacity(&cluster.server, 3);
    let victim = cluster.workers("j")[2].clone();
    cluster.server.kubelet.preempt(&cluster.server, &cluster.pod_key(&victim));
    cluster.wait_for_members("j", 2);
    cluster.server.kubelet.set_capacity(&cluster.server, 4);
    cluster.wait_for_members("j", 3);
}

#[test]
fn scaling_goes_through_to_the_pods() {
    let cluster = Cluster::start();
    let _operator = Operator::start(&cluster);
    cluster.submit(&job("j", (1, 2), json!({})));
    cluster.wait_for_members("j", 2);
    let replicas = cluster.get(JOBS, "j").expect("there")["spec"]["workers"]["replicas"].clone();
    assert_eq!(replicas, 2, "the scale subresource needs a number to change");
    cluster.delete(JOBS, "j");
    wait_until("it is gone", || cluster.list(PODS).is_empty());
    // The same name again is another job.
    cluster.submit(&job("j", (1, 2), json!({})));
    cluster.wait_for_members("j", 2);
    cluster.delete(JOBS, "j");
    wait_until("it is gone", || cluster.list(PODS).is_empty());
    cluster.submit(&job("j", (1, 4), json!({"workers": {"replicas": 2}})));
    cluster.wait_for_members("j", 2);
    for replicas in [4, 1, 3] {
        cluster.patch(JOBS, "j", &json!({"spec": {"workers": {"replicas": replicas}}}));
        cluster.wait_for_members("j", replicas);
        wait_until("pods follow", || cluster.pods("j", "worker").len() == replicas as usize);
        wait_until("the scale subresource follows", || {
            let status = cluster.get(JOBS, "j").expect("there")["status"].clone();
            status["replicas"] == replicas && status["workers"]["wanted"] == replicas
        });
    }
    // Every decision can be read with `kubectl describe`.
    let told = |reason: &str, note: &str| {
        let events = cluster.list("/apis/events.k8s.io/v1/events");
        events.iter().any(|event| event["reason"] == reason && event["note"] == note)
    };
    for (reason, note) in [
        ("Scaling", "workers wanted: 4"),
        ("WorkerCreated", "worker 3: a pod is created"),
        ("Scaling", "workers wanted: 1"),
        ("WorkerReleased", "worker 3: it is not wanted any more"),
    ] {
        wait_until(&format!("{reason}: {note}"), || told(reason, note));
    }
}

#[test]
fn a_suspended_job_gives_its_pods_back_and_goes_on_later() {
    let cluster = Cluster::start();
    let _operator = Operator::start(&cluster);
    cluster.submit(&job("j", (1, 2), json!({})));
    cluster.wait_for_members("j", 2);
    cluster.patch(JOBS, "j", &json!({"spec": {"suspend": true}}));
    wait_until("it is suspended", || cluster.phase("j") == "Suspended");
    wait_until("no pod runs", || cluster.server.kubelet.running() == 0);
    let steps = cluster.get(JOBS, "j").expect("there")["status"]["step"].as_u64().expect("steps");
    cluster.patch(JOBS, "j", &json!({"spec": {"suspend": false}}));
    cluster.wait_for_members("j", 2);
    wait_until("it goes on from where it was", || {
        cluster.progress("j").step.is_some_and(|step| step.0 > steps)
    });
    let master = cluster.pods("j", "master").remove(0);
    let args =
        cluster.get(PODS, &master.name).expect("there")["spec"]["containers"][0]["args"].clone();
    assert!(args.as_array().expect("arguments").contains(&json!("--resume")), "{args}");
    cluster.tell_containers("j", "finish");
    wait_until("it is complete", || cluster.phase("j") == "Complete");
}

#[test]
fn a_crash_is_counted_and_quoted_and_too_many_end_the_job() {
    let cluster = Cluster::start();
    let _operator = Operator::start(&cluster);
    cluster.submit(&job("j", (1, 2), json!({})));
    cluster.wait_for_members("j", 2);
    cluster.tell_containers("j", "crash-1");
    wait_until("it is quoted", || crash_message(&cluster, "j").contains("exit code 3: "));
    let message = crash_message(&cluster, "j");
    assert!(
        message.starts_with("worker 1: ") && message.contains("no such file: shard-1"),
        "{message}"
    );
    cluster.wait_for_members("j", 2);
    cluster.tell_containers("j", "crash-0");
    wait_until("it is given up", || cluster.phase("j") == "Failed");
    let status = cluster.get(JOBS, "j").expect("there")["status"].clone();
    let message = status["message"].as_str().expect("a message");
    assert!(message.contains("workers crashed 2 times"), "{message}");
    let failed = status["conditions"].as_array().expect("conditions").iter();
    let failed: Vec<&Value> =
        failed.filter(|c| c["status"] == "True" && c["type"] == "Failed").collect();
    assert_eq!(failed.len(), 1, "{status}");
    wait_until("all containers have ended", || cluster.server.kubelet.running() == 0);
}

#[test]
fn a_hungry_worker_gets_more_memory() {
    let cluster = Cluster::start();
    let _operator = Operator::start(&cluster);
    let resources = json!({"limits": {"memory": "1Gi"}, "requests": {"memory": "1Gi"}});
    cluster.submit(&job(
        "j",
        (1, 2),
        json!({"workers": {"resources": resources, "maxMemory": "2Gi"}}),
    ));
    cluster.wait_for_members("j", 2);
    let victim = cluster.workers("j")[0].clone();
    cluster.server.kubelet.starve(&cluster.pod_key(&victim));
    wait_until("it is replaced", || {
        let now = cluster.workers("j");
        now.len() == 2 && now[0] != victim
    });
    let pod = cluster.get(PODS, &cluster.workers("j")[0]).expect("there");
    let resources = &pod["spec"]["containers"][0]["resources"];
    assert_eq!(resources["limits"]["memory"], "1536Mi");
    assert_eq!(resources["requests"]["memory"], "1536Mi");
    cluster.wait_for_members("j", 2);
}

#[test]
fn a_crashing_master_is_started_again_until_it_is_too_much() {
    let cluster = Cluster::start();
    let _operator = Operator::start(&cluster);
    cluster.tell_containers("j", "crash-master");
    cluster.submit(&job("j", (1, 1), json!({"master": {"maxCrashes": 1}})));
    wait_until("the crash is quoted", || {
        crash_message(&cluster, "j").contains("the journal is on fire")
    });
    cluster.wait_for_members("j", 1);
    wait_until("it is counted", || {
        cluster.get(JOBS, "j").expect("there")["status"]["restarts"]["masterCrashes"] == 1
    });
    cluster.tell_containers("j", "crash-master");
    let master = cluster.pods("j", "master").remove(0).name;
    cluster.server.kubelet.kill(&cluster.pod_key(&master));
    wait_until("it is given up", || cluster.phase("j") == "Failed");
    let message = cluster.get(JOBS, "j").expect("there")["status"]["message"].clone();
    assert!(
        message.as_str().expect("a message").contains("the master crashed 2 times"),
        "{message}"
    );
    wait_until("no worker is left", || cluster.server.kubelet.running() == 0);
}

#[test]
fn two_jobs_that_do_not_fit_together_share_what_there_is() {
    let cluster = Cluster::start();
    let _operator = Operator::start(&cluster);
    // Two masters and three workers.
    cluster.server.kubelet.set_capacity(&cluster.server, 5);
    cluster.submit(&job("a", (1, 2), json!({})));
    cluster.wait_for_members("a", 2);
    let generations = cluster.progress("a").generations;
    cluster.submit(&job("b", (1, 2), json!({})));
    cluster.wait_for_members("b", 1);
    assert_eq!(cluster.progress("a").workers, 2, "both train at the same time");
    wait_until("the second makes steps", || cluster.progress("b").step > Some(StepCount(0)));
    let done = (cluster.progress("a"), cluster.progress("b").step);
    assert_eq!((done.0.generations, done.0.workers), (generations, 2), "the first lost nothing");
    cluster.tell_containers("a", "finish");
    wait_until("the first is complete", || cluster.phase("a") == "Complete");
    // One after the other the second would begin here: it is ahead by what it has done.
    assert!(cluster.progress("b").step >= done.1, "{done:?}");
    cluster.wait_for_members("b", 2);
    cluster.tell_containers("b", "finish");
    wait_until("the second is complete", || cluster.phase("b") == "Complete");
}
