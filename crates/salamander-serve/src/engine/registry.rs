//! Models by name, and their versions: one is loaded beside the one in service, takes its place at once, and the old
//! one goes when its last request is answered.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use super::metrics::Metrics;
use super::{Answer, Batching, Owner, Statistics};
use crate::input::Input;
use crate::model::{Decoder, Source};
use crate::refusal::Refusal;
use crate::tensor::Tensor;

/// Inputs of more values than this are decoded apart from the threads that wait for others.
const HEAVY: usize = 64 << 10;

/// A question to a model.
#[derive(Debug)]
pub struct InferRequest {
    /// The model's name.
    pub model: String,
    /// Its version; the one in service when absent.
    pub version: Option<String>,
    /// The records.
    pub input: Input,
    /// Names of the outputs that are wanted; all of them when there are none.
    pub outputs: Vec<String>,
    /// When the answer is of no use any more.
    pub timeout: Option<Duration>,
}

/// A model's answer.
#[derive(Debug)]
pub struct InferResponse {
    /// The version that gave it.
    pub version: String,
    /// The outputs, in the order in which they were asked for.
    pub outputs: Vec<Tensor>,
}

/// A version of a model in service.
pub(crate) struct Version {
    pub(crate) name: String,
    pub(crate) decoder: Arc<dyn Decoder>,
    pub(crate) statistics: Arc<Statistics>,
    owner: Owner,
}

impl Version {
    /// Requests that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.owner.waiting()
    }
}

struct Served {
    source: Arc<dyn Source>,
    current: RwLock<Current>,
    /// Held while a version is loaded: one at a time.
    loading: Mutex<()>,
}

#[derive(Clone, Default)]
struct Current {
    version: Option<Arc<Version>>,
    /// Why there is none, or why a newer one was not taken.
    reason: Option<String>,
    /// The version that could not be loaded.
    broken: Option<String>,
    /// Whether somebody took it out of service.
    unloaded: bool,
}

/// Where a model stands.
pub(crate) struct ModelStatus {
    pub(crate) name: String,
    pub(crate) version: Option<Arc<Version>>,
    pub(crate) reason: Option<String>,
}

/// The models of a server. A copy is the same registry.
#[derive(Clone)]
pub struct Registry {
    models: Arc<BTreeMap<String, Served>>,
    metrics: Arc<Metrics>,
    batching: Batching,
}

impl Registry {
    /// Of these models, none of which is loaded yet.
    pub fn new(
        models: impl IntoIterator<Item = (String, Arc<dyn Source>)>,
        batching: Batching,
    ) -> Self {
        let served = |source| Served {
            source,
            current: RwLock::new(Current::default()),
            loading: Mutex::new(()),
        };
        let models = models.into_iter().map(|(name, source)| (name, served(source))).collect();
        Self { models: Arc::new(models), metrics: Arc::new(Metrics::new()), batching }
    }

    /// How requests are computed together.
    pub(crate) fn batching(&self) -> Batching {
        self.batching
    }

    /// Names of the models.
    pub fn names(&self) -> Vec<String> {
        self.models.keys().cloned().collect()
    }

    /// Loads the newest version of a model and puts it into service; returns its name. Takes as long as that takes:
    /// not for a thread that answers. The old one stays in service where the new one cannot be loaded.
    pub fn load(&self, model: &str) -> Result<String, Refusal> {
        let served = self.served(model)?;
        let _one = served.loading.lock().unwrap_or_else(PoisonError::into_inner);
        let before = served.current();
        let newest = served.source.newest();
        let loaded = newest.clone().and_then(|newest| match before.version {
            Some(version) if version.name == newest => Ok(version),
            _ => self.open(model, &newest).map_err(|reason| format!("{newest}: {reason}")),
        });
        self.metrics.loaded(model, loaded.is_ok());
        let mut current = served.current.write().unwrap_or_else(PoisonError::into_inner);
        match loaded {
            Ok(version) => {
                let name = version.name.clone();
                *current = Current { version: Some(version), ..Current::default() };
                Ok(name)
            }
            Err(reason) => {
                current.reason = Some(reason.clone());
                current.broken = newest.ok();
                Err(Refusal::Invalid(format!("model \"{model}\": {reason}")))
            }
        }
    }

    /// Loads the newest version of a model if there is another one than that in service, and it was not found broken
    /// already. Nothing where there is nothing to do.
    pub fn refresh(&self, model: &str) -> Option<Result<String, Refusal>> {
        let served = self.served(model).ok()?;
        let newest = served.source.newest().ok()?;
        let Current { version, broken, unloaded, .. } = served.current();
        let serves = version.is_some_and(|version| version.name == newest);
        if serves || unloaded || broken.as_ref() == Some(&newest) {
            return None;
        }
        Some(self.load(model))
    }

    fn open(&self, model: &str, newest: &str) -> Result<Arc<Version>, String> {
        let statistics = Arc::new(Statistics::new(self.metrics.of(model)));
        let source = self.served(model).map_err(|refusal| refusal.to_string())?;
        let source = Arc::clone(&source.source);
        let (owner, decoder) =
            Owner::start(source, newest, self.batching, Arc::clone(&statistics))?;
        Ok(Arc::new(Version { name: newest.to_string(), decoder, statistics, owner }))
    }

    /// Takes a model out of service; requests that it has are answered.
    pub fn unload(&self, model: &str) -> Result<(), Refusal> {
        let mut current =
            self.served(model)?.current.write().unwrap_or_else(PoisonError::into_inner);
        let reason = Some("unloaded".to_string());
        *current = Current { reason, unloaded: true, ..Current::default() };
        Ok(())
    }

    /// Requests that wait for a model; none where it is not there.
    pub fn waiting(&self, model: &str) -> usize {
        self.version(model, None).map_or(0, |version| version.waiting())
    }

    /// The page of metrics.
    pub(crate) fn metrics(&self) -> String {
        let now = |ModelStatus { name, version, .. }| {
            let waiting = version.as_deref().map_or(0, Version::waiting);
            (name, version.map(|version| version.name.clone()), waiting)
        };
        self.metrics.page(&self.list().into_iter().map(now).collect::<Vec<_>>())
    }

    /// Whether all models can be asked.
    pub fn is_ready(&self) -> bool {
        self.models.values().all(|served| served.current().version.is_some())
    }

    /// All models.
    pub(crate) fn list(&self) -> Vec<ModelStatus> {
        let status = |(name, served): (&String, &Served)| {
            let Current { version, reason, .. } = served.current();
            ModelStatus { name: name.clone(), version, reason }
        };
        self.models.iter().map(status).collect()
    }

    /// A version of a model, the one in service when none is named.
    pub(crate) fn version(
        &self,
        model: &str,
        version: Option<&str>,
    ) -> Result<Arc<Version>, Refusal> {
        let Current { version: current, reason, .. } = self.served(model)?.current();
        let Some(current) = current else {
            let reason = reason.unwrap_or_else(|| "it is being loaded".to_string());
            return Err(Refusal::Unavailable(format!("model \"{model}\" is not ready: {reason}")));
        };
        match version {
            Some(wanted) if wanted != current.name => Err(Refusal::NotFound(format!(
                "model \"{model}\" has no version \"{wanted}\" (there is: {})",
                current.name
            ))),
            _ => Ok(current),
        }
    }

    /// Asks a model.
    pub async fn infer(&self, request: InferRequest) -> Result<InferResponse, Refusal> {
        let since = Instant::now();
        let InferRequest { model, version, input, outputs, timeout } = request;
        let version = self.version(&model, version.as_deref())?;
        let known = &version.decoder.metadata().outputs;
        let is_known = |name: &&String| known.iter().any(|output| output.name == **name);
        if let Some(unknown) = outputs.iter().find(|name| !is_known(name)) {
            let known: Vec<&str> = known.iter().map(|output| output.name.as_str()).collect();
            let known = known.join(", ");
            return Err(Refusal::Invalid(format!(
                "there is no output \"{unknown}\" (there are: {known})"
            )));
        }
        let rows = input.rows();
        let timeout = timeout.or(self.batching.timeout);
        let answered = answer(&version, input, timeout.map(|timeout| since + timeout)).await;
        match answered {
            Ok(Answer { outputs: mut all, queued }) => {
                version.statistics.succeeded(rows, since.elapsed(), queued);
                if !outputs.is_empty() {
                    all = outputs
                        .iter()
                        .filter_map(|name| all.iter().find(|output| output.name == *name).cloned())
                        .collect();
                }
                Ok(InferResponse { version: version.name.clone(), outputs: all })
            }
            Err(refusal) => {
                version.statistics.failed(&refusal, since.elapsed());
                Err(refusal)
            }
        }
    }

    fn served(&self, model: &str) -> Result<&Served, Refusal> {
        self.models.get(model).ok_or_else(|| {
            let known = self.names().join(", ");
            Refusal::NotFound(format!("there is no model \"{model}\" (there are: {known})"))
        })
    }
}

impl Served {
    fn current(&self) -> Current {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn answer(
    version: &Version,
    input: Input,
    deadline: Option<Instant>,
) -> Result<Answer, Refusal> {
    if input.rows() == 0 {
        return Err(Refusal::Invalid("the request has no records".to_string()));
    }
    let decoder = &version.decoder;
    let decoded = match is_heavy(&input) {
        true => tokio::task::block_in_place(|| decoder.decode(&input)),
        false => decoder.decode(&input),
    };
    drop(input);
    let reply = version.owner.submit(decoded.map_err(Refusal::Invalid)?, deadline)?;
    let gone = |_| Refusal::Failed("the model's thread has ended".to_string());
    reply.await.map_err(gone)?
}

fn is_heavy(input: &Input) -> bool {
    match input {
        Input::Tensors(tensors) => {
            tensors.iter().map(|tensor| tensor.values.len()).sum::<usize>() > HEAVY
        }
        Input::Records(records) => records.len() > 64,
    }
}
