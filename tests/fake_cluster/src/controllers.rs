//! What a cluster's own controllers do, as their documentation and a real cluster (1.34) have it: the Job controller
//! claims, releases and replaces pods, the garbage collector removes what nobody owns any more, and a claim stays
//! while a pod uses it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::http::Server;
use crate::kubelet::PODS;
use crate::store::{Key, TRACKING, finalizers, is_leaving};

/// Kubernetes' own jobs.
pub const BATCH_JOBS: &str = "/apis/batch/v1/jobs";
/// Claims of volumes.
pub const CLAIMS: &str = "/api/v1/persistentvolumeclaims";
/// Keeps a claim while a pod uses it.
const PROTECTION: &str = "kubernetes.io/pvc-protection";

/// What a test may hold up.
#[derive(Default)]
pub struct Controllers {
    collector_held: AtomicBool,
}

impl Controllers {
    /// The garbage collector of a busy cluster takes its time: it does nothing until it is let go.
    pub fn hold_collector(&self, held: bool) {
        self.collector_held.store(held, Ordering::Release);
    }
}

/// Follows the store until the test ends.
pub(crate) async fn run(server: Arc<Server>) {
    let mut news = server.store().news.subscribe();
    loop {
        news.borrow_and_update();
        pass(&server);
        if news.changed().await.is_err() {
            return;
        }
    }
}

fn pass(server: &Arc<Server>) {
    let jobs = server.store().list(BATCH_JOBS, "");
    for (key, job) in jobs {
        if !is_leaving(&job) {
            claim_and_release(server, &key, &job);
            let pods = owned(server, &job);
            count_ends(server, &pods);
            keep_running(server, &key, &job, &pods);
        }
    }
    untrack(server);
    protect_claims(server);
    if !server.controllers.collector_held.load(Ordering::Acquire) {
        collect(server);
    }
}

/// Adopts pods that its selector matches, and takes its reference away from those that it does not.
fn claim_and_release(server: &Arc<Server>, key: &Key, job: &Value) {
    let uid = &job["metadata"]["uid"];
    let pods = server.store().list(PODS, &key.1);
    for (pod, object) in pods {
        let controller = references(&object).iter().find(|owner| owner["controller"] == true);
        let matches = matches(&object, &job["spec"]["selector"]["matchLabels"]);
        match controller {
            Some(owner) if owner["uid"] == *uid && !matches => {
                server.store().update(&pod, |pod| drop_owner(pod, uid));
            }
            None if matches && !is_leaving(&object) => {
                let own = reference(key, job);
                server.store().update(&pod, |pod| {
                    let mut owners = references(pod).to_vec();
                    owners.push(own);
                    pod["metadata"]["ownerReferences"] = owners.into();
                });
            }
            _ => {}
        }
    }
}

/// The pods that a job controls.
fn owned(server: &Arc<Server>, job: &Value) -> Vec<(Key, Value)> {
    let controls = |pod: &Value| {
        let mut owners = references(pod).iter();
        owners.any(|owner| owner["uid"] == job["metadata"]["uid"] && owner["controller"] == true)
    };
    let mut pods = server.store().list(PODS, "");
    pods.retain(|(_, pod)| controls(pod));
    pods
}

/// A pod that has ended is counted, and let go.
fn count_ends(server: &Arc<Server>, pods: &[(Key, Value)]) {
    for (key, pod) in pods {
        if is_done(pod) && finalizers(pod).contains(&TRACKING) {
            server.store().drop_finalizer(key, TRACKING);
            server.sweep(key);
        }
    }
}

/// Pods of jobs that are gone are not tracked any more.
fn untrack(server: &Arc<Server>) {
    let pods = server.store().list(PODS, "");
    for (key, pod) in pods {
        let tracked = finalizers(&pod).contains(&TRACKING);
        let controlled = references(&pod)
            .iter()
            .any(|owner| owner["controller"] == true && server.store().has_uid(&owner["uid"]));
        if tracked && !controlled {
            server.store().drop_finalizer(&key, TRACKING);
            server.sweep(&key);
        }
    }
}

/// One pod at a time, until one succeeds, too many fail, or the failure policy says that it is over. A real cluster
/// waits 10 s and more before it replaces one that failed.
fn keep_running(server: &Arc<Server>, key: &Key, job: &Value, pods: &[(Key, Value)]) {
    let is_over = |condition: &Value| condition["status"] == "True";
    if job["status"]["conditions"].as_array().is_some_and(|all| all.iter().any(is_over)) {
        return;
    }
    let mut failed = job["status"]["failed"].as_u64().unwrap_or(0);
    let counted = &job["status"]["counted"];
    let mut seen: BTreeSet<String> = serde_json::from_value(counted.clone()).unwrap_or_default();
    let mut end = None;
    for (pod_key, pod) in pods.iter().filter(|(_, pod)| has_ended(pod)) {
        if !seen.insert(pod_key.2.clone()) {
            continue;
        }
        if pod["status"]["phase"] == "Succeeded" {
            end = Some("Complete");
            continue;
        }
        match failure_action(job, pod) {
            Some("FailJob") => end = Some("Failed"),
            Some("Ignore") => {}
            _ => failed += 1,
        }
    }
    if failed > job["spec"]["backoffLimit"].as_u64().unwrap_or(6) {
        end = Some("Failed");
    }
    let (before, now) = (counted.clone(), json!(seen));
    if before != now {
        server.store().update(key, |job| {
            job["status"]["counted"] = now;
            job["status"]["failed"] = failed.into();
            if let Some(end) = end {
                job["status"]["conditions"] = json!([{"type": end, "status": "True"}]);
            }
        });
    }
    // With podReplacementPolicy Failed a pod that still ends is waited for.
    if end.is_none() && pods.iter().all(|(_, pod)| is_done(pod)) {
        create_pod(server, key, job);
    }
}

fn create_pod(server: &Arc<Server>, key: &Key, job: &Value) {
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod"});
    pod["metadata"] = job["spec"]["template"]["metadata"].clone();
    pod["spec"] = job["spec"]["template"]["spec"].clone();
    pod["metadata"]["ownerReferences"] = json!([reference(key, job)]);
    pod["metadata"]["finalizers"] = json!([TRACKING]);
    let name = format!("{}-{}", key.2, server.store().version);
    let key = (PODS.to_string(), key.1.clone(), name);
    // A quota or a policy refuses: the next change tries again.
    if server.admit(&key, &pod).is_ok() && server.store().create(key.clone(), pod).is_ok() {
        server.kubelet.look(server, &key);
    }
}

/// What the failure policy says of a pod, by the first rule that fits.
fn failure_action<'a>(job: &'a Value, pod: &Value) -> Option<&'a str> {
    let state = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
    let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let fits = |rule: &&Value| {
        let codes = rule["onExitCodes"]["values"].as_array();
        let by_code = codes.is_some_and(|codes| codes.contains(&state["exitCode"]));
        let wanted = rule["onPodConditions"].as_array();
        let by_condition = wanted.is_some_and(|wanted| {
            let has = |w: &Value| {
                conditions.iter().any(|c| c["type"] == w["type"] && c["status"] == w["status"])
            };
            wanted.iter().any(has)
        });
        by_code || by_condition
    };
    job["spec"]["podFailurePolicy"]["rules"].as_array()?.iter().find(fits)?["action"].as_str()
}

/// A claim that is to go stays while a pod that has not ended names it.
fn protect_claims(server: &Arc<Server>) {
    let claims = server.store().list(CLAIMS, "");
    for (key, claim) in claims {
        if !is_leaving(&claim) || !finalizers(&claim).contains(&PROTECTION) {
            continue;
        }
        let uses = |pod: &Value| {
            let mut volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
            !has_ended(pod)
                && volumes.any(|v| v["persistentVolumeClaim"]["claimName"] == key.2.as_str())
        };
        let pods = server.store().list(PODS, &key.1);
        if !pods.iter().any(|(_, pod)| uses(pod)) {
            server.store().drop_finalizer(&key, PROTECTION);
            server.sweep(&key);
        }
    }
}

/// Removes what has owners of which none is there any more, and references to those that are gone from the rest.
fn collect(server: &Arc<Server>) {
    let all = server.store().all();
    for (key, object) in all {
        let owners = references(&object);
        let (there, gone): (Vec<&Value>, Vec<&Value>) =
            owners.iter().partition(|owner| server.store().has_uid(&owner["uid"]));
        if gone.is_empty() || (there.is_empty() && is_leaving(&object)) {
            continue;
        }
        if there.is_empty() {
            server
                .end(&key, object["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(30));
            continue;
        }
        for owner in gone {
            let uid = &owner["uid"];
            server.store().update(&key, |object| drop_owner(object, uid));
        }
    }
}

fn reference(key: &Key, job: &Value) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job", "name": key.2, "uid": job["metadata"]["uid"],
        "controller": true, "blockOwnerDeletion": true,
    })
}

fn references(object: &Value) -> &[Value] {
    object["metadata"]["ownerReferences"].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn drop_owner(object: &mut Value, uid: &Value) {
    let mut owners = references(object).to_vec();
    owners.retain(|owner| owner["uid"] != *uid);
    object["metadata"]["ownerReferences"] = owners.into();
}

fn matches(object: &Value, labels: &Value) -> bool {
    let mut wanted = labels.as_object().into_iter().flatten().peekable();
    wanted.peek().is_some()
        && wanted.all(|(name, value)| object["metadata"]["labels"][name] == *value)
}

fn has_ended(pod: &Value) -> bool {
    pod["status"]["phase"] == "Succeeded" || pod["status"]["phase"] == "Failed"
}

/// Whether nothing of a pod will ever run again.
fn is_done(pod: &Value) -> bool {
    let started = pod["status"]["phase"].as_str().is_some_and(|phase| phase != "Pending");
    has_ended(pod) || (is_leaving(pod) && !started)
}
