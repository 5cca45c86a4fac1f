//! Pulls, stages and pushes: ids are split by server, and rows are gathered and scattered on the way.
//! With a single server nothing is copied.

use std::borrow::Cow;

use salamander_core::progress::StepCount;

use super::link::{Reply, Trouble, wrong};
use super::routing::Split;
use super::{Ack, Client, Error, Sent};
use crate::wire::reply::decode_changed;
use crate::wire::{Advance, Message, Moment, RowBlock, TableKey};
use crate::{Push, Read, TableId, TableRows};

/// Rows that are wanted, and where to.
#[derive(Debug)]
pub struct WantedRows<'a> {
    /// The table.
    pub table: TableId,
    /// Ids, in any order, also several times.
    pub ids: &'a [u64],
    /// Room for their rows, one after the other.
    pub out: &'a mut [f32],
}

/// How much of a table a client has seen, by server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen(Vec<Moment>);

/// Rows that changed since they were seen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct News {
    /// What to ask with next time.
    pub seen: Seen,
    /// Ids, each once.
    pub ids: Vec<u64>,
    /// Their rows, one after the other.
    pub values: Vec<f32>,
}

impl Client {
    /// The rows of ids, for each table.
    pub fn pull(&mut self, lookups: &[(TableId, &[u64])]) -> Result<Vec<Vec<f32>>, Error> {
        let mut rows = Vec::with_capacity(lookups.len());
        for (table, ids) in lookups {
            rows.push(vec![0.0; ids.len() * self.table(*table)?.1]);
        }
        let mut wanted: Vec<WantedRows<'_>> = Vec::with_capacity(lookups.len());
        for ((table, ids), out) in lookups.iter().zip(&mut rows) {
            wanted.push(WantedRows { table: *table, ids, out });
        }
        self.pull_into(Read::Train, None, &mut wanted)?;
        Ok(rows)
    }

    /// Pulls rows to where they are wanted; before that, all servers complete a step if so told.
    /// Without a step only servers that have some of the rows are asked. Once this client has had them complete a step,
    /// rows of another version are refused.
    pub fn pull_into(
        &mut self,
        read: Read,
        advance: Option<Advance>,
        lookups: &mut [WantedRows<'_>],
    ) -> Result<Vec<Ack>, Error> {
        let mut tables = Vec::with_capacity(lookups.len());
        for lookup in lookups.iter() {
            tables.push(self.check(lookup.table, lookup.ids, lookup.out.len())?);
        }
        let ids: Vec<&[u64]> = lookups.iter().map(|lookup| lookup.ids).collect();
        let splits: Vec<Split> = ids.iter().map(|ids| self.split(ids)).collect();
        let mut messages = Vec::with_capacity(self.links.len());
        for server in 0..self.links.len() {
            let mut wanted = Vec::with_capacity(ids.len());
            for ((ids, split), (key, _)) in ids.iter().zip(&splits).zip(&tables) {
                wanted.push((*key, pick_ids(split.of(server), ids)));
            }
            let is_asked = advance.is_some() || wanted.iter().any(|(_, ids)| !ids.is_empty());
            let version = advance.map(|advance| advance.to).or(self.version);
            let message = || Message::pull(read, advance, version, wanted, self.options.bf16);
            messages.push(is_asked.then(message));
        }
        let messages = messages.iter().map(Option::as_ref);
        let acks = self.ask(messages, self.options.patience, |server, reply| {
            for ((lookup, split), (_, dim)) in lookups.iter_mut().zip(&splits).zip(&tables) {
                match split.of(server) {
                    None => reply.values(lookup.out)?,
                    Some(places) => reply.scatter(*dim, places, lookup.out)?,
                }
            }
            Ok(())
        })?;
        self.version = advance.map(|advance| advance.to).or(self.version);
        Ok(acks)
    }

    /// Keeps the gradient sum of slice `k` of step `version` on all servers, whose acknowledgements are collected
    /// later: they receive while the caller does something else.
    pub fn begin_stage<'a>(
        &mut self,
        version: StepCount,
        k: u32,
        rows: &[TableRows<'a>],
    ) -> Result<Sent<'a>, Error> {
        let bf16 = self.options.bf16;
        let messages =
            self.by_server(rows, |_, blocks| Message::stage(version, k, blocks, bf16))?;
        Ok(self.send_ahead(messages))
    }

    /// Completes a step on all servers.
    pub fn advance(&mut self, advance: &Advance) -> Result<Vec<Ack>, Error> {
        let acks = self.ask_all(&Message::advance(advance), |_, _| Ok(()))?;
        self.version = Some(advance.to);
        Ok(acks)
    }

    /// Applies the gradients of a micro-batch, where they were not applied before. All servers hear
    /// of it, also those without rows in it, and apply it while the caller does something else. `seen` is what the
    /// gradients were computed from, where their age is to count; it takes the place of what the push says about it.
    pub fn begin_push<'a>(
        &mut self,
        push: &Push<'a>,
        seen: Option<&Seen>,
    ) -> Result<Sent<'a>, Error> {
        let bf16 = self.options.bf16;
        let messages = self.by_server(push.rows, |server, blocks| {
            let seen = seen.and_then(|seen| seen.0.get(server)).map(|seen| seen.counter);
            Message::push(&Push { seen, ..*push }, blocks, bf16)
        })?;
        Ok(self.send_ahead(messages))
    }

    /// The rows of a table that changed since they were seen: all of them for the first time, and
    /// all of a server that was started again.
    pub fn changed(&mut self, table: TableId, seen: &Seen) -> Result<News, Error> {
        let (key, dim) = self.table(table)?;
        let messages: Vec<Message<'_>> = (0..self.links.len())
            .map(|server| Message::changed(key, seen.0.get(server).copied().unwrap_or_default()))
            .collect();
        let mut news = News::default();
        // Servers answer in their order.
        self.ask(messages.iter().map(Some), self.options.patience, |server, reply| {
            let incarnation = reply.incarnation();
            let changed = take_changed(server, reply, dim)?;
            news.seen.0.push(Moment { incarnation, counter: changed.counter });
            news.ids.extend_from_slice(&changed.ids);
            news.values.extend_from_slice(&changed.values);
            Ok(())
        })?;
        Ok(news)
    }

    /// A message for each server with its part of the rows.
    fn by_server<'a>(
        &self,
        rows: &[TableRows<'a>],
        message: impl Fn(usize, Vec<RowBlock<'a>>) -> Message<'a>,
    ) -> Result<Vec<Message<'a>>, Error> {
        let mut blocks: Vec<Vec<RowBlock<'a>>> = Vec::new();
        blocks.resize_with(self.links.len(), || Vec::with_capacity(rows.len()));
        for rows in rows {
            let (table, dim) = self.check(rows.table, rows.ids, rows.values.len())?;
            let split = self.split(rows.ids);
            for (server, blocks) in blocks.iter_mut().enumerate() {
                let places = split.of(server);
                let ids = pick_ids(places, rows.ids);
                let values = pick_rows(places, dim, rows.values);
                blocks.push(RowBlock { table, dim, ids, values });
            }
        }
        let blocks = blocks.into_iter().enumerate();
        Ok(blocks.map(|(server, blocks)| message(server, blocks)).collect())
    }

    /// Ids by server.
    fn split(&self, ids: &[u64]) -> Split {
        Split::new(self.links.len(), &self.owners, ids)
    }

    /// The key and width of a table.
    fn table(&self, table: TableId) -> Result<(TableKey, usize), Error> {
        let number = table.0 as usize;
        match (self.keys.get(number), self.caller.tables.get(number)) {
            (Some(key), Some(spec)) => Ok((*key, spec.dim)),
            _ => Err(Error::Request(format!("no table has the number {number}; declare it first"))),
        }
    }

    fn check(
        &self,
        table: TableId,
        ids: &[u64],
        values: usize,
    ) -> Result<(TableKey, usize), Error> {
        let (key, dim) = self.table(table)?;
        if ids.len().checked_mul(dim) != Some(values) || u32::try_from(ids.len()).is_err() {
            let (name, count) = (&self.caller.tables[table.0 as usize].name, ids.len());
            let text = format!("{count} rows of table \"{name}\" do not have {values} values");
            return Err(Error::Request(text));
        }
        Ok((key, dim))
    }
}

fn take_changed(
    server: usize,
    reply: &mut Reply<'_>,
    dim: usize,
) -> Result<crate::Changed, Trouble> {
    let changed = decode_changed(reply.body()?).map_err(|error| wrong(server, error))?;
    if changed.values.len() != changed.ids.len() * dim {
        return Err(wrong(server, "changed rows have another width"));
    }
    Ok(changed)
}

/// The ids at these places, or all as they are.
fn pick_ids<'a>(places: Option<&[u32]>, ids: &'a [u64]) -> Cow<'a, [u64]> {
    match places {
        None => Cow::Borrowed(ids),
        Some(places) => places.iter().map(|place| ids[*place as usize]).collect(),
    }
}

/// The rows at these places, or all as they are.
fn pick_rows<'a>(places: Option<&[u32]>, dim: usize, values: &'a [f32]) -> Cow<'a, [f32]> {
    let Some(places) = places else { return Cow::Borrowed(values) };
    let mut picked = Vec::with_capacity(places.len() * dim);
    for place in places {
        picked.extend_from_slice(&values[*place as usize * dim..][..dim]);
    }
    Cow::Owned(picked)
}
