//! Reconciles a job: fetches what a decision needs, and does what it says.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::runtime::events::{EventType, Recorder};
use kube::{Client, Resource, ResourceExt};
use salamander_core::layout::EXPERIMENT;
use serde_json::json;
use tracing::{debug, info};

use super::decide;
use super::metrics::OperatorMetrics;
use super::plan::{Action, JobEvent, ObservedJob, ReconcilePlan};
use crate::crd::{Checkpoints, Storage, TrainingJob, TrainingJobStatus};
use crate::error::root;
use crate::job::{self, JOB_FILE, Job};
use crate::names::{self, PodRole};
use crate::object_api::{ObjectApi, unless_gone};
use crate::objects::{self, MasterPod, MemberPod};
use crate::secrets::Secrets;
use crate::{Error, contract, experiment, pod_calls};

/// Objects beside the pods are looked at again after this time.
const REFRESH: Duration = Duration::from_secs(600);
/// How soon to reconcile again after a change that brings an event by itself.
const SOON: Duration = Duration::from_secs(5);

/// Who we are in the record of who set which field.
const MANAGER: &str = "salamander-operator";

/// The job that is reconciled, and who owns what is made for it.
#[derive(Clone, Copy)]
struct Subject<'a> {
    resource: &'a TrainingJob,
    job: &'a Job,
    owner: &'a OwnerReference,
}

/// What a job is to train.
struct Described {
    /// The experiment file.
    text: String,
    /// What its model reads records with, by their names in a run.
    files: BTreeMap<String, String>,
}

/// What reconciling needs, shared by all jobs.
pub(super) struct Context {
    client: Client,
    pub(super) metrics: Arc<OperatorMetrics>,
    recorder: Recorder,
    /// What was made for a job, by its uid. A job that is deleted and created again has another.
    made: Mutex<HashMap<String, Made>>,
}

/// What was made for a job.
#[derive(Clone)]
struct Made {
    /// For which generation of it.
    generation: Option<i64>,
    at: Instant,
    kept: KeptFields,
}

/// A job that was started: its files.
struct StartedJob {
    /// The job as it was then.
    first: Job,
    /// Its experiment in force.
    experiment: String,
}

/// What all pods of a job must agree on, whatever people change in it while it runs.
#[derive(Clone)]
struct KeptFields {
    /// The secret that they share.
    secret: String,
    /// The version of the contract that their files are written for.
    contract: u32,
    storage: Option<Storage>,
    checkpoints: Option<Checkpoints>,
}

impl KeptFields {
    fn of(job: &Job) -> Self {
        Self {
            secret: job.secret_name(),
            contract: job.contract,
            storage: job.spec.storage.clone(),
            checkpoints: job.spec.checkpoints.clone(),
        }
    }

    fn lay_over(self, job: &mut Job) {
        (job.secret, job.contract) = (Some(self.secret), self.contract);
        (job.spec.storage, job.spec.checkpoints) = (self.storage, self.checkpoints);
    }
}

impl Context {
    pub(super) fn new(client: Client, metrics: Arc<OperatorMetrics>, recorder: Recorder) -> Self {
        Self { client, metrics, recorder, made: Mutex::default() }
    }

    /// Reconciles a job once; when to do so again. What the cluster refuses is told in the job's status.
    pub(super) async fn reconcile(&self, resource: &TrainingJob) -> Result<Duration, Error> {
        let reconciled = Box::pin(self.attempt(resource)).await;
        if let Err(error) = &reconciled
            && error.is_refusal()
            && let Some(plan) = decide::refused(resource, error, Timestamp::now())
        {
            if resource.status.as_ref() != Some(&plan.status) {
                self.write_status(resource, &plan.status).await?;
            }
            for event in &plan.events {
                self.publish(resource, event).await;
            }
        }
        reconciled
    }

    async fn attempt(&self, resource: &TrainingJob) -> Result<Duration, Error> {
        if resource.spec.is_managed_elsewhere() || resource.metadata.deletion_timestamp.is_some() {
            // Another manager looks after it, or its dependents go with it.
            return Ok(REFRESH);
        }
        let job = Job::from_resource(resource)?;
        let owner = job::owner(resource)
            .ok_or_else(|| Error::Invalid(format!("job {} has no uid", job.name)))?;
        let mut job = job.operated(&owner.uid);
        if resource.spec.workers.replicas.is_none() {
            self.fill_in(&job).await?;
            // The change itself brings the job back at once.
            return Ok(SOON);
        }
        let over = resource.status.as_ref().and_then(|s| s.phase).is_some_and(|p| p.is_final());
        // A job that is suspended before its start takes nothing, and what its queue changes then is what it starts
        // with. Nothing that the cluster refuses keeps one that trains from being suspended.
        let invalid = match over || resource.spec.suspend {
            true => None,
            false => self.prepare(Subject { resource, job: &job, owner: &owner }).await?,
        };
        let kept = self.made().get(&owner.uid).map(|made| made.kept.clone());
        let contract = kept.as_ref().map_or_else(contract::first, |kept| kept.contract);
        if let Some(kept) = kept {
            kept.lay_over(&mut job);
        }
        let subject = Subject { resource, job: &job, owner: &owner };
        let (pods, first_master) = self.pods(&job, &owner).await?;
        let observed = ObservedJob { pods, invalid, contract, first_master };
        let mut in_force = resource.clone();
        in_force.spec.storage.clone_from(&job.spec.storage);
        in_force.spec.checkpoints.clone_from(&job.spec.checkpoints);
        let plan = decide::decide(&in_force, &observed, Timestamp::now());
        let before = decide::masters(&observed.pods).pop();
        let before = before.and_then(|(_, pod)| pod.annotations().get(names::PROGRESS));
        self.execute(subject, &plan, before).await?;
        self.metrics.reconciles.inc();
        Ok(plan.requeue_after)
    }

    /// Writes how many workers are wanted into the job: `kubectl scale` cannot change a number that is not there.
    async fn fill_in(&self, job: &Job) -> Result<(), Error> {
        let wanted = json!({"spec": {"workers": {"replicas": job.spec.workers.wanted()}}});
        let jobs = self.api(job).all::<TrainingJob>();
        let patched = jobs.patch(&job.name, &PatchParams::default(), &Patch::Merge(wanted)).await;
        unless_gone(patched, format!("filling in the workers of job {}", job.name)).map(drop)
    }

    /// The pods of the job, and the first number that no master of an earlier job of this name has.
    async fn pods(&self, job: &Job, owner: &OwnerReference) -> Result<(Vec<Pod>, u32), Error> {
        let pods = pod_calls::list(&self.api(job).all(), &job.name).await?;
        let own = |pod: &Pod| job::is_owned(pod, &owner.uid);
        let (own, others): (Vec<Pod>, Vec<Pod>) = pods.into_iter().partition(own);
        let first_master = decide::masters(&others).last().map_or(0, |(number, _)| number + 1);
        Ok((own, first_master))
    }

    /// Makes what the pods need; what is wrong with the job, if that cannot be. What is wrong with one that was started
    /// holds nothing up: its pods go on as they were started.
    async fn prepare(&self, subject: Subject<'_>) -> Result<Option<String>, Error> {
        let Subject { resource, job, owner } = subject;
        let generation = resource.metadata.generation;
        let made = self.made().get(&owner.uid).cloned();
        if made.is_some_and(|made| made.generation == generation && made.at.elapsed() < REFRESH) {
            return Ok(None);
        }
        let started = self.started(job, owner).await?;
        let described = self.described(job).await?;
        let mut job = job.clone();
        let text = match (started, described) {
            (Some(started), described) => {
                self.tell_changes(subject, &started, &described).await;
                // Its master makes pods of what is there.
                KeptFields::of(&started.first).lay_over(&mut job);
                None
            }
            (None, Ok(described)) => {
                job.spec.experiment.files = described.files;
                Some(described.text)
            }
            (None, Err(reason)) => return Ok(Some(reason)),
        };
        self.make(&job, owner, text.as_deref()).await?;
        let mut all = self.made();
        all.retain(|_, made| made.at.elapsed() < REFRESH);
        let at = Instant::now();
        all.insert(owner.uid.clone(), Made { generation, at, kept: KeptFields::of(&job) });
        Ok(None)
    }

    /// Makes the objects of a job, and touches none that is not its own; its config map, if it is to be started with an
    /// experiment.
    async fn make(
        &self,
        job: &Job,
        owner: &OwnerReference,
        experiment: Option<&str>,
    ) -> Result<(), Error> {
        let (api, uid, own) = (self.api(job), &owner.uid, Some(owner));
        for object in objects::surroundings(job, own) {
            api.apply_owned(&object, uid).await?;
        }
        if let Some(claim) = objects::claim(job, own) {
            api.create_owned(&claim, uid).await?;
        }
        // One that is there stays, or the pods would no longer know each other.
        match api.create(&objects::secret(job, &Secrets::random()?, own)).await {
            // A quota refuses before anybody has looked whether it is there, and it was there before the config map.
            Err(Error::Refused { .. }) if experiment.is_none() => {}
            created => {
                created?;
            }
        }
        if let Some(text) = experiment {
            api.create_owned(&objects::config_map(job, text, own), uid).await?;
        }
        Ok(())
    }

    /// The job as its pods were started, if they were: a config map of this name may be somebody else's.
    async fn started(
        &self,
        job: &Job,
        owner: &OwnerReference,
    ) -> Result<Option<StartedJob>, Error> {
        let name = names::config_map(&job.name);
        let found = self.api(job).all::<ConfigMap>().get_opt(&name).await;
        let found = found.map_err(Error::doing(format!("reading the config map {name}")))?;
        let Some(map) = found.filter(|map| job::is_owned(map, &owner.uid)) else {
            return Ok(None);
        };
        let mut data = map.data.unwrap_or_default();
        let text = data.remove(JOB_FILE).unwrap_or_default();
        let first = serde_json::from_str(&text)
            .map_err(|error| Error::Invalid(format!("config map {name:?}: {JOB_FILE}: {error}")))?;
        let experiment = data.remove(EXPERIMENT).unwrap_or_default();
        Ok(Some(StartedJob { first, experiment }))
    }

    /// What the job is to train, or what is wrong with it.
    async fn described(&self, job: &Job) -> Result<Result<Described, String>, Error> {
        let mut described = match self.experiment(job).await? {
            Ok(described) => described,
            Err(reason) => return Ok(Err(reason)),
        };
        let mut job = job.clone();
        job.spec.experiment.files = described.files.clone();
        // A job of the same name goes on with the run of the one before: it must not differ by chance.
        let seed = experiment::seed_of(&format!("{}/{}", job.namespace, job.name));
        match experiment::in_force(&described.text, &job, seed) {
            Ok(text) => described.text = text,
            Err(error) => return Ok(Err(error.to_string())),
        }
        // A template that is wrong is told before anything runs.
        let [worker, server] =
            [PodRole::Worker, PodRole::Ps].map(|role| MemberPod::first(&job, role));
        let master = MasterPod { job: &job, number: 0, owner: None, resume: false };
        let built = worker.build().and(server.build()).and(master.build());
        Ok(built.map(|_| described).map_err(|error| error.to_string()))
    }

    /// The experiment that the job names, or what is wrong with it.
    async fn experiment(&self, job: &Job) -> Result<Result<Described, String>, Error> {
        let source = &job.spec.experiment;
        let files = source.files.clone();
        if let Some(inline) = &source.inline {
            return Ok(Ok(Described { text: salamander_core::yaml::to_yaml(inline), files }));
        }
        let Some(key) = &source.config_map else {
            return Ok(Err("write experiment.inline or experiment.configMap".into()));
        };
        let found = self.api(job).all::<ConfigMap>().get_opt(&key.name).await;
        let found = found.map_err(Error::doing(format!("reading the config map {}", key.name)))?;
        let Some(map) = found else {
            return Ok(Err(format!("there is no config map {:?} yet", key.name)));
        };
        let mut all = map.data.unwrap_or_default();
        let Some(text) = all.remove(&key.key) else {
            return Ok(Err(format!("config map {:?} has no {:?}", key.name, key.key)));
        };
        all.retain(|name, _| name != EXPERIMENT && name != JOB_FILE);
        all.extend(files);
        Ok(Ok(Described { text, files: all }))
    }

    /// Pods that read different experiments cannot train together, and those that are there were made of the job as it
    /// was when it was started. What was changed since then, and has no effect, is told.
    async fn tell_changes(
        &self,
        subject: Subject<'_>,
        started: &StartedJob,
        described: &Result<Described, String>,
    ) {
        let warning = |reason: &str, note: String| JobEvent {
            warning: true,
            reason: reason.to_string(),
            note,
        };
        let mut events = Vec::new();
        match described {
            Err(mistake) => {
                let note = format!("{mistake}; the job goes on as it was started");
                events.push(warning("MistakeIgnored", note));
            }
            Ok(described) if experiment::differ(&started.experiment, &described.text) => {
                let note = "the experiment of a job stays as it was at its start; delete the job and create another";
                events.push(warning("ExperimentChanged", note.to_string()));
            }
            Ok(_) => {}
        }
        let changed = job::changed_fields(&started.first, subject.job);
        if !changed.is_empty() {
            let note = format!(
                "{}: workers and parameter servers are made as they were when the job was started; delete the job and \
                 create another",
                changed.join(", ")
            );
            events.push(warning("ChangeIgnored", note));
        }
        for event in &events {
            self.publish(subject.resource, event).await;
        }
    }

    /// Does what was decided. A master that is made learns how far the run was with the one before.
    async fn execute(
        &self,
        subject: Subject<'_>,
        plan: &ReconcilePlan,
        before: Option<&String>,
    ) -> Result<(), Error> {
        let Subject { resource, job, owner } = subject;
        let pods = self.api(job).all::<Pod>();
        for action in &plan.actions {
            info!(job = job.name, ?action, "for a job");
            match action {
                Action::CreateMaster { number, resume } => {
                    let (owner, resume) = (Some(owner), *resume);
                    let mut pod = MasterPod { job, number: *number, owner, resume }.build()?;
                    if let Some(before) = before {
                        let annotations = pod.metadata.annotations.get_or_insert_default();
                        annotations.insert(names::BEFORE.to_string(), before.clone());
                    }
                    if self.api(job).create(&json!(pod)).await? {
                        self.metrics.masters.inc();
                    }
                }
                Action::Delete { name, force } => {
                    let deleted = pods.delete(name, &pod_calls::delete_params(*force)).await;
                    unless_gone(deleted, format!("deleting the pod {name}"))?;
                }
                Action::DeleteJob => {
                    let uid = Some(owner.uid.clone());
                    let this = Preconditions { uid, resource_version: None };
                    let params = DeleteParams::default().preconditions(this);
                    let deleted =
                        self.api(job).all::<TrainingJob>().delete(&job.name, &params).await;
                    unless_gone(deleted, format!("deleting the job {}", job.name))?;
                }
                Action::Annotate { name, key, value } => {
                    let patched = pod_calls::annotate(&pods, name, key, value).await;
                    unless_gone(patched, format!("annotating the pod {name}"))?;
                }
            }
        }
        if resource.status.as_ref() != Some(&plan.status) {
            self.write_status(resource, &plan.status).await?;
        }
        for event in &plan.events {
            self.publish(resource, event).await;
        }
        Ok(())
    }

    /// Writes the status, which belongs to the operator alone.
    async fn write_status(
        &self,
        resource: &TrainingJob,
        status: &TrainingJobStatus,
    ) -> Result<(), Error> {
        let (name, namespace) = (resource.name_any(), resource.namespace().unwrap_or_default());
        let api = ObjectApi::new(self.client.clone(), namespace, MANAGER);
        let patch = json!({
            "apiVersion": TrainingJob::api_version(&()),
            "kind": TrainingJob::kind(&()),
            "status": status,
        });
        let jobs = api.all::<TrainingJob>();
        let written = jobs.patch_status(&name, &api.forced(), &Patch::Apply(patch)).await;
        // Deleted in between: there is nobody to tell.
        unless_gone(written, format!("writing the status of job {name}")).map(drop)
    }

    async fn publish(&self, resource: &TrainingJob, event: &JobEvent) {
        let type_ = if event.warning { EventType::Warning } else { EventType::Normal };
        let event = pod_calls::event(type_, "Reconcile", &event.reason, &event.note);
        let regarding = resource.object_ref(&());
        if let Err(error) = self.recorder.publish(&event, &regarding).await {
            debug!(error = root(&error), "an event cannot be written");
        }
    }

    fn api(&self, job: &Job) -> ObjectApi {
        ObjectApi::new(self.client.clone(), &job.namespace, MANAGER)
    }

    fn made(&self) -> MutexGuard<'_, HashMap<String, Made>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
