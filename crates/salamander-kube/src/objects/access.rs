//! Who may do what: the master may look after the pods of its namespace, all other pods may ask for nothing.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Value, json};

use super::{belongings, metadata};
use crate::job::Job;
use crate::names;

/// The account of the master, or of all other pods, which has no rights and no token.
pub(super) fn account(job: &Job, name: &str, owner: Option<&OwnerReference>) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": metadata(job, name, owner),
        // Pods that need one say so themselves.
        "automountServiceAccountToken": false,
    })
}

/// What the master may do.
pub fn role(job: &Job, owner: Option<&OwnerReference>) -> Value {
    let pods = ["get", "list", "watch", "create", "delete", "patch"];
    let mut rules = vec![
        json!({"apiGroups": [""], "resources": ["pods"], "verbs": pods}),
        json!({"apiGroups": [""], "resources": ["pods/status"], "verbs": ["patch"]}),
        json!({"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"]}),
    ];
    if owner.is_none() {
        rules.extend(ownership_rules(job));
    }
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": metadata(job, &names::master_account(&job.name), owner),
        "rules": rules,
    })
}

/// What the master of a manifest may do to the other objects of that manifest, and to no others: say whom they go with.
/// Some clusters want the right to delete from whoever says that.
fn ownership_rules(job: &Job) -> Vec<Value> {
    let rule = |(group, kind, name): (&str, &str, String)| {
        let resource = match kind {
            "NetworkPolicy" => "networkpolicies".to_string(),
            kind => format!("{}s", kind.to_lowercase()),
        };
        json!({
            "apiGroups": [group], "resources": [resource], "resourceNames": [name],
            "verbs": ["patch", "delete"],
        })
    };
    belongings(job).into_iter().map(rule).collect()
}

/// Gives the master its role.
pub(super) fn role_binding(job: &Job, owner: Option<&OwnerReference>) -> Value {
    let name = names::master_account(&job.name);
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": metadata(job, &name, owner),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{
            "kind": "ServiceAccount", "name": job.master_account(), "namespace": job.namespace,
        }],
    })
}
