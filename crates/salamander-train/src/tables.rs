//! The tables of a model: where their rows come from, and which rows the current micro-batch used.

mod exported;
mod files;
mod local;
mod remote;
mod store;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use burn::tensor::{FloatDType, Gradients, Tensor};
use salamander_core::optimizer::Optimizer;
use salamander_ps::{Read, TableSpec};

use crate::Error;
use crate::gradients::host;

pub(crate) use exported::export;
pub(crate) use files::FileRows;
pub(crate) use local::LocalRows;
pub(crate) use remote::{Connection, trouble};
pub(crate) use remote::{RemoteRows, Servers};
pub(crate) use store::Declared;
pub(crate) use store::{Finish, RowGradient, RowSource, SharedRows, StagedRows};

/// A model's tables; clones are the same tables.
#[derive(Clone, Default)]
pub struct Tables(Arc<Mutex<TableRegistry>>);

#[derive(Default)]
struct TableRegistry {
    specs: Vec<TableSpec>,
    /// Tables whose optimizer is the model's.
    undecided: Vec<usize>,
    store: Option<Opened>,
    uses: Vec<Use>,
    precision: Option<FloatDType>,
    /// A look-up cannot return an error, so the first one waits here.
    failed: Option<Error>,
}

/// Where the rows are.
pub enum Opened {
    /// Where they are only read: their gradients are pushed elsewhere, by name.
    Source(Box<dyn RowSource>),
    /// Where steps are staged.
    Staged(Box<dyn StagedRows>),
}

impl Opened {
    fn source(&mut self) -> &mut dyn RowSource {
        match self {
            Self::Source(rows) => rows.as_mut(),
            Self::Staged(rows) => rows.as_mut(),
        }
    }
}

/// Rows that a forward pass used.
struct Use {
    table: usize,
    ids: Vec<u64>,
    leaf: Tensor<2>,
}

impl std::fmt::Debug for Tables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<String> = self.lock().specs.iter().map(|spec| spec.name.clone()).collect();
        f.debug_tuple("Tables").field(&names).finish()
    }
}

impl Tables {
    fn lock(&self) -> MutexGuard<'_, TableRegistry> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the model has none.
    pub fn is_empty(&self) -> bool {
        self.lock().specs.is_empty()
    }

    /// What the model declared.
    pub fn specs(&self) -> Vec<TableSpec> {
        self.lock().specs.clone()
    }

    /// Adds a table; the same name twice is an error that shows when the tables are opened.
    pub(crate) fn declare(&self, spec: TableSpec, optimizer: Option<Optimizer>) -> usize {
        let mut registry = self.lock();
        if registry.specs.iter().any(|other| other.name == spec.name) {
            let reason = format!("two tables are called \"{}\"", spec.name);
            registry.failed.get_or_insert(Error::Invalid(reason));
        }
        let number = registry.specs.len();
        if optimizer.is_none() {
            registry.undecided.push(number);
        }
        let optimizer = optimizer.unwrap_or(spec.optimizer);
        registry.specs.push(TableSpec { optimizer, ..spec });
        number
    }

    /// Tables without an optimizer of their own have this one.
    pub fn with_optimizer(&self, optimizer: Optimizer) -> &Self {
        let mut registry = self.lock();
        for number in std::mem::take(&mut registry.undecided) {
            registry.specs[number].optimizer = optimizer;
        }
        self
    }

    /// Gives the tables a place to be.
    pub fn open(&self, mut store: Opened) -> Result<(), Error> {
        self.check()?;
        let mut registry = self.lock();
        store.source().declare(&registry.specs)?;
        registry.store = Some(store);
        Ok(())
    }

    /// Takes their place away, for other tables of the same model.
    pub fn close(&self) -> Option<Opened> {
        self.lock().store.take()
    }

    /// Rows are computed with in this type, and kept as they are.
    pub fn compute_in(&self, precision: Option<FloatDType>) {
        self.lock().precision = precision;
    }

    pub(crate) fn precision(&self) -> Option<FloatDType> {
        self.lock().precision
    }

    /// The rows of these ids; nothing after an error, which [`Tables::check`] returns.
    pub(crate) fn pull(&self, table: usize, ids: &[u64], training: bool) -> Option<Vec<f32>> {
        let mut registry = self.lock();
        let read = if training { Read::Train } else { Read::Evaluate };
        let pulled = match &mut registry.store {
            Some(store) => store.source().pull(table, ids, read),
            None => Err(Error::Invalid("the model's tables are not open".to_string())),
        };
        pulled.map_err(|error| registry.failed.get_or_insert(error)).ok()
    }

    pub(crate) fn note(&self, table: usize, ids: Vec<u64>, leaf: Tensor<2>) {
        self.lock().uses.push(Use { table, ids, leaf });
    }

    pub(crate) fn fail(&self, reason: String) {
        self.lock().failed.get_or_insert(Error::Invalid(reason));
    }

    /// The first error of a look-up since the last call.
    pub fn check(&self) -> Result<(), Error> {
        self.lock().failed.take().map_or(Ok(()), Err)
    }

    /// Forgets what earlier forward passes used.
    pub fn begin_batch(&self) {
        self.lock().uses.clear();
    }

    /// The gradients of the rows that the last forward passes used, each row once.
    pub fn gradients(&self, gradients: &mut Gradients) -> Vec<RowGradient> {
        let mut registry = self.lock();
        let uses = std::mem::take(&mut registry.uses);
        let mut sums: Vec<Sum> = registry.specs.iter().map(|spec| Sum::new(spec.dim)).collect();
        drop(registry);
        for Use { table, ids, leaf } in uses {
            // A row that the loss does not depend on has no gradient, and does not move.
            if let Some(gradient) = leaf.grad_remove(gradients) {
                sums[table].add(ids, host(gradient));
            }
        }
        let used = sums.into_iter().enumerate().filter(|(_, sum)| !sum.ids.is_empty());
        used.map(|(table, Sum { ids, values, .. })| RowGradient { table, ids, values }).collect()
    }

    /// Does something with the place where steps are staged, if there are tables.
    pub fn with_store<R>(
        &self,
        act: impl FnOnce(&mut dyn StagedRows) -> Result<R, Error>,
    ) -> Result<Option<R>, Error> {
        match &mut self.lock().store {
            Some(Opened::Staged(rows)) => act(rows.as_mut()).map(Some),
            Some(Opened::Source(_)) => {
                Err(Error::Invalid("rows are pushed by name here, and saved by the master".into()))
            }
            None => Ok(None),
        }
    }

    /// The same with rows that other processes see, if they do.
    pub fn with_shared<R>(
        &self,
        act: impl FnOnce(&mut dyn SharedRows) -> Result<R, Error>,
    ) -> Result<Option<R>, Error> {
        self.with_store(|rows| rows.shared().map(act).transpose()).map(Option::flatten)
    }
}

/// Gradients of one table, added up by id.
struct Sum {
    dim: usize,
    ids: Vec<u64>,
    values: Vec<f32>,
    places: HashMap<u64, usize>,
}

impl Sum {
    fn new(dim: usize) -> Self {
        Self { dim, ids: Vec::new(), values: Vec::new(), places: HashMap::new() }
    }

    fn add(&mut self, ids: Vec<u64>, values: Vec<f32>) {
        if self.ids.is_empty() {
            // Most batches look a table up once, and a look-up has each id once.
            (self.ids, self.values) = (ids, values);
            return;
        }
        if self.places.is_empty() {
            self.places = self.ids.iter().enumerate().map(|(at, id)| (*id, at)).collect();
        }
        for (id, row) in ids.into_iter().zip(values.chunks_exact(self.dim)) {
            match self.places.get(&id) {
                Some(at) => {
                    let sum = &mut self.values[at * self.dim..][..self.dim];
                    sum.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
                }
                None => {
                    self.places.insert(id, self.ids.len());
                    self.ids.push(id);
                    self.values.extend_from_slice(row);
                }
            }
        }
    }
}
