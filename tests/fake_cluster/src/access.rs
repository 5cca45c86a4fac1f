//! Who may ask for what: the operator has the rights of `deploy/base/rbac.yaml`, a pod those that roles give its
//! service
//! account, and a test's own client may do everything. What the server refuses it refuses in the words of a real one.

use std::sync::OnceLock;

use hyper::HeaderMap;
use serde_json::{Value, json};

use crate::http::Server;
use crate::kubelet::PODS;
use crate::store::{Key, Refusal};

/// By which the server knows the operator.
pub(crate) const OPERATOR: &str = "operator";
const RIGHTS: &str = include_str!("../../../deploy/base/rbac.yaml");
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/rolebindings";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/roles";

/// What a request is about.
pub(crate) struct Wish<'a> {
    /// As rules have it: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`.
    pub(crate) verb: &'static str,
    pub(crate) key: &'a Key,
    /// A part of the object that is written or read by itself, such as `status`.
    pub(crate) part: &'a str,
}

impl Wish<'_> {
    fn group(&self) -> &str {
        let words: Vec<&str> = self.key.0.trim_matches('/').split('/').collect();
        if words.first() == Some(&"apis") { words.get(1).copied().unwrap_or_default() } else { "" }
    }

    fn resource(&self) -> String {
        let resource = self.key.0.rsplit('/').next().unwrap_or_default();
        match self.part {
            "" => resource.to_string(),
            part => format!("{resource}/{part}"),
        }
    }

    fn is_allowed_by(&self, rule: &Value) -> bool {
        let has = |list: &Value, word: &str| {
            list.as_array().is_some_and(|all| all.iter().any(|item| item == word))
        };
        has(&rule["apiGroups"], self.group())
            && has(&rule["resources"], &self.resource())
            && has(&rule["verbs"], self.verb)
            && (rule["resourceNames"].is_null() || has(&rule["resourceNames"], &self.key.2))
    }
}

impl Server {
    /// Whether whoever sent these headers may have this.
    pub(crate) fn authorize(&self, headers: &HeaderMap, wish: &Wish<'_>) -> Result<(), Refusal> {
        let sent = headers.get("authorization").and_then(|value| value.to_str().ok());
        let Some(token) = sent.and_then(|text| text.strip_prefix("Bearer ")) else { return Ok(()) };
        let (account, rules) = match token {
            OPERATOR => {
                let account = "system:serviceaccount:salamander-system:salamander-operator";
                (account.to_string(), operator_rules().clone())
            }
            pod => self.pod_rules(pod, &wish.key.1),
        };
        if rules.iter().any(|rule| wish.is_allowed_by(rule)) {
            return Ok(());
        }
        let (resource, group, verb) = (wish.resource(), wish.group(), wish.verb);
        let named =
            if wish.key.2.is_empty() { String::new() } else { format!(" {:?}", wish.key.2) };
        let text = format!(
            "{resource}{named} is forbidden: User \"{account}\" cannot {verb} resource \"{resource}\" in API group \
             \"{group}\" in the namespace \"{}\"",
            wish.key.1
        );
        Err((403, "Forbidden", text))
    }

    /// The account of a pod, and what roles give it in a namespace. Its token is the pod's namespace and name.
    fn pod_rules(&self, token: &str, namespace: &str) -> (String, Vec<Value>) {
        let (home, pod) = token.split_once('/').unwrap_or_default();
        let store = self.store();
        let key = (PODS.to_string(), home.to_string(), pod.to_string());
        let spec = store.get(&key).map(|pod| pod["spec"].clone()).unwrap_or_default();
        let name = spec["serviceAccountName"].as_str().unwrap_or("default");
        let is_named = |subject: &Value| {
            subject["kind"] == "ServiceAccount"
                && subject["name"] == name
                && subject["namespace"] == home
        };
        let mut rules = Vec::new();
        for (_, binding) in store.list(BINDINGS, namespace) {
            let mut subjects = binding["subjects"].as_array().into_iter().flatten();
            let role = binding["roleRef"]["name"].as_str().unwrap_or_default();
            let role = (ROLES.to_string(), namespace.to_string(), role.to_string());
            if subjects.any(is_named) {
                let given = store.get(&role).and_then(|role| role["rules"].as_array().cloned());
                rules.extend(given.unwrap_or_default());
            }
        }
        (format!("system:serviceaccount:{home}:{name}"), rules)
    }
}

/// All that `deploy/base` gives the operator. Its lease is in its own namespace, which here is that of the jobs.
fn operator_rules() -> &'static Vec<Value> {
    static RULES: OnceLock<Vec<Value>> = OnceLock::new();
    RULES.get_or_init(|| {
        let objects = RIGHTS.split("\n---\n").map(|text| {
            let parsed = salamander_core::yaml::parse(text).expect("deploy/base/rbac.yaml");
            parsed.to_json()
        });
        let given = |object: &Value| {
            ["ClusterRole", "Role"].iter().any(|kind| object["kind"] == *kind)
                && object["metadata"]["name"] == "salamander-operator"
        };
        let rules = objects.filter(given).map(|object| object["rules"].clone());
        rules.flat_map(|rules| rules.as_array().cloned().unwrap_or_default()).collect()
    })
}

/// A kubeconfig whose user has this token, or none.
pub(crate) fn kubeconfig(address: &str, token: Option<&str>) -> String {
    let user = token.map_or(json!({}), |token| json!({"token": token}));
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": format!("http://{address}")}}],
        "users": [{"name": "test", "user": user}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
    });
    config.to_string()
}
