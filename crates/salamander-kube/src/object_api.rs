//! Objects of a job on the API server, whatever their kind: made, or brought to what they should be.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::{DynamicObject, GroupVersionKind, NamespaceResourceScope};
use kube::discovery::ApiResource;
use kube::{Client, Resource, ResourceExt};
use serde_json::{Value, json};

use crate::Error;
use crate::crd::TrainingJob;
use crate::job::is_owned;
use crate::names::job_query;

/// The objects of a namespace.
#[derive(Clone)]
pub(crate) struct ObjectApi {
    client: Client,
    namespace: String,
    /// Who we are in the record of who set which field.
    manager: &'static str,
}

impl ObjectApi {
    pub(crate) fn new(client: Client, namespace: impl Into<String>, manager: &'static str) -> Self {
        Self { client, namespace: namespace.into(), manager }
    }

    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// All of a type that is known here.
    pub(crate) fn all<T>(&self) -> Api<T>
    where
        T: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// How this program writes: over what others have set.
    pub(crate) fn forced(&self) -> PatchParams {
        PatchParams::apply(self.manager).force()
    }

    /// Brings an object to what it should be, whoever changed it.
    pub(crate) async fn apply(&self, object: &Value) -> Result<(), Error> {
        let (api, kind, name) = self.place_of(object);
        let applied = api.patch(&name, &self.forced(), &Patch::Apply(object)).await;
        applied.map(drop).map_err(Error::doing(format!("applying the {kind} {name}")))
    }

    /// Makes an object, or brings it to what it should be. One that is not of this owner is left alone.
    pub(crate) async fn apply_owned(&self, object: &Value, uid: &str) -> Result<(), Error> {
        let Some(known) = self.create_owned(object, uid).await? else { return Ok(()) };
        let mut object = object.clone();
        // Refused by the server if it is another one by now.
        object["metadata"]["uid"] = json!(known.uid());
        self.apply(&object).await
    }

    /// Makes an object; the one that is there, if it has this owner.
    pub(crate) async fn create_owned(
        &self,
        object: &Value,
        uid: &str,
    ) -> Result<Option<DynamicObject>, Error> {
        let (api, kind, name) = self.place_of(object);
        let found = api.get_opt(&name).await;
        let found = found.map_err(Error::doing(format!("looking at the {kind} {name}")))?;
        let Some(found) = found else {
            return match self.create(object).await? {
                true => Ok(None),
                // Somebody was faster; whose it is shows next time.
                false => Err(Error::Leaving { kind, name }),
            };
        };
        let of_earlier = |owner: &OwnerReference| owner.kind == TrainingJob::kind(&());
        if is_owned(&found, uid) {
            return match found.metadata.deletion_timestamp {
                Some(_) => Err(Error::Leaving { kind, name }),
                None => Ok(Some(found)),
            };
        }
        Err(match found.owner_references().iter().any(of_earlier) {
            true => Error::Leaving { kind, name },
            false => Error::Taken { kind, name },
        })
    }

    /// Gives an object another owner, beside those that it has.
    pub(crate) async fn add_owner(
        &self,
        group: &str,
        kind: &str,
        name: &str,
        owner: &OwnerReference,
    ) -> Result<(), Error> {
        let api = self.of_kind(group, "v1", kind);
        // Strategic: owners are merged by their uid.
        let patch = Patch::Strategic(json!({"metadata": {"ownerReferences": [owner]}}));
        let patched = api.patch_metadata(name, &PatchParams::default(), &patch).await;
        unless_gone(patched, format!("saying whom the {kind} {name} goes with")).map(drop)
    }

    /// Creates an object unless it is there; whether it was created.
    pub(crate) async fn create(&self, object: &Value) -> Result<bool, Error> {
        let (api, kind, name) = self.place_of(object);
        let whole = serde_json::from_value(object.clone()).map_err(Error::invalid)?;
        match api.create(&PostParams::default(), &whole).await {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => Ok(false),
            Err(error) => Err(Error::doing(format!("creating the {kind} {name}"))(error)),
        }
    }

    /// Deletes all objects of a kind that a job has; whether there were any.
    pub(crate) async fn delete_all(
        &self,
        group: &str,
        kind: &str,
        job: &str,
    ) -> Result<bool, Error> {
        let api = self.of_kind(group, "v1", kind);
        let what = format!("deleting the {kind} of job {job}");
        let listed = api.list_metadata(&ListParams::default().labels(&job_query(job))).await;
        let found = listed.map_err(Error::doing(&what))?.items;
        for object in &found {
            // The pods of a Kubernetes job would stay otherwise.
            let deleted = api.delete(&object.name_any(), &DeleteParams::background()).await;
            unless_gone(deleted, &what)?;
        }
        Ok(!found.is_empty())
    }

    /// Where an object belongs, its kind and its name.
    fn place_of(&self, object: &Value) -> (Api<DynamicObject>, String, String) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
        let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
        let (group, version) = version.split_once('/').unwrap_or(("", &version));
        (self.of_kind(group, version, &kind), kind, text(&object["metadata"]["name"]))
    }

    fn of_kind(&self, group: &str, version: &str, kind: &str) -> Api<DynamicObject> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
    }
}

/// The answer; nothing if the object, or its kind, is not there.
pub(crate) fn unless_gone<T>(
    answer: Result<T, kube::Error>,
    what: impl Into<String>,
) -> Result<Option<T>, Error> {
    match answer.map_err(Error::doing(what)) {
        Err(Error::NotFound { .. }) => Ok(None),
        answer => answer.map(Some),
    }
}
