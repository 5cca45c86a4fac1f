//! Arguments that several subcommands share, each written once.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use clap::ValueEnum;
use salamander_run::{
    Error, KeyFiles, Overrides, Program, RunLayout, Strategy, TrainedModel, Which, Workers, find,
    is_search, make_folder, no_single_run,
};

/// The folder that runs live in.
#[derive(clap::Args, Clone)]
pub(crate) struct RunsFolder {
    /// The folder that runs live in
    #[arg(long, value_name = "DIR", default_value = "runs")]
    pub(crate) runs: PathBuf,
}

/// A run of this machine.
#[derive(clap::Args)]
pub(crate) struct RunArg {
    /// The run, by its folder or id, or `latest`
    run: String,
    #[command(flatten)]
    folder: RunsFolder,
}

impl RunArg {
    pub(crate) fn find(&self) -> Result<RunLayout, Error> {
        find(&self.run, &self.folder.runs).map(RunLayout::new)
    }

    /// The same where a search is none that can be meant.
    pub(crate) fn find_single(&self) -> Result<RunLayout, Error> {
        let run = self.find()?;
        if is_search(run.folder()) { Err(no_single_run(run.folder())) } else { Ok(run) }
    }
}

/// A run of this machine, or a job of a cluster.
#[derive(clap::Args)]
pub(crate) struct PlacedRunArgs {
    #[command(flatten)]
    run: RunArg,
    #[cfg(feature = "kube")]
    #[command(flatten)]
    place: crate::kube::PlaceArgs,
    #[cfg(not(feature = "kube"))]
    #[command(flatten)]
    _place: crate::without_kube::PlaceArgs,
}

/// Where a run is.
pub(crate) enum PlacedRun {
    Here(RunLayout),
    /// A job, by its name.
    #[cfg(feature = "kube")]
    Cluster(Box<salamander_run::cluster::Cluster>, String),
}

impl PlacedRunArgs {
    pub(crate) fn find(&self) -> Result<PlacedRun, Error> {
        #[cfg(feature = "kube")]
        if self.place.is_cluster() {
            let cluster = Box::new(self.place.connect()?);
            return Ok(PlacedRun::Cluster(cluster, self.run.run.clone()));
        }
        self.run.find().map(PlacedRun::Here)
    }
}

/// Where gradients meet.
#[derive(Clone, Copy, ValueEnum)]
enum StrategyName {
    Local,
    Allreduce,
    Ps,
    Hybrid,
}

impl From<StrategyName> for Strategy {
    fn from(name: StrategyName) -> Self {
        match name {
            StrategyName::Local => Strategy::Local,
            StrategyName::Allreduce => Strategy::Allreduce,
            StrategyName::Ps => Strategy::Ps,
            StrategyName::Hybrid => Strategy::Hybrid,
        }
    }
}

/// Changes to an experiment file.
#[derive(clap::Args)]
pub(crate) struct OverrideArgs {
    /// Change a field: --set hyperparameters.learning_rate=0.1
    #[arg(long = "set", value_name = "A.B=V")]
    sets: Vec<String>,
    /// Where gradients meet; several workers meet in a ring unless told otherwise, with the tables of a model on
    /// parameter servers (hybrid), or on parameter servers without waiting for each other (ps)
    #[arg(long)]
    strategy: Option<StrategyName>,
    /// How many workers; training goes on with fewer while one is replaced
    #[arg(long, value_name = "N", conflicts_with_all = ["min_workers", "max_workers"])]
    workers: Option<u32>,
    /// How many parameter servers hold the model's tables
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    ps: Option<u32>,
    /// The fewest workers to train with
    #[arg(long, value_name = "N", requires = "max_workers")]
    min_workers: Option<u32>,
    /// The most workers to use
    #[arg(long, value_name = "N")]
    max_workers: Option<u32>,
    /// Where to compute: auto, cpu, wgpu[:i] or cuda[:i]; without a number, workers take turns on the devices
    #[arg(long)]
    device: Option<String>,
    /// Threads that each worker computes with on the CPU [default: its share of the cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Option<u32>,
    /// Put checkpoints into an object store as well: s3://bucket/prefix, gs://.. or az://..; credentials come from the
    /// environment
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Write event files for TensorBoard into the run's folder: `tensorboard --logdir runs` shows them
    #[arg(long)]
    tensorboard: bool,
    /// Tell an MLflow server of the run while it trains: http://host:5000; credentials come from MLFLOW_TRACKING_TOKEN,
    /// or MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD
    #[arg(long, value_name = "URI")]
    mlflow: Option<String>,
}

impl OverrideArgs {
    pub(crate) fn overrides(&self) -> Overrides {
        let most = self.workers.or(self.max_workers);
        Overrides {
            sets: self.sets.clone(),
            strategy: self.strategy.map(Into::into),
            workers: most.map(|max| Workers { min: self.min_workers.unwrap_or(1), max }),
            servers: self.ps,
            device: self.device.clone(),
            threads: self.threads,
            store: self.store.clone(),
            id: None,
            tensorboard: self.tensorboard,
            mlflow: self.mlflow.clone(),
            hub: None,
        }
    }
}

/// Which trained model is meant.
#[derive(clap::Args)]
pub(crate) struct TrainedArgs {
    /// The run, by its folder or id, or `latest`; a folder made by `export`; or `model:NAME@ALIAS` of a hub
    run: String,
    /// Which checkpoint of the run: best, latest, or its id
    #[arg(long, default_value = "best", value_name = "best|latest|ID")]
    checkpoint: Which,
    /// Where to compute: auto, cpu, wgpu[:i] or cuda[:i]
    #[arg(long, default_value = "auto")]
    device: String,
    #[command(flatten)]
    folder: RunsFolder,
}

impl TrainedArgs {
    /// Its folder, and which checkpoint there.
    pub(crate) fn place(&self) -> anyhow::Result<(PathBuf, Which)> {
        if let Some(model) = self.run.strip_prefix("model:") {
            let (folder, checkpoint) = crate::hub::model::find(model, &self.folder.runs)?;
            return Ok((folder, Which::Id(checkpoint)));
        }
        Ok((find(&self.run, &self.folder.runs)?, self.checkpoint.clone()))
    }

    pub(crate) fn device(&self) -> &str {
        &self.device
    }

    pub(crate) fn load(&self, program: &Program) -> anyhow::Result<TrainedModel> {
        let (folder, checkpoint) = self.place()?;
        let model = program.load(folder, &checkpoint, &self.device)?;
        Ok(model.warning(|warning| errln!("{warning}")))
    }
}

/// What the roles of a distributed run share that are started by hand, or in a pod.
#[derive(clap::Args)]
pub(crate) struct RoleArgs {
    /// The run, by its folder or id, or `latest`; `salamander train --prepare` makes one
    run: String,
    /// Make the run's folder from this file, if it is not there, as in a pod
    #[arg(long, value_name = "FILE")]
    experiment: Option<PathBuf>,
    /// The file with the run's secret [default: `token` in the run's folder]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// The folder with ca.crt, tls.crt and tls.key, to encrypt all connections [default: `tls` in the run's folder, if
    /// it is there]
    #[arg(long, value_name = "DIR")]
    tls: Option<PathBuf>,
    #[command(flatten)]
    folder: RunsFolder,
}

impl RoleArgs {
    /// The run's folder, which is made where it has to be.
    pub(crate) fn run(&self) -> Result<RunLayout, Error> {
        match &self.experiment {
            Some(file) => {
                let run = RunLayout::new(&self.run);
                make_folder(&run, file).map(|()| run)
            }
            None => find(&self.run, &self.folder.runs).map(RunLayout::new),
        }
    }

    pub(crate) fn keys(&self) -> KeyFiles {
        KeyFiles { token: self.token_file.clone(), certificates: self.tls.clone() }
    }
}

/// A role's place in the network.
#[derive(clap::Args)]
pub(crate) struct MemberArgs {
    /// The master's address
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) master: String,
    /// Where others reach this process
    #[arg(long, value_name = "IP", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    pub(crate) listen: IpAddr,
    /// Where to answer probes and show metrics [default: nowhere]
    #[cfg(feature = "kube")]
    #[arg(long, value_name = "IP:PORT")]
    pub(crate) health: Option<std::net::SocketAddr>,
}
