//! Who may do what: the master may look after the pods of its namespace, all other pods may ask for nothing.

use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{PolicyRule, Role, RoleBinding, RoleRef, Subject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use super::metadata;
use crate::job::Job;
use crate::names;

/// The account of the master.
pub fn master_account(job: &Job, owner: Option<&OwnerReference>) -> ServiceAccount {
    account(job, names::master_account(&job.name), owner)
}

/// The account of all other pods, which has no rights and no token.
pub fn pod_account(job: &Job, owner: Option<&OwnerReference>) -> ServiceAccount {
    account(job, names::pod_account(&job.name), owner)
}

fn account(job: &Job, name: String, owner: Option<&OwnerReference>) -> ServiceAccount {
    ServiceAccount {
        metadata: metadata(job, name, owner),
        // Pods that need one say so themselves.
        automount_service_account_token: Some(false),
        ..ServiceAccount::default()
    }
}

/// What the master may do.
pub fn role(job: &Job, owner: Option<&OwnerReference>) -> Role {
    let rule = |group: &str, resource: &str, verbs: &[&str]| PolicyRule {
        api_groups: Some(vec![group.to_string()]),
        resources: Some(vec![resource.to_string()]),
        verbs: verbs.iter().map(|verb| verb.to_string()).collect(),
        ..PolicyRule::default()
    };
    Role {
        metadata: metadata(job, names::master_account(&job.name), owner),
        rules: Some(vec![
            rule("", "pods", &["get", "list", "watch", "create", "delete", "patch"]),
            rule("", "pods/status", &["patch"]),
            rule("events.k8s.io", "events", &["create", "patch"]),
        ]),
    }
}

/// Gives the master its role.
pub fn role_binding(job: &Job, owner: Option<&OwnerReference>) -> RoleBinding {
    let name = names::master_account(&job.name);
    RoleBinding {
        metadata: metadata(job, name.clone(), owner),
        role_ref: RoleRef {
            api_group: "rbac.authorization.k8s.io".to_string(),
            kind: "Role".to_string(),
            name: name.clone(),
        },
        subjects: Some(vec![Subject {
            kind: "ServiceAccount".to_string(),
            name,
            namespace: Some(job.namespace.clone()),
            ..Subject::default()
        }]),
    }
}
