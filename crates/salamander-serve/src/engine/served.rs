//! A model by its name: one or more places that its versions come from, each with the version that is in service.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use super::loading::{self, LoadingBeside};
use super::metrics::ServingMetrics;
use super::{Batching, LoadedParts, Owner, Statistics};
use crate::model::{Decoder, Source};
use crate::refusal::Refusal;

/// A version of a model in service.
pub(crate) struct ServedVersion {
    /// What clients call it.
    pub(crate) name: String,
    pub(crate) decoder: Arc<dyn Decoder>,
    pub(crate) statistics: Arc<Statistics>,
    pub(super) owner: Owner,
    unknown_ids: Option<Arc<AtomicU64>>,
    /// What its source calls it.
    checkpoint: String,
}

impl ServedVersion {
    /// Requests that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.owner.waiting()
    }

    /// Look-ups of ids that the model does not know, where it counts them.
    pub(crate) fn unknown_ids(&self) -> Option<u64> {
        self.unknown_ids.as_ref().map(|count| count.load(Ordering::Relaxed))
    }
}

/// A place that versions come from, one of which is in service at a time.
pub(super) struct VersionSlot {
    /// What its version is called, whichever it is; by its own name when absent.
    label: Option<String>,
    source: Arc<dyn Source>,
    current: RwLock<Current>,
    /// Held while a version is loaded: one at a time.
    loading: Mutex<()>,
}

#[derive(Clone, Default)]
pub(super) struct Current {
    pub(super) version: Option<Arc<ServedVersion>>,
    /// Why there is none, or why a newer one was not taken.
    pub(super) reason: Option<String>,
    /// The version that could not be loaded.
    broken: Option<String>,
    /// Whether somebody took it out of service,
    pub(super) unloaded: bool,
    /// and how often somebody did.
    unloads: u64,
}

/// The slots of a model; requests that name no version go to the default one.
#[derive(Clone)]
pub(super) struct Served {
    pub(super) slots: Vec<Arc<VersionSlot>>,
    pub(super) default: usize,
}

/// What a slot needs to load a version.
pub(super) struct Opening<'a> {
    pub(super) model: &'a str,
    pub(super) metrics: &'a ServingMetrics,
    pub(super) batching: Batching,
    pub(super) beside: LoadingBeside,
}

impl VersionSlot {
    pub(super) fn new(label: Option<String>, source: Arc<dyn Source>) -> Self {
        let (current, loading) = (RwLock::new(Current::default()), Mutex::new(()));
        Self { label, source, current, loading }
    }

    pub(super) fn current(&self) -> Current {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The name of its version, also of one that is not loaded, where that is known.
    pub(super) fn name(&self) -> Option<String> {
        let loaded = self.current().version.map(|version| version.name.clone());
        self.label.clone().or(loaded)
    }

    /// Loads the newest version beside the one in service, which stays where the new one cannot be loaded.
    pub(super) fn load(&self, opening: &Opening<'_>) -> Result<String, Refusal> {
        self.load_unless_unloaded(opening, self.current().unloads)
    }

    /// The same, asked for when it had been taken out of service so often: who does it while the version is loaded
    /// has the last word.
    fn load_unless_unloaded(&self, opening: &Opening<'_>, unloads: u64) -> Result<String, Refusal> {
        let _one = self.loading.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.current();
        let newest = self.source.newest();
        let loaded = newest.clone().and_then(|newest| match before.version {
            Some(version) if version.checkpoint == newest => Ok(version),
            _ => self.open(opening, &newest).map_err(|reason| format!("{newest}: {reason}")),
        });
        opening.metrics.loaded(opening.model, loaded.is_ok());
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        if current.unloads != unloads {
            // What was loaded ends without the lock.
            drop(current);
            let model = opening.model;
            let reason = format!("model \"{model}\" was unloaded while it was being loaded");
            return Err(Refusal::Unavailable(reason));
        }
        match loaded {
            Ok(version) => {
                let name = version.name.clone();
                *current = Current { version: Some(version), unloads, ..Current::default() };
                Ok(name)
            }
            Err(reason) => {
                current.reason = Some(reason.clone());
                current.broken = newest.ok();
                Err(Refusal::Invalid(format!("model \"{}\": {reason}", opening.model)))
            }
        }
    }

    /// Loads the newest version if it is another one than that in service and was not found broken already.
    pub(super) fn refresh(&self, opening: &Opening<'_>) -> Option<Result<String, Refusal>> {
        let newest = self.source.newest().ok()?;
        let Current { version, broken, unloaded, unloads, .. } = self.current();
        let serves = version.is_some_and(|version| version.checkpoint == newest);
        if serves || unloaded || broken.as_ref() == Some(&newest) {
            return None;
        }
        Some(self.load_unless_unloaded(opening, unloads))
    }

    /// Takes its version out of service; requests that it has are answered.
    pub(super) fn unload(&self) {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        let reason = Some("unloaded".to_string());
        let unloads = current.unloads + 1;
        *current = Current { reason, unloaded: true, unloads, ..Current::default() };
    }

    fn open(&self, opening: &Opening<'_>, newest: &str) -> Result<Arc<ServedVersion>, String> {
        let statistics = Arc::new(Statistics::new(opening.metrics.of(opening.model)));
        let loaded = loading::load(&self.source, newest, opening.beside)?;
        let (owner, LoadedParts { decoder, unknown_ids }) =
            Owner::start(loaded, newest, opening.batching, Arc::clone(&statistics))?;
        let (name, checkpoint) = (self.label.as_deref().unwrap_or(newest), newest.to_string());
        let name = name.to_string();
        Ok(Arc::new(ServedVersion { name, decoder, statistics, owner, unknown_ids, checkpoint }))
    }
}

impl Served {
    pub(super) fn of(slot: VersionSlot) -> Self {
        Self { slots: vec![Arc::new(slot)], default: 0 }
    }

    /// The slot with this version, or the default one.
    pub(super) fn slot(&self, version: Option<&str>) -> Option<(usize, &Arc<VersionSlot>)> {
        let Some(wanted) = version else {
            return self.slots.get(self.default).map(|slot| (self.default, slot));
        };
        let mut slots = self.slots.iter().enumerate();
        slots.find(|(_, slot)| slot.name().as_deref() == Some(wanted))
    }

    /// Names of the versions that are known, the default one first.
    pub(super) fn names(&self) -> Vec<String> {
        let first = self.slots.get(self.default).into_iter();
        let others = self.slots.iter().enumerate().filter(|(place, _)| *place != self.default);
        first.chain(others.map(|(_, slot)| slot)).filter_map(|slot| slot.name()).collect()
    }

    /// A version that can be asked, the default one when none is named.
    pub(super) fn version(
        &self,
        model: &str,
        version: Option<&str>,
    ) -> Result<Arc<ServedVersion>, Refusal> {
        let Some((_, slot)) = self.slot(version) else {
            let (wanted, known) = (version.unwrap_or_default(), self.names().join(", "));
            return Err(Refusal::NotFound(match known.is_empty() {
                true => format!("model \"{model}\" has no version \"{wanted}\": none is loaded"),
                false => {
                    format!("model \"{model}\" has no version \"{wanted}\" (there is: {known})")
                }
            }));
        };
        let Current { version, reason, .. } = slot.current();
        version.ok_or_else(|| {
            let reason = reason.unwrap_or_else(|| "it is being loaded".to_string());
            Refusal::Unavailable(format!("model \"{model}\" is not ready: {reason}"))
        })
    }
}
