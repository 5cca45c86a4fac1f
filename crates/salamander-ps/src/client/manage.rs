//! What the master asks servers for: histories, files and partitions.

use std::iter::repeat;
use std::path::PathBuf;
use std::time::Duration;

use salamander_core::asynchronous::{Envelope, Lineage};
use salamander_core::progress::StepCount;

use super::{Ack, Client, Error};
use crate::wire::{HistoryStart, Info, Message, MessageKind, Reset, ResetOutcome};
use crate::{Held, Written};

impl Client {
    /// Asks whether all servers are there.
    pub fn ping(&mut self) -> Result<Vec<Ack>, Error> {
        self.ask_all(&Message::plain(MessageKind::KeepAlive), |_, _| Ok(()))
    }

    /// What all servers say about themselves.
    pub fn info(&mut self) -> Result<Vec<Info>, Error> {
        self.collect(repeat(Some(&Message::plain(MessageKind::Info))), self.options.patience)
    }

    /// What was applied, on all partitions of all servers.
    pub fn applied(&mut self) -> Result<Vec<Held>, Error> {
        let message = Message::plain(MessageKind::Applied);
        let held: Vec<Vec<Held>> = self.collect(repeat(Some(&message)), self.options.patience)?;
        Ok(held.into_iter().flatten().collect())
    }

    /// Forgets the applied names of epochs below, which count as applied from then on.
    pub fn prune(&mut self, below: u64) -> Result<Vec<Ack>, Error> {
        self.order(self.options.patience, |_, order| Message::prune(order, below))
    }

    /// Starts another history on all servers, each with its share of the partitions: from the files of a
    /// checkpoint or, without any, from nothing after so many steps. Lineages count upwards; the same again does
    /// nothing. From now on the client is part of it.
    pub fn begin(
        &mut self,
        lineage: Lineage,
        version: StepCount,
        files: &[PathBuf],
    ) -> Result<Vec<ResetOutcome>, Error> {
        let servers = self.links.len();
        let start =
            HistoryStart { servers, version, files: files.to_vec(), ..HistoryStart::default() };
        let resets: Vec<Reset> = (0..servers).map(|server| start.reset(server)).collect();
        self.reset_each(lineage, &resets)
    }

    /// Starts another history, for each server in its own way.
    pub fn reset_each(
        &mut self,
        lineage: Lineage,
        resets: &[Reset],
    ) -> Result<Vec<ResetOutcome>, Error> {
        self.check_each(resets.len())?;
        self.set_lineage(lineage);
        let orders = self.orders(|server, order| Message::reset(order, &resets[server]));
        self.collect(orders.iter().map(Some), self.options.long_patience)
    }

    /// Has each server write everything to its file, while training goes on.
    pub fn save(&mut self, paths: &[PathBuf]) -> Result<Vec<Written>, Error> {
        self.copy(paths)?;
        self.written(paths)
    }

    /// Has each server copy everything for its file. When this is back, all have, and training may go on;
    /// they write while it does.
    pub fn copy(&mut self, paths: &[PathBuf]) -> Result<Vec<Ack>, Error> {
        self.check_each(paths.len())?;
        let patience = self.options.long_patience;
        self.order(patience, |server, order| Message::save(order, &paths[server]))
    }

    /// Waits until all servers have written what they copied.
    pub fn written(&mut self, paths: &[PathBuf]) -> Result<Vec<Written>, Error> {
        self.check_each(paths.len())?;
        let messages: Vec<_> = paths.iter().map(|path| Message::written(path)).collect();
        self.collect(messages.iter().map(Some), self.options.long_patience)
    }

    /// A partition that the only server had in the history before, for the one that has it in this one. It may take
    /// any time as long as bytes come.
    pub(crate) fn take(&mut self, partition: u16) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        let (message, silence) = (Message::take(partition), self.options.long_patience);
        self.ask([Some(&message)], silence, |_, reply| {
            bytes = reply.long_body(silence)?.to_vec();
            Ok(())
        })?;
        Ok(bytes)
    }

    /// Tells all servers that each has its partitions: what they keep for others may go.
    pub fn release(&mut self) -> Result<Vec<Ack>, Error> {
        self.order(self.options.patience, |_, order| Message::release(order))
    }

    /// Orders something of all servers, each by its process.
    fn order<'a>(
        &mut self,
        patience: Duration,
        message: impl Fn(usize, Envelope) -> Message<'a>,
    ) -> Result<Vec<Ack>, Error> {
        let messages = self.orders(message);
        self.ask(messages.iter().map(Some), patience, |_, _| Ok(()))
    }

    /// An order for each server, by its process.
    fn orders<'a>(&self, message: impl Fn(usize, Envelope) -> Message<'a>) -> Vec<Message<'a>> {
        (0..self.links.len()).map(|server| message(server, self.envelope(server))).collect()
    }

    fn check_each(&self, given: usize) -> Result<(), Error> {
        let servers = self.links.len();
        match given == servers {
            true => Ok(()),
            false => Err(Error::Request(format!("{given} requests for {servers} servers"))),
        }
    }

    /// What all servers answer, in small.
    fn collect<'m, T: serde::de::DeserializeOwned>(
        &mut self,
        messages: impl IntoIterator<Item = Option<&'m Message<'m>>>,
        patience: Duration,
    ) -> Result<Vec<T>, Error> {
        let mut answers = Vec::with_capacity(self.links.len());
        self.ask(messages, patience, |_, reply| {
            answers.push(reply.json()?);
            Ok(())
        })?;
        Ok(answers)
    }
}
