//! A job without the operator: everything that it needs, as YAML for `kubectl apply`, the way of ElasticDL.

use serde_json::Value;

use crate::Error;
use crate::job::Job;
use crate::objects;
use crate::secrets::Secrets;

/// What is left for the pods to find: the objects of a job in the order in which they must be there.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest(Vec<Value>);

impl Manifest {
    /// The objects of a job: `experiment` is the file in force, `secrets` are fresh.
    pub fn new(job: &Job, experiment: &str, secrets: &Secrets) -> Result<Self, Error> {
        if job.spec.workers.gang.is_some() {
            return Err(Error::Invalid("spec.workers.gang needs the operator".to_string()));
        }
        let mut objects = objects::surroundings(job, None);
        objects.push(objects::secret(job, secrets, None));
        objects.push(objects::config_map(job, experiment, None));
        objects.extend(objects::claim(job, None));
        objects.push(objects::master_job(job)?);
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
