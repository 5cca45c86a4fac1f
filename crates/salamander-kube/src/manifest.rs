//! A job without the operator: everything that it needs, as YAML for `kubectl apply`, the way of ElasticDL.

use k8s_openapi::Resource;
use serde::Serialize;
use serde_json::Value;

use crate::job::Job;
use crate::objects::{self, Error as ObjectError};
use crate::secrets::Secrets;

/// Why there is no manifest.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A template is wrong.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// An object cannot be written.
    #[error("cannot write a manifest: {0}")]
    Json(#[from] serde_json::Error),
}

/// What is left for the pods to find: the objects of a job in the order in which they must be there.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest(Vec<Value>);

impl Manifest {
    /// The objects of a job: `experiment` is the file in force, `secrets` are fresh.
    pub fn new(job: &Job, experiment: &str, secrets: &Secrets) -> Result<Self, Error> {
        let mut objects = Vec::new();
        push(&mut objects, &objects::master_account(job, None))?;
        push(&mut objects, &objects::pod_account(job, None))?;
        push(&mut objects, &objects::role(job, None))?;
        push(&mut objects, &objects::role_binding(job, None))?;
        push(&mut objects, &objects::secret(job, secrets, None))?;
        push(&mut objects, &objects::config_map(job, experiment, None)?)?;
        push(&mut objects, &objects::network_policy(job, None))?;
        if let Some(claim) = objects::claim(job, None) {
            push(&mut objects, &claim)?;
        }
        push(&mut objects, &objects::master_service(job, None))?;
        push(&mut objects, &objects::master_job(job)?)?;
        Ok(Self(objects))
    }

    /// The objects.
    pub fn objects(&self) -> &[Value] {
        &self.0
    }

    /// As documents of one YAML file.
    pub fn to_yaml(&self) -> String {
        let documents = self.0.iter().map(|object| {
            let yaml = salamander_core::yaml::to_yaml(object);
            format!("---\n{yaml}")
        });
        documents.collect()
    }
}

/// Kubernetes' types leave out what an object is; files and patches need it.
pub(crate) fn whole<T: Resource + Serialize>(object: &T) -> Result<Value, serde_json::Error> {
    let mut value = serde_json::to_value(object)?;
    if let Some(map) = value.as_object_mut() {
        map.insert("apiVersion".to_string(), T::API_VERSION.into());
        map.insert("kind".to_string(), T::KIND.into());
    }
    Ok(value)
}

fn push<T: Resource + Serialize>(
    objects: &mut Vec<Value>,
    object: &T,
) -> Result<(), serde_json::Error> {
    objects.push(whole(object)?);
    Ok(())
}
