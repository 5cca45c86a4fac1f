//! Kubernetes: `crd`, `operator`, `manifest`, a master in a pod, and jobs of a cluster. All that decides is in
//! `salamander-kube`, and `salamander-run` asks it; this file only reads arguments and prints.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use salamander_core::elastic::Ending;
use salamander_kube::crd as definition;
use salamander_run::cluster::{
    Cluster, ClusterJobs, JobOptions, JobStorage, PodOptions, PodView, operate,
};
use salamander_run::roles::Exit;
use salamander_run::{Error, Overrides, Program, State, TrainsOn};
use serde_json::Value;

use crate::args::OverrideArgs;
use crate::out::{self, Out};
use crate::roles::log_to_stderr;
use crate::ui::{RunDisplay, job_line};

/// Where processes of a run are.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PlatformName {
    Local,
    Kube,
}

/// Where a run is.
#[derive(clap::Args)]
pub(crate) struct PlaceArgs {
    /// Where the run is: in a folder of this machine, or a job of a cluster
    #[arg(long, default_value = "local")]
    platform: PlatformName,
    /// The job's namespace [default: that of the kubeconfig]
    #[arg(long, value_name = "NAME")]
    namespace: Option<String>,
}

impl PlaceArgs {
    pub(crate) fn connect(&self) -> Result<Cluster, Error> {
        Cluster::connect(self.namespace.as_deref())
    }

    pub(crate) fn is_cluster(&self) -> bool {
        self.platform == PlatformName::Kube
    }
}

/// A job as the command line describes it.
#[derive(clap::Args)]
pub(crate) struct JobArgs {
    #[command(flatten)]
    kind: JobKindArgs,
    /// The job's name [default: the experiment's]
    #[arg(long = "job", value_name = "NAME")]
    name: Option<String>,
}

/// What jobs are made of, whatever their names are.
#[derive(clap::Args)]
pub(crate) struct JobKindArgs {
    #[command(flatten)]
    place: PlaceArgs,
    /// The image with this program
    #[arg(long)]
    image: Option<String>,
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

impl JobKindArgs {
    fn options(&self) -> Result<JobOptions> {
        let claim = self.storage_claim.clone().map(JobStorage::Claim);
        // Trials read it in folders of their own.
        let spec = self.spec.as_ref().map(|file| {
            std::fs::canonicalize(file).with_context(|| format!("--spec {}", file.display()))
        });
        Ok(JobOptions {
            image: self.image.clone(),
            name: None,
            spec: spec.transpose()?,
            storage: claim.or_else(|| self.storage_size.clone().map(JobStorage::Size)),
            store_secret: self.store_secret.clone(),
        })
    }

    pub(crate) fn is_cluster(&self) -> bool {
        self.place.is_cluster()
    }

    /// The jobs that runs with a folder on this machine train as.
    pub(crate) fn jobs(&self) -> Result<ClusterJobs> {
        Ok(ClusterJobs { namespace: self.place.namespace.clone(), options: self.options()? })
    }

    /// The same as arguments of `train`.
    pub(crate) fn to_arguments(&self) -> Result<Vec<String>> {
        let options = self.options()?;
        let (claim, size) = match options.storage {
            Some(JobStorage::Claim(claim)) => (Some(claim), None),
            Some(JobStorage::Size(size)) => (None, Some(size)),
            None => (None, None),
        };
        let spec = options.spec.map(|file| file.display().to_string());
        let named = [
            ("--namespace", self.place.namespace.clone()),
            ("--image", options.image),
            ("--spec", spec),
            ("--storage-claim", claim),
            ("--storage-size", size),
            ("--store-secret", options.store_secret),
        ];
        let given = named.into_iter().filter_map(|(name, value)| Some([name.to_string(), value?]));
        let first = ["--platform", "kube", "--mirror"].map(str::to_string);
        Ok(first.into_iter().chain(given.flatten()).collect())
    }
}

impl JobArgs {
    fn options(&self) -> Result<JobOptions> {
        Ok(JobOptions { name: self.name.clone(), ..self.kind.options()? })
    }

    pub(crate) fn is_cluster(&self) -> bool {
        self.kind.is_cluster()
    }

    /// Where a run with a folder on this machine trains.
    pub(crate) fn trains_on(&self) -> Result<TrainsOn> {
        match self.is_cluster() {
            true => Ok(TrainsOn::Cluster(Box::new(self.kind.jobs()?))),
            false => Ok(TrainsOn::ThisMachine),
        }
    }
}

/// Commands that are only about clusters.
#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// Print the definition of the custom resource `TrainingJob`, for `kubectl apply`
    Crd {
        /// With the next version, `v1beta1`, served beside `v1alpha1` and stored
        #[arg(long)]
        next: bool,
    },
    /// Look after the training jobs of a cluster
    Operator {
        /// Look after the jobs of this namespace only
        #[arg(long, value_name = "NAME")]
        namespace: Option<String>,
        /// Where to answer probes and show metrics
        #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:8081")]
        health: SocketAddr,
    },
    /// Print everything that a job needs on a cluster without the operator, for `kubectl apply`
    Manifest(Box<ManifestArgs>),
    /// Delete a job of a cluster with everything that was made for it; a claim that it was given stays
    Delete {
        /// The job
        job: String,
        /// The job's namespace [default: that of the kubeconfig]
        #[arg(long, value_name = "NAME")]
        namespace: Option<String>,
    },
}

#[derive(clap::Args)]
#[command(subcommand_negates_reqs = true, args_conflicts_with_subcommands = true)]
pub(crate) struct ManifestArgs {
    #[command(subcommand)]
    command: Option<ManifestCommand>,
    /// The experiment file; its paths are those that the pods see
    #[arg(required = true)]
    experiment: Option<PathBuf>,
    #[command(flatten)]
    overrides: OverrideArgs,
    #[command(flatten)]
    job: JobArgs,
    /// The file that keeps the job's token and certificates, so that the same manifest can be applied again [default:
    /// ~/.local/state/salamander/secrets/NAMESPACE/JOB]
    #[arg(long, value_name = "FILE")]
    secrets: Option<PathBuf>,
}

#[derive(clap::Subcommand)]
enum ManifestCommand {
    /// Print what serves models on a cluster: a Deployment, its Service and autoscaler, or KServe's objects
    Serve(crate::serving_manifest::Args),
    /// Print a Job that runs a flow in a pod, whose processes share it
    Flow(crate::flow_manifest::Args),
}

/// For a master in a pod.
#[derive(clap::Args)]
pub(crate) struct PodArgs {
    /// Who starts workers: whoever attaches, or pods
    #[arg(long, default_value = "local")]
    platform: PlatformName,
    /// The job that pods are made of
    #[arg(long, value_name = "FILE", default_value = "/etc/salamander/config/job.json")]
    job: PathBuf,
    /// Where to answer probes
    #[arg(long, value_name = "IP:PORT", default_value = "0.0.0.0:8081")]
    health: SocketAddr,
}

impl PodArgs {
    pub(crate) fn options(&self) -> Option<PodOptions> {
        let Self { platform, job, health } = self;
        let is_pod = *platform == PlatformName::Kube;
        is_pod.then(|| PodOptions { job: job.clone(), health: *health })
    }
}

/// Does what is only done for clusters.
pub(crate) fn run(command: Command, program: &Program) -> Result<ExitCode> {
    match command {
        Command::Crd { next } => {
            let made = if next { definition::next_definition() } else { definition::definition() };
            out::text(&definition::definition_yaml(&made)?)?;
        }
        Command::Operator { namespace, health } => {
            log_to_stderr("operator", 0);
            operate(namespace, health)?;
        }
        Command::Manifest(args) => {
            match &args.command {
                Some(ManifestCommand::Serve(serving)) => {
                    out::text(&crate::serving_manifest::text(serving)?)?;
                    return Ok(ExitCode::SUCCESS);
                }
                Some(ManifestCommand::Flow(flow)) => {
                    out::text(&crate::flow_manifest::text(flow)?)?;
                    return Ok(ExitCode::SUCCESS);
                }
                None => {}
            }
            let Some(experiment) = &args.experiment else { bail!("name an experiment file") };
            let namespace = args.job.kind.place.namespace.as_deref().unwrap_or("default");
            let (overrides, options) = (args.overrides.overrides(), args.job.options()?);
            let job = options.read(experiment, &overrides, namespace, program.models())?;
            out::text(&job.to_manifest(args.secrets.as_deref())?)?;
        }
        Command::Delete { job, namespace } => {
            Cluster::connect(namespace.as_deref())?.delete(&job)?;
            outln!("deleted")?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Submits a job and follows it. Ctrl-C leaves the job alone.
pub(crate) fn train(
    file: &Path,
    overrides: &Overrides,
    args: &JobArgs,
    program: &Program,
    as_json: bool,
) -> Result<ExitCode> {
    let cluster = args.kind.place.connect()?;
    let submission =
        args.options()?.read(file, overrides, cluster.namespace(), program.models())?;
    let operated = cluster.submit(&submission)?;
    let job = &submission.job;
    let by = if operated { "the operator" } else { "its own master; there is no operator" };
    errln!("job {} in namespace {} is looked after by {by}", job.name, job.namespace);
    follow(&cluster, &job.name, as_json)
}

/// Goes on with a job that was stopped, and follows it.
pub(crate) fn resume(job: &str, args: &JobArgs, as_json: bool) -> Result<ExitCode> {
    let cluster = args.kind.place.connect()?;
    cluster.resume(job)?;
    follow(&cluster, job, as_json)
}

/// Follows a job and tells how it ended.
fn follow(cluster: &Cluster, job: &str, as_json: bool) -> Result<ExitCode> {
    let mut follower = RunDisplay::new(if as_json { Out::Stderr } else { Out::Stdout });
    let ended = cluster.follow(job, |event| follower.take(&event))?;
    follower.finish();
    // A reader that has gone away must not hide how the job ended.
    let say = |text: String| Out::Stdout.line(&text);
    let line = job_line(job, &ended);
    if as_json {
        Out::Stdout.line(&line.to_string());
    } else {
        say(format!("\njob        {job} ({})", State::from(&ended.ending).as_str()));
        say(format!("trained    {} steps, {} records", line["steps"], line["records"]));
        let values = line["metrics"]["validation"].as_object().into_iter().flatten();
        let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
        let shown: Vec<String> =
            values.map(|(name, value)| format!("{name} {:.4}", number(value))).collect();
        if !shown.is_empty() {
            say(format!("validation {}", shown.join(", ")));
        }
    }
    match ended.ending {
        Ending::Completed => Ok(ExitCode::SUCCESS),
        Ending::Interrupted => Ok(ExitCode::from(Exit::Left.code())),
        Ending::Failed(reason) => bail!("job {job}: {reason}"),
    }
}

/// Prints the logs of a job's pods.
pub(crate) fn logs(
    cluster: &Cluster,
    job: &str,
    role: Option<&str>,
    follow: bool,
) -> Result<ExitCode> {
    let print = |pod: &str, line: &str| {
        // Nothing else ends what a cluster goes on sending.
        if outln!("{pod:<10} {line}").is_err() {
            std::process::exit(0);
        }
    };
    cluster.logs(job, role, follow, print)?;
    Ok(ExitCode::SUCCESS)
}

/// Shows how a job stands.
pub(crate) fn status(cluster: &Cluster, job: &str, as_json: bool) -> Result<ExitCode> {
    let view = cluster.view(job)?;
    if as_json {
        outln!("{}", view.json())?;
        return Ok(ExitCode::SUCCESS);
    }
    outln!("{}", view.line())?;
    for PodView { name, role, phase } in &view.pods {
        outln!("{role:<8}{phase:<12}{name}")?;
    }
    Ok(ExitCode::SUCCESS)
}
