//! Who may do what: the master may look after the pods of its namespace, all other pods may ask for nothing.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Value, json};

use super::metadata;
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
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": metadata(job, &names::master_account(&job.name), owner),
        "rules": [
            {"apiGroups": [""], "resources": ["pods"], "verbs": pods},
            {"apiGroups": [""], "resources": ["pods/status"], "verbs": ["patch"]},
            {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"]},
        ],
    })
}

/// Gives the master its role.
pub(super) fn role_binding(job: &Job, owner: Option<&OwnerReference>) -> Value {
    let name = names::master_account(&job.name);
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": metadata(job, &name, owner),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": job.namespace}],
    })
}
