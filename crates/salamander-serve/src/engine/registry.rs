//! Models by name, and their versions: one is loaded beside the one in service, takes its place at once, and the old
//! one goes when its last request is answered. Models come and go while the server runs.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use salamander_data::{JsonRecord, Value};

use super::loading::LoadingBeside;
use super::metrics::{ServingMetrics, VersionNow};
use super::served::{Current, Opening, Served, ServedVersion, VersionSlot};
use super::{Batching, ComputedAnswer, RequestTimes};
use crate::input::Input;
use crate::model::{Opener, Source, SourceToServe};
use crate::refusal::Refusal;
use crate::tensor::{Tensor, Values};

/// Inputs of more values than this are decoded apart from the threads that wait for others,
const HEAVY: usize = 64 << 10;
/// and texts of more bytes, each of which a tokenizer reads.
const HEAVY_TEXT: usize = 16 << 10;

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

/// Where a version of a model stands.
pub(crate) struct ModelStatus {
    pub(crate) name: String,
    pub(crate) version: Option<Arc<ServedVersion>>,
    pub(crate) reason: Option<String>,
    /// Whether requests that name no version go to it.
    pub(crate) is_default: bool,
    /// Whether somebody took it out of service.
    pub(crate) unloaded: bool,
}

/// The models of a server. A copy is the same registry.
#[derive(Clone)]
pub struct Registry {
    models: Arc<RwLock<BTreeMap<String, Served>>>,
    metrics: Arc<ServingMetrics>,
    batching: Batching,
    opener: Option<Arc<dyn Opener>>,
    /// Whether there is a server that asks.
    answers: Arc<AtomicBool>,
}

impl Registry {
    /// Of these models, none of which is loaded yet.
    pub fn new(
        models: impl IntoIterator<Item = (String, Arc<dyn Source>)>,
        batching: Batching,
    ) -> Self {
        let registry = Self {
            models: Arc::default(),
            metrics: Arc::new(ServingMetrics::new()),
            batching,
            opener: None,
            answers: Arc::default(),
        };
        for (name, source) in models {
            registry.add(SourceToServe { name, label: None, source });
        }
        registry
    }

    /// The same, able to open what clients register.
    #[must_use]
    pub fn with_opener(self, opener: Arc<dyn Opener>) -> Self {
        Self { opener: Some(opener), ..self }
    }

    /// Adds a place that versions of a model come from. Where the model is known already, it is one more version beside
    /// the others, and the one that requests go to which name none.
    pub fn add(&self, SourceToServe { name, label, source }: SourceToServe) {
        let slot = VersionSlot::new(label, source);
        let mut models = self.models.write().unwrap_or_else(PoisonError::into_inner);
        match models.get_mut(&name) {
            Some(served) => {
                served.slots.push(Arc::new(slot));
                served.default = served.slots.len() - 1;
            }
            None => drop(models.insert(name, Served::of(slot))),
        }
    }

    /// Opens what a client names, and puts it into service: its model's name and version. Nothing is changed where it
    /// cannot be loaded. Takes as long as that takes.
    pub fn register(&self, name: Option<&str>, url: &str) -> Result<(String, String), Refusal> {
        let Some(opener) = &self.opener else {
            let reason = "this server serves what it was started with: nothing can be registered";
            return Err(Refusal::Unsupported(reason.to_string()));
        };
        let SourceToServe { name, label, source } =
            opener.open(name, url).map_err(Refusal::Invalid)?;
        let slot = VersionSlot::new(label, source);
        let version = slot.load(&self.opening(&name))?;
        let mut models = self.models.write().unwrap_or_else(PoisonError::into_inner);
        match models.get_mut(&name) {
            Some(served) if served.slot(Some(&version)).is_some() => {
                return Err(Refusal::Conflict(format!(
                    "model \"{name}\" has a version \"{version}\" already"
                )));
            }
            // As TorchServe does: the default stays until somebody sets another one.
            Some(served) => served.slots.push(Arc::new(slot)),
            None => drop(models.insert(name.clone(), Served::of(slot))),
        }
        Ok((name, version))
    }

    /// Forgets a version of a model, or the model with all of them; requests that it has are answered.
    pub fn unregister(&self, model: &str, version: Option<&str>) -> Result<(), Refusal> {
        let mut models = self.models.write().unwrap_or_else(PoisonError::into_inner);
        let Some(served) = models.get_mut(model) else {
            drop(models);
            return Err(self.no_model(model));
        };
        let Some(version) = version else {
            models.remove(model);
            return Ok(());
        };
        served.version(model, Some(version)).map(drop).or_else(|refusal| match refusal {
            Refusal::Unavailable(_) => Ok(()),
            other => Err(other),
        })?;
        match served.slot(Some(version)).map(|(place, _)| place) {
            Some(_) if served.slots.len() == 1 => drop(models.remove(model)),
            Some(place) if place == served.default => {
                return Err(Refusal::Conflict(format!(
                    "version \"{version}\" of model \"{model}\" is the default one: set another one first"
                )));
            }
            Some(place) => {
                served.slots.remove(place);
                served.default -= usize::from(place < served.default);
            }
            None => {}
        }
        Ok(())
    }

    /// Sets the version that requests go to which name none.
    pub fn set_default(&self, model: &str, version: &str) -> Result<(), Refusal> {
        // It has to be there and ready.
        self.version(model, Some(version))?;
        let mut models = self.models.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(served) = models.get_mut(model)
            && let Some((place, _)) = served.slot(Some(version))
        {
            served.default = place;
        }
        Ok(())
    }

    /// How requests are computed together.
    pub(crate) fn batching(&self) -> Batching {
        self.batching
    }

    /// Names of the models.
    pub fn names(&self) -> Vec<String> {
        self.models.read().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect()
    }

    /// Loads the newest version of each place that a model comes from, and puts it into service; returns the name of
    /// the default one. Takes as long as that takes: not for a thread that answers. The old one stays in service where
    /// the new one cannot be loaded.
    pub fn load(&self, model: &str) -> Result<String, Refusal> {
        let served = self.served(model)?;
        let mut default = String::new();
        for (place, slot) in served.slots.iter().enumerate() {
            let name = slot.load(&self.opening(model))?;
            let twice = |(other, slot): (usize, &Arc<VersionSlot>)| {
                other != place && slot.name().as_deref() == Some(&name)
            };
            if served.slots.iter().enumerate().any(twice) {
                slot.unload();
                return Err(Refusal::Conflict(format!(
                    "model \"{model}\" has a version \"{name}\" twice: name one NAME/VERSION=.."
                )));
            }
            if place == served.default {
                default = name;
            }
        }
        Ok(default)
    }

    /// Loads newer versions of a model than those in service, unless they were found broken already. Nothing where
    /// there is nothing to do.
    pub fn refresh(&self, model: &str) -> Vec<Result<String, Refusal>> {
        let Ok(served) = self.served(model) else { return Vec::new() };
        let opening = self.opening(model);
        served.slots.iter().filter_map(|slot| slot.refresh(&opening)).collect()
    }

    /// Takes a model out of service with all of its versions; requests that they have are answered.
    pub fn unload(&self, model: &str) -> Result<(), Refusal> {
        self.served(model)?.slots.iter().for_each(|slot| slot.unload());
        Ok(())
    }

    /// Requests that wait for a model; none where it is not there.
    pub fn waiting(&self, model: &str) -> usize {
        self.version(model, None).map_or(0, |version| version.waiting())
    }

    /// The page of metrics.
    pub(crate) fn metrics(&self) -> String {
        let now = |ModelStatus { name, version, .. }| VersionNow {
            model: name,
            waiting: version.as_deref().map_or(0, ServedVersion::waiting),
            unknown_ids: version.as_deref().and_then(ServedVersion::unknown_ids),
            version: version.map(|version| version.name.clone()),
        };
        self.metrics.page(&self.list().into_iter().map(now).collect::<Vec<_>>())
    }

    /// Whether all models can be asked but those that somebody took out of service, and at least one where there are
    /// any: to unload one of several must not take the others away from who asks only ready servers.
    pub fn is_ready(&self) -> bool {
        let list = self.list();
        let serves = |status: &ModelStatus| status.version.is_some();
        let all = list.iter().all(|status| serves(status) || status.unloaded);
        all && (list.is_empty() || list.iter().any(serves))
    }

    /// All versions of all models, the default one of each first.
    pub(crate) fn list(&self) -> Vec<ModelStatus> {
        let models = self.models.read().unwrap_or_else(PoisonError::into_inner);
        let mut list = Vec::new();
        for (name, served) in models.iter() {
            let mut own: Vec<ModelStatus> = Vec::new();
            for (place, slot) in served.slots.iter().enumerate() {
                let Current { version, reason, unloaded, .. } = slot.current();
                let (name, is_default) = (name.clone(), place == served.default);
                own.push(ModelStatus { name, version, reason, is_default, unloaded });
            }
            own.sort_by_key(|status| !status.is_default);
            list.append(&mut own);
        }
        list
    }

    /// All versions of a model, the default one first.
    pub(crate) fn versions(&self, model: &str) -> Result<Vec<ModelStatus>, Refusal> {
        self.served(model)?;
        Ok(self.list().into_iter().filter(|status| status.name == model).collect())
    }

    /// Names of the versions of a model, the default one first.
    pub(crate) fn version_names(&self, model: &str) -> Result<Vec<String>, Refusal> {
        self.served(model).map(|served| served.names())
    }

    /// A version of a model, the default one when none is named.
    pub(crate) fn version(
        &self,
        model: &str,
        version: Option<&str>,
    ) -> Result<Arc<ServedVersion>, Refusal> {
        let models = self.models.read().unwrap_or_else(PoisonError::into_inner);
        match models.get(model) {
            Some(served) => served.version(model, version),
            None => {
                drop(models);
                Err(self.no_model(model))
            }
        }
    }

    /// Refuses a request by its address alone where too many wait already.
    pub(crate) fn check_room(&self, model: &str, version: Option<&str>) -> Result<(), Refusal> {
        let version = self.version(model, version)?;
        version.owner.check_room().inspect_err(|refusal| {
            version.statistics.failed(refusal, Duration::ZERO);
        })
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
        let inputs = &version.decoder.metadata().inputs;
        if !inputs.is_empty() {
            input.check_names(inputs).map_err(Refusal::Invalid)?;
        }
        let rows = input.rows();
        let timeout = timeout.or(self.batching.timeout);
        // One that ends after all time is none.
        let deadline = timeout.and_then(|timeout| since.checked_add(timeout));
        let answered = answer(&version, input, deadline).await;
        match answered {
            Ok((ComputedAnswer { outputs: mut all, queued, computed }, decoded)) => {
                let whole = since.elapsed();
                let times = RequestTimes { whole, decoded, queued, computed };
                version.statistics.succeeded(rows, times);
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

    /// A server asks from now on: what is loaded later has to leave it the cores.
    pub(crate) fn begin_to_answer(&self) {
        self.answers.store(true, Ordering::Relaxed);
    }

    fn opening<'a>(&'a self, model: &'a str) -> Opening<'a> {
        let in_service = |status: &ModelStatus| status.version.is_some();
        let beside =
            match self.answers.load(Ordering::Relaxed) && self.list().iter().any(in_service) {
                true => LoadingBeside::Others,
                false => LoadingBeside::Nobody,
            };
        Opening { model, metrics: &self.metrics, batching: self.batching, beside }
    }

    fn served(&self, model: &str) -> Result<Served, Refusal> {
        let models = self.models.read().unwrap_or_else(PoisonError::into_inner);
        let found = models.get(model).cloned();
        drop(models);
        found.ok_or_else(|| self.no_model(model))
    }

    fn no_model(&self, model: &str) -> Refusal {
        let known = self.names().join(", ");
        Refusal::NotFound(format!("there is no model \"{model}\" (there are: {known})"))
    }
}

/// The answer, and how long it took to decode its records.
async fn answer(
    version: &ServedVersion,
    input: Input,
    deadline: Option<Instant>,
) -> Result<(ComputedAnswer, Duration), Refusal> {
    if input.rows() == 0 {
        return Err(Refusal::Invalid("the request has no records".to_string()));
    }
    let (decoder, begin) = (&version.decoder, Instant::now());
    let decoded = match is_heavy(&input) {
        true => tokio::task::block_in_place(|| decoder.decode(&input)),
        false => decoder.decode(&input),
    };
    let took = begin.elapsed();
    drop(input);
    let reply = version.owner.submit(decoded.map_err(Refusal::Invalid)?, deadline)?;
    let gone = |_| Refusal::Failed("the model's thread has ended".to_string());
    reply.await.map_err(gone)?.map(|answer| (answer, took))
}

fn is_heavy(input: &Input) -> bool {
    match input {
        Input::Tensors(tensors) => {
            let text = |tensor: &Tensor| match &tensor.values {
                Values::Texts(texts) => texts.iter().map(Bytes::len).sum::<usize>(),
                _ => 0,
            };
            tensors.iter().map(|tensor| tensor.values.len()).sum::<usize>() > HEAVY
                || tensors.iter().map(text).sum::<usize>() > HEAVY_TEXT
        }
        Input::Records(records) => {
            let text = |record: &JsonRecord| {
                let length = |value: &Value<'_>| match value {
                    Value::Text(text) => text.len(),
                    Value::Bytes(bytes) => bytes.len(),
                    Value::List(items) => items.iter().map(|item| item.len()).sum(),
                    Value::Ints(_) | Value::Floats(_) => 0,
                };
                record.row().columns().map(|(_, value)| length(value)).sum::<usize>()
            };
            records.len() > 64 || records.iter().map(text).sum::<usize>() > HEAVY_TEXT
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tensor::DataType;

    #[test]
    fn many_values_and_long_texts_are_heavy() {
        let check = |input: Input, expected| assert_eq!(is_heavy(&input), expected);
        let texts = |bytes: usize| {
            let values = Values::Texts(vec![vec![b'a'; bytes].into(), "a".into()]);
            Input::Tensors(vec![Tensor::new("x", DataType::Bytes, &[2], values).unwrap()])
        };
        check(texts(10), false);
        check(texts(HEAVY_TEXT), true);
        let record =
            |bytes: usize| Input::from_json(vec![json!({"x": "a".repeat(bytes)})]).unwrap();
        check(record(10), false);
        check(record(HEAVY_TEXT + 1), true);
        check(Input::from_json(vec![json!({"x": 1}); 65]).unwrap(), true);
    }
}
