//! Kubernetes: `crd`, `operator`, `manifest`, a master in a pod, and jobs of a cluster. All that decides is in
//! `salamander-kube`; this file only reads arguments and prints.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use salamander_core::experiment::{Experiment, Strategy};
use salamander_core::yaml;
use salamander_kube::client::{Jobs, View};
use salamander_kube::job::Job;
use salamander_kube::manifest::Manifest;
use salamander_kube::platform;
use salamander_kube::progress::End;
use salamander_kube::secrets::Secrets;
use salamander_kube::{crd as definition, experiment as job_experiment};
use salamander_master::Config;
use salamander_net::Keys;
use salamander_proto::client::SessionOptions;
use salamander_train::model::Models;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

use super::experiment::{in_file, strategy};
use super::roles::log_to_stderr;
use super::signals::LEFT;
use crate::ui::{JobFollower, Out, job_line};

/// How often a job is looked at that is followed.
const FOLLOW: Duration = Duration::from_secs(1);

/// Where a run is.
#[derive(clap::Args)]
pub(super) struct PlaceArgs {
    /// Where the run is: in a folder of this machine, or a job of a cluster
    #[arg(long, value_parser = ["local", "kube"], default_value = "local")]
    platform: String,
    /// The job's namespace [default: that of the kubeconfig]
    #[arg(long, value_name = "NAME")]
    namespace: Option<String>,
}

impl PlaceArgs {
    pub(super) fn is_cluster(&self) -> bool {
        self.platform == "kube"
    }
}

/// A job as the command line describes it.
#[derive(clap::Args)]
pub(super) struct JobArgs {
    #[command(flatten)]
    place: PlaceArgs,
    /// The image with this program
    #[arg(long)]
    image: Option<String>,
    /// The job's name [default: the experiment's]
    #[arg(long = "job", value_name = "NAME")]
    name: Option<String>,
    /// A file with more of a training job's spec: resources, templates, priority
    #[arg(long, value_name = "FILE")]
    spec: Option<PathBuf>,
    /// A claim for the run's folder, which stays
    #[arg(long, value_name = "NAME")]
    storage_claim: Option<String>,
    /// The size of a claim for the run's folder, which goes with the job
    #[arg(long, value_name = "AMOUNT", conflicts_with = "storage_claim")]
    storage_size: Option<String>,
    /// The secret with the credentials of the store that checkpoints are put into
    #[arg(long, value_name = "NAME")]
    store_secret: Option<String>,
}

impl JobArgs {
    pub(super) fn is_cluster(&self) -> bool {
        self.place.is_cluster()
    }
}

#[derive(clap::Args)]
pub(super) struct OperatorArgs {
    /// Look after the jobs of this namespace only
    #[arg(long, value_name = "NAME")]
    namespace: Option<String>,
    /// Where to answer probes and show metrics
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:8081")]
    health: SocketAddr,
}

#[derive(clap::Args)]
pub(super) struct ManifestArgs {
    /// The experiment file; its paths are those that the pods see
    experiment: PathBuf,
    /// Change a field: --set hyperparameters.learning_rate=0.1
    #[arg(long = "set", value_name = "A.B=V")]
    sets: Vec<String>,
    /// The fewest workers to train with
    #[arg(long, value_name = "N", requires = "max_workers")]
    min_workers: Option<u32>,
    /// The most workers to use
    #[arg(long, value_name = "N")]
    max_workers: Option<u32>,
    /// Where gradients meet: in a ring, on parameter servers, or tables on servers and the rest in a ring
    #[arg(long, value_parser = ["allreduce", "ps", "hybrid"])]
    strategy: Option<String>,
    /// How many parameter servers hold the model's tables
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    ps: Option<u32>,
    /// Put checkpoints into an object store as well: s3://bucket/prefix, gs://.. or az://..
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    #[command(flatten)]
    job: JobArgs,
}

/// For a master in a pod.
#[derive(clap::Args)]
pub(super) struct PodArgs {
    /// Who starts workers: whoever attaches, or pods
    #[arg(long, value_parser = ["local", "kube"], default_value = "local")]
    platform: String,
    /// The job that pods are made of
    #[arg(long, value_name = "FILE", default_value = "/etc/salamander/config/job.json")]
    job: PathBuf,
    /// Where to answer probes
    #[arg(long, value_name = "IP:PORT", default_value = "0.0.0.0:8081")]
    health: SocketAddr,
}

impl PodArgs {
    pub(super) fn is_asked(&self) -> bool {
        self.platform == "kube"
    }
}

/// Prints the custom resource's definition.
pub(super) fn crd() -> Result<ExitCode> {
    print!("{}", definition::definition_yaml()?);
    Ok(ExitCode::SUCCESS)
}

/// Looks after the jobs of a cluster.
pub(super) fn operator(args: OperatorArgs) -> Result<ExitCode> {
    log_to_stderr("operator", 0);
    let runtime = Runtime::new()?;
    let served = async {
        salamander_kube::operator::serve(args.namespace, args.health, terminated()?).await?;
        Ok(ExitCode::SUCCESS)
    };
    runtime.block_on(served)
}

/// Prints what a job needs without the operator.
pub(super) fn manifest(args: &ManifestArgs, models: &Models) -> Result<ExitCode> {
    let mut sets = args.sets.clone();
    let least = args.min_workers.unwrap_or(1);
    sets.extend(args.max_workers.map(|most| format!("workers={{min: {least}, max: {most}}}")));
    sets.extend(args.strategy.iter().map(|strategy| format!("strategy={strategy}")));
    sets.extend(args.ps.iter().map(|servers| format!("ps.servers={servers}")));
    sets.extend(args.store.iter().map(|url| format!("checkpoint_storage.store={url}")));
    if args.ps.is_some() && !strategy(&args.experiment, &sets)?.has_servers() {
        sets.push("strategy=hybrid".to_string());
    }
    let namespace = args.job.place.namespace.as_deref().unwrap_or("default");
    let (job, experiment) = read(&args.experiment, &sets, &args.job, namespace, models)?;
    print!("{}", Manifest::new(&job, &experiment, &Secrets::random()?)?.to_yaml());
    Ok(ExitCode::SUCCESS)
}

/// Submits a job and follows it. Ctrl-C leaves the job alone.
pub(super) fn train(
    file: &Path,
    sets: &[String],
    args: &JobArgs,
    models: &Models,
    as_json: bool,
) -> Result<ExitCode> {
    Runtime::new()?.block_on(async {
        let jobs = Jobs::connect(args.place.namespace.as_deref()).await?;
        let (job, experiment) = read(file, sets, args, jobs.namespace(), models)?;
        let operated = jobs.submit(&job, &experiment, &Secrets::random()?).await?;
        let by = if operated { "the operator" } else { "its own master; there is no operator" };
        eprintln!("job {} in namespace {} is looked after by {by}", job.name, job.namespace);
        let out = if as_json { Out::Stderr } else { Out::Stdout };
        let mut follower = JobFollower::new(out);
        let mut last = None;
        let end = jobs.follow(&job.name, FOLLOW, |view| {
            follower.take(view);
            last = Some(view.clone());
        });
        let end = end.await?;
        follower.finish();
        let Some(view) = last else { bail!("job {} was never seen", job.name) };
        finish(&job, &end, &view, as_json)
    })
}

/// Tells how a job ended.
fn finish(job: &Job, end: &End, view: &View, as_json: bool) -> Result<ExitCode> {
    let state = match end {
        End::Completed => "completed",
        End::Interrupted => "interrupted",
        End::Failed(_) => "failed",
    };
    let line = job_line(&job.name, &job.folder(), state, view);
    if as_json {
        println!("{line}");
    } else {
        println!("\njob        {} ({state})", job.name);
        println!("trained    {} steps, {} records", line["steps"], line["records"]);
        let values = line["metrics"]["validation"].as_object().into_iter().flatten();
        let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
        let shown: Vec<String> =
            values.map(|(name, value)| format!("{name} {:.4}", number(value))).collect();
        if !shown.is_empty() {
            println!("validation {}", shown.join(", "));
        }
    }
    match end {
        End::Completed => Ok(ExitCode::SUCCESS),
        End::Interrupted => Ok(ExitCode::from(LEFT)),
        End::Failed(reason) => bail!("job {}: {reason}", job.name),
    }
}

/// Shows how a job stands.
pub(super) fn status(job: &str, place: &PlaceArgs, as_json: bool) -> Result<ExitCode> {
    Runtime::new()?.block_on(async {
        let view = Jobs::connect(place.namespace.as_deref()).await?.view(job).await?;
        if as_json {
            println!("{}", view.json());
            return Ok(ExitCode::SUCCESS);
        }
        println!("{}", view.line());
        for (name, role, phase) in &view.pods {
            println!("{role:<8}{phase:<12}{name}");
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// Prints the logs of a job's pods.
pub(super) fn logs(
    job: &str,
    place: &PlaceArgs,
    role: Option<&str>,
    follow: bool,
) -> Result<ExitCode> {
    Runtime::new()?.block_on(async {
        let jobs = Jobs::connect(place.namespace.as_deref()).await?;
        // An unknown job is named, rather than shown as one without logs.
        jobs.view(job).await?;
        let print = |pod: &str, line: &str| Out::Stdout.line(&format!("{pod:<10} {line}"));
        match follow {
            true => jobs.follow_logs(job, role, FOLLOW, print).await?,
            false => jobs.logs(job, role, print).await?,
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// Changes the number of workers or parameter servers of a job.
pub(super) fn scale(
    job: &str,
    place: &PlaceArgs,
    (workers, servers): (Option<u32>, Option<u32>),
) -> Result<()> {
    Runtime::new()?.block_on(async {
        let jobs = Jobs::connect(place.namespace.as_deref()).await?;
        Ok(jobs.scale(job, workers, servers).await?)
    })
}

/// Stops a job so that it can go on later.
pub(super) fn stop(job: &str, place: &PlaceArgs) -> Result<ExitCode> {
    Runtime::new()?.block_on(async {
        Jobs::connect(place.namespace.as_deref()).await?.stop(job).await?;
        println!("asked to stop");
        Ok(ExitCode::SUCCESS)
    })
}

/// Leads a run in a pod, with the platform of pods beside the master.
pub(super) async fn lead(
    config: Config,
    listen: SocketAddr,
    args: &PodArgs,
    keys: &Keys,
) -> Result<ExitCode> {
    let own = std::env::var("POD_IP").ok().and_then(|ip| ip.parse().ok());
    let (listen, health) = (in_family(listen, own), in_family(args.health, own));
    let listener = TcpListener::bind(listen).await.with_context(|| listen.to_string())?;
    let address = listener.local_addr()?;
    println!("listening on {address}");
    let session = SessionOptions::of(format!("127.0.0.1:{}", address.port()), keys);
    let options = platform::Options::in_pod(&args.job, session)?;
    let mut master = tokio::spawn(salamander_master::run(config, listener, terminated()?));
    let pods = platform::serve(options, health, terminated()?);
    tokio::pin!(pods);
    let ending = tokio::select! {
        ending = &mut pods => {
            // Its last files may still be on their way to the run's store; where the platform failed the run goes on,
            // for the next master.
            if matches!(ending, Ok(_) | Err(platform::Error::Shutdown)) {
                let _ = master.await;
            }
            ending
        }
        led = &mut master => match led? {
            // Its platform has last words to say.
            Ok(_) => pods.await,
            Err(salamander_master::Error::Shutdown) => return Ok(ExitCode::from(LEFT)),
            Err(error) => return Err(error.into()),
        },
    };
    match ending {
        Ok(ending) => {
            if let salamander_core::elastic::Ending::Failed(reason) = &ending {
                // The last line of the log is what the operator quotes.
                eprintln!("error: {reason}");
            }
            Ok(ExitCode::from(platform::exit_code(&ending) as u8))
        }
        Err(platform::Error::Shutdown) => Ok(ExitCode::from(LEFT)),
        Err(error) => Err(error.into()),
    }
}

/// All addresses of a pod, also where the cluster speaks IPv6 only.
fn in_family(listen: SocketAddr, own: Option<IpAddr>) -> SocketAddr {
    match own {
        Some(IpAddr::V6(_)) if listen.ip() == Ipv4Addr::UNSPECIFIED => {
            (Ipv6Addr::UNSPECIFIED, listen.port()).into()
        }
        _ => listen,
    }
}

/// Resolves when this process is told to leave.
fn terminated() -> Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        terminate.recv().await;
    })
}

/// A job and its experiment in force. Paths stay as they are written: they are the pods'.
fn read(
    file: &Path,
    sets: &[String],
    args: &JobArgs,
    namespace: &str,
    models: &Models,
) -> Result<(Job, String)> {
    let shown = file.display();
    let text = fs::read_to_string(file).with_context(|| format!("experiment {shown}"))?;
    let wrong = |error: yaml::Error| anyhow!("experiment {shown}: {error}");
    let mut root = yaml::parse(&text).map_err(wrong)?;
    for set in sets {
        root.set(set).map_err(wrong)?;
    }
    let text = yaml::to_yaml(&root.to_json());
    let experiment = Experiment::parse(&text, &[]).map_err(wrong)?;
    let model = models.find(experiment.model()).map_err(|error| in_file(file, error))?;
    model.hparams_in_force(&experiment).map_err(|error| in_file(file, error))?;
    let name = args.name.clone().or_else(|| experiment.name.clone());
    let name = name.unwrap_or_else(|| model.name().replace('_', "-"));
    let job = Job::assemble(name, namespace, &parts(args, &experiment, &root.to_json())?)?;
    let seed = job_experiment::seed_of(&jiff::Timestamp::now().as_nanosecond().to_string());
    let in_force = job_experiment::in_force(&text, &job, seed)?;
    Ok((job, in_force))
}

/// The spec: what the experiment says, over it a file, over it the command line.
fn parts(args: &JobArgs, experiment: &Experiment, inline: &Value) -> Result<Vec<Value>> {
    let workers = experiment.workers;
    let strategy = match experiment.strategy {
        // One pod that trains is a ring of one.
        Strategy::Local | Strategy::Allreduce => "allreduce",
        Strategy::Ps => "ps",
        Strategy::Hybrid => "hybrid",
    };
    let mut parts = vec![json!({
        "experiment": {"inline": inline},
        "strategy": strategy,
        "workers": {"min": workers.min, "max": workers.max},
    })];
    if experiment.strategy.has_servers() {
        parts.push(json!({"ps": {"replicas": experiment.ps.servers.max(1)}}));
    }
    if let Some(file) = &args.spec {
        let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
        let node = yaml::parse(&text).map_err(|error| anyhow!("{}: {error}", file.display()))?;
        // A whole training job will do as well.
        let node = node.get("spec").unwrap_or(&node);
        parts.push(node.to_json());
    }
    let storage = match (&args.storage_claim, &args.storage_size) {
        (Some(claim), _) => Some(json!({"claimName": claim})),
        (None, Some(size)) => Some(json!({"size": size})),
        (None, None) => None,
    };
    parts.extend(storage.map(|storage| json!({"storage": storage})));
    if let Some(url) = &experiment.checkpoint_storage.store {
        parts.push(json!({"checkpoints": {"objectStore": {"url": url}}}));
    }
    if let Some(name) = &args.store_secret {
        parts.push(json!({"checkpoints": {"objectStore": {"secretName": name}}}));
    }
    parts.extend(args.image.as_ref().map(|image| json!({"image": image})));
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_without_ipv4_listens_on_ipv6() {
        let check = |listen: &str, own: &str, expected: &str| {
            let (listen, own) = (listen.parse().expect("an address"), own.parse().ok());
            assert_eq!(in_family(listen, own).to_string(), expected, "{own:?}");
        };
        check("0.0.0.0:4455", "10.0.0.7", "0.0.0.0:4455");
        check("0.0.0.0:4455", "fd00::7", "[::]:4455");
        check("127.0.0.1:0", "fd00::7", "127.0.0.1:0");
        check("0.0.0.0:4455", "", "0.0.0.0:4455");
    }
}
