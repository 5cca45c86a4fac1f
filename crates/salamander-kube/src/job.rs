//! A job as both ways of submitting see it, and as its master reads it from a file.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Resource, ResourceExt};
use salamander_core::layout::EXPERIMENT;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::crd::{Scope, Strategy, TrainingJob, TrainingJobSpec, cap};
use crate::names::{self, PodRole, check_job_name};
use crate::{Error, contract};

/// Where pods see the run's folder.
pub const RUNS: &str = "/runs";
/// Where pods see the config map.
pub const CONFIG: &str = "/etc/salamander/config";
/// Where pods see the secrets: the token and the certificates.
pub const TOKEN: &str = "/etc/salamander/token";
/// The job in the config map.
pub const JOB_FILE: &str = "job.json";
/// What a job may bring along: it is in the resource as well as in the config map, and neither holds more than about
/// a mebibyte.
const MOST_FILE_BYTES: usize = 768 << 10;
/// The token in the secret.
pub const TOKEN_FILE: &str = "token";

/// A job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// What is wanted.
    pub spec: TrainingJobSpec,
    /// The secret with its token and certificates, if another than its name says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// Whether an operator looks after it.
    #[serde(default)]
    pub operated: bool,
    /// The version of the contract between whoever made the job and the program in its image.
    #[serde(default = "contract::first")]
    pub contract: u32,
    /// Labels by which queues know its pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub queue_labels: BTreeMap<String, String>,
}

impl Job {
    /// Checks what no schema can: the API server checks it by rules, which a manifest does not pass through.
    pub fn new(
        name: impl Into<String>,
        namespace: impl Into<String>,
        spec: TrainingJobSpec,
    ) -> Result<Self, Error> {
        let (name, namespace) = (name.into(), namespace.into());
        check_job_name(&name)?;
        let shared = spec.storage.as_ref().is_some_and(|storage| storage.scope == Scope::Job);
        if spec.strategy != Strategy::Allreduce && !shared {
            let advice = "spec: parameter servers keep their rows in the run's folder: give storage that all pods \
                          share (--storage-claim, --storage-size)";
            return Err(Error::Invalid(advice.to_string()));
        }
        if let Some(store) = spec.object_store() {
            store.check()?;
        }
        cap::check(&spec)?;
        check_files(&spec.experiment.files)?;
        let (contract, queue_labels) = (contract::CONTRACT, BTreeMap::new());
        Ok(Self { name, namespace, spec, secret: None, operated: false, contract, queue_labels })
    }

    /// The same job as its operator looks after it, by the uid of its resource.
    #[must_use]
    pub fn operated(self, uid: &str) -> Self {
        let secret = Some(names::own_secret(&self.name, uid));
        Self { secret, operated: true, ..self }
    }

    /// The account of its master.
    pub fn master_account(&self) -> String {
        let named = self.spec.master.template.service_account_name.clone();
        named.unwrap_or_else(|| names::master_account(&self.name))
    }

    /// The secret with its token and certificates.
    pub fn secret_name(&self) -> String {
        self.secret.clone().unwrap_or_else(|| names::secret(&self.name))
    }

    /// From the custom resource.
    pub fn from_resource(resource: &TrainingJob) -> Result<Self, Error> {
        // The API server never leaves them out.
        let missing = |what: &str| Error::Invalid(format!("a training job without a {what}"));
        let name = resource.metadata.name.clone().ok_or_else(|| missing("name"))?;
        let namespace = resource.namespace().ok_or_else(|| missing("namespace"))?;
        let mut job = Self::new(name, namespace, resource.spec.clone())?;
        let labels = resource.labels().iter();
        let of_queue = labels.filter(|(key, _)| names::QUEUE_LABELS.contains(&key.as_str()));
        job.queue_labels = of_queue.map(|(key, value)| (key.clone(), value.clone())).collect();
        Ok(job)
    }

    /// From parts of a spec as people write them, laid over each other: a file, then what was said on the command line.
    pub fn assemble(
        name: impl Into<String>,
        namespace: impl Into<String>,
        parts: &[Value],
    ) -> Result<Self, Error> {
        let mut spec = json!({"experiment": {}, "workers": {"max": 1}});
        for part in parts {
            lay_over(&mut spec, part);
        }
        let spec = serde_json::from_value(spec);
        let spec = spec.map_err(|error| Error::Invalid(format!("spec: {error}")))?;
        Self::new(name, namespace, spec)
    }

    /// The priority class of a worker: those with the first indices are the important ones.
    pub fn priority_class(&self, role: PodRole, index: u32) -> Option<&str> {
        let classes = &self.spec.priority_classes;
        // They hold what cannot be had elsewhere. Without an operator nobody says that the classes are there.
        if self.operated && role != PodRole::Worker {
            return Some(&classes.high);
        }
        let high = match (role, self.spec.workers.priority.as_deref()?) {
            (PodRole::Master | PodRole::Ps, _) | (_, "high") => true,
            (_, "low") => false,
            (_, part) => {
                let part: f64 = part.parse().unwrap_or(1.0);
                f64::from(index) < (part * f64::from(self.spec.workers.max)).ceil()
            }
        };
        Some(if high { &classes.high } else { &classes.low })
    }
}

/// They stand beside the experiment in a config map, which holds a mebibyte.
fn check_files(files: &BTreeMap<String, String>) -> Result<(), Error> {
    let wrong = |reason: String| Err(Error::Invalid(format!("spec.experiment.files: {reason}")));
    for name in files.keys() {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        if name.is_empty() || name.starts_with("..") || !name.chars().all(plain) {
            return wrong(format!("{name:?} is no name for a file of a config map"));
        }
        if [EXPERIMENT, JOB_FILE].contains(&name.as_str()) {
            return wrong(format!("{name:?} is the name of another file of the job"));
        }
    }
    let bytes: usize = files.iter().map(|(name, text)| name.len() + text.len()).sum();
    if bytes > MOST_FILE_BYTES {
        return wrong(format!(
            "{bytes} bytes are more than the {MOST_FILE_BYTES} that a job may bring along: put them into the image's \
             working folder"
        ));
    }
    Ok(())
}

/// Which fields of a job that have no effect on one that was started differ from what it was then. What the master is
/// told, and what only masters and the operator look at, has its effect at once; the experiment is compared elsewhere.
pub fn changed_fields(first: &Job, now: &Job) -> Vec<String> {
    const AT_ONCE: [&str; 8] = [
        "experiment",
        "image",
        "suspend",
        "managedBy",
        "master",
        "ttlSecondsAfterFinished",
        "activeDeadlineSeconds",
        "resourceCap",
    ];
    const OF_MEMBERS: [&str; 5] = ["resources", "maxMemory", "template", "priority", "gang"];
    let [first, now] = [first, now].map(|job| json!(job.spec));
    let keys = |one: &Value, other: &Value| {
        let keys = [one, other].into_iter().filter_map(Value::as_object).flat_map(|map| map.keys());
        keys.cloned().collect::<BTreeSet<String>>()
    };
    let mut changed = Vec::new();
    for key in keys(&first, &now) {
        match key.as_str() {
            "workers" | "ps" => {
                let parts =
                    OF_MEMBERS.iter().filter(|part| first[&key][**part] != now[&key][**part]);
                changed.extend(parts.map(|part| format!("{key}.{part}")));
            }
            known if AT_ONCE.contains(&known) || first[known] == now[known] => {}
            _ => changed.push(key),
        }
    }
    changed
}

/// The folder of a job's run, as pods see it.
pub fn folder(name: &str) -> String {
    format!("{RUNS}/{name}")
}

/// Whether an object belongs to an owner: one of the same name may belong to a job that was deleted a moment ago.
pub fn is_owned<T: ResourceExt>(object: &T, uid: &str) -> bool {
    object.owner_references().iter().any(|owner| owner.uid == uid)
}

fn lay_over(below: &mut Value, above: &Value) {
    match (below.as_object_mut(), above.as_object()) {
        (Some(below), Some(above)) => {
            for (key, value) in above {
                lay_over(below.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        _ => *below = above.clone(),
    }
}

/// The custom resource as the owner of what is made for it.
pub fn owner(resource: &TrainingJob) -> Option<OwnerReference> {
    // Not `blockOwnerDeletion`: that needs rights on finalizers, and nothing here waits for its dependents.
    let reference = resource.controller_owner_ref(&())?;
    Some(OwnerReference { block_owner_deletion: None, ..reference })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(priority: Option<&str>) -> Job {
        let spec = serde_json::json!({
            "image": "i",
            "experiment": {"inline": {}},
            "workers": {"max": 4, "priority": priority},
        });
        Job::new("j", "n", serde_json::from_value(spec).expect("a spec")).expect("a job")
    }

    fn check(priority: Option<&str>, expected: [Option<&str>; 4]) {
        let job = job(priority);
        let classes = [0, 1, 2, 3].map(|index| job.priority_class(PodRole::Worker, index));
        assert_eq!(classes, expected, "{priority:?}");
    }

    #[test]
    fn a_part_of_the_workers_is_important() {
        let (high, low) = (Some("salamander-high"), Some("salamander-low"));
        check(None, [None; 4]);
        check(Some("high"), [high; 4]);
        check(Some("low"), [low; 4]);
        check(Some("0.5"), [high, high, low, low]);
        check(Some("0.3"), [high, high, low, low]);
        check(Some("0"), [low; 4]);
        check(Some("1"), [high; 4]);
        assert_eq!(job(Some("low")).priority_class(PodRole::Master, 0), high);
        assert_eq!(job(None).priority_class(PodRole::Ps, 0), None, "classes may be missing");
        let operated = job(None).operated("u");
        assert_eq!(operated.priority_class(PodRole::Ps, 0), high);
        assert_eq!(operated.priority_class(PodRole::Worker, 0), None);
    }

    #[test]
    fn the_command_line_is_laid_over_the_file() {
        let file = json!({"image": "a", "workers": {"max": 2, "min": 2, "priority": "low"}});
        let flags = json!({"image": "b", "workers": {"max": 4}});
        let job = Job::assemble("j", "n", &[file, flags]).expect("a job");
        assert_eq!(
            (job.spec.image.as_str(), job.spec.workers.min, job.spec.workers.max),
            ("b", 2, 4)
        );
        assert_eq!(job.spec.workers.priority.as_deref(), Some("low"));
        let error = Job::assemble("j", "n", &[]).expect_err("no image").to_string();
        assert!(error.contains("image"), "{error}");
    }

    #[test]
    fn parameter_servers_need_a_folder_that_all_pods_share() {
        let job = |storage: Value| {
            let spec = json!({"image": "i", "strategy": "hybrid", "ps": {"replicas": 2}});
            Job::assemble("j", "n", &[spec, json!({"storage": storage})])
        };
        let error = job(Value::Null).expect_err("no storage").to_string();
        assert!(error.contains("storage that all pods share"), "{error}");
        assert!(job(json!({"size": "1Gi", "scope": "Master"})).is_err());
        assert_eq!(job(json!({"claimName": "runs"})).expect("a job").spec.servers(), Some(2));
        assert_eq!(self::job(None).spec.servers(), None);
    }

    #[test]
    fn changes_without_effect_are_named_and_others_are_not() {
        let check = |more: Value, expected: &[&str]| {
            let first = job(None);
            let mut spec = json!(first.spec);
            lay_over(&mut spec, &more);
            let spec = serde_json::from_value(spec).expect("a spec");
            let now = Job { spec, ..first.clone() };
            assert_eq!(changed_fields(&first, &now), expected, "{more}");
        };
        check(json!({}), &[]);
        let at_once = json!({
            "suspend": true, "workers": {"replicas": 2}, "master": {"maxCrashes": 1},
            "ttlSecondsAfterFinished": 5, "activeDeadlineSeconds": 9, "resourceCap": {"cpu": 9},
        });
        check(at_once, &[]);
        let memory = json!({"workers": {"resources": {"limits": {"memory": "2Gi"}}}});
        check(memory, &["workers.resources"]);
        let several = json!({
            "storage": {"claimName": "c"}, "imagePullSecrets": ["s"],
            "workers": {"template": {"nodeSelector": {"a": "b"}}},
        });
        check(several, &["imagePullSecrets", "storage", "workers.template"]);
    }

    #[test]
    fn a_job_survives_its_file() {
        let job = job(Some("0.5"));
        let text = serde_json::to_string(&job).expect("written");
        assert_eq!(serde_json::from_str::<Job>(&text).expect("read"), job);
        assert_eq!(folder(&job.name), "/runs/j");
        assert!(Job::new("J", "n", job.spec).is_err());
    }
}
