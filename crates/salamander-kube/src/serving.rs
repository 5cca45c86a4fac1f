//! `salamander serve` on Kubernetes, as YAML: a Deployment with a Service and an autoscaler by what waits, or a runtime
//! and a service of KServe.

use salamander_core::yaml::to_yaml;
use serde_json::{Value, json};

use crate::Error;
use crate::quantity::value;

/// Where the volume with models is in the pods.
pub const MODELS: &str = "/models";
/// The port of everything: REST, gRPC, probes, metrics.
const PORT: u16 = 8000;
/// The user of all pods, the one that distroless images call nonroot.
pub(crate) const USER: u32 = 65_532;
/// Seconds for which a pod that is to end takes requests as before: the Service hears of it later than the pod.
const LEAVING: u32 = 5;
/// The metric of a pod that an autoscaler looks at.
const WAITING: &str = "salamander_serve_waiting";

/// Models to be served on a cluster.
#[derive(Clone, Debug)]
pub struct ServingDeployment {
    /// The name of all objects.
    pub name: String,
    /// Their namespace.
    pub namespace: String,
    /// The image with the program.
    pub image: String,
    /// What to serve, as `salamander serve` takes it; paths are below [`MODELS`].
    pub models: Vec<String>,
    /// More arguments of `salamander serve`.
    pub arguments: Vec<String>,
    /// The claim with the models.
    pub claim: String,
    /// The fewest pods.
    pub min_replicas: u32,
    /// The most.
    pub max_replicas: u32,
    /// Requests that wait in a pod, on average, above which there are more pods.
    pub waiting: u32,
    /// Cores of a pod.
    pub cpu: String,
    /// Its memory.
    pub memory: String,
    /// The secret with the token (`token`) that clients must send.
    pub token_secret: Option<String>,
}

impl ServingDeployment {
    /// A Deployment, its Service, an autoscaler and a budget for disruptions.
    pub fn objects(&self) -> Result<Vec<Value>, Error> {
        self.check()?;
        let labels = self.labels();
        let mut objects = vec![
            json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": self.metadata(),
                "spec": {
                    "replicas": self.min_replicas,
                    "selector": {"matchLabels": labels},
                    // A new pod is ready before an old one goes.
                    "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
                    "template": {
                        "metadata": {"labels": labels, "annotations": {
                            "prometheus.io/scrape": "true",
                            "prometheus.io/port": PORT.to_string(),
                            "prometheus.io/path": "/metrics",
                        }},
                        "spec": self.deployed_pod(),
                    },
                },
            }),
            json!({
                "apiVersion": "v1", "kind": "Service", "metadata": self.metadata(),
                "spec": {
                    "selector": labels,
                    "ports": [{"name": "http", "port": PORT, "targetPort": "http", "protocol": "TCP"}],
                },
            }),
        ];
        if self.max_replicas > self.min_replicas {
            objects.push(self.autoscaler());
        }
        if self.min_replicas > 1 {
            objects.push(json!({
                "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": self.metadata(),
                "spec": {"maxUnavailable": 1, "selector": {"matchLabels": labels}},
            }));
        }
        Ok(objects)
    }

    /// A ServingRuntime with our program, and an InferenceService that uses it.
    pub fn kserve_objects(&self) -> Result<Vec<Value>, Error> {
        self.check()?;
        let mut container = self.container();
        container["name"] = "kserve-container".into();
        let mut runtime = self.pod();
        let volumes = runtime["volumes"].take();
        let predictor = json!({
            "minReplicas": self.min_replicas,
            "maxReplicas": self.max_replicas,
            "scaleMetric": "concurrency",
            "scaleTarget": self.waiting,
            "model": {
                "modelFormat": {"name": "salamander"},
                "runtime": self.name,
                "protocolVersion": "v2",
            },
        });
        Ok(vec![
            json!({
                "apiVersion": "serving.kserve.io/v1alpha1", "kind": "ServingRuntime", "metadata": self.metadata(),
                "spec": {
                    "supportedModelFormats": [{"name": "salamander", "version": "1", "autoSelect": false}],
                    "protocolVersions": ["v1", "v2", "grpc-v2"],
                    "containers": [container],
                    "volumes": volumes,
                },
            }),
            json!({
                "apiVersion": "serving.kserve.io/v1beta1", "kind": "InferenceService", "metadata": self.metadata(),
                "spec": {"predictor": predictor},
            }),
        ])
    }

    fn check(&self) -> Result<(), Error> {
        check_object(&self.name, [&self.cpu, &self.memory])?;
        let wrong = |reason: String| Err(Error::Invalid(reason));
        if self.models.is_empty() {
            return wrong("name at least one model".to_string());
        }
        let (least, most) = (self.min_replicas, self.max_replicas);
        if least == 0 || most < least {
            return wrong(format!(
                "{least} to {most} pods: at least 1 is needed, and not fewer at most than at least"
            ));
        }
        Ok(())
    }

    fn labels(&self) -> Value {
        json!({
            "app.kubernetes.io/name": "salamander-serve",
            "app.kubernetes.io/instance": self.name,
        })
    }

    fn metadata(&self) -> Value {
        json!({"name": self.name, "namespace": self.namespace, "labels": self.labels()})
    }

    fn deployed_pod(&self) -> Value {
        let mut pod = self.pod();
        pod["containers"][0]["lifecycle"] = json!({"preStop": {"sleep": {"seconds": LEAVING}}});
        pod
    }

    fn pod(&self) -> Value {
        let mut volumes = vec![
            json!({"name": "models", "persistentVolumeClaim": {"claimName": self.claim, "readOnly": true}}),
            json!({"name": "tmp", "emptyDir": {}}),
        ];
        if let Some(secret) = &self.token_secret {
            volumes.push(json!({"name": "token", "secret": {"secretName": secret}}));
        }
        json!({
            "automountServiceAccountToken": false,
            // What is in flight is answered before the end.
            "terminationGracePeriodSeconds": 60,
            "securityContext": {
                "runAsNonRoot": true, "runAsUser": USER, "runAsGroup": USER,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [self.container()],
            "volumes": volumes,
        })
    }

    fn container(&self) -> Value {
        let mut arguments = vec!["serve".to_string()];
        arguments.extend(self.models.iter().cloned());
        arguments.extend(["--http".to_string(), format!("0.0.0.0:{PORT}")]);
        arguments.extend(self.arguments.iter().cloned());
        let mut mounts = vec![
            json!({"name": "models", "mountPath": MODELS, "readOnly": true}),
            json!({"name": "tmp", "mountPath": "/tmp"}),
        ];
        if self.token_secret.is_some() {
            arguments.extend(["--token-file", "/etc/salamander/token/token"].map(str::to_string));
            mounts.push(
                json!({"name": "token", "mountPath": "/etc/salamander/token", "readOnly": true}),
            );
        }
        let (cores, memory) = (&self.cpu, &self.memory);
        let probe = |path: &str, period: u32, failures: u32| {
            json!({
                "httpGet": {"path": path, "port": "http"},
                "periodSeconds": period, "failureThreshold": failures, "timeoutSeconds": 5,
            })
        };
        json!({
            "name": "serve",
            "image": self.image,
            "args": arguments,
            "ports": [{"name": "http", "containerPort": PORT, "protocol": "TCP"}],
            // A large model may take minutes to load.
            "startupProbe": probe("/v2/health/ready", 2, 300),
            "readinessProbe": probe("/v2/health/ready", 5, 2),
            "livenessProbe": probe("/v2/health/live", 10, 3),
            "resources": {"requests": {"cpu": cores, "memory": memory}, "limits": {"memory": memory}},
            "securityContext": {
                "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "runAsNonRoot": true,
                "capabilities": {"drop": ["ALL"]},
            },
            "volumeMounts": mounts,
        })
    }

    /// By what waits: cores are busy long before anybody has to wait.
    fn autoscaler(&self) -> Value {
        let (least, most) = (self.min_replicas, self.max_replicas);
        json!({
            "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": self.metadata(),
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": self.name},
                "minReplicas": least,
                "maxReplicas": most,
                "metrics": [{
                    "type": "Pods",
                    "pods": {
                        "metric": {"name": WAITING},
                        "target": {"type": "AverageValue", "averageValue": self.waiting.to_string()},
                    },
                }],
                "behavior": {"scaleDown": {"stabilizationWindowSeconds": 300}},
            },
        })
    }
}

/// Refuses what cannot be the name of an object, or an amount of what its pods have.
pub(crate) fn check_object(name: &str, amounts: [&String; 2]) -> Result<(), Error> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let inner = name.trim_matches('-');
    if name.is_empty() || name.len() > 63 || inner != name || !name.chars().all(fits) {
        return Err(Error::Invalid(format!(
            "\"{name}\" cannot be the name of an object: use at most 63 small letters, digits and \"-\""
        )));
    }
    match amounts.into_iter().find(|amount| value(amount).is_none()) {
        Some(amount) => {
            let reason = format!("\"{amount}\" is no amount: write 500m or 2, 512Mi or 1Gi");
            Err(Error::Invalid(reason))
        }
        None => Ok(()),
    }
}

/// Objects as documents of one YAML file.
pub fn documents(objects: &[Value]) -> String {
    objects.iter().map(|object| format!("---\n{}", to_yaml(object))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deployment() -> ServingDeployment {
        ServingDeployment {
            name: "digits".to_string(),
            namespace: "default".to_string(),
            image: "registry.example/salamander:0.1.0".to_string(),
            models: vec!["digits=/models/mnist".to_string()],
            arguments: vec!["--watch".to_string()],
            claim: "runs".to_string(),
            min_replicas: 1,
            max_replicas: 4,
            waiting: 8,
            cpu: "2".to_string(),
            memory: "1Gi".to_string(),
            token_secret: None,
        }
    }

    #[test]
    fn a_deployment_is_probed_scaled_and_reached() {
        let objects = deployment().objects().expect("made");
        let kinds: Vec<&str> =
            objects.iter().filter_map(|object| object["kind"].as_str()).collect();
        assert_eq!(kinds, ["Deployment", "Service", "HorizontalPodAutoscaler"]);
        let container = &objects[0]["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(container["readinessProbe"]["httpGet"]["path"], "/v2/health/ready");
        assert_eq!(container["lifecycle"]["preStop"]["sleep"]["seconds"], 5);
        let args = ["serve", "digits=/models/mnist", "--http", "0.0.0.0:8000", "--watch"];
        assert_eq!(container["args"], json!(args));
        let metric = &objects[2]["spec"]["metrics"][0]["pods"];
        assert_eq!(
            (&metric["metric"]["name"], &metric["target"]["averageValue"]),
            (&json!(WAITING), &json!("8"))
        );
    }

    #[test]
    fn mistakes_are_told() {
        let check = |change: fn(&mut ServingDeployment), expected: &str| {
            let mut wrong = deployment();
            change(&mut wrong);
            let error = wrong.objects().expect_err("refused").to_string();
            assert!(error.contains(expected), "{error}");
        };
        check(|wrong| wrong.name = "Digits".to_string(), "cannot be the name");
        check(|wrong| (wrong.min_replicas, wrong.max_replicas) = (3, 2), "3 to 2 pods");
        check(|wrong| wrong.models.clear(), "at least one model");
        check(|wrong| wrong.memory = "much".to_string(), "much");
    }
}
