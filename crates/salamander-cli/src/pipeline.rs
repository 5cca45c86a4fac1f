//! `salamander pipeline`: from raw data to a trained model in one file, where nothing is done twice.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Error, Result, bail};
use clap::ValueEnum;
use salamander_core::layout::PIPELINES;
use salamander_core::words::count;
use salamander_data::Blob;
use salamander_files::{Durability, replace};
use salamander_flow::pipeline::{
    ArtifactStore, Decision, Options, Pipeline, PipelineEvent, PipelineState, PipelineSummary,
    PipelineText, Status, argo, planner, run as run_steps, svg,
};
use serde_json::{Value as Json, json};

use crate::out::{self, Out};
use crate::signals::Signals;

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// Run the steps whose inputs, parameters or program have changed; after a kill or Ctrl-C, go on
    Run(RunArgs),
    /// Say which steps would run, and why
    Plan(PlanArgs),
    /// Draw the steps, as SVG
    Graph(GraphArgs),
    /// Run one step, if it is due; what it needs must have run
    Step(StepArgs),
}

#[derive(clap::Args)]
pub(crate) struct FileArgs {
    /// Change a parameter: --set epochs=5
    #[arg(long = "set", value_name = "NAME=V")]
    sets: Vec<String>,
    /// The folder for artifacts, logs and locks [default: pipelines/NAME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print one JSON object on standard output
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
pub(crate) struct RunArgs {
    /// The pipeline file
    #[arg(value_name = "PIPELINE.yaml")]
    pipeline: PathBuf,
    #[command(flatten)]
    file: FileArgs,
    /// Steps at a time [default: what the file says as `parallel`, or 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    parallel: Option<u32>,
    /// Where steps run: on this machine; or print an Argo Workflow that runs each of them in a pod
    #[arg(long, default_value = "local")]
    platform: Platform,
    #[command(flatten)]
    argo: ArgoArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Platform {
    Local,
    Kube,
}

/// Where a workflow's pods find what they need.
#[derive(clap::Args)]
#[command(next_help_heading = "Argo Workflow (--platform kube)")]
struct ArgoArgs {
    /// The image with this program
    #[arg(long)]
    image: Option<String>,
    /// The volume claim with the pipeline's folder, which all pods can write to; artifacts are kept there
    #[arg(long, value_name = "NAME")]
    claim: Option<String>,
    /// Where it is mounted; the pipeline file lies there
    #[arg(long, value_name = "DIR", default_value = "/pipeline")]
    mount: String,
    /// The program in the image
    #[arg(long, value_name = "PATH", default_value = "salamander")]
    program: String,
    /// When to run, as cron has it: makes it a CronWorkflow
    #[arg(long, value_name = "CRON")]
    schedule: Option<String>,
}

#[derive(clap::Args)]
pub(crate) struct PlanArgs {
    /// The pipeline file
    #[arg(value_name = "PIPELINE.yaml")]
    pipeline: PathBuf,
    #[command(flatten)]
    file: FileArgs,
}

#[derive(clap::Args)]
pub(crate) struct GraphArgs {
    /// The pipeline file
    #[arg(value_name = "PIPELINE.yaml")]
    pipeline: PathBuf,
    #[command(flatten)]
    file: FileArgs,
    /// The file to write [default: standard output]
    #[arg(long, value_name = "FILE.svg")]
    to: Option<PathBuf>,
}

#[derive(clap::Args)]
pub(crate) struct StepArgs {
    /// The step, or one of a fan-out: fit[2]
    name: String,
    /// The pipeline file
    #[arg(value_name = "PIPELINE.yaml", default_value = "pipeline.yaml")]
    pipeline: PathBuf,
    #[command(flatten)]
    file: FileArgs,
}

pub(crate) fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Run(args) if args.platform == Platform::Kube => {
            out::text(&workflow(&args)?)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Run(args) => {
            let parallel = args.parallel.map(|parallel| parallel as usize);
            go(&args.pipeline, &args.file, parallel, None)
        }
        Command::Step(args) => go(&args.pipeline, &args.file, None, Some(&args.name)),
        Command::Plan(args) => {
            let (pipeline, statuses) = look(&args.pipeline, &args.file)?;
            if args.file.json {
                outln!("{}", plan_json(&pipeline, &statuses))?;
            } else {
                plan_lines(&statuses).iter().try_for_each(|line| outln!("{line}"))?;
            }
            Ok(ExitCode::SUCCESS)
        }
        Command::Graph(args) => {
            let (pipeline, statuses) = look(&args.pipeline, &args.file)?;
            let picture = match args.file.json {
                true => format!("{}\n", plan_json(&pipeline, &statuses)),
                false => svg::draw(&pipeline, &statuses),
            };
            match &args.to {
                Some(file) => replace(file, picture.as_bytes(), Durability::Unsynced)
                    .with_context(|| file.display().to_string())?,
                None => out::text(&picture)?,
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// The manifest of the same pipeline on a cluster.
fn workflow(args: &RunArgs) -> Result<String> {
    let sets = &args.file.sets;
    let pipeline = Pipeline::read(&PipelineText::of_file(&args.pipeline)?, sets)?;
    let argo = &args.argo;
    let cluster = argo::ArgoCluster {
        image: argo.image.as_deref().context("--platform kube: name the --image of the pods")?,
        claim: argo
            .claim
            .as_deref()
            .context("--platform kube: name the volume --claim of the pods")?,
        mount: &argo.mount,
        program: &argo.program,
        sets,
        schedule: argo.schedule.as_deref(),
    };
    argo::manifest(&pipeline, &cluster).map_err(Error::msg)
}

/// Asks this process to end when the pipeline that started it is killed, so that no training goes on unseen. Where the
/// system has no such thing, the next run ends it.
pub(crate) fn end_with_parent() {
    #[cfg(target_os = "linux")]
    if let Ok(parent) = std::env::var(salamander_core::environment::PARENT) {
        use rustix::process::{Signal, getppid, set_parent_process_death_signal};
        let is_parent = getppid().is_some_and(|pid| pid.as_raw_nonzero().to_string() == parent);
        if is_parent {
            let _ = set_parent_process_death_signal(Some(Signal::TERM));
        }
    }
}

fn open(file: &Path, args: &FileArgs) -> Result<(Pipeline, ArtifactStore)> {
    let pipeline = Pipeline::read(&PipelineText::of_file(file)?, &args.sets)?;
    let folder = args.out.clone().unwrap_or_else(|| Path::new(PIPELINES).join(pipeline.name()));
    let store = ArtifactStore::open(&folder, remote)?;
    Ok((pipeline, store))
}

/// What stands for the content of an address: its size and what its server calls its version.
fn remote(place: &str) -> Result<String, String> {
    let files = salamander_data::files(&[PathBuf::from(place)], None).map_err(|e| e.to_string())?;
    let mut versions = Vec::new();
    for file in files {
        let blob = Blob::open(&file).map_err(|error| error.to_string())?;
        versions.push(format!("{}: {} bytes, {}", file.display(), blob.size(), blob.version()));
    }
    Ok(blake3::hash(versions.join("\n").as_bytes()).to_hex().to_string())
}

fn look(file: &Path, args: &FileArgs) -> Result<(Pipeline, Vec<Status>)> {
    let (pipeline, store) = open(file, args)?;
    let statuses = planner::look(&pipeline, &store, &planner::PipelineProgress::default());
    Ok((pipeline, statuses))
}

fn go(
    file: &Path,
    args: &FileArgs,
    parallel: Option<usize>,
    only: Option<&str>,
) -> Result<ExitCode> {
    let (pipeline, mut store) = open(file, args)?;
    store.claim(only.is_some())?;
    let signals = Signals::install()?;
    let out = if args.json { Out::Stderr } else { Out::Stdout };
    let options = Options { parallel, only, stop: &signals.stop };
    let summary = run_steps(&pipeline, &store, options, &mut |event| out.line(&told(event)))?;
    let folder = store.layout().folder().display().to_string();
    out.line(&format!("{} in {folder}", ending(&summary)));
    if args.json {
        let mut object = json!(summary);
        object["pipeline"] = pipeline.name().into();
        object["dir"] = folder.clone().into();
        // A reader that has gone away must not hide how the pipeline ended.
        match outln!("{object}") {
            Ok(()) | Err(out::Error::Closed) => {}
            Err(error) => return Err(error.into()),
        }
    }
    match summary.state {
        PipelineState::Completed => Ok(ExitCode::SUCCESS),
        PipelineState::Interrupted => {
            errln!("interrupted; the same command goes on");
            Ok(ExitCode::from(signals.exit_code()))
        }
        PipelineState::Failed => {
            let failed = summary.steps.iter().filter(|step| step.state == "failed");
            let failed: Vec<String> =
                failed.map(|step| format!("step {}: {}", step.name, step.why)).collect();
            bail!("{}", failed.join("\n       "))
        }
    }
}

fn told(event: PipelineEvent) -> String {
    match event {
        PipelineEvent::Begins(step, why) => format!("{step}: begins ({why})"),
        PipelineEvent::Done(step, seconds) => format!("{step}: done in {seconds:.1} s"),
        PipelineEvent::Unchanged(step) => format!("{step}: nothing changed"),
        PipelineEvent::Skipped(step, why) => format!("{step}: skipped ({why})"),
        PipelineEvent::Failed(step, why) => format!("{step}: failed: {why}"),
        PipelineEvent::Note(step, text) => format!("{step}: {text}"),
    }
}

fn ending(summary: &PipelineSummary) -> String {
    let with = |state: &str| summary.steps.iter().filter(|step| step.state == state).count() as u64;
    let mut parts = vec![format!("{} ran", count(with("done"), "step"))];
    for state in ["unchanged", "skipped", "failed", "blocked", "stopped"] {
        if with(state) > 0 {
            parts.push(format!("{} {state}", with(state)));
        }
    }
    parts.join(", ")
}

fn word(decision: &Decision) -> &'static str {
    match decision {
        Decision::Run(_) | Decision::Running => "run",
        Decision::Unchanged(..) | Decision::Done(_) => "unchanged",
        Decision::Wait => "wait",
        Decision::Skip => "skip",
        Decision::Failed | Decision::Refused => "fail",
        Decision::Blocked => "blocked",
    }
}

/// `wait` is shown as what it is for a reader: it depends on what others leave.
fn plan_lines(statuses: &[Status]) -> Vec<String> {
    let widest = statuses.iter().map(|status| status.instance.len()).max().unwrap_or(0);
    let line = |status: &Status| {
        let (name, why) = (&status.instance, &status.why);
        match status.decision {
            Decision::Wait => format!("{name:<widest$}  depends    {why}"),
            _ => format!("{name:<widest$}  {:<9}  {why}", word(&status.decision)),
        }
    };
    statuses.iter().map(line).collect()
}

fn plan_json(pipeline: &Pipeline, statuses: &[Status]) -> Json {
    let step = |status: &Status| {
        let step = pipeline.step(&status.step);
        let after: Vec<&str> = step.map(|step| step.after().collect()).unwrap_or_default();
        json!({
            "name": status.instance, "step": status.step, "kind": step.map(|step| step.kind().name),
            "after": after, "decision": word(&status.decision), "why": status.why,
            "runs": matches!(status.decision, Decision::Run(_)),
        })
    };
    let steps: Vec<Json> = statuses.iter().map(step).collect();
    json!({"pipeline": pipeline.name(), "steps": steps})
}
