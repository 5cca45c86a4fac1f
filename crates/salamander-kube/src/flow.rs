//! A flow on Kubernetes, as YAML: a Job of one pod, whose processes share the flow. There are no pods for its workers:
//! what stages leave for each other is on the disk of one machine.

use serde_json::{Value, json};

use crate::Error;
use crate::serving::{USER, check_object};

/// Where the volume with the data is in the pod.
pub const DATA: &str = "/data";
/// What a command that has understood why it fails ends with, and one whose arguments are wrong.
const MISTAKES: [u8; 2] = [1, 2];

/// A flow to be run on a cluster.
#[derive(Clone, Debug)]
pub struct FlowPod {
    /// The name of the job.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// The image, whose program has flows.
    pub image: String,
    /// What to run, as `salamander flow` takes it; paths are below [`DATA`].
    pub arguments: Vec<String>,
    /// The claim with the data, which the output goes to too.
    pub claim: String,
    /// Processes that share the flow.
    pub workers: u32,
    /// How often a pod that was lost is replaced.
    pub retries: u32,
    /// Cores of the pod.
    pub cpu: String,
    /// Its memory.
    pub memory: String,
}

impl FlowPod {
    /// The Job. A flow that refuses its input is not tried again; one whose pod was lost is, with nothing of the first
    /// one's but what `--stream` has named.
    pub fn object(&self) -> Result<Value, Error> {
        self.check()?;
        let labels = json!({
            "app.kubernetes.io/name": "salamander-flow",
            "app.kubernetes.io/instance": self.name,
        });
        let disturbed = json!({"type": "DisruptionTarget", "status": "True"});
        let mistaken = json!({"containerName": "flow", "operator": "In", "values": MISTAKES});
        Ok(json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": self.name, "namespace": self.namespace, "labels": labels},
            "spec": {
                "backoffLimit": self.retries,
                "podFailurePolicy": {"rules": [
                    {"action": "FailJob", "onExitCodes": mistaken},
                    {"action": "Ignore", "onPodConditions": [disturbed]},
                ]},
                "template": {"metadata": {"labels": labels}, "spec": self.pod()},
            },
        }))
    }

    fn check(&self) -> Result<(), Error> {
        check_object(&self.name, [&self.cpu, &self.memory])?;
        let wrong = |reason: String| Err(Error::Invalid(reason));
        if !matches!(self.arguments.first().map(String::as_str), Some("run" | "sql")) {
            return wrong(
                "write what to run behind --: -- run NAME --in /data/.. --out /data/..".to_string(),
            );
        }
        if self.arguments.iter().any(|word| word == "--workers" || word.starts_with("--workers=")) {
            return wrong("--workers belongs before the --".to_string());
        }
        if self.workers == 0 {
            return wrong("--workers 0: a flow needs at least one process".to_string());
        }
        let behind = self.arguments.iter().skip_while(|word| *word != "--out").nth(1);
        let joined = self.arguments.iter().find_map(|word| word.strip_prefix("--out="));
        match behind.map(String::as_str).or(joined) {
            Some(out) if out.starts_with(&format!("{DATA}/")) => Ok(()),
            Some(out) => wrong(format!("--out {out}: write to the claim, which is in {DATA}")),
            None => wrong(format!("a pod's flow needs --out {DATA}/FOLDER")),
        }
    }

    fn pod(&self) -> Value {
        let mut arguments = vec!["flow".to_string()];
        arguments.extend(self.arguments.iter().cloned());
        if self.workers > 1 {
            arguments.extend(["--workers".to_string(), self.workers.to_string()]);
        }
        let (cores, memory) = (&self.cpu, &self.memory);
        json!({
            "automountServiceAccountToken": false,
            "restartPolicy": "Never",
            "securityContext": {
                "runAsNonRoot": true, "runAsUser": USER, "runAsGroup": USER, "fsGroup": USER,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [{
                "name": "flow",
                "image": self.image,
                "args": arguments,
                "resources": {"requests": {"cpu": cores, "memory": memory}, "limits": {"memory": memory}},
                "securityContext": {
                    "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "runAsNonRoot": true,
                    "capabilities": {"drop": ["ALL"]},
                },
                "volumeMounts": [
                    {"name": "data", "mountPath": DATA},
                    // What does not fit into --memory goes there.
                    {"name": "tmp", "mountPath": "/tmp"},
                ],
            }],
            "volumes": [
                {"name": "data", "persistentVolumeClaim": {"claimName": self.claim}},
                {"name": "tmp", "emptyDir": {}},
            ],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(arguments: &str) -> FlowPod {
        FlowPod {
            name: "adults".to_string(),
            namespace: "default".to_string(),
            image: "registry.example/flows:1".to_string(),
            arguments: arguments.split_whitespace().map(str::to_string).collect(),
            claim: "data".to_string(),
            workers: 4,
            retries: 3,
            cpu: "4".to_string(),
            memory: "8Gi".to_string(),
        }
    }

    #[test]
    fn a_pod_runs_the_flow_by_its_processes_and_is_replaced_where_it_was_lost() {
        let job =
            flow("run adults --in /data/people.csv --out /data/adults").object().expect("made");
        let container = &job["spec"]["template"]["spec"]["containers"][0];
        let line = "flow run adults --in /data/people.csv --out /data/adults --workers 4";
        assert_eq!(container["args"], json!(line.split(' ').collect::<Vec<_>>()));
        assert_eq!(job["spec"]["backoffLimit"], 3);
        let rules = &job["spec"]["podFailurePolicy"]["rules"];
        assert_eq!(
            (&rules[0]["action"], &rules[1]["action"]),
            (&json!("FailJob"), &json!("Ignore"))
        );
        let alone = FlowPod { workers: 1, ..flow("sql select --out=/data/x") };
        let job = alone.object().expect("made");
        let container = &job["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(container["args"], json!(["flow", "sql", "select", "--out=/data/x"]));
    }

    #[test]
    fn mistakes_are_told() {
        let check = |flow: FlowPod, expected: &str| {
            let error = flow.object().expect_err("refused").to_string();
            assert!(error.contains(expected), "{error}");
        };
        check(flow("list"), "write what to run behind --");
        check(flow("run adults"), "needs --out /data/FOLDER");
        check(flow("run adults --out adults"), "--out adults: write to the claim");
        check(flow("run adults --workers 2 --out /data/a"), "belongs before the --");
        check(FlowPod { workers: 0, ..flow("run adults --out /data/a") }, "at least one process");
        check(
            FlowPod { name: "Adults".to_string(), ..flow("run a --out /data/a") },
            "cannot be the name",
        );
        check(FlowPod { memory: "much".to_string(), ..flow("run a --out /data/a") }, "much");
    }
}
