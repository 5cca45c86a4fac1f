//! The Helm chart is made from the files of `deploy/base`, so that both install the same; SALAMANDER_BLESS writes it.
//! The dashboard asks for figures that there are.

use std::path::{Path, PathBuf};

use salamander_kube::milestones::{Epoch, Milestones};
use salamander_kube::operator::metrics::Metrics;
use salamander_kube::platform::metrics::RunMetrics;
use salamander_kube::progress::{Progress, WorkerFigures};
use serde_json::Value;

const DEPLOY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy");
const NOTE: &str = "# Made from deploy/base by a test of salamander-kube; do not edit.\n";

/// What differs from one installation to the other: as it is in the base, as it is in the chart, and its default.
const VALUES: [(&str, &str, &str); 4] = [
    ("namespace: salamander-system", "namespace: {{ .Release.Namespace }}", ""),
    (
        "image: salamander\n",
        "image: \"{{ .Values.image.repository }}:{{ .Values.image.tag }}\"\n",
        "image:\n  repository: registry.example/salamander\n  tag: 0.1.0\n",
    ),
    ("  replicas: 1\n", "  replicas: {{ .Values.replicas }}\n", "replicas: 1\n"),
    (
        "args: [\"operator\", \"--health\", \"0.0.0.0:8081\"]\n",
        "args: [\"operator\", \"--health\", \"0.0.0.0:8081\"{{ with .Values.namespace }}, \
         \"--namespace\", {{ . | quote }}{{ end }}]\n",
        "# Looks after the jobs of this namespace only; of all, if it is empty.\nnamespace: \"\"\n",
    ),
];

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
        (folder.join("values.yaml"), format!("{NOTE}{defaults}")),
        (folder.join("crds/crd.yaml"), read("base/crd.yaml")),
    ];
    for name in ["rbac", "operator", "network-policy", "priority-classes"] {
        let mut text = read(format!("base/{name}.yaml"));
        for (base, template, _) in VALUES {
            text = text.replace(base, template);
        }
        files.push((folder.join(format!("templates/{name}.yaml")), format!("{NOTE}{text}")));
    }
    files
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

/// The values that a chart has by default, put into its templates: what `helm template` prints.
#[test]
fn the_chart_with_its_defaults_is_the_base_with_its_image() {
    let rendered = [
        ("{{ .Release.Namespace }}", "salamander-system"),
        ("{{ .Values.image.repository }}", "registry.example/salamander"),
        ("{{ .Values.image.tag }}", "0.1.0"),
        ("{{ .Values.replicas }}", "1"),
        ("{{ with .Values.namespace }}, \"--namespace\", {{ . | quote }}{{ end }}", ""),
    ];
    for (file, text) in
        chart().into_iter().filter(|(file, _)| file.starts_with("helm/salamander/templates"))
    {
        let text = rendered.iter().fold(text, |text, (from, to)| text.replace(from, to));
        assert!(!text.contains("{{"), "{}: {text}", file.display());
        let name = file.file_name().expect("a name");
        let base = read(Path::new("base").join(name));
        let base =
            base.replace("image: salamander\n", "image: \"registry.example/salamander:0.1.0\"\n");
        assert_eq!(text.trim_start_matches(NOTE), base);
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
    run.observe(&Progress { each, milestones, ..Progress::default() });
    let known = Metrics::default().encode() + &run.encode();
    let mut asked = 0;
    for panel in dashboard["panels"].as_array().expect("panels") {
        for target in panel["targets"].as_array().expect("targets") {
            let expression = target["expr"].as_str().expect("an expression");
            let at = expression.find("salamander_").expect("a figure of ours");
            let end = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
            let name = expression[at..].split(end).next().expect("a name");
            let name = name.trim_end_matches("_total");
            assert!(known.contains(&format!("# HELP {name} ")), "{name} in {expression}\n{known}");
            asked += 1;
        }
    }
    assert!(asked > 10, "{asked}");
}
