//! What each request does to the engine, and what is said about it.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use salamander_core::asynchronous::{Envelope, Lineage};
use salamander_core::progress::StepCount;
use salamander_net::Keys;

use super::ServerOptions;
use super::connection::Outbox;
use super::guard::{DeclaredTable, ServerGuard};
use super::outgoing::Outgoing;
use super::placing::Placing;
use super::saves::Saves;
use crate::placement::ranges;
use crate::wire::reply::{changed_head, encode_json, encode_number};
use crate::wire::request::{Lookup, Received, WireValues};
use crate::wire::{Advance, Code, Failure, Header, Info, Request};
use crate::{Engine, Error, Mode, PullRows, Push, Read, TableId, TableRows, TableSpec};

/// The server behind all its connections.
pub(super) struct RowService {
    pub(super) engine: Engine,
    pub(super) incarnation: u64,
    limit: u64,
    guard: RwLock<ServerGuard>,
    pub(super) outgoing: Outgoing,
    pub(super) placing: Placing,
    saves: Saves,
}

/// What is said about a request that was done.
pub(super) enum ServiceAnswer<'a> {
    /// This.
    Bytes(Vec<u8>),
    /// A partition on its way to another server.
    Partition(Arc<Vec<u8>>),
    /// Rows and what stands ahead of them.
    Rows { head: Vec<u8>, ids: Vec<u64>, values: Vec<f32> },
    /// Rows that are still to be gathered.
    Lookups(Lookups<'a>),
}

impl RowService {
    pub(super) fn new(
        engine: Engine,
        incarnation: u64,
        options: &ServerOptions,
        keys: &Keys,
    ) -> Self {
        let guard = RwLock::new(ServerGuard::new(incarnation, &engine));
        Self {
            engine,
            incarnation,
            limit: options.limit,
            guard,
            outgoing: Outgoing::default(),
            placing: Placing::new(keys.clone(), options.hearsay),
            saves: Saves::default(),
        }
    }

    /// Does a request.
    pub(super) fn serve<'a>(
        &self,
        header: &Header,
        request: Request<'a>,
        scratch: &mut Outbox,
    ) -> Result<ServiceAnswer<'a>, Failure> {
        match request {
            Request::Declare(spec) => return self.declare(*spec),
            Request::Reset { order, reset } => {
                let reset = self.reset(order, Lineage(header.tag), &reset);
                return reset.map(|begun| ServiceAnswer::json(&begun));
            }
            Request::Written { path } => {
                return self.saves.wait(&path).map(|written| ServiceAnswer::json(&written));
            }
            Request::Take { partition } => return self.give(header, partition),
            _ => {}
        }
        let guard = self.enter(header, request.order())?;
        match request {
            Request::Pull { advance, version, read, lookups } => {
                let resolve = |lookup: &Lookup<'a>| {
                    let DeclaredTable { id, dim } = guard.table(lookup.table)?;
                    Ok(Item { table: id, dim, ids: lookup.ids })
                };
                let items = lookups.iter().map(resolve).collect::<Result<_, Failure>>()?;
                self.pull(Lookups { read, version, items }, advance, header.bf16)
            }
            Request::Stage { version, k, rows } => {
                let rows = widen(&guard, &rows, &mut scratch.values)?;
                self.done(self.engine.stage(version, k, &rows))
            }
            Request::Advance(advance) => self.done(self.advance(&advance)),
            Request::Push { name, tally, factor, scale, seen, rows } => {
                let rows = widen(&guard, &rows, &mut scratch.values)?;
                self.done(self.engine.push(Push { name, tally, factor, scale, seen, rows: &rows }))
            }
            Request::Save { path, .. } => {
                // Training goes on, and a reset need not wait, while the copy is written.
                self.done(self.saves.write(path, || self.engine.snapshot()))
            }
            request => self.manage(&guard, request),
        }
    }

    /// Requests of the master, and those that only ask.
    fn manage<'a>(
        &self,
        guard: &ServerGuard,
        request: Request<'a>,
    ) -> Result<ServiceAnswer<'a>, Failure> {
        let engine = &self.engine;
        match request {
            Request::Info => Ok(ServiceAnswer::json(&self.info(guard))),
            Request::Changed { table, seen } => {
                let since = if seen.incarnation == self.incarnation { seen.counter } else { 0 };
                let changed = engine.changed(guard.table(table)?.id, since).map_err(refuse)?;
                let head = changed_head(&changed);
                Ok(ServiceAnswer::Rows { head, ids: changed.ids, values: changed.values })
            }
            Request::Applied => {
                engine.applied().map(|held| ServiceAnswer::json(&held)).map_err(refuse)
            }
            Request::Prune { below, .. } => self.done(engine.prune(below)),
            Request::Release { .. } => {
                self.outgoing.clear();
                Ok(ServiceAnswer::nothing())
            }
            Request::KeepAlive => Ok(ServiceAnswer::nothing()),
            _ => Err(Failure::new(Code::Malformed, "this request has no answer here")),
        }
    }

    fn declare(&self, spec: TableSpec) -> Result<ServiceAnswer<'static>, Failure> {
        let mut guard = self.write();
        let id = self.engine.declare(spec).map_err(refuse)?;
        guard.learn_tables(&self.engine);
        Ok(ServiceAnswer::Bytes(encode_number(id.0.into())))
    }

    /// A partition for the server that holds it from now on.
    fn give(&self, header: &Header, partition: u16) -> Result<ServiceAnswer<'static>, Failure> {
        self.read().gate.give(Lineage(header.tag))?;
        let kept = self.outgoing.get(partition).map(ServiceAnswer::Partition);
        kept.ok_or_else(|| refuse(Error::NotHere(partition)))
    }

    /// Completes a step if so told; rows are gathered when they are sent.
    fn pull<'a>(
        &self,
        mut lookups: Lookups<'a>,
        advance: Option<Advance>,
        bf16: bool,
    ) -> Result<ServiceAnswer<'a>, Failure> {
        let bytes = lookups.values() as u64 * if bf16 { 2 } else { 4 };
        if bytes > self.limit {
            let text = format!("an answer would have {bytes} bytes, above {}", self.limit);
            return Err(Failure::new(Code::TooLarge, text));
        }
        if let Some(advance) = advance {
            self.advance(&advance).map_err(refuse)?;
        }
        if self.engine.mode() == Mode::Staged {
            lookups.version.get_or_insert_with(|| self.engine.version());
        }
        Ok(ServiceAnswer::Lookups(lookups))
    }

    fn advance(&self, advance: &Advance) -> Result<(), Error> {
        self.engine.advance(advance.to, advance.factor, advance.scale)
    }

    fn info(&self, ServerGuard { gate, .. }: &ServerGuard) -> Info {
        let partitions = ranges(self.engine.partitions());
        let (incarnation, lineage) = (self.incarnation, gate.lineage());
        Info { incarnation, lineage, is_placed: gate.is_placed(), partitions }
    }

    fn done(&self, outcome: Result<(), Error>) -> Result<ServiceAnswer<'static>, Failure> {
        outcome.map(|()| ServiceAnswer::nothing()).map_err(refuse)
    }

    /// Goes by the gate; of an order nothing is done once a newer master has given one.
    fn enter(
        &self,
        header: &Header,
        order: Option<Envelope>,
    ) -> Result<RwLockReadGuard<'_, ServerGuard>, Failure> {
        let guard = match order {
            Some(order) => {
                let mut guard = self.write();
                guard.gate.order(order)?;
                RwLockWriteGuard::downgrade(guard)
            }
            None => self.read(),
        };
        if header.kind.is_bound() {
            guard.gate.admit(Lineage(header.tag))?;
        }
        Ok(guard)
    }

    pub(super) fn read(&self) -> RwLockReadGuard<'_, ServerGuard> {
        self.guard.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn write(&self) -> RwLockWriteGuard<'_, ServerGuard> {
        self.guard.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Rows that are wanted.
pub(super) struct Lookups<'a> {
    read: Read,
    /// The steps that all of them are after, where there are steps.
    version: Option<StepCount>,
    items: Vec<Item<'a>>,
}

struct Item<'a> {
    table: TableId,
    dim: usize,
    ids: &'a [u64],
}

/// A place within them.
pub(super) struct Chunks<'a> {
    lookups: &'a Lookups<'a>,
    /// Values of a chunk.
    size: usize,
    /// The next item,
    item: usize,
    /// and the next row of it.
    row: usize,
}

/// Values that were gathered.
pub(super) struct Chunk {
    /// So many.
    pub(super) values: usize,
    /// Whether there are no more.
    pub(super) is_last: bool,
}

impl Lookups<'_> {
    /// How many values they come to.
    pub(super) fn values(&self) -> usize {
        self.items.iter().map(|item| item.dim * item.ids.len()).sum()
    }

    /// Goes through them in chunks of about so many values, each of whole rows.
    pub(super) fn chunks(&self, size: usize) -> Chunks<'_> {
        let widest = self.items.iter().map(|item| item.dim).max().unwrap_or(0);
        let size = size.max(widest).min(self.values());
        Chunks { lookups: self, size, item: 0, row: 0 }
    }
}

impl Chunks<'_> {
    /// Gathers the next chunk. Between chunks other requests may go ahead, also one that ends the
    /// lineage or the step: then this one fails.
    pub(super) fn gather(
        &mut self,
        service: &RowService,
        header: &Header,
        values: &mut Vec<f32>,
    ) -> Result<Chunk, Failure> {
        let _guard = service.enter(header, None)?;
        values.resize(values.len().max(self.size), 0.0);
        let mut filled = 0;
        while let Some(Item { table, dim, ids }) = self.lookups.items.get(self.item) {
            let rest = &ids[self.row..];
            let rows = rest.len().min((self.size - filled) / dim);
            if rows == 0 && !rest.is_empty() {
                break;
            }
            let space = &mut values[filled..filled + rows * dim];
            let Lookups { read, version, .. } = *self.lookups;
            let rest = &rest[..rows];
            let wanted = PullRows { table: *table, ids: rest, read };
            service.engine.pull_of(version, &wanted, space).map_err(refuse)?;
            filled += space.len();
            self.row += rows;
            if self.row == ids.len() {
                (self.item, self.row) = (self.item + 1, 0);
            }
        }
        let is_last = self.item == self.lookups.items.len();
        Ok(Chunk { values: filled, is_last })
    }
}

impl ServiceAnswer<'_> {
    fn nothing() -> Self {
        Self::Bytes(Vec::new())
    }

    fn json(answer: &impl serde::Serialize) -> Self {
        Self::Bytes(encode_json(answer))
    }
}

/// Rows as the engine takes them; rounded ones are widened into `scratch`.
fn widen<'a>(
    guard: &ServerGuard,
    rows: &[Received<'a>],
    scratch: &'a mut Vec<f32>,
) -> Result<Vec<TableRows<'a>>, Failure> {
    let rounded = |row: &Received<'_>| match row.values {
        WireValues::Bf16(values) => values.len(),
        WireValues::F32(_) => 0,
    };
    let total = rows.iter().map(rounded).sum();
    scratch.resize(scratch.len().max(total), 0.0);
    let mut rest = &mut scratch[..];
    let mut widened = Vec::with_capacity(rows.len());
    for row in rows {
        let table = guard.table(row.table)?.id;
        let values = match row.values {
            WireValues::F32(values) => values,
            WireValues::Bf16(values) => {
                let (space, others) = std::mem::take(&mut rest).split_at_mut(values.len());
                rest = others;
                salamander_net::bf16::widen(values, space);
                space
            }
        };
        widened.push(TableRows { table, ids: row.ids, values });
    }
    Ok(widened)
}

/// What a client is told of an engine's error: the one place where they are told apart.
pub(super) fn refuse(error: Error) -> Failure {
    let (code, detail) = match &error {
        Error::NotHere(partition) => (Code::NotHere, u64::from(*partition)),
        Error::OutOfStep(apart) => (Code::OutOfStep, apart.current.0),
        Error::UnknownTable(_) => (Code::Undeclared, 0),
        Error::Replaced => (Code::NotHere, 0),
        Error::Spec { .. } | Error::Conflict { .. } | Error::Request(_) => (Code::Wrong, 0),
        Error::Damaged { .. }
        | Error::Restore(_)
        | Error::File { .. }
        | Error::Thread(_)
        | Error::Gone => (Code::Broken, 0),
    };
    Failure { code, detail, text: error.to_string() }
}

#[cfg(test)]
mod tests {
    use salamander_net::Token;

    use super::*;
    use crate::EngineOptions;
    use crate::wire::MessageKind;

    #[test]
    fn rows_of_two_versions_are_not_put_together() {
        let engine = Engine::new(EngineOptions::default()).expect("an engine");
        let table = engine.declare(TableSpec::new("item", 4)).expect("declared");
        let keys = Keys::from(Token::random().expect("randomness"));
        let service = RowService::new(engine.clone(), 1, &ServerOptions::default(), &keys);
        let ids: Vec<u64> = (0..10).collect();
        let item = Item { table, dim: 4, ids: &ids };
        let lookups = Lookups { read: Read::Train, version: None, items: vec![item] };
        let Ok(ServiceAnswer::Lookups(lookups)) = service.pull(lookups, None, false) else {
            panic!("rows are gathered later");
        };
        let header = Header { kind: MessageKind::Pull, bf16: false, tag: 0, number: 1, length: 0 };
        let (mut chunks, mut values) = (lookups.chunks(20), Vec::new());
        let first = chunks.gather(&service, &header, &mut values).expect("gathered");
        assert_eq!((first.values, first.is_last), (20, false));
        engine.advance(StepCount(1), 1.0, 1.0).expect("advanced");
        let failure = chunks.gather(&service, &header, &mut values).err().expect("another step");
        assert_eq!((failure.code, failure.detail), (Code::OutOfStep, 1));
    }
}
