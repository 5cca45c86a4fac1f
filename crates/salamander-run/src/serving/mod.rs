//! Trained models as endpoints: a run's checkpoints are the versions of a model.
//!
//! # Layout
//! - [`Service`]: which models are served, and how; its `run` is the whole server
//! - `source`: where versions come from; `asked`: a version, on its own thread; `outputs`: what it says

mod asked;
mod outputs;
mod source;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use salamander_serve::{Registry, Server, Source};
use salamander_train::checkpoint::Which;

pub use salamander_serve::server::{TlsConfig, tls};
pub use salamander_serve::{Batching, ServerOptions, Token};

use crate::{Error, Program};
use source::CheckpointSource;

/// How often a wish to stop is looked for.
const LOOK: Duration = Duration::from_millis(50);

/// A model to serve.
#[derive(Clone, Debug)]
pub struct ModelToServe {
    /// Its name for clients; that of the model in its experiment when absent.
    pub name: Option<String>,
    /// The run's folder, or an exported one.
    pub folder: PathBuf,
    /// Which checkpoint of the run.
    pub checkpoint: Which,
}

/// A server of trained models.
#[derive(Clone, Debug)]
pub struct Service {
    /// The models.
    pub models: Vec<ModelToServe>,
    /// Where to listen; port 0 is any free one.
    pub address: SocketAddr,
    /// Where to compute.
    pub device: String,
    /// Threads that compute for each model; an equal share of the machine when absent.
    pub threads: Option<usize>,
    /// How requests are computed together.
    pub batching: Batching,
    /// How clients are treated.
    pub options: ServerOptions,
    /// How often a newer checkpoint of each run is looked for; never when absent.
    pub watch: Option<Duration>,
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
}

/// A model's name, and where its versions come from.
type NamedSource = (String, Arc<dyn Source>);

impl Service {
    /// Loads the models and answers until `stop` is set, and what is in flight then.
    pub fn run(
        self,
        program: &Program,
        stop: &AtomicBool,
        tell: &mut dyn FnMut(ServiceEvent),
    ) -> Result<(), Error> {
        let sources = self.sources(program)?;
        let registry = Registry::new(sources, self.batching);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(cores().min(4))
            .thread_name("serve")
            .enable_all()
            .build()
            .map_err(Error::system("cannot start threads"))?;
        runtime.block_on(async {
            // Before models are loaded: an address that is taken is told at once.
            let what = format!("cannot listen on {}", self.address);
            let server = Server::bind(self.address, registry.clone(), self.options.clone()).await;
            let server = server.map_err(Error::system(what))?;
            let address = server.address().map_err(Error::system("the listener"))?;
            for model in registry.names() {
                let version = tokio::task::block_in_place(|| registry.load(&model));
                let version = version.map_err(|refusal| Error::Invalid(refusal.to_string()))?;
                tell(ServiceEvent::Loaded { model, version });
            }
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
                match tokio::task::block_in_place(|| registry.refresh(&model)) {
                    Some(Ok(version)) => tell(ServiceEvent::Loaded { model, version }),
                    Some(Err(refusal)) => {
                        tell(ServiceEvent::NotLoaded { reason: refusal.to_string() });
                    }
                    None => {}
                }
            }
            looked = Instant::now();
        }
    }

    fn sources(&self, program: &Program) -> Result<Vec<NamedSource>, Error> {
        let share = (cores() / self.models.len().max(1)).max(1);
        let threads = self.threads.unwrap_or(share);
        let mut sources: Vec<NamedSource> = Vec::new();
        for model in &self.models {
            let rows = self.batching.rows;
            let source = CheckpointSource::new(program, model, &self.device, (threads, rows))?;
            let name = model.name.clone().unwrap_or_else(|| source.model_name().to_string());
            check_name(&name)?;
            if sources.iter().any(|(known, _)| *known == name) {
                let folder = model.folder.display();
                return Err(Error::Invalid(format!(
                    "two models would be called \"{name}\": say NAME={folder} for another name"
                )));
            }
            sources.push((name, Arc::new(source)));
        }
        Ok(sources)
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
