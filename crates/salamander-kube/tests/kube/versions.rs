//! The way of the custom resource from `v1alpha1` to `v1beta1`, and operators of several namespaces beside each other.

use kube::api::{Api, DynamicObject, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use salamander_kube::crd::{NEXT, definition, next_definition};
use salamander_kube::experiment;
use salamander_kube::job::Job;
use salamander_kube::manifest::Manifest;
use salamander_kube::secrets::Secrets;
use serde_json::{Value, json};

use fake_cluster::{Cluster, JOBS, NAMESPACE, Operator, PODS, job, wait_until};

use crate::manifests::validate;

/// Jobs as a client of the next version sees them.
fn next_jobs(cluster: &Cluster) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("salamander.dev", NEXT, "TrainingJob");
    Api::namespaced_with(cluster.client(), NAMESPACE, &ApiResource::from_gvk(&kind))
}

#[test]
fn on_the_way_to_the_next_version_both_are_served_and_one_is_stored() {
    let [before, after] = [definition(), next_definition()].map(|made| json!(made));
    let old = &before["spec"]["versions"][0];
    let versions = after["spec"]["versions"].as_array().expect("versions");
    let names: Vec<(&Value, &Value, &Value)> =
        versions.iter().map(|v| (&v["name"], &v["served"], &v["storage"])).collect();
    let (yes, no) = (json!(true), json!(false));
    assert_eq!(names, [(&json!("v1beta1"), &yes, &yes), (&json!("v1alpha1"), &yes, &no)]);
    for version in versions {
        // So that no webhook is needed: what was stored as one is the other by its name alone.
        for part in ["schema", "subresources", "additionalPrinterColumns"] {
            assert_eq!(version[part], old[part], "{part}");
        }
    }
    let strategy = &after["spec"]["conversion"]["strategy"];
    assert!(strategy.is_null() || strategy == "None", "{strategy}");
    if let Ok(python) = std::env::var("SALAMANDER_PYTHON") {
        validate(&python, "next definition", &[after]);
    }
}

#[test]
fn a_job_trains_on_while_it_is_migrated_to_the_next_version() {
    let cluster = Cluster::start();
    let operator = Operator::start(&cluster);
    cluster.submit(&job("old", (1, 2), json!({})));
    cluster.wait_for_members("old", 2);
    let pods = || {
        let mut names: Vec<String> = cluster.workers("old");
        names.extend(cluster.pods("old", "master").into_iter().map(|pod| pod.name));
        names
    };
    let (before, generations) = (pods(), cluster.progress("old").generations);
    // As `kubectl get tj -A -o json | kubectl replace -f -` does; the operator may write in between.
    let jobs = next_jobs(&cluster);
    let replaced = cluster.runtime.block_on(async {
        loop {
            let found = jobs.get("old").await.expect("found");
            assert_eq!(found.types.as_ref().expect("a type").api_version, "salamander.dev/v1beta1");
            match jobs.replace("old", &PostParams::default(), &found).await {
                Ok(replaced) => return replaced,
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => panic!("{error}"),
            }
        }
    });
    assert_eq!(replaced.data["spec"]["workers"]["max"], 2);
    assert_eq!(replaced.types.as_ref().expect("a type").api_version, "salamander.dev/v1beta1");
    // An operator that is started now reads what was migrated, as the version that it knows.
    operator.leave(&cluster).expect("in order");
    let _operator = Operator::start(&cluster);
    let object = json!(job("new", (1, 1), json!({})));
    let mut object: DynamicObject = serde_json::from_value(object).expect("an object");
    if let Some(types) = &mut object.types {
        types.api_version = "salamander.dev/v1beta1".to_string();
    }
    let made = cluster.runtime.block_on(jobs.create(&PostParams::default(), &object));
    made.expect("made as the next version");
    cluster.wait_for_members("new", 1);
    let steps = cluster.progress("old").step;
    wait_until("it trains on", || cluster.progress("old").step > steps);
    assert_eq!(pods(), before, "nothing was started again");
    assert_eq!(cluster.progress("old").generations, generations);
    for name in ["old", "new"] {
        cluster.tell_containers(name, "finish");
        wait_until("it is complete", || cluster.phase(name) == "Complete");
        let deleted = cluster.runtime.block_on(jobs.delete(name, &Default::default()));
        deleted.expect("deleted as the next version");
    }
    wait_until("nothing is left", || cluster.list(PODS).is_empty());
}

/// The files of a job as the first version wrote them: its secret had no name of its own, and nobody spoke of
/// contracts.
#[test]
fn a_job_that_an_older_operator_began_goes_on_as_it_was_begun() {
    let cluster = Cluster::start();
    let _operator = Operator::start(&cluster);
    let resource = job("j", (1, 1), json!({"suspend": true}));
    cluster.submit(&resource);
    wait_until("it is suspended", || cluster.phase("j") == "Suspended");
    let uid = cluster.get(JOBS, "j").expect("there")["metadata"]["uid"].clone();
    let owner = json!([{"apiVersion": "salamander.dev/v1alpha1", "kind": "TrainingJob", "name": "j",
        "uid": uid, "controller": true}]);
    let made = Job::from_resource(&resource).expect("a job");
    let text = "entrypoint: mnist_conv16\ndata: {training: /data/train.recordio}\n";
    let text = experiment::in_force(text, &made, 7).expect("right");
    let secrets = Secrets::random().expect("randomness");
    let files = Manifest::new(&made, &text, &secrets).expect("made");
    for (kind, resource) in [("ConfigMap", "/api/v1/configmaps"), ("Secret", "/api/v1/secrets")] {
        let mut objects = files.objects().iter();
        let mut object = objects.find(|object| object["kind"] == kind).expect("made").clone();
        object["metadata"]["ownerReferences"] = owner.clone();
        if kind == "ConfigMap" {
            let written = object["data"]["job.json"].as_str().expect("a job");
            let mut first: Value = serde_json::from_str(written).expect("JSON");
            let fields = first.as_object_mut().expect("a map");
            fields.retain(|name, _| ["name", "namespace", "spec"].contains(&name.as_str()));
            object["data"]["job.json"] = first.to_string().into();
        }
        let name = object["metadata"]["name"].as_str().expect("a name").to_string();
        cluster.put(resource, &name, object);
    }
    cluster.patch(JOBS, "j", &json!({"spec": {"suspend": false}}));
    cluster.wait_for_members("j", 1);
    for pod in cluster.list(PODS) {
        let volumes = pod["spec"]["volumes"].as_array().expect("volumes").iter();
        let names: Vec<&Value> = volumes
            .map(|volume| &volume["secret"]["secretName"])
            .filter(|n| n.is_string())
            .collect();
        assert_eq!(names, ["j-token"], "{pod}");
    }
    cluster.tell_containers("j", "finish");
    wait_until("it is complete", || cluster.phase("j") == "Complete");
}

#[test]
fn operators_of_several_namespaces_leave_each_others_jobs_alone() {
    let cluster = Cluster::start();
    let other = "team-b";
    let object = |name: &str| json!(job(name, (1, 1), json!({})));
    let key =
        |resource: &str, name: &str| (resource.to_string(), other.to_string(), name.to_string());
    let theirs = || cluster.server.store().list(PODS, other).len();
    cluster.server.store().create(key(JOBS, "theirs"), object("theirs")).expect("made");
    let ours = Operator::start(&cluster);
    cluster.submit(&job("ours", (1, 1), json!({})));
    cluster.wait_for_members("ours", 1);
    assert_eq!(theirs(), 0, "nobody looks after that namespace");
    let status = |name: &str| {
        let job = cluster.server.store().get(&key(JOBS, name)).cloned().unwrap_or_default();
        job["status"].clone()
    };
    assert!(status("theirs").is_null());
    let _second = Operator::of_namespace(&cluster, other);
    wait_until("it trains", || status("theirs")["phase"] == "Running");
    ours.leave(&cluster).expect("in order");
    cluster.tell_containers("theirs", "finish");
    wait_until("it is complete", || status("theirs")["phase"] == "Complete");
    cluster.submit(&job("later", (1, 1), json!({})));
    cluster.server.store().create(key(JOBS, "last"), object("last")).expect("made");
    wait_until("it trains", || status("last")["phase"] == "Running");
    assert!(cluster.get(PODS, "later-master-0").is_none(), "its own operator is gone");
}
