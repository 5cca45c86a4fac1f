//! What the pods of all roles must have, and what their template adds. Every pod runs as somebody who is not
//! root, on a read-only root file system, without capabilities.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Container, ContainerPort, HTTPGetAction, LocalObjectReference, Pod, PodSpec, Probe,
    ResourceRequirements, Toleration,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use salamander_core::layout::EXPERIMENT;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::env::{own_env, store_env};
use super::gang;
use super::security::{container_security, pod_security};
use super::volumes::{own_mounts, own_volumes};
use crate::Error;
use crate::crd::{PodTemplate, Resources};
use crate::job::{CONFIG, Job, TOKEN, TOKEN_FILE, folder};
use crate::names::{self, CONTAINER, PodRole};
use crate::quantity::mebibytes;

/// How long a pod stays on a node that does not answer; the default is 300 s.
const UNREACHABLE_SECONDS: i64 = 30;
/// How long a pod has to leave,
const GRACE_SECONDS: i64 = 30;
/// and one whose rows have to be in a checkpoint first.
const SERVER_GRACE_SECONDS: i64 = 60;

/// The memory that a pod's container may use, or asks for.
pub fn container_memory(pod: &Pod) -> Option<u64> {
    let container = pod.spec.as_ref()?.containers.iter().find(|c| c.name == CONTAINER)?;
    let resources = container.resources.as_ref()?;
    let memory = |map: &Option<BTreeMap<String, Quantity>>| map.as_ref()?.get("memory").cloned();
    let amount = memory(&resources.limits).or_else(|| memory(&resources.requests))?;
    crate::quantity::bytes(&amount.0)
}

/// An amount as Kubernetes writes it.
pub(crate) fn amount(value: &IntOrString) -> String {
    match value {
        IntOrString::Int(number) => number.to_string(),
        IntOrString::String(text) => text.clone(),
    }
}

/// What makes the pods of the roles different.
pub(super) struct PodParts<'a> {
    pub(super) role: PodRole,
    pub(super) name: &'static str,
    pub(super) index: u32,
    pub(super) process: u32,
    pub(super) args: Vec<String>,
    pub(super) resources: ResourceRequirements,
    /// The devices that its container uses, of those that its template claims.
    pub(super) claims: &'a [Value],
    pub(super) template: &'a PodTemplate,
}

impl PodParts<'_> {
    pub(super) fn build(&self, job: &Job, owner: Option<&OwnerReference>) -> Result<Pod, Error> {
        let template = self.template;
        let mut labels = template.labels.clone();
        labels.extend(job.queue_labels.clone());
        labels.extend(gang::labels(job, self.role));
        labels.extend(names::pod_labels(&job.name, self.role, self.index, self.process));
        let mut annotations = template.annotations.clone();
        annotations.extend(gang::annotations(job, self.role));
        // A lost worker or master costs a few steps at most, so nodes may be emptied. What a server held goes back to
        // the last checkpoint, so its node is not given up to save money.
        let safe = if self.role == PodRole::Ps { "false" } else { "true" };
        annotations
            .entry("cluster-autoscaler.kubernetes.io/safe-to-evict".to_string())
            .or_insert_with(|| safe.to_string());
        Ok(Pod {
            metadata: ObjectMeta {
                name: Some(names::pod_name(&job.name, self.role, self.index, self.process)),
                namespace: Some(job.namespace.clone()),
                labels: Some(labels),
                annotations: Some(annotations),
                owner_references: owner.map(|owner| vec![owner.clone()]),
                ..ObjectMeta::default()
            },
            spec: Some(self.spec(job)?),
            status: None,
        })
    }

    /// How long the pod has to leave.
    pub(super) fn grace_seconds(&self) -> i64 {
        let usual = if self.role == PodRole::Ps { SERVER_GRACE_SECONDS } else { GRACE_SECONDS };
        self.template.termination_grace_period_seconds.unwrap_or(usual)
    }

    fn spec(&self, job: &Job) -> Result<PodSpec, Error> {
        let template = self.template;
        let pull_secrets = job.spec.image_pull_secrets.iter();
        let pull_secrets =
            pull_secrets.map(|name| LocalObjectReference { name: name.clone() }).collect();
        let selector = (!template.node_selector.is_empty()).then(|| template.node_selector.clone());
        let spread = &template.topology_spread_constraints;
        let account = template.service_account_name.clone();
        let account = account.unwrap_or_else(|| names::pod_account(&job.name));
        Ok(PodSpec {
            containers: vec![self.container(job)?],
            volumes: self.list("volumes", own_volumes(job, self.role), &template.volumes)?,
            restart_policy: Some("Never".to_string()),
            init_containers: self.init_containers()?,
            resource_claims: self.list("resourceClaims", Vec::new(), &template.resource_claims)?,
            service_account_name: Some(account),
            automount_service_account_token: Some(false),
            enable_service_links: Some(false),
            termination_grace_period_seconds: Some(self.grace_seconds()),
            security_context: Some(pod_security(template)),
            priority_class_name: job.priority_class(self.role, self.index).map(str::to_string),
            image_pull_secrets: Some(pull_secrets).filter(|secrets: &Vec<_>| !secrets.is_empty()),
            node_selector: selector,
            tolerations: Some(self.tolerations()?),
            affinity: self.read("affinity", json!(template.affinity))?,
            topology_spread_constraints: self.list(
                "topologySpreadConstraints",
                Vec::new(),
                spread,
            )?,
            runtime_class_name: template.runtime_class_name.clone(),
            scheduler_name: template.scheduler_name.clone(),
            ..PodSpec::default()
        })
    }

    fn container(&self, job: &Job) -> Result<Container, Error> {
        let template = self.template;
        let pull_policy = self.read("imagePullPolicy", json!(job.spec.image_pull_policy))?;
        Ok(Container {
            name: CONTAINER.to_string(),
            image: Some(job.spec.image.clone()),
            image_pull_policy: pull_policy,
            command: Some(job.spec.command.clone()).filter(|command| !command.is_empty()),
            args: Some(self.args.clone()),
            env: self.list("env", own_env(job, self), &template.env)?,
            env_from: self.list("envFrom", store_env(job, self.role), &template.env_from)?,
            resources: Some(ResourceRequirements {
                claims: self.list("resources.claims", Vec::new(), self.claims)?,
                ..self.resources.clone()
            }),
            volume_mounts: self.list(
                "volumeMounts",
                own_mounts(job, self.role),
                &template.volume_mounts,
            )?,
            security_context: Some(container_security()),
            // The last lines of its log come with its end, and need no rights to be read.
            termination_message_policy: Some("FallbackToLogsOnError".to_string()),
            ..Container::default()
        })
    }

    /// Those of the template. One that says nothing of security is as restricted as the pod's own container.
    fn init_containers(&self) -> Result<Option<Vec<Container>>, Error> {
        let given = &self.template.init_containers;
        let mut all: Option<Vec<Container>> = self.list("initContainers", Vec::new(), given)?;
        for container in all.iter_mut().flatten() {
            container.security_context.get_or_insert_with(container_security);
        }
        Ok(all)
    }

    /// Its own, and a short one for nodes that do not answer.
    fn tolerations(&self) -> Result<Vec<Toleration>, Error> {
        let mut all: Vec<Toleration> =
            self.read("tolerations", json!(self.template.tolerations))?;
        for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
            if !all.iter().any(|toleration| toleration.key.as_deref() == Some(key)) {
                all.push(Toleration {
                    key: Some(key.to_string()),
                    operator: Some("Exists".to_string()),
                    effect: Some("NoExecute".to_string()),
                    toleration_seconds: Some(UNREACHABLE_SECONDS),
                    value: None,
                });
            }
        }
        Ok(all)
    }

    /// What a pod has of its own, and what the template adds; nothing rather than an empty list.
    fn list<T: DeserializeOwned>(
        &self,
        field: &str,
        mut all: Vec<T>,
        more: &[Value],
    ) -> Result<Option<Vec<T>>, Error> {
        all.extend(self.read::<Vec<T>>(field, json!(more))?);
        Ok(Some(all).filter(|all| !all.is_empty()))
    }

    /// A part of the template, which is named where it is wrong.
    fn read<T: DeserializeOwned>(&self, field: &str, value: Value) -> Result<T, Error> {
        let role = self.name;
        let wrong = |error| Error::Invalid(format!("spec.{role}.template.{field}: {error}"));
        serde_json::from_value(value).map_err(wrong)
    }
}

/// The arguments of a role: what all have, and options of its own.
pub(super) fn role_args(job: &Job, role: PodRole, more: &[(&str, String)]) -> Vec<String> {
    let common = [
        ("--experiment", format!("{CONFIG}/{EXPERIMENT}")),
        ("--token-file", format!("{TOKEN}/{TOKEN_FILE}")),
        ("--tls", TOKEN.to_string()),
    ];
    let options = common.iter().chain(more);
    let options = options.flat_map(|(name, value)| [name.to_string(), value.clone()]);
    [role.to_string(), folder(&job.name)].into_iter().chain(options).collect()
}

pub(super) fn requirements(resources: &Resources, memory: Option<u64>) -> ResourceRequirements {
    let amounts = |map: &BTreeMap<String, IntOrString>| {
        let amounts = map.iter().map(|(name, value)| (name.clone(), Quantity(amount(value))));
        let mut amounts: BTreeMap<String, Quantity> = amounts.collect();
        if let (Some(memory), Some(amount)) = (memory, amounts.get_mut("memory")) {
            *amount = Quantity(mebibytes(memory));
        }
        Some(amounts).filter(|amounts| !amounts.is_empty())
    };
    ResourceRequirements {
        requests: amounts(&resources.requests),
        limits: amounts(&resources.limits),
        claims: None,
    }
}

pub(super) fn port(name: &str, number: u16) -> ContainerPort {
    ContainerPort {
        name: Some(name.to_string()),
        container_port: i32::from(number),
        protocol: Some("TCP".to_string()),
        ..ContainerPort::default()
    }
}

pub(super) fn probe(path: &str, every: i32) -> Probe {
    Probe {
        http_get: Some(HTTPGetAction {
            path: Some(path.to_string()),
            port: IntOrString::String("health".to_string()),
            ..HTTPGetAction::default()
        }),
        period_seconds: Some(every),
        timeout_seconds: Some(5),
        failure_threshold: Some(6),
        ..Probe::default()
    }
}
