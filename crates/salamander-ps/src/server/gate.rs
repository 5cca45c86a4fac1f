//! Who may ask: a worker that slept through a rollback or a change of the servers must not disturb
//! those that go on.

use std::collections::HashMap;

use crate::wire::{Code, Failure, Header, TableKey};
use crate::{Engine, TableId};

/// What a server goes by. Requests hold it for reading while they are done, and whatever changes it
/// holds it for writing, so that nothing is done under one lineage and applied under another.
#[derive(Debug)]
pub(super) struct Gate {
    pub(super) lineage: u64,
    pub(super) map: u32,
    /// The lineage of the last reset that was done.
    reset: Option<u64>,
    pub(super) holds: Holds,
    tables: HashMap<TableKey, Table>,
}

/// What the tables hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holds {
    /// All partitions that are wanted here in a lineage.
    All(u64),
    /// Partitions are on their way: what was held before is apart, for others.
    Moving {
        /// The lineage before.
        from: u64,
        /// The one that begins.
        to: u64,
    },
    /// Nobody knows: a reset failed.
    Unknown,
}

/// A table as requests need it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Table {
    pub(super) id: TableId,
    pub(super) dim: usize,
}

impl Gate {
    pub(super) fn new(lineage: u64, map: u32, engine: &Engine) -> Self {
        let holds = Holds::All(lineage);
        let mut gate = Self { lineage, map, reset: None, holds, tables: HashMap::new() };
        gate.learn_tables(engine);
        gate
    }

    /// Lets a request in, or says why not.
    pub(super) fn check(&self, header: &Header) -> Result<(), Failure> {
        if !header.kind.is_bound() {
            return Ok(());
        }
        if header.tag != self.lineage {
            return Err(self.other_lineage(header));
        }
        if header.map != self.map {
            return Err(self.other_map(header));
        }
        match self.holds {
            Holds::All(lineage) if lineage == self.lineage => Ok(()),
            Holds::Unknown => {
                let text = "the tables could not be restored; reset the server from other files";
                Err(Failure::new(Code::Broken, text))
            }
            _ => Err(Failure::new(Code::Broken, "the server is getting its partitions")),
        }
    }

    /// Whether another server may take partitions that are its own in a lineage: nothing can be
    /// pushed to them here any more.
    pub(super) fn check_giving(&self, header: &Header) -> Result<(), Failure> {
        let apart = match self.holds {
            Holds::All(lineage) => lineage == header.tag && self.reset == Some(lineage),
            Holds::Moving { to, .. } => to == header.tag,
            Holds::Unknown => false,
        };
        match apart && header.tag == self.lineage {
            true => Ok(()),
            // It has heard of that lineage, and is about to put the partitions apart.
            false if header.tag == self.lineage => {
                let text = "the server does not give partitions away yet; ask again";
                Err(Failure { code: Code::Lineage, detail: 0, text: text.to_string() })
            }
            false => Err(self.other_lineage(header)),
        }
    }

    /// Whether the server has all its partitions.
    pub(super) fn is_placed(&self) -> bool {
        self.holds == Holds::All(self.lineage)
    }

    /// The table of a key.
    pub(super) fn table(&self, key: TableKey) -> Result<Table, Failure> {
        let text = || format!("no table has the key {:#x}; declare it first", key.0);
        let table = self.tables.get(&key).copied();
        table.ok_or_else(|| Failure::new(Code::Undeclared, text()))
    }

    /// Takes notice of the tables that the engine has.
    pub(super) fn learn_tables(&mut self, engine: &Engine) {
        self.tables.clear();
        for (number, spec) in engine.tables().into_iter().enumerate() {
            let table = Table { id: TableId(number as u32), dim: spec.dim };
            self.tables.insert(TableKey::of(&spec.name), table);
        }
    }

    /// Whether a reset has still to be done: the same one may come twice when its answer got lost.
    pub(super) fn is_reset_due(&self, header: &Header) -> Result<bool, Failure> {
        if header.tag < self.lineage {
            return Err(self.other_lineage(header));
        }
        Ok(!(self.is_placed() && header.tag == self.lineage && self.reset == Some(header.tag)))
    }

    /// Another history is about to begin: nothing of an older one is let in from now on.
    pub(super) fn close(&mut self, header: &Header) {
        (self.lineage, self.map) = (header.tag, header.map);
        self.reset = None;
    }

    /// What a reset came to. The history has begun if the tables hold all of it.
    pub(super) fn note(&mut self, header: &Header, holds: Holds) {
        self.holds = holds;
        self.reset = (holds == Holds::All(header.tag)).then_some(header.tag);
    }

    /// Refuses everybody who has not heard of this lineage and map; neither goes back.
    pub(super) fn fence(&mut self, header: &Header) -> Result<(), Failure> {
        if header.tag < self.lineage {
            return Err(self.other_lineage(header));
        }
        if header.map < self.map {
            return Err(self.other_map(header));
        }
        if self.is_placed() {
            self.holds = Holds::All(header.tag);
        }
        (self.lineage, self.map) = (header.tag, header.map);
        Ok(())
    }

    pub(super) fn other_lineage(&self, header: &Header) -> Failure {
        let text = format!(
            "the server is in lineage {}, and the request is of lineage {}; ask the master",
            self.lineage, header.tag
        );
        Failure { code: Code::Lineage, detail: self.lineage, text }
    }

    fn other_map(&self, header: &Header) -> Failure {
        let text = format!(
            "the server goes by map {}, and the request by map {}; ask the master",
            self.map, header.map
        );
        Failure { code: Code::Map, detail: self.map.into(), text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EngineOptions;
    use crate::wire::Kind;

    fn header(kind: Kind, tag: u64, map: u32) -> Header {
        Header { kind, bf16: false, map, tag, number: 0, length: 0 }
    }

    fn gate() -> Gate {
        Gate::new(3, 2, &Engine::new(EngineOptions::default()).expect("an engine"))
    }

    #[test]
    fn only_the_current_lineage_and_map_get_in() {
        let gate = gate();
        let code = |header| gate.check(&header).map_err(|failure| (failure.code, failure.detail));
        assert_eq!(code(header(Kind::Pull, 3, 2)), Ok(()));
        assert_eq!(code(header(Kind::Pull, 2, 2)), Err((Code::Lineage, 3)));
        assert_eq!(code(header(Kind::Push, 4, 2)), Err((Code::Lineage, 3)));
        assert_eq!(code(header(Kind::Push, 3, 1)), Err((Code::Map, 2)));
        assert_eq!(code(header(Kind::Info, 0, 0)), Ok(()));
    }

    #[test]
    fn lineages_do_not_go_back_and_a_reset_is_done_once() {
        let mut gate = gate();
        assert!(gate.is_reset_due(&header(Kind::Reset, 2, 2)).is_err());
        assert_eq!(gate.is_reset_due(&header(Kind::Reset, 3, 2)), Ok(true));
        let next = header(Kind::Reset, 5, 4);
        gate.close(&next);
        assert_eq!(gate.is_reset_due(&next), Ok(true));
        gate.note(&next, Holds::All(5));
        assert_eq!((gate.lineage, gate.map), (5, 4));
        assert_eq!(gate.is_reset_due(&header(Kind::Reset, 5, 4)), Ok(false));
        assert!(gate.fence(&header(Kind::Fence, 4, 4)).is_err());
        assert!(gate.fence(&header(Kind::Fence, 5, 3)).is_err());
        assert_eq!(gate.fence(&header(Kind::Fence, 6, 7)), Ok(()));
        assert_eq!((gate.lineage, gate.map), (6, 7));
    }

    #[test]
    fn failed_reset_closes_the_gate_until_one_works() {
        let mut gate = gate();
        let next = header(Kind::Reset, 4, 2);
        gate.close(&next);
        gate.note(&next, Holds::Unknown);
        let refused = gate.check(&header(Kind::Pull, 4, 2)).map_err(|failure| failure.code);
        assert_eq!(refused, Err(Code::Broken));
        assert_eq!(gate.is_reset_due(&header(Kind::Reset, 4, 2)), Ok(true));
        gate.note(&next, Holds::All(4));
        assert_eq!(gate.check(&header(Kind::Pull, 4, 2)), Ok(()));
    }

    #[test]
    fn partitions_are_given_away_only_when_nothing_reaches_them_here() {
        let mut gate = gate();
        let (take, next) = (header(Kind::Take, 4, 2), header(Kind::Reset, 4, 2));
        let asked = |gate: &Gate| gate.check_giving(&take).map_err(|f| (f.code, f.detail));
        assert_eq!(asked(&gate), Err((Code::Lineage, 3)));
        gate.close(&next);
        assert_eq!(asked(&gate), Err((Code::Lineage, 0)), "they are not apart yet");
        assert!(gate.check(&header(Kind::Push, 3, 2)).is_err());
        gate.note(&next, Holds::Moving { from: 3, to: 4 });
        assert_eq!(asked(&gate), Ok(()));
        assert!(gate.check(&header(Kind::Push, 4, 2)).is_err(), "it lacks partitions");
        gate.note(&next, Holds::All(4));
        assert_eq!(asked(&gate), Ok(()));
        gate.close(&header(Kind::Reset, 5, 2));
        assert_eq!(asked(&gate), Err((Code::Lineage, 5)));
    }
}
