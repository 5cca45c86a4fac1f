//! A pipeline as an Argo Workflow: a task per step, each of which is `salamander pipeline step NAME`, so that a cluster
//! takes the decisions that one machine takes. Only the text is made here; who applies it needs Argo.

use std::collections::{BTreeMap, BTreeSet};

use salamander_core::yaml::to_yaml;
use serde_json::{Map, Value as Json, json};

use super::spec::{Pipeline, PipelineStep};
use super::template::{Known, Quoting, Reference, Template};

/// Pods that were lost, rather than failed, are begun again so often: the step itself counts its own attempts.
const LOST_PODS: u32 = 5;
/// What a step may need beyond its own times: hashing inputs, starting a pod's program.
const SLACK_SECONDS: u64 = 3600;
const VOLUME: &str = "pipeline";
const GRAPH: &str = "steps";

/// Where a workflow runs.
#[derive(Clone, Debug)]
pub struct ArgoCluster<'a> {
    /// The image that has this program.
    pub image: &'a str,
    /// The program in it.
    pub program: &'a str,
    /// The volume claim that has the pipeline's folder, and keeps its artifacts; all pods mount it.
    pub claim: &'a str,
    /// Where it is mounted: the pipeline file is in this folder.
    pub mount: &'a str,
    /// Parameters, as `--set` has them.
    pub sets: &'a [String],
    /// When to run, as cron has it: a CronWorkflow.
    pub schedule: Option<&'a str>,
}

/// The manifest of a workflow.
pub fn manifest(pipeline: &Pipeline, cluster: &ArgoCluster<'_>) -> Result<String, String> {
    if let Some(set) = cluster.sets.iter().find(|set| set.contains("{{")) {
        return Err(format!("--set {set}: Argo would replace what stands in {{{{..}}}}"));
    }
    let name = workflow_name(&pipeline.name);
    let spec = json!({
        "entrypoint": GRAPH,
        "parallelism": pipeline.parallel.unwrap_or(pipeline.steps.len()),
        "volumes": [{"name": VOLUME, "persistentVolumeClaim": {"claimName": cluster.claim}}],
        "templates": templates(pipeline, cluster),
    });
    let whole = match cluster.schedule {
        None => json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow",
            "metadata": {"generateName": format!("{name}-")}, "spec": spec,
        }),
        // One at a time: artifacts are shared.
        Some(schedule) => json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "CronWorkflow",
            "metadata": {"name": name},
            "spec": {"schedules": [schedule], "concurrencyPolicy": "Forbid", "workflowSpec": spec},
        }),
    };
    Ok(to_yaml(&whole))
}

fn templates(pipeline: &Pipeline, cluster: &ArgoCluster<'_>) -> Vec<Json> {
    let mut tasks = Vec::new();
    let mut templates = Vec::new();
    let names = task_names(pipeline);
    for step in &pipeline.steps {
        let name = names[step.name.as_str()].as_str();
        let mut task = Map::new();
        task.insert("name".into(), name.into());
        task.insert("template".into(), name.into());
        if !step.after.is_empty() {
            let after = step.after.iter().map(|step| names[step.as_str()].as_str());
            task.insert("dependencies".into(), after.collect::<Vec<_>>().into());
        }
        let items = items(pipeline, step);
        if let Some(items) = items {
            // A pod for each; the list of a step that has to run first is one pod's work.
            let number = json!([{"name": "instance", "value": "{{item}}"}]);
            task.insert("arguments".into(), json!({"parameters": number}));
            let instances = (0..items).map(|at| Json::from(format!("{}[{at}]", step.name)));
            task.insert("withItems".into(), instances.collect::<Vec<_>>().into());
        }
        tasks.push(Json::Object(task));
        let mut template = template(pipeline, step, cluster, items.is_some());
        template["name"] = name.into();
        templates.push(template);
    }
    // A failure stops what depends on it and nothing else.
    let graph = json!({"name": GRAPH, "dag": {"failFast": false, "tasks": tasks}});
    [vec![graph], templates].concat()
}

fn template(
    pipeline: &Pipeline,
    step: &PipelineStep,
    cluster: &ArgoCluster<'_>,
    by_item: bool,
) -> Json {
    let file = pipeline.file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mount = cluster.mount.trim_end_matches('/');
    let name = if by_item { "{{inputs.parameters.instance}}" } else { step.name.as_str() };
    let mut args = vec!["pipeline".to_string(), "step".into(), name.into()];
    args.push(format!("{mount}/{file}"));
    args.extend(["--out".into(), format!("{mount}/pipelines/{}", pipeline.name), "--json".into()]);
    cluster.sets.iter().for_each(|set| args.extend(["--set".into(), set.clone()]));
    let mut template = json!({
        "container": {
            "image": cluster.image,
            "command": [cluster.program],
            "args": args,
            "volumeMounts": [{"name": VOLUME, "mountPath": mount}],
        },
        "retryStrategy": {"limit": LOST_PODS, "retryPolicy": "OnError"},
    });
    if by_item {
        template["inputs"] = json!({"parameters": [{"name": "instance"}]});
    }
    // The pod that does a whole list cannot tell how long that is; the step has an eye on each item itself.
    if let Some(longest) = step.timeout.filter(|_| by_item || step.for_each.is_none()) {
        let attempts = u64::from(step.retries) + 1;
        let waits = super::duration::LONGEST_BACKOFF.as_secs().max(step.backoff.as_secs());
        let seconds = attempts * (longest.as_secs() + waits) + SLACK_SECONDS;
        template["activeDeadlineSeconds"] = seconds.into();
    }
    template
}

/// How many items a step has, if that is known before anything runs and there are any: Argo cannot make pods of none.
fn items(pipeline: &Pipeline, step: &PipelineStep) -> Option<usize> {
    let template = step.for_each.as_ref()?;
    let known = |reference: &Reference| match reference.head() {
        "params" | "parameters" => super::scope::parameter(&pipeline.parameters, reference)
            .map(|value| Known::plain(value.clone()))
            .map_err(drop),
        _ => Err(()),
    };
    let items = match template {
        Template::List(items) => items.len(),
        template => template.render(Quoting::Plain, &known).ok()?.real.as_array()?.len(),
    };
    (items > 0).then_some(items)
}

/// What Argo calls each step: its names have no `_`, and the graph has one too.
fn task_names(pipeline: &Pipeline) -> BTreeMap<&str, String> {
    let mut taken = BTreeSet::from([GRAPH.to_string()]);
    let mut names = BTreeMap::new();
    for step in &pipeline.steps {
        let plain = step.name.replace('_', "-");
        // What has dependencies begins with a letter.
        let plain = match plain.trim_start_matches('-') {
            plain if plain.starts_with(|c: char| c.is_ascii_alphabetic()) => plain.to_string(),
            plain => format!("step{plain}"),
        };
        let (mut name, mut number) = (plain.clone(), 1);
        while !taken.insert(name.clone()) {
            number += 1;
            name = format!("{plain}-{number}");
        }
        names.insert(step.name.as_str(), name);
    }
    names
}

/// A name that Kubernetes takes.
fn workflow_name(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let name: String = name.chars().map(plain).take(50).collect();
    match name.trim_matches('-') {
        "" => "pipeline".to_string(),
        name => name.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use salamander_core::yaml::parse;

    use super::super::read::PipelineText;
    use super::*;

    const FILE: &str = "
name: My Flow
parallel: 3
parameters: {rates: [1, 2]}
steps:
  raw:  {run: make ${out}, out: raw.csv, values: [files]}
  fit:  {train: x.yaml, set: {lr: '${item}'}, in: '${raw}', for_each: '${params.rates}', timeout: 1h, retries: 1}
  each: {run: 'use ${item}', for_each: '${raw.files}'}
  ship: {run: 'ship ${fit}', when: '${raw.files} != 3'}
";

    fn emit(schedule: Option<&str>) -> Json {
        let pipeline =
            Pipeline::read(&PipelineText::of_text("a/p.yaml", FILE), &[]).expect("a pipeline");
        let sets = ["rates=[1, 2]".to_string()];
        let cluster = ArgoCluster {
            image: "registry/us:1",
            program: "salamander",
            claim: "data",
            mount: "/data/",
            sets: &sets,
            schedule,
        };
        parse(&manifest(&pipeline, &cluster).expect("a manifest")).expect("YAML").to_json()
    }

    #[test]
    fn each_step_is_a_task_that_takes_its_decision_itself() {
        let workflow = emit(None);
        assert_eq!(workflow["metadata"]["generateName"], "my-flow-");
        assert_eq!(workflow["spec"]["parallelism"], 3);
        let templates = workflow["spec"]["templates"].as_array().expect("a list");
        let tasks = &templates[0]["dag"]["tasks"];
        assert_eq!(templates[0]["dag"]["failFast"], false);
        assert_eq!(tasks[0], json!({"name": "raw", "template": "raw"}));
        assert_eq!(tasks[1]["withItems"], json!(["fit[0]", "fit[1]"]));
        assert_eq!(tasks[1]["dependencies"], json!(["raw"]));
        assert_eq!(tasks[2]["withItems"], Json::Null, "its list is not known yet");
        assert_eq!(tasks[3]["dependencies"], json!(["fit", "raw"]));
        assert_eq!(tasks[3]["when"], Json::Null, "the step asks the planner");
        let fit = &templates[2];
        assert_eq!(fit["activeDeadlineSeconds"], 2 * (3600 + 300) + 3600);
        let args = [
            "pipeline",
            "step",
            "{{inputs.parameters.instance}}",
            "/data/p.yaml",
            "--out",
            "/data/pipelines/My Flow",
            "--json",
            "--set",
            "rates=[1, 2]",
        ];
        assert_eq!(fit["container"]["args"], json!(args));
    }

    /// Argo's own rule for the names of templates and tasks, which its definition does not have.
    #[test]
    fn names_of_steps_become_names_that_argo_takes() {
        let text = "
steps:
  train_data: {run: 'make ${out}', out: a}
  train-data: {run: 'make ${out}', out: a}
  steps: {run: 'use ${train_data}'}
  _1: {run: 'use ${train-data}', for_each: [], timeout: 1m}
";
        let pipeline =
            Pipeline::read(&PipelineText::of_text("p.yaml", text), &[]).expect("a pipeline");
        let cluster = ArgoCluster {
            image: "us",
            program: "salamander",
            claim: "data",
            mount: "/data",
            sets: &[],
            schedule: None,
        };
        let workflow = manifest(&pipeline, &cluster).expect("a manifest");
        let workflow = parse(&workflow).expect("YAML").to_json();
        let templates = workflow["spec"]["templates"].as_array().expect("a list");
        let of = |values: &[Json]| -> Vec<String> {
            values.iter().filter_map(|value| value["name"].as_str()).map(str::to_string).collect()
        };
        let tasks = templates[0]["dag"]["tasks"].as_array().expect("a list");
        let expected = ["train-data", "train-data-2", "steps-2", "step1"];
        assert_eq!(of(tasks), expected);
        assert_eq!(of(templates), [&["steps"][..], &expected].concat());
        assert_eq!(tasks[2]["dependencies"], json!(["train-data"]));
        assert_eq!(tasks[3]["dependencies"], json!(["train-data-2"]));
        assert_eq!(templates[4]["activeDeadlineSeconds"], Json::Null);
        assert_eq!(tasks[3]["withItems"], Json::Null, "its pod finds that there are none");
        // The program knows them by the names of the file.
        assert_eq!(templates[1]["container"]["args"][2], "train_data");
    }

    #[test]
    fn a_schedule_makes_it_a_cron_workflow() {
        let workflow = emit(Some("0 3 * * *"));
        assert_eq!(
            (&workflow["kind"], &workflow["metadata"]["name"]),
            (&json!("CronWorkflow"), &json!("my-flow"))
        );
        assert_eq!(workflow["spec"]["schedules"], json!(["0 3 * * *"]));
        assert_eq!(workflow["spec"]["workflowSpec"], emit(None)["spec"]);
    }
}
