//! A job from outside: with the operator and without.

use salamander_core::elastic::Ending;
use salamander_kube::client::Jobs;
use salamander_kube::job::Job;
use salamander_kube::manifest::Manifest;
use salamander_kube::secrets::Secrets;
use serde_json::{Value, json};

use fake_cluster::{Cluster, How, JOBS, NAMESPACE, Operator, PODS, job, wait_until};

fn secrets() -> Secrets {
    Secrets::random().expect("randomness")
}

fn plain(name: &str) -> Job {
    Job::from_resource(&job(name, (1, 3), json!({}))).expect("a job")
}

#[test]
fn commands_reach_a_job_of_the_operator() {
    let cluster = Cluster::start();
    let _operator = Operator::start(&cluster);
    let jobs = Jobs::new(cluster.client(), NAMESPACE);
    let ask = |call| cluster.runtime.block_on(call);
    assert!(
        ask(jobs.submit(&plain("j"), "", &secrets())).expect("submitted"),
        "the operator has it"
    );
    cluster.wait_for_members("j", 3);
    let runtime = &cluster.runtime;
    runtime.block_on(jobs.scale("j", Some(2), None)).expect("scaled");
    cluster.wait_for_members("j", 2);
    let view = runtime.block_on(jobs.view("j")).expect("seen");
    assert!(view.line().contains("2 of 2 workers"), "{}", view.line());
    assert_eq!(view.json()["progress"]["workers"], 2);
    assert_eq!(view.ended(), None);
    assert_eq!(view.progress.expect("progress").workers, 2);
    assert!(view.resource.expect("a resource").status.is_some());
    assert_eq!(view.pods.iter().filter(|pod| pod.role == "master").count(), 1);
    runtime.block_on(jobs.stop("j")).expect("stopped");
    wait_until("it is suspended", || cluster.phase("j") == "Suspended");
    let view = runtime.block_on(jobs.view("j")).expect("seen");
    assert_eq!(view.ended(), Some(Ending::Interrupted));
    runtime.block_on(jobs.resume("j")).expect("resumed");
    let view = runtime.block_on(jobs.view("j")).expect("seen");
    assert_eq!(view.ended(), None, "it goes on, whether the operator knows it yet or not");
    cluster.wait_for_members("j", 2);
    cluster.tell_containers("j", "finish");
    let mut lines = Vec::new();
    let every = std::time::Duration::from_millis(50);
    let end =
        runtime.block_on(jobs.follow("j", every, |view| lines.push(view.line()))).expect("ended");
    assert_eq!(end, Ending::Completed, "{lines:?}");
    runtime.block_on(jobs.delete("j")).expect("deleted");
    wait_until("nothing is left", || {
        cluster.list(PODS).is_empty() && cluster.list(JOBS).is_empty()
    });
    let error = runtime.block_on(jobs.view("j")).expect_err("gone").to_string();
    assert!(error.contains("there is no job \"j\" in namespace \"ml\""), "{error}");
}

#[test]
fn a_job_without_the_operator_trains_scales_and_stops() {
    let cluster = Cluster::start();
    let jobs = Jobs::new(cluster.client(), NAMESPACE);
    let runtime = &cluster.runtime;
    let missing = "the server could not find the requested resource";
    cluster.fault("POST", "/trainingjobs", 1, How::Refuse(404, "NotFound", missing));
    let experiment = "entrypoint: mnist\ndata: {training: /data/train.recordio}\n";
    let operated =
        runtime.block_on(jobs.submit(&plain("j"), experiment, &secrets())).expect("submitted");
    assert!(!operated);
    cluster.wait_for_members("j", 3);
    for pod in cluster.list(PODS) {
        assert_eq!(pod["metadata"]["ownerReferences"][0]["kind"], "Job", "workers go with the job");
    }
    let master = cluster.pods("j", "master").remove(0).name;
    runtime.block_on(jobs.scale("j", Some(1), None)).expect("scaled");
    cluster.wait_for_members("j", 1);
    let view = runtime.block_on(jobs.view("j")).expect("seen");
    assert!(view.resource.is_none() && view.progress.is_some_and(|progress| progress.wanted == 1));
    runtime.block_on(jobs.stop("j")).expect("stopped");
    let ended = || {
        let master = cluster.get(PODS, &master).expect("kept");
        master["status"]["containerStatuses"][0]["state"]["terminated"].clone()
    };
    wait_until("it has stopped", || cluster.server.kubelet.running() == 0 && ended().is_object());
    assert_eq!(cluster.progress("j").ended(), Some(Ending::Interrupted));
    assert_eq!(ended()["exitCode"], 76, "the job controller does not try again");
    let error = runtime.block_on(jobs.resume("j")).expect_err("no operator").to_string();
    assert!(error.contains("only the operator can go on with it"), "{error}");
    runtime.block_on(jobs.delete("j")).expect("deleted");
    wait_until("nothing is left", || {
        let kinds = ["/api/v1/secrets", "/api/v1/services", "/api/v1/configmaps", PODS];
        kinds.iter().all(|kind| cluster.list(kind).is_empty())
    });
    let error = runtime.block_on(jobs.delete("j")).expect_err("gone").to_string();
    assert!(error.contains("there is no job \"j\""), "{error}");
}

#[test]
fn logs_are_read_and_followed_over_kills_until_the_job_is_over() {
    let cluster = Cluster::start();
    let _operator = Operator::start(&cluster);
    cluster.submit(&job("j", (1, 2), json!({})));
    cluster.wait_for_members("j", 2);
    let jobs = Jobs::new(cluster.client(), NAMESPACE);
    let runtime = &cluster.runtime;
    let mut told = Vec::new();
    let master = runtime.block_on(jobs.logs("j", Some("master"), |pod, line| {
        told.push(format!("{pod}: {line}"));
    }));
    master.expect("read");
    assert!(told.iter().any(|line| line.contains("the master listens")), "{told:?}");
    assert!(told.iter().all(|line| line.starts_with("master: ")), "{told:?}");
    let (jobs, (sender, lines)) = (jobs.clone(), std::sync::mpsc::channel());
    let following = runtime.spawn(async move {
        let every = std::time::Duration::from_millis(50);
        jobs.follow_logs("j", None, every, |pod, line| {
            // A test that has ended hears nothing.
            let _ = sender.send(format!("{pod}: {line}"));
        })
        .await
    });
    let mut heard = Vec::new();
    wait_until("it is followed", || {
        heard.extend(lines.try_iter());
        heard.iter().any(|line: &String| line.starts_with("worker-1: "))
    });
    cluster.tell_containers("j", "crash-1");
    wait_until("the crash is heard", || {
        heard.extend(lines.try_iter());
        heard.iter().any(|line: &String| line == "worker-1: no such file: shard-1")
    });
    wait_until("another takes its place", || {
        let now = cluster.progress("j");
        now.restarts == 1 && now.workers == 2 && now.is_running()
    });
    cluster.tell_containers("j", "finish");
    runtime.block_on(following).expect("no panic").expect("followed to the end");
    heard.extend(lines.try_iter());
    let ends = heard.iter().filter(|line| line.contains("ended: Completed"));
    assert_eq!(ends.count(), 2, "also of the pod that came later: {heard:?}");
}

#[test]
fn a_manifest_has_no_secret_but_in_its_secret() {
    let manifest = Manifest::new(&plain("j"), "entrypoint: mnist\n", &secrets()).expect("made");
    let is_secret = |object: &&Value| object["kind"] == "Secret";
    let secret = manifest.objects().iter().find(is_secret).expect("a secret");
    let files = secret["stringData"].as_object().expect("files");
    let names: Vec<&String> = files.keys().collect();
    assert_eq!(names, ["ca.crt", "tls.crt", "tls.key", "token"]);
    for (name, text) in files {
        let text = serde_json::to_string(text).expect("text");
        let objects = manifest.objects().iter().filter(|object| object.to_string().contains(&text));
        let kinds: Vec<&str> = objects.filter_map(|object| object["kind"].as_str()).collect();
        assert_eq!(kinds, ["Secret"], "{name}");
    }
}
