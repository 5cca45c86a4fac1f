//! A job from outside: submit it, see it, scale it, stop it, go on with it, delete it, read its logs.
//! Everything goes through the API
//! server, with the rights of whoever asks; the job's token stays in the cluster.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, Config, ResourceExt};
use salamander_core::elastic::Ending;
use serde_json::{Value, json};
use tracing::debug;

use crate::crd::TrainingJob;
use crate::manifest::Manifest;
use crate::names::{self, PodRole};
use crate::object_api::{ObjectApi, unless_gone};
use crate::pod_calls;
use crate::progress::JobProgress;
use crate::secrets::Secrets;
use crate::{Error, job::Job};

mod view;

pub use view::{PodView, View};

/// Who we are in the record of who set which field.
const MANAGER: &str = "salamander-cli";

/// What a manifest is made of, the master first: by group and kind.
const MANIFEST_KINDS: [(&str, &str); 9] = [
    ("batch", "Job"),
    ("", "Service"),
    ("networking.k8s.io", "NetworkPolicy"),
    ("", "ConfigMap"),
    ("", "Secret"),
    ("rbac.authorization.k8s.io", "RoleBinding"),
    ("rbac.authorization.k8s.io", "Role"),
    ("", "ServiceAccount"),
    ("", "PersistentVolumeClaim"),
];

/// Finds the cluster as a pod does, or as kubectl does.
pub async fn connect() -> Result<Client, Error> {
    let config = Config::infer().await.map_err(|error| Error::NoCluster(error.to_string()))?;
    Client::try_from(config).map_err(|error| Error::NoCluster(error.to_string()))
}

/// The jobs of a namespace.
#[derive(Clone)]
pub struct Jobs {
    api: ObjectApi,
}

impl Jobs {
    /// Finds the cluster as kubectl does, or as a pod does.
    pub async fn connect(namespace: Option<&str>) -> Result<Self, Error> {
        let client = connect().await?;
        let namespace = namespace.unwrap_or(client.default_namespace()).to_string();
        Ok(Self::new(client, namespace))
    }

    /// With a client that is there.
    pub fn new(client: Client, namespace: impl Into<String>) -> Self {
        Self { api: ObjectApi::new(client, namespace, MANAGER) }
    }

    /// The namespace.
    pub fn namespace(&self) -> &str {
        self.api.namespace()
    }

    /// Submits a job: to the operator, if the cluster has it, else as a manifest. True if the operator has it.
    pub async fn submit(
        &self,
        job: &Job,
        experiment: &str,
        secrets: &Secrets,
    ) -> Result<bool, Error> {
        let resource = TrainingJob::new(&job.name, job.spec.clone());
        let created = self.jobs().create(&PostParams::default(), &resource).await;
        if unless_gone(created, format!("submitting job {}", job.name))?.is_some() {
            return Ok(true);
        }
        // The cluster does not know training jobs.
        for object in Manifest::new(job, experiment, secrets)?.objects() {
            self.api.apply(object).await?;
        }
        Ok(false)
    }

    /// All jobs that operators look after.
    pub async fn all(&self) -> Result<Vec<TrainingJob>, Error> {
        let listed = self.jobs().list(&ListParams::default()).await;
        Ok(listed.map_err(Error::doing("listing the jobs"))?.items)
    }

    /// How a job stands.
    pub async fn view(&self, job: &str) -> Result<View, Error> {
        let resource = self.resource(job).await?;
        let pods = self.list(job).await?;
        if resource.is_none() && pods.is_empty() {
            return Err(self.no_job(job));
        }
        let progress = newest_master(&pods)
            .and_then(|pod| JobProgress::from_annotation(pod.annotations().get(names::PROGRESS)?));
        let pods = pods.iter().map(PodView::of).collect();
        Ok(View { resource: resource.map(Box::new), progress, pods })
    }

    /// Looks at a job every so often until it is over.
    pub async fn follow(
        &self,
        job: &str,
        every: Duration,
        mut each: impl FnMut(&View),
    ) -> Result<Ending, Error> {
        loop {
            match self.view(job).await {
                Ok(view) => {
                    each(&view);
                    if let Some(end) = view.ended() {
                        return Ok(end);
                    }
                }
                // A server that restarts does not end a job.
                Err(Error::Unreachable { reason, .. }) => debug!(reason, "following a job"),
                Err(error) => return Err(error),
            }
            tokio::time::sleep(every).await;
        }
    }

    /// Asks for another number of workers or parameter servers.
    pub async fn scale(
        &self,
        job: &str,
        workers: Option<u32>,
        servers: Option<u32>,
    ) -> Result<(), Error> {
        let changes = [("workers", names::WANTED, workers), ("ps", names::WANTED_SERVERS, servers)];
        if servers.is_some() && !self.has_servers(job).await? {
            return Err(Error::Invalid(format!("job {job} has no parameter servers")));
        }
        for (field, key, number) in changes {
            let Some(number) = number else { continue };
            if !self.change(job, &json!({"spec": {field: {"replicas": number}}})).await? {
                self.annotate(job, key, &number.to_string()).await?;
            }
        }
        Ok(())
    }

    /// Whether a job has parameter servers: their number in the spec of one without would mean nothing.
    async fn has_servers(&self, job: &str) -> Result<bool, Error> {
        let view = self.view(job).await?;
        let spec = view.resource.as_ref().map(|resource| resource.spec.servers().is_some());
        let told = view.progress.is_some_and(|progress| progress.wanted_servers > 0);
        Ok(spec.unwrap_or(told))
    }

    /// Asks for an early end; the run can go on later.
    pub async fn stop(&self, job: &str) -> Result<(), Error> {
        if self.change(job, &json!({"spec": {"suspend": true}})).await? {
            return Ok(());
        }
        self.annotate(job, names::STOP, "true").await
    }

    /// Goes on with a job that was stopped.
    pub async fn resume(&self, job: &str) -> Result<(), Error> {
        match self.change(job, &json!({"spec": {"suspend": false}})).await? {
            true => Ok(()),
            false => Err(Error::Invalid(format!("job {job}: only the operator can go on with it"))),
        }
    }

    /// Deletes a job and everything that was made for it.
    pub async fn delete(&self, job: &str) -> Result<(), Error> {
        let deleted = self.jobs().delete(job, &DeleteParams::default()).await;
        match unless_gone(deleted, format!("deleting job {job}"))? {
            Some(_) => Ok(()),
            // Without the operator nobody owns what was applied.
            None => self.delete_objects(job).await,
        }
    }

    /// Deletes the objects of a job that was submitted as a manifest.
    async fn delete_objects(&self, job: &str) -> Result<(), Error> {
        let mut found = false;
        for (group, kind) in MANIFEST_KINDS {
            found |= self.api.delete_all(group, kind, job).await?;
        }
        if found { Ok(()) } else { Err(self.no_job(job)) }
    }

    fn no_job(&self, job: &str) -> Error {
        let message = format!("there is no job {job:?} in namespace {:?}", self.namespace());
        Error::NotFound { what: "looking for the job".into(), message }
    }

    async fn resource(&self, job: &str) -> Result<Option<TrainingJob>, Error> {
        // 404 also if the cluster does not know training jobs at all.
        let found = self.jobs().get_opt(job).await;
        found.map_err(Error::doing(format!("looking at job {job}")))
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        self.api.all()
    }

    pub(crate) async fn list(&self, job: &str) -> Result<Vec<Pod>, Error> {
        pod_calls::list(&self.pods(), job).await
    }

    /// Changes the custom resource; false if there is none.
    async fn change(&self, job: &str, patch: &Value) -> Result<bool, Error> {
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        let changed = self.jobs().patch(job, &params, &patch).await;
        Ok(unless_gone(changed, format!("changing job {job}"))?.is_some())
    }

    /// Tells the master of a job without the operator.
    async fn annotate(&self, job: &str, key: &str, value: &str) -> Result<(), Error> {
        let pods = self.list(job).await?;
        let Some(master) = newest_master(&pods) else {
            let message = format!("job {job:?} has no master in namespace {:?}", self.namespace());
            return Err(Error::NotFound { what: "looking for the master".into(), message });
        };
        let annotated = pod_calls::annotate(&self.pods(), &master.name_any(), key, value).await;
        annotated.map_err(Error::doing("telling the master"))
    }

    fn jobs(&self) -> Api<TrainingJob> {
        self.api.all()
    }
}

impl std::fmt::Debug for Jobs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Jobs").field("namespace", &self.namespace()).finish_non_exhaustive()
    }
}

fn newest_master(pods: &[Pod]) -> Option<&Pod> {
    let masters =
        pods.iter().filter(|p| p.labels().get(names::ROLE).map(String::as_str) == Some("master"));
    masters.max_by_key(|pod| pod.creation_timestamp().map(|time| time.0))
}

/// As people call it: `master`, `worker-0`.
pub(crate) fn short_name(pod: &Pod) -> String {
    let label = |key: &str| pod.labels().get(key).map(String::as_str).unwrap_or_default();
    match PodRole::parse(label(names::ROLE)) {
        Some(PodRole::Master) | None => "master".to_string(),
        Some(role) => format!("{role}-{}", label(names::INDEX)),
    }
}
