//! Kubernetes: jobs of a cluster, and a master in a pod. All that decides is in `salamander-kube`.

mod follow;
mod mirrored;

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use salamander_core::elastic::Ending;
use salamander_core::environment;
use salamander_core::experiment::{Experiment, Strategy};
use salamander_core::layout::ASSETS;
use salamander_core::yaml;
use salamander_kube::client::Jobs;
pub use salamander_kube::client::{PodView, View};
pub use salamander_kube::crd::TrainingJob;
use salamander_kube::experiment as job_experiment;
use salamander_kube::job::Job;
pub use salamander_kube::job::folder;
use salamander_kube::manifest::Manifest;
use salamander_kube::names;
use salamander_kube::platform;
use salamander_kube::secrets::Secrets;
use salamander_master::Config;
use salamander_net::Keys;
use salamander_proto::client::SessionOptions;
use salamander_train::example::AssetFiles;
use salamander_train::model::Models;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use crate::Error;
use crate::connect::Scale;
use crate::event::Event;
use crate::experiment::{Overrides, in_file, wrong};
use crate::roles::{Exit, runtime, say_why, terminated};
use follow::JobEvents;
pub use mirrored::ClusterJobs;
pub(crate) use mirrored::MirroredRun;

/// How often a job is looked at that is followed.
const FOLLOW: Duration = Duration::from_secs(1);

/// A cluster's jobs in one namespace, for programs without async.
pub struct Cluster {
    runtime: Runtime,
    jobs: Jobs,
}

/// A job that was followed to its end.
pub struct EndedJob {
    /// How it ended.
    pub ending: Ending,
    /// How it was last seen.
    pub view: View,
}

/// A job that was read and checked, with its experiment in force.
pub struct Submission {
    /// The job.
    pub job: Job,
    experiment: String,
}

impl Submission {
    /// Everything that the job needs on a cluster without the operator, as YAML. Its secrets are kept in a file, so
    /// that the same manifest comes out again.
    pub fn to_manifest(&self, secrets: Option<&Path>) -> Result<String, Error> {
        let kept = secrets.map(Path::to_path_buf).or_else(|| secrets_file(&self.job));
        let secrets = kept.map_or_else(Secrets::random, |file| Secrets::kept(&file))?;
        Ok(Manifest::new(&self.job, &self.experiment, &secrets)?.to_yaml())
    }
}

impl Cluster {
    /// Connects as the kubeconfig says; its namespace unless another is named.
    pub fn connect(namespace: Option<&str>) -> Result<Self, Error> {
        let runtime = runtime()?;
        let jobs = runtime.block_on(Jobs::connect(namespace))?;
        Ok(Self { runtime, jobs })
    }

    /// The namespace.
    pub fn namespace(&self) -> &str {
        self.jobs.namespace()
    }

    /// Submits a job; tells whether an operator looks after it, or only its own master.
    pub fn submit(&self, submission: &Submission) -> Result<bool, Error> {
        let Submission { job, experiment } = submission;
        let secrets = Secrets::random()?;
        Ok(self.runtime.block_on(self.jobs.submit(job, experiment, &secrets))?)
    }

    /// Follows a job to its end; `each` hears of it as of a run on this machine, if not of each step.
    pub fn follow(&self, job: &str, mut each: impl FnMut(Event)) -> Result<EndedJob, Error> {
        let mut events = JobEvents::default();
        let mut last = None;
        let take = |view: &View| {
            events.take(view).into_iter().for_each(&mut each);
            last = Some(view.clone());
        };
        let ending = self.runtime.block_on(self.jobs.follow(job, FOLLOW, take))?;
        let view = last.ok_or_else(|| Error::Invalid(format!("job {job} was never seen")))?;
        Ok(EndedJob { ending, view })
    }

    /// All jobs of the namespace that operators look after.
    pub fn jobs(&self) -> Result<Vec<TrainingJob>, Error> {
        Ok(self.runtime.block_on(self.jobs.all())?)
    }

    /// How a job stands.
    pub fn view(&self, job: &str) -> Result<View, Error> {
        Ok(self.runtime.block_on(self.jobs.view(job))?)
    }

    /// The logs of a job's pods, line by line; all that comes later too with `follow`.
    pub fn logs(
        &self,
        job: &str,
        role: Option<&str>,
        follow: bool,
        each: impl FnMut(&str, &str),
    ) -> Result<(), Error> {
        self.runtime.block_on(async {
            // An unknown job is named, rather than shown as one without logs.
            self.jobs.view(job).await?;
            match follow {
                true => self.jobs.follow_logs(job, role, FOLLOW, each).await?,
                false => self.jobs.logs(job, role, each).await?,
            }
            Ok(())
        })
    }

    /// Changes the number of workers or parameter servers of a job.
    pub fn scale(&self, job: &str, to: Scale) -> Result<(), Error> {
        Ok(self.runtime.block_on(self.jobs.scale(job, to.workers, to.servers))?)
    }

    /// Stops a job so that it can go on later.
    pub fn stop(&self, job: &str) -> Result<(), Error> {
        Ok(self.runtime.block_on(self.jobs.stop(job))?)
    }

    /// Goes on with a job that was stopped.
    pub fn resume(&self, job: &str) -> Result<(), Error> {
        Ok(self.runtime.block_on(self.jobs.resume(job))?)
    }

    /// Removes a job.
    pub fn delete(&self, job: &str) -> Result<(), Error> {
        Ok(self.runtime.block_on(self.jobs.delete(job))?)
    }
}

/// Where the secrets of a manifest are kept if nothing else is said: with the state of the user's programs.
fn secrets_file(job: &Job) -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let state = set("XDG_STATE_HOME").map(PathBuf::from);
    let state = state.or_else(|| Some(PathBuf::from(set("HOME")?).join(".local/state")))?;
    Some(state.join("salamander/secrets").join(&job.namespace).join(&job.name))
}

/// Looks after the jobs of a cluster, until this process is told to leave.
pub fn operate(namespace: Option<String>, health: SocketAddr) -> Result<(), Error> {
    runtime()?.block_on(async {
        Ok(salamander_kube::operator::serve(namespace, health, terminated()?).await?)
    })
}

/// A job beside what its experiment says.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct JobOptions {
    /// The image with this program.
    pub image: Option<String>,
    /// The job's name; the experiment's by default.
    pub name: Option<String>,
    /// A file with more of a training job's spec: resources, templates, priority.
    pub spec: Option<PathBuf>,
    /// Where the run's folder is.
    pub storage: Option<JobStorage>,
    /// The secret with the credentials of the store that checkpoints are put into.
    pub store_secret: Option<String>,
}

/// Where the folder of a job's run is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum JobStorage {
    /// A claim that stays.
    Claim(String),
    /// A claim of this size, which goes with the job.
    Size(String),
}

impl JobOptions {
    /// A job and its experiment in force. Paths stay as they are written: they are the pods'.
    pub fn read(
        &self,
        file: &Path,
        overrides: &Overrides,
        namespace: &str,
        models: &Models,
    ) -> Result<Submission, Error> {
        let text = fs::read_to_string(file).map_err(|error| wrong(file, error))?;
        let mut root = yaml::parse(&text).map_err(|error| wrong(file, error))?;
        for set in overrides.to_sets(file)? {
            root.set(&set).map_err(|error| wrong(file, error))?;
        }
        let text = yaml::to_yaml(&root.to_json());
        let experiment = Experiment::parse(&text, &[]).map_err(|error| wrong(file, error))?;
        let model = models.find(experiment.model()).map_err(|error| in_file(file, error))?;
        model.hparams_in_force(&experiment).map_err(|error| in_file(file, error))?;
        let name = self.name.clone().or_else(|| experiment.name.clone());
        let name = name.unwrap_or_else(|| model.name().replace('_', "-"));
        let beside = file.parent().unwrap_or(Path::new(""));
        // Those of a run that has a folder here are in it.
        let own = beside.join(ASSETS);
        let folders = [&own, beside, Path::new("")];
        let files = AssetFiles::to_take_along(model.assets(), &folders);
        let files = files.map_err(|error| in_file(file, error))?;
        let source = json!({"inline": root.to_json(), "files": files});
        let parts = self.parts(&experiment, source)?;
        let job = Job::assemble(name, namespace, &parts)?;
        // The same for the same job, so that a manifest can be printed and applied again.
        let seed = job_experiment::seed_of(&format!("{}/{}", job.namespace, job.name));
        let experiment = job_experiment::in_force(&text, &job, seed)?;
        Ok(Submission { job, experiment })
    }

    /// Whether a job of the same name finds the folder of the one before.
    pub(crate) fn keeps_folder(&self) -> Result<bool, Error> {
        let spec = self.spec_of_file()?.unwrap_or_default();
        let is_given = |kind: &str| !spec["storage"][kind].is_null();
        let is_claimed = matches!(self.storage, Some(JobStorage::Claim(_)));
        Ok(is_claimed || is_given("claimName") || is_given("hostPath"))
    }

    /// What the file with more of the spec says.
    fn spec_of_file(&self) -> Result<Option<Value>, Error> {
        let Some(file) = &self.spec else { return Ok(None) };
        let text = fs::read_to_string(file).map_err(Error::io(file))?;
        let node = yaml::parse(&text).map_err(Error::broken(file))?;
        // A whole training job will do as well.
        Ok(Some(node.get("spec").unwrap_or(&node).to_json()))
    }

    /// The spec: what the experiment says, over it a file, over it these options.
    fn parts(&self, experiment: &Experiment, source: Value) -> Result<Vec<Value>, Error> {
        let workers = experiment.workers;
        let strategy = match experiment.strategy {
            // One pod that trains is a ring of one.
            Strategy::Local => Strategy::Allreduce,
            strategy => strategy,
        };
        let mut parts = vec![json!({
            "experiment": source,
            "strategy": strategy,
            "workers": {"min": workers.min, "max": workers.max},
        })];
        if experiment.strategy.has_servers() {
            parts.push(json!({"ps": {"replicas": experiment.ps.servers.max(1)}}));
        }
        parts.extend(self.spec_of_file()?);
        parts.extend(self.storage.as_ref().map(|storage| match storage {
            JobStorage::Claim(claim) => json!({"storage": {"claimName": claim}}),
            JobStorage::Size(size) => json!({"storage": {"size": size}}),
        }));
        if let Some(url) = &experiment.checkpoint_storage.store {
            parts.push(json!({"checkpoints": {"objectStore": {"url": url}}}));
        }
        if let Some(name) = &self.store_secret {
            parts.push(json!({"checkpoints": {"objectStore": {"secretName": name}}}));
        }
        parts.extend(self.image.as_ref().map(|image| json!({"image": image})));
        Ok(parts)
    }
}

/// What a master in a pod is told.
#[derive(Clone, Debug)]
pub struct PodOptions {
    /// The job that pods are made of.
    pub job: PathBuf,
    /// Where to answer probes.
    pub health: SocketAddr,
}

/// Leads a run in a pod, with the platform of pods beside the master.
pub(crate) async fn lead(
    config: Config,
    listener: TcpListener,
    pods: &PodOptions,
    keys: &Keys,
) -> Result<Exit, Error> {
    let port = listener.local_addr().map_err(Error::system("cannot listen"))?.port();
    let session = SessionOptions::of(format!("127.0.0.1:{port}"), keys);
    let health = in_family(pods.health);
    let options = platform::PlatformOptions::in_pod(&pods.job, session)?;
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
        led = &mut master => match led.map_err(|error| Error::Failed(error.to_string()))? {
            // Its platform has last words to say.
            Ok(_) => pods.await,
            Err(salamander_master::Error::Shutdown) => return Ok(Exit::Left),
            // No crash: whoever looks after the job starts one when the other is gone.
            Err(salamander_master::Error::Journal(error)) if error.is_deposed() => {
                say_why(&error);
                return Ok(Exit::Code(names::EXIT_LOCKED as u8));
            }
            Err(error) => return Err(error.into()),
        },
    };
    match ending {
        Ok(ending) => {
            if let Ending::Failed(reason) = &ending {
                // What the operator quotes.
                say_why(reason);
            }
            Ok(Exit::Code(platform::exit_code(&ending) as u8))
        }
        Err(platform::Error::Shutdown) => Ok(Exit::Left),
        Err(error) => Err(Error::Failed(error.to_string())),
    }
}

/// All addresses of this pod, also where the cluster speaks IPv6 only.
pub(crate) fn in_family(listen: SocketAddr) -> SocketAddr {
    let own = std::env::var(environment::POD_IP.name).ok().and_then(|ip| ip.parse().ok());
    in_family_of(listen, own)
}

fn in_family_of(listen: SocketAddr, own: Option<IpAddr>) -> SocketAddr {
    match own {
        Some(IpAddr::V6(_)) if listen.ip() == Ipv4Addr::UNSPECIFIED => {
            (Ipv6Addr::UNSPECIFIED, listen.port()).into()
        }
        _ => listen,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_without_ipv4_listens_on_ipv6() {
        let check = |listen: &str, own: &str, expected: &str| {
            let (listen, own) = (listen.parse().expect("an address"), own.parse().ok());
            assert_eq!(in_family_of(listen, own).to_string(), expected, "{own:?}");
        };
        check("0.0.0.0:4455", "10.0.0.7", "0.0.0.0:4455");
        check("0.0.0.0:4455", "fd00::7", "[::]:4455");
        check("127.0.0.1:0", "fd00::7", "127.0.0.1:0");
        check("0.0.0.0:4455", "", "0.0.0.0:4455");
    }
}
