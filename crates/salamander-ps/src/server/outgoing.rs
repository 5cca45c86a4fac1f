//! Partitions that this server gives to others. A request for one may come twice, because its answer
//! got lost: so each is kept until all servers have what they need.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{Engine, Error};

#[derive(Debug, Default)]
pub(super) struct Outgoing(Mutex<BTreeMap<u16, Arc<Vec<u8>>>>);

impl Outgoing {
    /// Takes partitions out of the engine and keeps them.
    pub(super) fn pack(&self, engine: &Engine, partitions: &[u16]) -> Result<(), Error> {
        for partition in partitions {
            let bytes = Arc::new(engine.take(&[*partition])?);
            self.lock().insert(*partition, bytes);
        }
        Ok(())
    }

    /// A partition that is kept.
    pub(super) fn get(&self, partition: u16) -> Option<Arc<Vec<u8>>> {
        self.lock().get(&partition).cloned()
    }

    /// All have arrived, or are of no use any more.
    pub(super) fn clear(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u16, Arc<Vec<u8>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
