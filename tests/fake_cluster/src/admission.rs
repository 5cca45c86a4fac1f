//! What a namespace refuses: more than its quota, and pods that its pod security level does not allow. The words are
//! those of a real server.

use std::sync::Arc;

use serde_json::Value;

use crate::controllers::CLAIMS;
use crate::http::Server;
use crate::kubelet::PODS;
use crate::store::{Key, Refusal};

/// Quotas of namespaces.
pub const QUOTAS: &str = "/api/v1/resourcequotas";
/// Namespaces, whose labels say what their pods may do.
pub const NAMESPACES: &str = "/api/v1/namespaces";

impl Server {
    /// Whether the namespace of an object lets it in.
    pub(crate) fn admit(self: &Arc<Self>, key: &Key, object: &Value) -> Result<(), Refusal> {
        self.within_quota(key)?;
        if key.0 == PODS { self.is_secure(key, object) } else { Ok(()) }
    }

    fn within_quota(&self, key: &Key) -> Result<(), Refusal> {
        let kind = match key.0.as_str() {
            PODS => "pods",
            CLAIMS => "persistentvolumeclaims",
            "/api/v1/secrets" => "secrets",
            _ => return Ok(()),
        };
        let store = self.store();
        let counts = |object: &Value| {
            let phase = object["status"]["phase"].as_str().unwrap_or_default();
            key.0 != PODS || !["Succeeded", "Failed"].contains(&phase)
        };
        let used = store.list(&key.0, &key.1).iter().filter(|(_, object)| counts(object)).count();
        for (quota, object) in store.list(QUOTAS, &key.1) {
            let hard = &object["spec"]["hard"][kind];
            let limit = hard.as_str().and_then(|text| text.parse::<usize>().ok());
            if limit.is_some_and(|limit| used >= limit) {
                let limit = limit.unwrap_or_default();
                let text = format!(
                    "{kind} {:?} is forbidden: exceeded quota: {}, requested: {kind}=1, used: {kind}={used}, \
                     limited: {kind}={limit}",
                    key.2, quota.2
                );
                return Err((403, "Forbidden", text));
            }
        }
        Ok(())
    }

    fn is_secure(&self, key: &Key, pod: &Value) -> Result<(), Refusal> {
        let namespace = (NAMESPACES.to_string(), String::new(), key.1.clone());
        let labels = self.store().get(&namespace).map(|found| found["metadata"]["labels"].clone());
        let labels = labels.unwrap_or_default();
        let Some(level) = labels["pod-security.kubernetes.io/enforce"].as_str() else {
            return Ok(());
        };
        let mut wrong = Vec::new();
        if level != "privileged" {
            for volume in list(&pod["spec"]["volumes"]) {
                if volume["hostPath"].is_object() {
                    let name = &volume["name"];
                    wrong.push(format!(
                        "restricted volume types (volume {name} uses restricted volume type \"hostPath\")"
                    ));
                }
            }
        }
        if level == "restricted" {
            for kind in ["initContainers", "containers"] {
                for container in list(&pod["spec"][kind]) {
                    wrong.extend(unrestricted(&pod["spec"]["securityContext"], container));
                }
            }
        }
        if wrong.is_empty() {
            return Ok(());
        }
        let text = format!(
            "pods {:?} is forbidden: violates PodSecurity \"{level}:latest\": {}",
            key.2,
            wrong.join(", ")
        );
        Err((403, "Forbidden", text))
    }
}

/// What the level `restricted` finds wrong with a container.
fn unrestricted(pod: &Value, container: &Value) -> Vec<String> {
    let (name, own) = (&container["name"], &container["securityContext"]);
    let mut wrong = Vec::new();
    if own["allowPrivilegeEscalation"] != false {
        wrong.push(format!(
            "allowPrivilegeEscalation != false (container {name} must set \
             securityContext.allowPrivilegeEscalation=false)"
        ));
    }
    if !list(&own["capabilities"]["drop"]).iter().any(|dropped| dropped == "ALL") {
        wrong.push(format!(
            "unrestricted capabilities (container {name} must set \
             securityContext.capabilities.drop=[\"ALL\"])"
        ));
    }
    if own["runAsNonRoot"] != true && pod["runAsNonRoot"] != true {
        wrong.push(format!(
            "runAsNonRoot != true (pod or container {name} must set securityContext.runAsNonRoot=true)"
        ));
    }
    let profile = |context: &Value| context["seccompProfile"]["type"].is_string();
    if !profile(own) && !profile(pod) {
        wrong.push(format!(
            "seccompProfile (pod or container {name} must set securityContext.seccompProfile.type)"
        ));
    }
    wrong
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}
