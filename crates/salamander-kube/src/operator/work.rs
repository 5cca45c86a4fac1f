//! The thin side of the operator: fetches what a decision needs, and does what it says.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::events::{Event, EventType, Recorder};
use kube::{Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tracing::{debug, info};

use super::decide::{self, News, Observed, Plan};
use super::metrics::Metrics;
use crate::crd::{TrainingJob, TrainingJobStatus};
use crate::error::{code, root};
use crate::job::{self, EXPERIMENT_FILE, Job};
use crate::manifest::whole;
use crate::names::{self, Role};
use crate::objects::{self, MasterPod, MemberPod};
use crate::secrets::Secrets;
use crate::{Error, experiment};

/// Who we are in the record of who set which field.
pub(crate) const MANAGER: &str = "salamander-operator";
/// Objects beside the pods are looked at again after this time.
const REFRESH: Duration = Duration::from_secs(600);
const SOON: Duration = Duration::from_secs(5);

/// What looking after jobs needs.
pub(super) struct Context {
    client: Client,
    pub(super) metrics: Arc<Metrics>,
    recorder: Recorder,
    /// For which generation of a job, by its uid, its objects were made, and when. A job that is deleted and
    /// created again has another uid.
    made: Mutex<HashMap<String, (Option<i64>, Instant)>>,
}

impl Context {
    pub(super) fn new(client: Client, metrics: Arc<Metrics>, recorder: Recorder) -> Self {
        Self { client, metrics, recorder, made: Mutex::default() }
    }

    /// Looks after a job once; when to look again.
    pub(super) async fn look_after(&self, resource: &TrainingJob) -> Result<Duration, Error> {
        if resource.metadata.deletion_timestamp.is_some() {
            // Its dependents go with it.
            return Ok(REFRESH);
        }
        let job =
            Job::from_resource(resource).map_err(|error| Error::Invalid(error.to_string()))?;
        let owner = job::owner(resource)
            .ok_or_else(|| Error::Invalid(format!("job {} has no uid", job.name)))?;
        if resource.spec.workers.replicas.is_none() {
            self.fill_in(&job).await?;
            // The change itself brings the job back at once.
            return Ok(SOON);
        }
        let over = resource.status.as_ref().and_then(|s| s.phase).is_some_and(|p| p.is_final());
        let invalid = match over {
            true => None,
            false => self.prepare(resource, &job, &owner).await?,
        };
        let observed = Observed { pods: self.pods(&job, &owner).await?, invalid };
        let plan = decide::decide(resource, &observed, Timestamp::now());
        self.execute(resource, &job, &owner, &plan).await?;
        self.metrics.reconciled();
        Ok(plan.again)
    }

    /// Writes how many workers are wanted into the job: `kubectl scale` cannot change a number that is not there.
    async fn fill_in(&self, job: &Job) -> Result<(), Error> {
        let wanted = json!({"spec": {"workers": {"replicas": job.spec.workers.wanted()}}});
        let jobs = self.api::<TrainingJob>(job);
        let patched = jobs.patch(&job.name, &PatchParams::default(), &Patch::Merge(wanted)).await;
        forgive(patched, 404, || format!("filling in the workers of job {}", job.name))
    }

    async fn pods(&self, job: &Job, owner: &OwnerReference) -> Result<Vec<Pod>, Error> {
        let params = ListParams::default().labels(&names::job_query(&job.name));
        let pods = self.api::<Pod>(job).list(&params).await;
        let pods = pods.map_err(|error| Error::from_client("listing a job's pods", error))?;
        Ok(pods.items.into_iter().filter(|pod| job::is_owned(pod, &owner.uid)).collect())
    }

    /// Makes what the pods need; what is wrong with the job, if that cannot be.
    async fn prepare(
        &self,
        resource: &TrainingJob,
        job: &Job,
        owner: &OwnerReference,
    ) -> Result<Option<String>, Error> {
        let generation = resource.metadata.generation;
        let made = self.made().get(&owner.uid).copied();
        if made.is_some_and(|(for_, at)| for_ == generation && at.elapsed() < REFRESH) {
            return Ok(None);
        }
        let text = match self.experiment(job).await? {
            Ok(text) => text,
            Err(reason) => return Ok(Some(reason)),
        };
        let seed = experiment::seed_of(&owner.uid);
        let text = match experiment::in_force(&text, job, seed) {
            Ok(text) => text,
            Err(error) => return Ok(Some(error.to_string())),
        };
        // A template that is wrong is told before anything runs.
        let [worker, server] = [Role::Worker, Role::Ps].map(|role| MemberPod::first(job, role));
        let master = MasterPod { job, number: 0, owner: None, resume: false };
        if let Err(error) = worker.build().and(server.build()).and(master.build()) {
            return Ok(Some(error.to_string()));
        }
        self.make(resource, job, owner, &text).await?;
        let mut made = self.made();
        made.retain(|_, (_, at)| at.elapsed() < REFRESH);
        made.insert(owner.uid.clone(), (generation, Instant::now()));
        Ok(None)
    }

    async fn make(
        &self,
        resource: &TrainingJob,
        job: &Job,
        owner: &OwnerReference,
        experiment: &str,
    ) -> Result<(), Error> {
        let own = Some(owner);
        self.apply(job, &objects::master_account(job, own)).await?;
        self.apply(job, &objects::pod_account(job, own)).await?;
        self.apply(job, &objects::role(job, own)).await?;
        self.apply(job, &objects::role_binding(job, own)).await?;
        self.apply(job, &objects::network_policy(job, own)).await?;
        self.apply(job, &objects::master_service(job, own)).await?;
        if let Some(claim) = objects::claim(job, own) {
            self.create(job, &claim).await?;
        }
        let config = objects::config_map(job, experiment, own)
            .map_err(|error| Error::Invalid(error.to_string()))?;
        if !self.create(job, &config).await? {
            self.compare(resource, job, (experiment, &owner.uid)).await?;
        }
        // Those that are there stay, or the pods would no longer know each other.
        let secrets = Secrets::random().map_err(|error| Error::Invalid(error.to_string()))?;
        self.create(job, &objects::secret(job, &secrets, own)).await?;
        Ok(())
    }

    /// The experiment that the job names, or what is wrong with it.
    async fn experiment(&self, job: &Job) -> Result<Result<String, String>, Error> {
        let source = &job.spec.experiment;
        if let Some(inline) = &source.inline {
            return Ok(Ok(salamander_core::yaml::to_yaml(inline)));
        }
        let Some(key) = &source.config_map else {
            return Ok(Err("write experiment.inline or experiment.configMap".into()));
        };
        let what = format!("reading the config map {}", key.name);
        let found = self.api::<ConfigMap>(job).get_opt(&key.name).await;
        let found = found.map_err(|error| Error::from_client(what, error))?;
        let Some(map) = found else {
            return Ok(Err(format!("there is no config map {:?} yet", key.name)));
        };
        let text = map.data.unwrap_or_default().remove(&key.key);
        Ok(text.ok_or_else(|| format!("config map {:?} has no {:?}", key.name, key.key)))
    }

    /// Pods that read different experiments cannot train together, so the first one stays.
    async fn compare(
        &self,
        resource: &TrainingJob,
        job: &Job,
        (text, uid): (&str, &str),
    ) -> Result<(), Error> {
        let name = names::config_map(&job.name);
        let found = self.api::<ConfigMap>(job).get_opt(&name).await;
        let found = found.map_err(|error| Error::from_client("reading the experiment", error))?;
        if found.as_ref().is_none_or(|map| !job::is_owned(map, uid)) {
            let text = format!("what an earlier job {:?} left is still being deleted", job.name);
            return Err(Error::Invalid(text));
        }
        let old = found.and_then(|map| map.data?.remove(EXPERIMENT_FILE));
        if old.is_some_and(|old| experiment::differ(&old, text)) {
            let note = "the experiment of a job stays as it was at its start; delete the job and create another";
            let (warning, reason) = (true, "ExperimentChanged".to_string());
            self.tell(resource, &News { warning, reason, note: note.to_string() }).await;
        }
        Ok(())
    }

    async fn execute(
        &self,
        resource: &TrainingJob,
        job: &Job,
        owner: &OwnerReference,
        plan: &Plan,
    ) -> Result<(), Error> {
        let pods = self.api::<Pod>(job);
        for action in &plan.actions {
            info!(job = job.name, ?action, "for a job");
            match action {
                decide::Action::CreateMaster { number, resume } => {
                    let (owner, resume) = (Some(owner), *resume);
                    let pod = MasterPod { job, number: *number, owner, resume }.build();
                    let pod = pod.map_err(|error| Error::Invalid(error.to_string()))?;
                    if self.create(job, &pod).await? {
                        self.metrics.launched();
                    }
                }
                decide::Action::Delete { name, force } => {
                    let params = match force {
                        true => DeleteParams::default().grace_period(0),
                        false => DeleteParams::default(),
                    };
                    let deleted = pods.delete(name, &params).await;
                    forgive(deleted, 404, || format!("deleting the pod {name}"))?;
                }
                decide::Action::Annotate { name, key, value } => {
                    let patch = json!({"metadata": {"annotations": {*key: value}}});
                    let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
                    let patched = pods.patch_metadata(name, &params, &patch).await;
                    forgive(patched, 404, || format!("annotating the pod {name}"))?;
                }
            }
        }
        if resource.status.as_ref() != Some(&plan.status) {
            self.write(job, &plan.status).await?;
        }
        for news in &plan.news {
            self.tell(resource, news).await;
        }
        Ok(())
    }

    /// Writes the status, which belongs to the operator alone.
    async fn write(&self, job: &Job, status: &TrainingJobStatus) -> Result<(), Error> {
        let jobs = self.api::<TrainingJob>(job);
        let patch = json!({
            "apiVersion": TrainingJob::api_version(&()),
            "kind": TrainingJob::kind(&()),
            "status": status,
        });
        let params = PatchParams::apply(MANAGER).force();
        let written = jobs.patch_status(&job.name, &params, &Patch::Apply(patch)).await;
        // Deleted in between: there is nobody to tell.
        forgive(written, 404, || format!("writing the status of job {}", job.name))
    }

    async fn tell(&self, resource: &TrainingJob, news: &News) {
        let type_ = if news.warning { EventType::Warning } else { EventType::Normal };
        // The API server takes no longer notes.
        let note = Some(news.note.chars().take(1_000).collect());
        let action = "Reconcile".to_string();
        let event = Event { type_, reason: news.reason.clone(), note, action, secondary: None };
        let regarding = resource.object_ref(&());
        if let Err(error) = self.recorder.publish(&event, &regarding).await {
            debug!(error = root(&error), "an event cannot be written");
        }
    }

    /// Brings an object to what it should be, whoever changed it.
    async fn apply<T>(&self, job: &Job, object: &T) -> Result<(), Error>
    where
        T: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + k8s_openapi::Resource
            + Clone
            + DeserializeOwned
            + std::fmt::Debug
            + Serialize,
    {
        let name = object.name_any();
        let what = || format!("applying the {} {name}", <T as k8s_openapi::Resource>::KIND);
        let value = whole(object).map_err(|error| Error::Invalid(error.to_string()))?;
        let params = PatchParams::apply(MANAGER).force();
        let applied = self.api::<T>(job).patch(&name, &params, &Patch::Apply(value)).await;
        applied.map(drop).map_err(|error| Error::from_client(what(), error))
    }

    /// Creates an object unless it is there; whether it was created.
    async fn create<T>(&self, job: &Job, object: &T) -> Result<bool, Error>
    where
        T: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + k8s_openapi::Resource
            + Clone
            + DeserializeOwned
            + std::fmt::Debug
            + Serialize,
    {
        let what =
            || format!("creating the {} {}", <T as k8s_openapi::Resource>::KIND, object.name_any());
        match self.api::<T>(job).create(&PostParams::default(), object).await {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => Ok(false),
            Err(error) => Err(Error::from_client(what(), error)),
        }
    }

    fn api<T>(&self, job: &Job) -> Api<T>
    where
        T: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &job.namespace)
    }

    fn made(&self) -> std::sync::MutexGuard<'_, HashMap<String, (Option<i64>, Instant)>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An answer with this code is fine.
fn forgive<T>(
    answer: Result<T, kube::Error>,
    fine: u16,
    what: impl Fn() -> String,
) -> Result<(), Error> {
    match answer {
        Ok(_) => Ok(()),
        Err(error) if code(&error) == Some(fine) => Ok(()),
        Err(error) => Err(Error::from_client(what(), error)),
    }
}
