//! Two operators: one works, the other waits, and takes over when the first is gone. Jobs do not notice.

use std::time::Duration;

use salamander_kube::operator::lease;
use serde_json::json;

use fake_cluster::{Cluster, How, NAMESPACE, Operator, PODS, job, wait_until};

const LEASES: &str = "/apis/coordination.k8s.io/v1/leases";

fn lease(identity: &str) -> Option<lease::LeaseOptions> {
    Some(lease::LeaseOptions {
        name: "salamander-operator".to_string(),
        namespace: NAMESPACE.to_string(),
        identity: identity.to_string(),
        // Long enough for a busy machine to renew it.
        duration: Duration::from_secs(10),
    })
}

fn leads(operator: &Operator) -> bool {
    operator.metrics.leader.get() == 1
}

fn holder(cluster: &Cluster) -> String {
    let lease = cluster.get(LEASES, "salamander-operator").unwrap_or_default();
    lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_string()
}

#[test]
fn another_operator_takes_over_and_the_job_goes_on() {
    let cluster = Cluster::start();
    let first = Operator::elected(&cluster, lease("first"));
    wait_until("the first leads", || leads(&first));
    let second = Operator::elected(&cluster, lease("second"));
    cluster.submit(&job("j", (1, 2), json!({})));
    cluster.wait_for_members("j", 2);
    assert!(!leads(&second));
    assert_eq!(holder(&cluster), "first");
    let secret = || cluster.list("/api/v1/secrets").remove(0)["stringData"].clone();
    let before = secret();
    first.kill();
    wait_until("the second leads", || leads(&second));
    assert_eq!(holder(&cluster), "second");
    let master = cluster.pods("j", "master").remove(0).name;
    cluster.server.kubelet.kill(&cluster.pod_key(&master));
    wait_until("the second looks after the job", || cluster.get(PODS, "j-master-1").is_some());
    second.leave(&cluster).expect("in order");
    assert_eq!(holder(&cluster), "", "nobody has to wait for it");
    let third = Operator::elected(&cluster, lease("third"));
    wait_until("the third leads", || leads(&third));
    assert_eq!(secret(), before, "token and certificates of a job stay");
    cluster.tell_containers("j", "finish");
    wait_until("it is complete", || cluster.phase("j") == "Complete");
}

#[test]
fn an_operator_that_cannot_renew_its_lease_stops_working() {
    let cluster = Cluster::start();
    let first = Operator::elected(&cluster, lease("first"));
    wait_until("it leads", || leads(&first));
    let other =
        json!({"spec": {"holderIdentity": "other", "renewTime": "2030-01-01T00:00:00.000000Z"}});
    cluster.patch(LEASES, "salamander-operator", &other);
    let error = first.finish(&cluster).expect_err("it does not lead").to_string();
    assert!(error.contains("lost its lease"), "{error}");

    let message = "leases.coordination.k8s.io is forbidden: cannot get resource \"leases\"";
    cluster.fault("GET", "/leases/", 1, How::Refuse(403, "Forbidden", message));
    let error = Operator::elected(&cluster, lease("x"))
        .finish(&cluster)
        .expect_err("no rights")
        .to_string();
    assert!(error.starts_with("taking the lease salamander-operator: "), "{error}");
}
