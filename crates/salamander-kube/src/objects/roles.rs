//! The pods of the three roles: what each is started with, and when it counts as ready.

use k8s_openapi::api::core::v1::{Pod, PodReadinessGate, Probe, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use super::pod::{PodParts, port, probe, requirements, role_args};
use crate::Error;
use crate::crd::ParameterServers;
use crate::crd::cap::MODEST;
use crate::job::{CONFIG, JOB_FILE, Job};
use crate::names::{self, HEALTH_PORT, MASTER_PORT, PodRole};

/// A pod that leads.
#[derive(Clone, Debug)]
pub struct MasterPod<'a> {
    /// The job.
    pub job: &'a Job,
    /// Counts the masters of a job.
    pub number: u32,
    /// With whom it goes.
    pub owner: Option<&'a OwnerReference>,
    /// Goes on with a run that was stopped.
    pub resume: bool,
}

impl MasterPod<'_> {
    /// The pod.
    pub fn build(&self) -> Result<Pod, Error> {
        let job = self.job;
        let master = &job.spec.master;
        let options = [
            ("--listen", format!("0.0.0.0:{MASTER_PORT}")),
            ("--platform", "kube".to_string()),
            ("--job", format!("{CONFIG}/{JOB_FILE}")),
        ];
        let mut args = role_args(job, PodRole::Master, &options);
        args.extend(self.resume.then(|| "--resume".to_string()));
        let parts = PodParts {
            role: PodRole::Master,
            name: "master",
            index: 0,
            process: self.number,
            args,
            resources: modest(requirements(&master.resources, None)),
            claims: &master.resources.claims,
            template: &master.template,
        };
        let mut pod = parts.build(job, self.owner)?;
        let wanted = job.spec.wanted_workers().to_string();
        let annotations = pod.metadata.annotations.get_or_insert_default();
        annotations.insert(names::WANTED.to_string(), wanted);
        if let Some(servers) = job.spec.servers() {
            annotations.insert(names::WANTED_SERVERS.to_string(), servers.to_string());
        }
        if let Some(spec) = &mut pod.spec {
            spec.service_account_name = Some(job.master_account());
            spec.automount_service_account_token = Some(true);
            for container in &mut spec.containers {
                container.ports =
                    Some(vec![port("control", MASTER_PORT), port("health", HEALTH_PORT)]);
                // A master that finds only an object store brings its run's folder from there first.
                container.startup_probe =
                    Some(Probe { failure_threshold: Some(1_800), ..probe("/healthz", 1) });
                container.readiness_probe = Some(probe("/readyz", 1));
                container.liveness_probe = Some(probe("/healthz", 10));
            }
        }
        Ok(pod)
    }
}

/// A master takes little, but a pod that asks for nothing gets no time beside busy workers: seen on a node whose master
/// could not answer itself any more.
fn modest(mut resources: ResourceRequirements) -> ResourceRequirements {
    if resources.requests.is_none() && resources.limits.is_none() {
        let amounts = MODEST.map(|(name, amount)| (name.to_string(), Quantity(amount.to_string())));
        resources.requests = Some(amounts.into());
    }
    resources
}

/// A pod that trains, or that holds parameters: the master orders both by their slots.
#[derive(Clone, Debug)]
pub struct MemberPod<'a> {
    /// The job.
    pub job: &'a Job,
    /// [`PodRole::Worker`] or [`PodRole::Ps`].
    pub role: PodRole,
    /// Its place among those of its role.
    pub index: u32,
    /// Tells it from those that had its place before.
    pub process: u32,
    /// Its memory in bytes, if that is not what the job says.
    pub memory: Option<u64>,
    /// With whom it goes.
    pub owner: Option<&'a OwnerReference>,
}

impl<'a> MemberPod<'a> {
    /// The first pod of a role, as a job without history has it.
    pub fn first(job: &'a Job, role: PodRole) -> Self {
        Self { job, role, index: 0, process: 0, memory: None, owner: None }
    }

    /// The pod.
    pub fn build(&self) -> Result<Pod, Error> {
        let (job, role) = (self.job, self.role);
        // A job without servers never orders one; what it would be like follows from no field.
        let servers = job.spec.ps.clone().unwrap_or_else(ParameterServers::one);
        let workers = &job.spec.workers;
        let (name, place, resources, template) = match role {
            PodRole::Ps => ("ps", "--seat", &servers.resources, &servers.template),
            _ => ("workers", "--slot", &workers.resources, &workers.template),
        };
        let options = [
            ("--master", names::master_address(&job.name, &job.namespace)),
            (place, self.index.to_string()),
            ("--listen", "$(POD_IP)".to_string()),
            ("--health", format!("0.0.0.0:{HEALTH_PORT}")),
        ];
        let args = role_args(job, role, &options);
        let (index, process) = (self.index, self.process);
        let claims = &resources.claims;
        let resources = requirements(resources, self.memory);
        let parts = PodParts { role, name, index, process, args, resources, claims, template };
        let mut pod = parts.build(job, self.owner)?;
        if let Some(spec) = &mut pod.spec {
            // It is ready when it takes part, which its master knows best.
            let condition_type = names::MEMBER.to_string();
            spec.readiness_gates = Some(vec![PodReadinessGate { condition_type }]);
            for container in &mut spec.containers {
                // For metrics. A worker that computes is not asked whether it is alive: its master knows.
                container.ports = Some(vec![port("health", HEALTH_PORT)]);
            }
        }
        Ok(pod)
    }
}
