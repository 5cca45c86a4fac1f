//! The parameter servers as a worker sees them: rows and dense blocks are pulled, gradients are pushed by name.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use burn::tensor::TensorData;
use salamander_core::asynchronous::Map;
use salamander_net::{Cancel, Keys};
use salamander_ps::client::{Ack, Client, ClientOptions, Seen, Sent};
use salamander_ps::{LedgerPage, Push, Read, TableRows, TableSpec};

use super::dense::{BLOCK, Dense};
use crate::Error;
use crate::tables::{Connection, Declared, RowGradient, RowSource, trouble};
use crate::worker::WorkerConnection;

/// How long a server may take before a worker gives its lease back.
const PATIENCE: Duration = Duration::from_secs(4);

/// The table of dense parameters comes first, then those of the model.
const DENSE: usize = 0;

/// The gradients of one micro-batch.
pub(super) struct Gradients<'a> {
    /// The numbers of the blocks of dense parameters that have any,
    pub(super) blocks: &'a [u64],
    /// and their values, one block after the other.
    pub(super) dense: &'a [f32],
    pub(super) rows: &'a [RowGradient],
}

/// The servers; clones are the same.
#[derive(Clone)]
pub(super) struct Servers(Arc<Mutex<Directions>>);

struct Directions {
    keys: Keys,
    bf16: bool,
    cancel: Cancel,
    specs: Vec<TableSpec>,
    known: Option<KnownMap>,
    connection: Option<Connection>,
    seen: Seen,
    /// The rate of a push is divided by how many others came since its parameters were pulled.
    by_age: bool,
}

/// The servers of a lease.
#[derive(PartialEq)]
struct KnownMap {
    map: Map,
    /// Where they listen.
    endpoints: Vec<String>,
}

impl Servers {
    pub(super) fn new(
        worker: &WorkerConnection,
        cancel: Cancel,
        dense: TableSpec,
        by_age: bool,
    ) -> Self {
        Self(Arc::new(Mutex::new(Directions {
            keys: worker.keys.clone(),
            bf16: worker.bf16,
            cancel,
            specs: vec![dense],
            known: None,
            connection: None,
            seen: Seen::default(),
            by_age,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, Directions> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The servers of a lease.
    pub(super) fn follow(&self, map: Map, mut endpoints: Vec<String>) {
        endpoints.truncate(map.servers as usize);
        let mut state = self.lock();
        let now = Some(KnownMap { map, endpoints });
        if state.known != now {
            (state.known, state.connection, state.seen) = (now, None, Seen::default());
        }
    }

    /// Something went wrong: the next request connects anew.
    pub(super) fn hang_up(&self) {
        let mut state = self.lock();
        (state.known, state.connection, state.seen) = (None, None, Seen::default());
    }

    /// Takes in the blocks that changed; returns the parameters that they are of.
    pub(super) fn refresh(
        &self,
        dense: &Dense,
        blocks: &mut [f32],
    ) -> Result<HashMap<String, TensorData>, Error> {
        if dense.blocks() == 0 {
            return Ok(HashMap::new());
        }
        let mut state = self.lock();
        let seen = std::mem::take(&mut state.seen);
        let first = seen == Seen::default();
        let connection = state.connection()?;
        let dense_table = connection.tables[DENSE].id;
        let news = connection.client.changed(dense_table, &seen).map_err(trouble)?;
        let mut changed = BTreeSet::new();
        for (id, row) in news.ids.iter().zip(news.values.chunks_exact(BLOCK)) {
            let at = *id as usize;
            if let Some(block) = blocks.chunks_exact_mut(BLOCK).nth(at) {
                block.copy_from_slice(row);
                changed.insert(at);
            }
        }
        if first && changed.len() != dense.blocks() {
            let (found, all) = (changed.len(), dense.blocks());
            let text = format!("the servers have {found} of {all} blocks of the dense parameters");
            return Err(Error::Unreachable(text));
        }
        state.seen = news.seen;
        Ok(dense.scatter(blocks, &changed))
    }

    /// Pushes the gradients of a micro-batch, which are applied once whoever pushes them again. Whether they
    /// were is told by [`Servers::finish`]; servers apply them while this worker goes on, and before they
    /// answer what it asks next.
    pub(super) fn begin_push(
        &self,
        name: salamander_core::plan::MicroBatch,
        tally: LedgerPage,
        factor: f64,
        gradients: &Gradients<'_>,
    ) -> Result<Sent<'static>, Error> {
        let mut state = self.lock();
        let seen = state.by_age.then(|| state.seen.clone());
        let Connection { client, tables } = state.connection()?;
        let mut rows = Declared::rows(&tables[DENSE + 1..], gradients.rows);
        if !gradients.blocks.is_empty() {
            let Gradients { blocks: ids, dense: values, .. } = *gradients;
            rows.insert(0, TableRows { table: tables[DENSE].id, ids, values });
        }
        let push = Push { name, tally, factor, scale: 1.0, seen: None, rows: &rows };
        let sent = client.begin_push(&push, seen.as_ref()).map_err(trouble)?;
        Ok(sent.into_owned())
    }

    /// Whether all servers are known to have what was pushed.
    pub(super) fn is_acknowledged(&self, sent: &Sent<'_>) -> bool {
        self.lock().connection.as_ref().is_some_and(|known| known.client.is_acknowledged(sent))
    }

    /// Waits until all servers have what was pushed.
    pub(super) fn finish(&self, sent: Sent<'static>) -> Result<Vec<Ack>, Error> {
        self.lock().connection()?.client.finish(sent).map_err(trouble)
    }
}

impl Directions {
    fn connection(&mut self) -> Result<&mut Connection, Error> {
        match &mut self.connection {
            Some(connection) => Ok(connection),
            none => {
                let Some(KnownMap { map, endpoints }) = &self.known else {
                    return Err(Error::Unreachable("no server is known".to_string()));
                };
                let options = ClientOptions {
                    patience: PATIENCE,
                    bf16: self.bf16,
                    lineage: map.number.into(),
                    cancel: self.cancel.clone(),
                    ..ClientOptions::default()
                };
                let client = Client::connect(endpoints.clone(), self.keys.clone(), options);
                Ok(none.insert(Connection::new(client.map_err(trouble)?, &self.specs)?))
            }
        }
    }
}

/// The rows of a model's tables. Their gradients are pushed together with the dense ones, so nothing is staged here.
impl RowSource for Servers {
    fn declare(&mut self, specs: &[TableSpec]) -> Result<(), Error> {
        let all = &mut self.lock().specs;
        all.truncate(DENSE + 1);
        all.extend_from_slice(specs);
        Ok(())
    }

    fn pull(&mut self, table: usize, ids: &[u64], read: Read) -> Result<Vec<f32>, Error> {
        self.lock().connection()?.pull(DENSE + 1 + table, ids, read, None)
    }
}
