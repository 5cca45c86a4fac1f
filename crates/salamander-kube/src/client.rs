//! A job from outside: submit it, see it, scale it, stop it, read its logs. Everything goes through the API
//! server, with the rights of whoever asks; the job's token stays in the cluster.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::DynamicObject;
use kube::discovery::ApiResource;
use kube::{Client, Config, ResourceExt};
use serde_json::{Value, json};
use tracing::debug;

use crate::crd::{Phase, TrainingJob};
use crate::error::code;
use crate::manifest::Manifest;
use crate::names::{self, Role};
use crate::progress::{End, Progress};
use crate::secrets::Secrets;
use crate::{Error, job::Job};

/// Who we are in the record of who set which field.
const MANAGER: &str = "salamander-cli";

/// Finds the cluster as a pod does, or as kubectl does.
pub async fn connect() -> Result<Client, Error> {
    let config = Config::infer().await.map_err(|error| Error::NoCluster(error.to_string()))?;
    Client::try_from(config).map_err(|error| Error::NoCluster(error.to_string()))
}

/// The jobs of a namespace.
#[derive(Clone)]
pub struct Jobs {
    client: Client,
    namespace: String,
}

/// What is known of a job from outside.
#[derive(Clone, Debug)]
pub struct View {
    /// The custom resource, if the operator looks after it.
    pub resource: Option<Box<TrainingJob>>,
    /// What its master tells.
    pub progress: Option<Progress>,
    /// Its pods: name, role, phase.
    pub pods: Vec<(String, String, String)>,
}

impl View {
    /// How the job ended, if it did.
    pub fn ended(&self) -> Option<End> {
        let status = self.resource.as_ref().and_then(|resource| resource.status.as_ref());
        let message = || status.and_then(|status| status.message.clone()).unwrap_or_default();
        match status.and_then(|status| status.phase) {
            Some(Phase::Complete) => Some(End::Completed),
            Some(Phase::Failed | Phase::Invalid) => Some(End::Failed(message())),
            Some(Phase::Suspended) => Some(End::Interrupted),
            Some(_) => None,
            None if self.resource.is_some() => None,
            None => self.progress.as_ref()?.ended(),
        }
    }

    /// In one word.
    pub fn phase(&self) -> String {
        let status = self.resource.as_ref().and_then(|resource| resource.status.as_ref());
        let phase = status.and_then(|status| status.phase).map(|phase| phase.as_str().to_string());
        let state = self.progress.as_ref().map(|progress| progress.state.clone());
        phase.or(state).unwrap_or_else(|| "Pending".to_string())
    }

    /// For people, in one line.
    pub fn line(&self) -> String {
        let mut line = self.head();
        if let Some(progress) = &self.progress {
            if let (Some(step), Some(epoch)) = (progress.step, progress.epoch) {
                line += &format!(", epoch {epoch}, step {step}");
            }
            if let Some(loss) = progress.loss {
                line += &format!(", loss {loss:.4}");
            }
        }
        let status = self.resource.as_ref().and_then(|resource| resource.status.as_ref());
        if let Some(message) = status.and_then(|status| status.message.as_deref()) {
            line += &format!(" ({message})");
        }
        line
    }

    /// The phase, and who takes part.
    pub fn head(&self) -> String {
        let mut line = self.phase();
        if let Some(progress) = &self.progress {
            line += &format!(", {} of {} workers", progress.workers, progress.wanted);
            if progress.wanted_servers > 0 {
                let (servers, wanted) = (progress.servers, progress.wanted_servers);
                line += &format!(", {servers} of {wanted} parameter servers");
            }
        }
        line
    }

    /// For programs.
    pub fn json(&self) -> Value {
        let status = self.resource.as_ref().and_then(|resource| resource.status.as_ref());
        let pods = self
            .pods
            .iter()
            .map(|(name, role, phase)| json!({"name": name, "role": role, "phase": phase}));
        json!({
            "state": self.phase(),
            "status": status,
            "progress": self.progress,
            "pods": pods.collect::<Vec<Value>>(),
        })
    }
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
        Self { client, namespace: namespace.into() }
    }

    /// The namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The client.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Submits a job: to the operator, if the cluster has it, else as a manifest. True if the operator has it.
    pub async fn submit(
        &self,
        job: &Job,
        experiment: &str,
        secrets: &Secrets,
    ) -> Result<bool, Error> {
        let resource = TrainingJob::new(&job.name, job.spec.clone());
        let what = || format!("submitting job {}", job.name);
        match self.jobs().create(&PostParams::default(), &resource).await {
            Ok(_) => Ok(true),
            // The cluster does not know training jobs.
            Err(error) if code(&error) == Some(404) => {
                let manifest = Manifest::new(job, experiment, secrets);
                let manifest = manifest.map_err(|error| Error::Invalid(error.to_string()))?;
                for object in manifest.objects() {
                    self.apply(object).await?;
                }
                Ok(false)
            }
            Err(error) => Err(Error::from_client(what(), error)),
        }
    }

    /// How a job stands.
    pub async fn view(&self, job: &str) -> Result<View, Error> {
        let resource = self.resource(job).await?;
        let pods = self.list(job).await?;
        if resource.is_none() && pods.is_empty() {
            let message = format!("there is no job {job:?} in namespace {:?}", self.namespace);
            return Err(Error::NotFound { what: "looking for the job".into(), message });
        }
        let progress = newest_master(&pods)
            .and_then(|pod| Progress::from_annotation(pod.annotations().get(names::PROGRESS)?));
        let phase = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.clone());
        let label = |pod: &Pod| pod.labels().get(names::ROLE).cloned().unwrap_or_default();
        let row = |pod: &Pod| (pod.name_any(), label(pod), phase(pod).unwrap_or_default());
        let pods = pods.iter().map(row).collect();
        Ok(View { resource: resource.map(Box::new), progress, pods })
    }

    /// Looks at a job every so often until it is over.
    pub async fn follow(
        &self,
        job: &str,
        every: Duration,
        mut each: impl FnMut(&View),
    ) -> Result<End, Error> {
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
        let wishes = [("workers", names::WANTED, workers), ("ps", names::WANTED_SERVERS, servers)];
        if servers.is_some() && !self.has_servers(job).await? {
            return Err(Error::Invalid(format!("job {job} has no parameter servers")));
        }
        for (field, key, number) in wishes {
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
        let what = || format!("deleting job {job}");
        match self.jobs().delete(job, &DeleteParams::default()).await {
            Ok(_) => Ok(()),
            Err(error) => Err(Error::from_client(what(), error)),
        }
    }

    async fn resource(&self, job: &str) -> Result<Option<TrainingJob>, Error> {
        // 404 also if the cluster does not know training jobs at all.
        let found = self.jobs().get_opt(job).await;
        found.map_err(|error| Error::from_client(format!("looking at job {job}"), error))
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(crate) async fn list(&self, job: &str) -> Result<Vec<Pod>, Error> {
        let api = self.pods();
        let params = ListParams::default().labels(&names::job_query(job));
        let listed = api.list(&params).await;
        Ok(listed.map_err(|error| Error::from_client("listing the job's pods", error))?.items)
    }

    /// Changes the custom resource; false if there is none.
    async fn change(&self, job: &str, patch: &Value) -> Result<bool, Error> {
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        match self.jobs().patch(job, &params, &patch).await {
            Ok(_) => Ok(true),
            Err(error) if code(&error) == Some(404) => Ok(false),
            Err(error) => Err(Error::from_client(format!("changing job {job}"), error)),
        }
    }

    /// Tells the master of a job without the operator.
    async fn annotate(&self, job: &str, key: &str, value: &str) -> Result<(), Error> {
        let pods = self.list(job).await?;
        let Some(master) = newest_master(&pods) else {
            let message = format!("job {job:?} has no master in namespace {:?}", self.namespace);
            return Err(Error::NotFound { what: "looking for the master".into(), message });
        };
        let api = self.pods();
        let patch = Patch::Merge(json!({"metadata": {"annotations": {key: value}}}));
        let patched = api.patch_metadata(&master.name_any(), &PatchParams::default(), &patch).await;
        patched.map(drop).map_err(|error| Error::from_client("telling the master", error))
    }

    async fn apply(&self, object: &Value) -> Result<(), Error> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
        let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
        let name = text(&object["metadata"]["name"]);
        let (group, version) = match version.split_once('/') {
            Some((group, version)) => (group.to_string(), version.to_string()),
            None => (String::new(), version),
        };
        let gvk = kube::core::GroupVersionKind { group, version, kind };
        let resource = ApiResource::from_gvk(&gvk);
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), &self.namespace, &resource);
        let params = PatchParams::apply(MANAGER).force();
        let applied = api.patch(&name, &params, &Patch::Apply(object)).await;
        let what = format!("applying the {} {name}", gvk.kind);
        applied.map(drop).map_err(|error| Error::from_client(what, error))
    }

    fn jobs(&self) -> Api<TrainingJob> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }
}

impl std::fmt::Debug for Jobs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Jobs").field("namespace", &self.namespace).finish_non_exhaustive()
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
    match Role::parse(label(names::ROLE)) {
        Some(Role::Master) | None => "master".to_string(),
        Some(role) => format!("{role}-{}", label(names::INDEX)),
    }
}
