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
use serde_json::{Value, json};
use tracing::{debug, info};

use super::decide;
use super::metrics::OperatorMetrics;
use super::plan::{Action, JobEvent, ObservedJob, ReconcilePlan};
use crate::crd::{TrainingJob, TrainingJobStatus};
use crate::error::root;
use crate::job::{self, JOB_FILE, Job};
use crate::names::{self, PodRole};
use crate::object_api::{ObjectApi, unless_gone};
use crate::objects::{self, MasterPod, MemberPod};
use crate::secrets::Secrets;
use crate::{Error, experiment, pod_calls};

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
    /// The secret that its pods share.
    secret: String,
    /// The version of the contract that its files are written for.
    contract: u32,
}

impl Context {
    pub(super) fn new(client: Client, metrics: Arc<OperatorMetrics>, recorder: Recorder) -> Self {
        Self { client, metrics, recorder, made: Mutex::default() }
    }

    /// Reconciles a job once; when to do so again. What the cluster refuses is told in the job's status.
    pub(super) async fn reconcile(&self, resource: &TrainingJob) -> Result<Duration, Error> {
        let reconciled = self.attempt(resource).await;
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
        let invalid = match over {
            true => None,
            false => self.prepare(Subject { resource, job: &job, owner: &owner }).await?,
        };
        if let Some(made) = self.made().get(&owner.uid) {
            job.secret = Some(made.secret.clone());
        }
        let subject = Subject { resource, job: &job, owner: &owner };
        let contract = self.made().get(&owner.uid).map_or(job.contract, |made| made.contract);
        let observed = ObservedJob { pods: self.pods(&job, &owner).await?, invalid, contract };
        let plan = decide::decide(resource, &observed, Timestamp::now());
        self.execute(subject, &plan).await?;
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

    async fn pods(&self, job: &Job, owner: &OwnerReference) -> Result<Vec<Pod>, Error> {
        let pods = pod_calls::list(&self.api(job).all(), &job.name).await?;
        Ok(pods.into_iter().filter(|pod| job::is_owned(pod, &owner.uid)).collect())
    }

    /// Makes what the pods need; what is wrong with the job, if that cannot be.
    async fn prepare(&self, subject: Subject<'_>) -> Result<Option<String>, Error> {
        let Subject { resource, job, owner } = subject;
        let generation = resource.metadata.generation;
        let made = self.made().get(&owner.uid).cloned();
        if made.is_some_and(|made| made.generation == generation && made.at.elapsed() < REFRESH) {
            return Ok(None);
        }
        let Described { text, files } = match self.experiment(job).await? {
            Ok(described) => described,
            Err(reason) => return Ok(Some(reason)),
        };
        let mut job = job.clone();
        job.spec.experiment.files = files;
        let (job, subject) = (&job, Subject { job: &job, ..subject });
        // A job of the same name goes on with the run of the one before: it must not differ by chance.
        let seed = experiment::seed_of(&format!("{}/{}", job.namespace, job.name));
        let text = match experiment::in_force(&text, job, seed) {
            Ok(text) => text,
            Err(error) => return Ok(Some(error.to_string())),
        };
        // A template that is wrong is told before anything runs.
        let [worker, server] =
            [PodRole::Worker, PodRole::Ps].map(|role| MemberPod::first(job, role));
        let master = MasterPod { job, number: 0, owner: None, resume: false };
        if let Err(error) = worker.build().and(server.build()).and(master.build()) {
            return Ok(Some(error.to_string()));
        }
        let (secret, contract) = self.make(subject, &text).await?;
        let mut all = self.made();
        all.retain(|_, made| made.at.elapsed() < REFRESH);
        all.insert(owner.uid.clone(), Made { generation, at: Instant::now(), secret, contract });
        Ok(None)
    }

    /// Makes the objects of a job, and touches none that is not its own; the name of its secret
    /// and the version of its files.
    async fn make(&self, subject: Subject<'_>, experiment: &str) -> Result<(String, u32), Error> {
        let (mut job, own) = (subject.job.clone(), Some(subject.owner));
        let (api, uid) = (self.api(&job), &subject.owner.uid);
        for object in objects::surroundings(&job, own) {
            api.apply_owned(&object, uid).await?;
        }
        if let Some(claim) = objects::claim(&job, own) {
            api.create_owned(&claim, uid).await?;
        }
        let config = objects::config_map(&job, experiment, own);
        if let Some(found) = api.create_owned(&config, uid).await? {
            // Its master makes pods of what is there.
            let first = self.compare(subject, experiment, &found.data).await?;
            (job.secret, job.contract) = (first.secret, first.contract);
        }
        // One that is there stays, or the pods would no longer know each other.
        api.create(&objects::secret(&job, &Secrets::random()?, own)).await?;
        Ok((job.secret_name(), job.contract))
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

    /// Pods that read different experiments cannot train together, so the first one stays: the job as it was then.
    async fn compare(&self, subject: Subject<'_>, text: &str, found: &Value) -> Result<Job, Error> {
        let resource = subject.resource;
        let old = found["data"][EXPERIMENT].as_str();
        if old.is_some_and(|old| experiment::differ(old, text)) {
            let note = "the experiment of a job stays as it was at its start; delete the job and create another";
            let (warning, reason) = (true, "ExperimentChanged".to_string());
            self.publish(resource, &JobEvent { warning, reason, note: note.to_string() }).await;
        }
        let job = found["data"][JOB_FILE].as_str().unwrap_or_default();
        serde_json::from_str(job).map_err(|error| {
            let name = names::config_map(&subject.job.name);
            Error::Invalid(format!("config map {name:?}: {JOB_FILE}: {error}"))
        })
    }

    async fn execute(&self, subject: Subject<'_>, plan: &ReconcilePlan) -> Result<(), Error> {
        let Subject { resource, job, owner } = subject;
        let pods = self.api(job).all::<Pod>();
        for action in &plan.actions {
            info!(job = job.name, ?action, "for a job");
            match action {
                Action::CreateMaster { number, resume } => {
                    let (owner, resume) = (Some(owner), *resume);
                    let pod = MasterPod { job, number: *number, owner, resume }.build()?;
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
