//! How pods find the master, and who may reach a job's pods.

use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::api::networking::v1::{
    NetworkPolicy, NetworkPolicyIngressRule, NetworkPolicyPeer, NetworkPolicyPort,
    NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, OwnerReference};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::metadata;
use crate::job::Job;
use crate::names::{self, HEALTH_PORT, MASTER_PORT, Role};

/// The master's address, which stays when another pod becomes the master. It is no headless service: names of pods are
/// remembered by resolvers for longer than a relaunch takes.
pub fn master_service(job: &Job, owner: Option<&OwnerReference>) -> Service {
    let port = ServicePort {
        name: Some("control".to_string()),
        port: i32::from(MASTER_PORT),
        target_port: Some(IntOrString::String("control".to_string())),
        protocol: Some("TCP".to_string()),
        ..ServicePort::default()
    };
    Service {
        metadata: metadata(job, names::master_service(&job.name), owner),
        spec: Some(ServiceSpec {
            type_: Some("ClusterIP".to_string()),
            selector: Some(names::role_selector(&job.name, Role::Master)),
            ports: Some(vec![port]),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}

/// Only pods of a job reach each other; everybody may ask whether it is well.
pub fn network_policy(job: &Job, owner: Option<&OwnerReference>) -> NetworkPolicy {
    let own = LabelSelector {
        match_labels: Some([(names::JOB.to_string(), job.name.clone())].into()),
        ..LabelSelector::default()
    };
    let from_own = NetworkPolicyIngressRule {
        from: Some(vec![NetworkPolicyPeer {
            pod_selector: Some(own.clone()),
            ..NetworkPolicyPeer::default()
        }]),
        ..NetworkPolicyIngressRule::default()
    };
    let health = NetworkPolicyIngressRule {
        ports: Some(vec![NetworkPolicyPort {
            port: Some(IntOrString::Int(i32::from(HEALTH_PORT))),
            protocol: Some("TCP".to_string()),
            ..NetworkPolicyPort::default()
        }]),
        ..NetworkPolicyIngressRule::default()
    };
    NetworkPolicy {
        metadata: metadata(job, job.name.clone(), owner),
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(own),
            policy_types: Some(vec!["Ingress".to_string()]),
            ingress: Some(vec![from_own, health]),
            ..NetworkPolicySpec::default()
        }),
    }
}
