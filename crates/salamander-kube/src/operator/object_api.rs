//! Objects of a job on the API server: made, or brought to what they should be.

use k8s_openapi::NamespaceResourceScope;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, code};
use crate::manifest::whole;

/// Who we are in the record of who set which field.
pub(crate) const MANAGER: &str = "salamander-operator";

/// An object that can be written.
pub(super) trait Object:
    Resource<Scope = NamespaceResourceScope, DynamicType = ()>
    + k8s_openapi::Resource
    + Clone
    + DeserializeOwned
    + std::fmt::Debug
    + Serialize
{
}

impl<T> Object for T where
    T: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + k8s_openapi::Resource
        + Clone
        + DeserializeOwned
        + std::fmt::Debug
        + Serialize
{
}

/// The objects of a namespace.
pub(super) struct ObjectApi<'a> {
    client: &'a Client,
    namespace: &'a str,
}

impl<'a> ObjectApi<'a> {
    pub(super) fn new(client: &'a Client, namespace: &'a str) -> Self {
        Self { client, namespace }
    }

    pub(super) fn all<T>(&self) -> Api<T>
    where
        T: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), self.namespace)
    }

    /// Brings an object to what it should be, whoever changed it.
    pub(super) async fn apply<T: Object>(&self, object: &T) -> Result<(), Error> {
        let name = object.name_any();
        let value = whole(object).map_err(|error| Error::Invalid(error.to_string()))?;
        let params = PatchParams::apply(MANAGER).force();
        let applied = self.all::<T>().patch(&name, &params, &Patch::Apply(value)).await;
        let what = || format!("applying the {} {name}", <T as k8s_openapi::Resource>::KIND);
        applied.map(drop).map_err(|error| Error::from_client(what(), error))
    }

    /// Creates an object unless it is there; whether it was created.
    pub(super) async fn create<T: Object>(&self, object: &T) -> Result<bool, Error> {
        match self.all::<T>().create(&PostParams::default(), object).await {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => Ok(false),
            Err(error) => {
                let kind = <T as k8s_openapi::Resource>::KIND;
                let what = format!("creating the {kind} {}", object.name_any());
                Err(Error::from_client(what, error))
            }
        }
    }
}

/// Whatever was to be done to an object that is gone by now is done.
pub(super) fn unless_gone<T>(
    answer: Result<T, kube::Error>,
    what: impl Fn() -> String,
) -> Result<(), Error> {
    match answer {
        Ok(_) => Ok(()),
        Err(error) if code(&error) == Some(404) => Ok(()),
        Err(error) => Err(Error::from_client(what(), error)),
    }
}
