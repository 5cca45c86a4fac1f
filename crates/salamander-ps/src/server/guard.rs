//! What every request goes by: the gate, whose rules are those of `salamander_core::asynchronous`, and the tables by
//! their keys.

use std::collections::HashMap;

use salamander_core::asynchronous::{Gate, Refused};

use crate::wire::{Code, Failure, TableKey};
use crate::{Engine, TableId};

/// What a server goes by. Requests hold it for reading while they are done, and whatever changes it
/// holds it for writing, so that nothing is done under one lineage and applied under another.
#[derive(Debug)]
pub(super) struct ServerGuard {
    pub(super) gate: Gate,
    tables: HashMap<TableKey, DeclaredTable>,
}

/// A table as requests need it.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeclaredTable {
    pub(super) id: TableId,
    pub(super) dim: usize,
}

impl ServerGuard {
    pub(super) fn new(incarnation: u64, engine: &Engine) -> Self {
        let mut guard = Self { gate: Gate::new(incarnation), tables: HashMap::new() };
        guard.learn_tables(engine);
        guard
    }

    /// The table of a key.
    pub(super) fn table(&self, key: TableKey) -> Result<DeclaredTable, Failure> {
        let text = || format!("no table has the key {:#x}; declare it first", key.0);
        let table = self.tables.get(&key).copied();
        table.ok_or_else(|| Failure::new(Code::Undeclared, text()))
    }

    /// Takes notice of the tables that the engine has.
    pub(super) fn learn_tables(&mut self, engine: &Engine) {
        self.tables.clear();
        for (number, spec) in engine.tables().into_iter().enumerate() {
            let table = DeclaredTable { id: TableId(number as u32), dim: spec.dim };
            self.tables.insert(TableKey::of(&spec.name), table);
        }
    }
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        let (code, detail) = match refused {
            Refused::OldMaster { known, .. } => (Code::Term, known.0.into()),
            Refused::OtherProcess { own, .. } => (Code::Process, own),
            Refused::OtherLineage { own, .. } => (Code::Lineage, own.0),
            Refused::NotApart => (Code::NotApart, 0),
            Refused::NotPlaced | Refused::NotRestored => (Code::Broken, 0),
        };
        Failure { code, detail, text: refused.to_string() }
    }
}
