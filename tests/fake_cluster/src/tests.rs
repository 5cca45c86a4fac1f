//! The cluster of the tests does what a real one was seen to do. Containers are this program, which finds no such role
//! and ends well at once.

use serde_json::{Value, json};

use super::*;
use crate::access::Wish;

const MAPS: &str = "/api/v1/configmaps";

fn key(resource: &str, name: &str) -> Key {
    (resource.to_string(), NAMESPACE.to_string(), name.to_string())
}

fn owner(uid: &Value, controller: bool) -> Value {
    let mut owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": uid});
    if controller {
        owner["controller"] = true.into();
    }
    owner
}

fn uid(cluster: &Cluster, resource: &str, name: &str) -> Value {
    cluster.get(resource, name).expect("there")["metadata"]["uid"].clone()
}

fn batch_job() -> Value {
    json!({"metadata": {}, "spec": {"backoffLimit": 1, "template": {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "salamander", "args": ["none"]}]},
    }}})
}

fn pods_of(cluster: &Cluster) -> Vec<Value> {
    let pods = cluster.list(PODS).into_iter();
    pods.filter(|pod| pod["metadata"]["labels"]["job-name"] == "j").collect()
}

/// A container that waits for a place keeps its pod where it is.
fn full(cluster: &Cluster) {
    cluster.server.kubelet.set_capacity(&cluster.server, 0);
}

#[test]
fn the_job_controller_releases_children_without_its_label_and_leaves_other_dependents() {
    let cluster = Cluster::start();
    full(&cluster);
    cluster.put(BATCH_JOBS, "j", batch_job());
    let job = uid(&cluster, BATCH_JOBS, "j");
    let pod = |controller| json!({"metadata": {"ownerReferences": [owner(&job, controller)]}});
    cluster.put(PODS, "dependent", pod(false));
    cluster.put(PODS, "child", pod(true));
    wait_until("the child is released", || {
        cluster.get(PODS, "child").expect("there")["metadata"]["ownerReferences"] == json!([])
    });
    assert_eq!(
        cluster.get(PODS, "dependent").expect("there")["metadata"]["ownerReferences"][0]["uid"],
        job
    );
    wait_until("it has a pod of its own", || pods_of(&cluster).len() == 1);
    cluster.delete(BATCH_JOBS, "j");
    wait_until("what it owned went with it", || cluster.get(PODS, "dependent").is_none());
    wait_until("its own pod too", || pods_of(&cluster).is_empty());
    assert!(cluster.get(PODS, "child").is_some(), "nobody owns it any more");
}

#[test]
fn the_job_controller_replaces_its_pod_until_one_succeeds() {
    let cluster = Cluster::start();
    full(&cluster);
    cluster.put(BATCH_JOBS, "j", batch_job());
    wait_until("a pod", || pods_of(&cluster).len() == 1);
    let first = pods_of(&cluster)[0]["metadata"]["name"].clone();
    cluster.delete(PODS, first.as_str().expect("a name"));
    wait_until("another", || pods_of(&cluster).iter().any(|pod| pod["metadata"]["name"] != first));
    cluster.server.kubelet.set_capacity(&cluster.server, 1);
    wait_until("it is complete", || {
        let job = cluster.get(BATCH_JOBS, "j").expect("there");
        job["status"]["conditions"][0]["type"] == "Complete"
    });
}

#[test]
fn the_garbage_collector_removes_what_nobody_owns_and_takes_its_time() {
    let cluster = Cluster::start();
    for name in ["one", "two"] {
        cluster.put(MAPS, name, json!({"metadata": {}}));
    }
    let owners = ["one", "two"].map(|name| owner(&uid(&cluster, MAPS, name), false));
    cluster.put(MAPS, "both", json!({"metadata": {"ownerReferences": owners}}));
    cluster.put(MAPS, "mine", json!({"metadata": {"ownerReferences": [owners[0]]}}));
    cluster.put(
        MAPS,
        "nobody",
        json!({"metadata": {"ownerReferences": [owner(&json!("x"), false)]}}),
    );
    wait_until("an owner that never was", || cluster.get(MAPS, "nobody").is_none());
    cluster.server.controllers.hold_collector(true);
    cluster.delete(MAPS, "one");
    assert!(cluster.get(MAPS, "mine").is_some());
    cluster.server.controllers.hold_collector(false);
    cluster.put(MAPS, "something", json!({"metadata": {}}));
    wait_until("its only owner is gone", || cluster.get(MAPS, "mine").is_none());
    wait_until("one of its owners is gone", || {
        let both = cluster.get(MAPS, "both").expect("there");
        both["metadata"]["ownerReferences"] == json!([owners[1]])
    });
}

#[test]
fn a_claim_stays_while_a_pod_uses_it() {
    let cluster = Cluster::start();
    full(&cluster);
    cluster.put(CLAIMS, "data", json!({"metadata": {}, "spec": {}}));
    let volumes = json!([{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]);
    cluster.put(PODS, "user", json!({"metadata": {}, "spec": {"volumes": volumes}}));
    cluster.delete(CLAIMS, "data");
    cluster.put(MAPS, "something", json!({"metadata": {}}));
    let claim = cluster.get(CLAIMS, "data").expect("it is protected");
    assert!(claim["metadata"]["deletionTimestamp"].is_string(), "{claim}");
    cluster.delete(PODS, "user");
    wait_until("nobody uses it", || cluster.get(CLAIMS, "data").is_none());
}

#[test]
fn a_namespace_refuses_in_the_words_of_a_real_one() {
    let cluster = Cluster::start();
    cluster.set_quota("pods", 0);
    let refusal = |object: Value| {
        let refused = cluster.server.admit(&key(PODS, "p"), &object);
        refused.expect_err("refused").2
    };
    let quota = "pods \"p\" is forbidden: exceeded quota: compute, requested: pods=1, used: pods=0, limited: pods=0";
    assert_eq!(refusal(json!({})), quota);
    cluster.delete(QUOTAS, "compute");
    cluster.enforce_pod_security("restricted");
    let text = refusal(json!({"spec": {"containers": [{"name": "c"}],
        "volumes": [{"name": "v", "hostPath": {"path": "/"}}]}}));
    assert!(
        text.starts_with("pods \"p\" is forbidden: violates PodSecurity \"restricted:latest\": "),
        "{text}"
    );
    for part in ["hostPath", "allowPrivilegeEscalation", "capabilities", "runAsNonRoot", "seccomp"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn accounts_may_do_what_roles_give_them() {
    let cluster = Cluster::start();
    full(&cluster);
    let refused = |token: &str, verb: &'static str, resource: &str, name: &str| {
        let token = HeaderValue::try_from(format!("Bearer {token}")).expect("a header");
        let headers: HeaderMap = [(AUTHORIZATION, token)].into_iter().collect();
        let wish = Wish { verb, key: &key(resource, name), part: "" };
        cluster.server.authorize(&headers, &wish).err().map(|(_, _, text)| text)
    };
    let secrets = "/api/v1/secrets";
    assert_eq!(refused("operator", "create", secrets, ""), None);
    let text = "secrets \"x\" is forbidden: User \"system:serviceaccount:salamander-system:salamander-operator\" \
                cannot get resource \"secrets\" in API group \"\" in the namespace \"ml\"";
    assert_eq!(refused("operator", "get", secrets, "x").as_deref(), Some(text));
    cluster.put(PODS, "p", json!({"metadata": {}, "spec": {"serviceAccountName": "a"}}));
    let role = json!({"rules": [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
        {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["own"], "verbs": ["patch"]},
    ]});
    cluster.put("/apis/rbac.authorization.k8s.io/v1/roles", "r", role);
    assert!(refused("ml/p", "list", PODS, "").is_some(), "nobody gave it the role");
    let subjects = json!([{"kind": "ServiceAccount", "name": "a", "namespace": NAMESPACE}]);
    let binding = json!({"roleRef": {"name": "r"}, "subjects": subjects});
    cluster.put("/apis/rbac.authorization.k8s.io/v1/rolebindings", "b", binding);
    assert_eq!(refused("ml/p", "list", PODS, ""), None);
    assert_eq!(refused("ml/p", "patch", secrets, "own"), None);
    assert!(refused("ml/p", "patch", secrets, "other").is_some());
    assert!(refused("ml/p", "list", secrets, "").is_some());
}

#[test]
fn what_is_fixed_cannot_be_applied_over() {
    let cluster = Cluster::start();
    let apply = |data: &str| {
        let map = json!({"metadata": {"name": "m"}, "data": {"a": data}, "immutable": true});
        cluster.server.store().apply(key(MAPS, "m"), &map, ("kubectl", false, false))
    };
    apply("1").expect("made");
    apply("1").expect("the same again");
    assert_eq!(apply("2").expect_err("fixed").0, 422);
    let other = json!({"metadata": {"name": "m", "uid": "other"}});
    let refused = cluster.server.store().apply(key(MAPS, "m"), &other, ("me", true, false));
    assert_eq!(refused.expect_err("another one").0, 409);
}
