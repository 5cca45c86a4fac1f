//! The program as a plugin of kubectl: under the name `kubectl-salamander` it shows and steers the jobs of a cluster.

use std::ffi::OsStr;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::Parser;
use salamander_run::Scale;
use salamander_run::cluster::{Cluster, TrainingJob};
use serde_json::json;

use crate::{kube, ledger};

/// What the program is called as a plugin.
const NAME: &str = "kubectl-salamander";

/// Show and steer the training jobs of a cluster.
#[derive(Parser)]
#[command(name = "kubectl salamander", version, arg_required_else_help = true)]
struct Plugin {
    /// The jobs' namespace [default: that of the kubeconfig]
    #[arg(long, short, global = true, value_name = "NAME")]
    namespace: Option<String>,
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Show the jobs of the namespace, or one with its pods
    Get {
        /// The job
        job: Option<String>,
        /// Print JSON instead
        #[arg(long)]
        json: bool,
    },
    /// Print the logs of a job's pods
    Logs {
        /// The job
        job: String,
        /// Only this pod, for example worker-0, ps-0 or master
        #[arg(long)]
        role: Option<String>,
        /// Wait for more
        #[arg(long, short)]
        follow: bool,
    },
    /// Change the number of workers or parameter servers of a job
    Scale {
        /// The job
        job: String,
        /// How many workers
        #[arg(long, value_name = "N", required_unless_present = "ps")]
        workers: Option<u32>,
        /// How many parameter servers
        #[arg(long, value_name = "N")]
        ps: Option<u32>,
    },
    /// Show what each worker of a job does
    Top {
        /// The job
        job: String,
    },
    /// Show how often each epoch's records of a job that has ended were applied
    Ledger {
        /// The job
        job: String,
    },
}

/// Whether the program was called as a plugin.
pub(crate) fn is_called(program: Option<&OsStr>) -> bool {
    let name = program.and_then(|program| Path::new(program).file_stem());
    name.is_some_and(|name| name == NAME)
}

/// Does what the arguments say.
pub(crate) fn run() -> Result<ExitCode> {
    let plugin = Plugin::parse();
    let cluster = Cluster::connect(plugin.namespace.as_deref())?;
    match plugin.command {
        Command::Get { job: Some(job), json } => return kube::status(&cluster, &job, json),
        Command::Get { job: None, json } => list(&cluster.jobs()?, json)?,
        Command::Logs { job, role, follow } => {
            return kube::logs(&cluster, &job, role.as_deref(), follow);
        }
        Command::Scale { job, workers, ps } => {
            cluster.scale(&job, Scale { workers, servers: ps })?;
            outln!("scaled")?;
        }
        Command::Top { job } => top(&cluster, &job)?,
        Command::Ledger { job } => {
            let told = cluster.view(&job)?.progress.unwrap_or_default().milestones.ledger;
            ensure!(!told.is_empty(), "job {job} has told no ledger yet: it does so at its end");
            ledger::print(&told)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn list(jobs: &[TrainingJob], as_json: bool) -> Result<()> {
    if as_json {
        outln!("{}", json!(jobs))?;
        return Ok(());
    }
    let headings = ["job", "phase", "workers", "step", "loss", "goodput", "metric"];
    outln!("{}", row(headings.map(str::to_string)))?;
    jobs.iter().try_for_each(|job| outln!("{}", row(cells(job))))?;
    Ok(())
}

fn cells(job: &TrainingJob) -> [String; 7] {
    let status = job.status.clone().unwrap_or_default();
    let phase = status.phase.map(|phase| phase.to_string());
    let workers = status.workers.map(|workers| format!("{}/{}", workers.ready, workers.wanted));
    let step = status.step.map(|step| step.to_string());
    let (name, metric) = (job.metadata.name.clone(), status.metric);
    [name, phase, workers, step, status.loss, status.goodput, metric].map(Option::unwrap_or_default)
}

fn row([job, phase, workers, step, loss, goodput, metric]: [String; 7]) -> String {
    format!("{job:<41}{phase:<12}{workers:>8} {step:>9} {loss:>10} {goodput:>8}  {metric}")
}

fn top(cluster: &Cluster, job: &str) -> Result<()> {
    let view = cluster.view(job)?;
    outln!("{}", view.line())?;
    let [compute, exchange, data] = ["computing s", "exchange s", "of it data s"];
    outln!("{:<10}{:<12}{:>12}{compute:>14}{data:>14}{exchange:>14}", "worker", "does", "records")?;
    for worker in view.progress.unwrap_or_default().each {
        let (index, work) = (worker.index, worker.work.map_or("", |work| work.as_str()));
        let (compute, exchange, data) =
            (worker.seconds, worker.exchange_seconds, worker.data_seconds);
        let times = format!("{compute:>14.1}{data:>14.1}{exchange:>14.1}");
        outln!("{index:<10}{work:<12}{:>12}{times}", worker.records)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_shown_with_its_goodput() {
        let job = json!({
            "apiVersion": "salamander.dev/v1alpha1",
            "kind": "TrainingJob",
            "metadata": {"name": "mnist"},
            "spec": {
                "image": "i",
                "experiment": {"inline": {"entrypoint": "mnist_mlp"}},
                "workers": {"max": 4},
            },
            "status": {"phase": "Running", "step": 12, "loss": "0.5", "goodput": "0.973"},
        });
        let job: TrainingJob = serde_json::from_value(job).expect("a job");
        let shown = row(cells(&job));
        let shown: Vec<&str> = shown.split_whitespace().collect();
        assert_eq!(shown, ["mnist", "Running", "12", "0.5", "0.973"]);
    }

    #[test]
    fn a_plugin_is_known_by_its_name() {
        let called = |name: &str| is_called(Some(OsStr::new(name)));
        assert!(called("/usr/local/bin/kubectl-salamander") && called("kubectl-salamander"));
        assert!(!called("/usr/bin/salamander") && !is_called(None));
        <Plugin as clap::CommandFactory>::command().debug_assert();
        let scale = Plugin::try_parse_from(["k", "scale", "j", "--workers", "2", "-n", "ml"]);
        assert_eq!(scale.expect("parsed").namespace.as_deref(), Some("ml"));
        assert!(Plugin::try_parse_from(["k", "scale", "j"]).is_err());
    }
}
