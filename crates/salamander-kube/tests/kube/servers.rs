//! Parameter servers as pods: they are started with the job, replaced when they are lost, scaled, kept over the death
//! of a master, and gone with the job.

use salamander_kube::client::Jobs;
use salamander_kube::crd::TrainingJob;
use serde_json::{Value, json};

use fake_cluster::{Cluster, JOBS, NAMESPACE, Operator, PODS, job, wait_until};

fn served(name: &str, replicas: u32, more: Value) -> TrainingJob {
    let mut ps = json!({"replicas": replicas});
    for (key, value) in more.as_object().into_iter().flatten() {
        ps[key] = value.clone();
    }
    job(name, (1, 2), json!({"strategy": "hybrid", "ps": ps}))
}

/// The names of the pods of servers that run.
fn servers(cluster: &Cluster, job: &str) -> Vec<String> {
    let pods = cluster.pods(job, "ps").into_iter();
    pods.filter(|pod| pod.phase == "Running" && !pod.leaving).map(|pod| pod.name).collect()
}

fn status(cluster: &Cluster, job: &str) -> Value {
    cluster.get(JOBS, job).expect("there")["status"].clone()
}

/// All members train with so many servers, and the operator knows it.
fn wait_for_servers(cluster: &Cluster, job: &str, wanted: u32) {
    cluster.wait_for_members(job, 2);
    wait_until(&format!("{wanted} servers"), || {
        let told = cluster.progress(job);
        let ps = status(cluster, job)["ps"].clone();
        told.servers == wanted
            && told.is_running()
            && servers(cluster, job).len() == wanted as usize
            && ps == json!({"wanted": wanted, "ready": wanted})
    });
}

fn is_ready(cluster: &Cluster, name: &str) -> bool {
    let pod = cluster.get(PODS, name).unwrap_or_default();
    let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.iter().any(|c| c["type"] == "salamander.dev/member" && c["status"] == "True")
}

#[test]
fn a_killed_server_is_replaced_and_training_goes_on() {
    let cluster = Cluster::start();
    let _operator = Operator::start(&cluster);
    cluster.submit(&served("j", 2, json!({})));
    wait_for_servers(&cluster, "j", 2);
    let before = servers(&cluster, "j");
    wait_until("servers are ready", || before.iter().all(|name| is_ready(&cluster, name)));
    let generation = cluster.progress("j").generation;
    cluster.server.kubelet.kill(&cluster.pod_key(&before[1]));
    wait_until("another takes its place", || {
        let now = servers(&cluster, "j");
        now.len() == 2 && now[1] != before[1]
    });
    wait_for_servers(&cluster, "j", 2);
    assert_eq!(servers(&cluster, "j")[0], before[0], "the other one stays");
    wait_until("its rows are those of a checkpoint", || {
        cluster.progress("j").generation != generation
    });
    wait_until("it is counted", || status(&cluster, "j")["restarts"]["ps"] == 1);
    assert_eq!(status(&cluster, "j")["restarts"]["worker"], 0);
    // A more important pod takes the place of the other one.
    cluster.server.kubelet.preempt(&cluster.server, &cluster.pod_key(&before[0]));
    wait_until("it comes back", || status(&cluster, "j")["restarts"]["ps"] == 2);
    wait_for_servers(&cluster, "j", 2);
    let steps = cluster.progress("j").step.unwrap_or_default();
    wait_until("training goes on", || cluster.progress("j").step.is_some_and(|now| now > steps));
    cluster.tell_containers("j", "finish");
    wait_until("it is complete", || cluster.phase("j") == "Complete");
    wait_until("servers end by themselves", || cluster.server.kubelet.running() == 0);
    cluster.delete(JOBS, "j");
    wait_until("nothing is left", || cluster.list(PODS).is_empty());
}

#[test]
fn servers_outlive_their_master() {
    let cluster = Cluster::start();
    let _operator = Operator::start(&cluster);
    cluster.submit(&served("j", 2, json!({})));
    wait_for_servers(&cluster, "j", 2);
    let (before, workers) = (servers(&cluster, "j"), cluster.workers("j"));
    let master = cluster.pods("j", "master").remove(0).name;
    cluster.server.kubelet.kill(&cluster.pod_key(&master));
    wait_until("another master leads", || {
        let masters = cluster.pods("j", "master");
        masters.first().is_some_and(|pod| pod.name != master) && cluster.progress("j").servers == 2
    });
    wait_for_servers(&cluster, "j", 2);
    assert_eq!((servers(&cluster, "j"), cluster.workers("j")), (before, workers));
    assert_eq!(cluster.progress("j").server_restarts, 0);
}

#[test]
fn the_number_of_servers_changes_while_the_job_runs() {
    let cluster = Cluster::start();
    let _operator = Operator::start(&cluster);
    let jobs = Jobs::new(cluster.client(), NAMESPACE);
    let runtime = &cluster.runtime;
    cluster.submit(&served("j", 1, json!({})));
    wait_for_servers(&cluster, "j", 1);
    for wanted in [3, 2] {
        runtime.block_on(jobs.scale("j", None, Some(wanted))).expect("scaled");
        wait_for_servers(&cluster, "j", wanted);
    }
    let view = runtime.block_on(jobs.view("j")).expect("seen");
    assert!(view.line().contains("2 of 2 parameter servers"), "{}", view.line());
    let events = cluster.list("/apis/events.k8s.io/v1/events");
    let changed = events.iter().any(|event| event["reason"] == "ExperimentChanged");
    assert!(!changed, "the number of servers is not part of the experiment");
    let (settled, steps) = (servers(&cluster, "j"), cluster.progress("j").step.unwrap_or_default());
    wait_until("training goes on", || {
        cluster.progress("j").step.is_some_and(|now| now.since(steps) > 20)
    });
    assert_eq!(servers(&cluster, "j"), settled, "what is wanted is asked for once");
    cluster.submit(&job("ring", (1, 1), json!({})));
    cluster.wait_for_members("ring", 1);
    let error = runtime.block_on(jobs.scale("ring", None, Some(2))).expect_err("refused");
    assert!(error.to_string().contains("job ring has no parameter servers"), "{error}");
}

#[test]
fn a_server_that_breaks_is_quoted_and_a_hungry_one_gets_more_memory() {
    let cluster = Cluster::start();
    let _operator = Operator::start(&cluster);
    let resources = json!({"limits": {"memory": "1Gi"}, "requests": {"memory": "1Gi"}});
    cluster.tell_containers("j", "crash-ps-1");
    cluster.submit(&served("j", 2, json!({"resources": resources, "maxMemory": "2Gi"})));
    wait_until("it is quoted", || {
        let crash = status(&cluster, "j")["lastCrash"].clone();
        let crash = crash.as_str().unwrap_or_default().to_string();
        crash.starts_with("ps 1: ") && crash.contains("the rows do not fit")
    });
    wait_for_servers(&cluster, "j", 2);
    let victim = servers(&cluster, "j")[0].clone();
    cluster.server.kubelet.starve(&cluster.pod_key(&victim));
    wait_until("it is replaced", || {
        let now = servers(&cluster, "j");
        now.len() == 2 && now[0] != victim
    });
    let pod = cluster.get(PODS, &servers(&cluster, "j")[0]).expect("there");
    let resources = &pod["spec"]["containers"][0]["resources"];
    assert_eq!(resources["limits"]["memory"], "1536Mi");
    wait_for_servers(&cluster, "j", 2);
    let worker = cluster.get(PODS, &cluster.workers("j")[0]).expect("there");
    assert!(worker["spec"]["containers"][0]["resources"]["limits"].is_null(), "only servers were");
}
