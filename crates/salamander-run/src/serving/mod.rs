//! Trained models as endpoints: a run's checkpoints are the versions of a model.
//!
//! # Layout
//! - [`Service`]: which models are served, and how; its `run` is the whole server
//! - `source`: where versions come from; `asked`: a version, on its own thread; `outputs`: what it says

mod asked;
mod outputs;
mod source;

use std::fmt::Debug;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use salamander_files::raise_open_files;
use salamander_serve::{AddressUse, Opener, Registry, Server, SourceToServe};
use salamander_train::checkpoint::Which;
use salamander_train::model::Models;

pub use salamander_serve::server::{TlsConfig, tls};
pub use salamander_serve::{Batching, ServerOptions, ServingToken};

use crate::{Error, Program};
use source::{CheckpointSource, Computing};

/// How often a wish to stop is looked for.
const LOOK: Duration = Duration::from_millis(50);

/// A model to serve.
#[derive(Clone, Debug)]
pub struct ModelToServe {
    /// Its name for clients; that of the model in its experiment when absent. Several of one name are versions of it,
    /// and the last of them answers requests that name none.
    pub name: Option<String>,
    /// What its version is called; by its checkpoint, or its number in a registry, when absent.
    pub version: Option<String>,
    /// Where it is.
    pub from: ServedFrom,
}

/// Where a model is that is served.
#[derive(Clone, Debug)]
pub enum ServedFrom {
    /// A folder.
    Folder {
        /// A run's folder, an exported one, or one of another program such as Hugging Face's.
        folder: PathBuf,
        /// Which checkpoint of the run.
        checkpoint: Which,
    },
    /// A model of a registry, which may stand for another version later.
    Registered(Arc<dyn ModelRegistry>),
}

/// A registry of models, asked about one of them.
pub trait ModelRegistry: Debug + Send + Sync + 'static {
    /// What the model stands for now.
    fn now(&self) -> Result<RegisteredVersion, Error>;
}

/// A version of a model in a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisteredVersion {
    /// What the registry calls it.
    pub version: String,
    /// The run that trained it.
    pub folder: PathBuf,
    /// Its checkpoint.
    pub checkpoint: String,
}

/// Finds what clients register by its name while the server runs; the error tells what can be named.
pub type FindModel = Arc<dyn Fn(&str) -> Result<ModelToServe, String> + Send + Sync>;

/// A server of trained models.
#[derive(Clone)]
pub struct Service {
    /// The models.
    pub models: Vec<ModelToServe>,
    /// Finds what clients register besides; nothing can be registered when absent.
    pub find: Option<FindModel>,
    /// Where to listen; port 0 is any free one.
    pub address: SocketAddr,
    /// Where to listen besides.
    pub more_addresses: MoreAddresses,
    /// Where to compute.
    pub device: String,
    /// Threads that compute for each model; an equal share of the machine when absent.
    pub threads: Option<usize>,
    /// Whether linear layers compute in eight bits.
    pub int8: bool,
    /// Bytes of rows of tables that are kept in memory for each model, while the others are read from its checkpoint
    /// when they are asked for; all of them when absent.
    pub table_memory: Option<usize>,
    /// How requests are computed together.
    pub batching: Batching,
    /// How clients are treated.
    pub options: ServerOptions,
    /// How often a newer checkpoint of each run is looked for; never when absent.
    pub watch: Option<Duration>,
}

/// The usual ports of other servers.
#[derive(Clone, Debug, Default)]
pub struct MoreAddresses {
    /// Everything is answered there too; gRPC's own port of Triton and KServe.
    pub others: Vec<SocketAddr>,
    /// The only address where it can be changed which models are served, as TorchServe has it.
    pub management: Option<SocketAddr>,
}

/// What a server tells about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceEvent {
    /// A version of a model is in service.
    Loaded {
        /// The model's name.
        model: String,
        /// The version: a checkpoint's id.
        version: String,
    },
    /// A newer version of a model cannot be used; the one before stays in service.
    NotLoaded {
        /// Which one, and why.
        reason: String,
    },
    /// Requests are answered at this address.
    Listening(SocketAddr),
    /// And at this one.
    ListeningToo(SocketAddr),
}

impl Service {
    /// Loads the models and answers until `stop` is set, and what is in flight then.
    pub fn run(
        self,
        program: &Program,
        stop: &AtomicBool,
        tell: &mut dyn FnMut(ServiceEvent),
    ) -> Result<(), Error> {
        let sources = self.sources(program)?;
        let mut registry = Registry::new([], self.batching);
        sources.into_iter().for_each(|source| registry.add(source));
        if let Some(find) = &self.find {
            let making = self.making(program, self.models.len() + 1);
            registry =
                registry.with_opener(Arc::new(FoundSource { making, find: Arc::clone(find) }));
        }
        // A connection is an open file.
        raise_open_files();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(cores().min(4))
            .thread_name("serve")
            .enable_all()
            .build()
            .map_err(Error::system("cannot start threads"))?;
        runtime.block_on(async {
            // Before models are loaded: an address that is taken is told at once.
            let mut server = Server::new(registry.clone(), self.options.clone());
            let (address, more) = self.listen(&mut server).await?;
            for model in registry.names() {
                let version = tokio::task::block_in_place(|| registry.load(&model));
                let version = version.map_err(|refusal| Error::Invalid(refusal.to_string()))?;
                tell(ServiceEvent::Loaded { model, version });
            }
            more.into_iter().for_each(|address| tell(ServiceEvent::ListeningToo(address)));
            tell(ServiceEvent::Listening(address));
            let (stopping, stopped) = tokio::sync::oneshot::channel::<()>();
            // Apart from this thread, which loads models.
            let running = tokio::spawn(server.run(async {
                let _ = stopped.await;
            }));
            self.follow(&registry, stop, tell).await;
            drop(stopping);
            running.await.map_err(|error| Error::Failed(error.to_string()))
        })
    }

    /// Puts newer checkpoints into service, until `stop` is set.
    async fn follow(
        &self,
        registry: &Registry,
        stop: &AtomicBool,
        tell: &mut dyn FnMut(ServiceEvent),
    ) {
        let mut looked = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            tokio::time::sleep(LOOK).await;
            if self.watch.is_none_or(|period| looked.elapsed() < period) {
                continue;
            }
            for model in registry.names() {
                for loaded in tokio::task::block_in_place(|| registry.refresh(&model)) {
                    tell(match loaded {
                        Ok(version) => ServiceEvent::Loaded { model: model.clone(), version },
                        Err(refusal) => ServiceEvent::NotLoaded { reason: refusal.to_string() },
                    });
                }
            }
            looked = Instant::now();
        }
    }

    /// Listens everywhere: the first address, and the others.
    async fn listen(&self, server: &mut Server) -> Result<(SocketAddr, Vec<SocketAddr>), Error> {
        let MoreAddresses { others, management } = &self.more_addresses;
        let plain = match management {
            Some(_) => AddressUse::Inference,
            None => AddressUse::All,
        };
        let mut all = vec![(self.address, plain)];
        all.extend(others.iter().map(|address| (*address, plain)));
        all.extend(management.map(|address| (address, AddressUse::All)));
        let mut listening = Vec::new();
        for (address, answers) in all {
            let what = format!("cannot listen on {address}");
            let address = server.listen(address, answers).await.map_err(Error::system(what))?;
            listening.push(address);
        }
        let first = listening.remove(0);
        Ok((first, listening))
    }

    fn sources(&self, program: &Program) -> Result<Vec<SourceToServe>, Error> {
        let making = self.making(program, self.models.len());
        self.models.iter().map(|model| making.source(model)).collect()
    }

    /// How sources are made where there are so many models.
    fn making(&self, program: &Program, models: usize) -> SourceMaking {
        let share = (cores() / models.max(1)).max(1);
        SourceMaking {
            models: program.models_shared(),
            device: self.device.clone(),
            computing: Computing {
                threads: self.threads.unwrap_or(share),
                rows: self.batching.rows,
                int8: self.int8,
                table_memory: self.table_memory,
            },
        }
    }
}

/// What every source of a server has.
struct SourceMaking {
    models: Arc<Models>,
    device: String,
    computing: Computing,
}

impl SourceMaking {
    fn source(&self, model: &ModelToServe) -> Result<SourceToServe, Error> {
        let models = Arc::clone(&self.models);
        let source = CheckpointSource::new(models, model, &self.device, self.computing)?;
        let name = model.name.clone().unwrap_or_else(|| source.model_name().to_string());
        check_name(&name)?;
        model.version.as_deref().map_or(Ok(()), check_name)?;
        Ok(SourceToServe { name, label: model.version.clone(), source: Arc::new(source) })
    }
}

/// Opens what clients register.
struct FoundSource {
    making: SourceMaking,
    find: FindModel,
}

impl Opener for FoundSource {
    fn open(&self, name: Option<&str>, url: &str) -> Result<SourceToServe, String> {
        let mut model = (self.find)(url)?;
        model.name = name.map(str::to_string).or(model.name);
        self.making.source(&model).map_err(|error| error.to_string())
    }
}

fn cores() -> usize {
    available_parallelism().map_or(1, usize::from)
}

/// Names are parts of addresses.
fn check_name(name: &str) -> Result<(), Error> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    match !name.is_empty() && name.chars().all(fits) {
        true => Ok(()),
        false => Err(Error::Invalid(format!(
            "\"{name}\" cannot be the name of a model in an address: use letters, digits, \".\", \"-\" and \"_\""
        ))),
    }
}
