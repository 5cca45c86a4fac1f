//! What the master asks servers for: histories, files, partitions and figures.

use std::path::PathBuf;

use super::{Ack, Client, Error, Reply, Trouble};
use crate::wire::{Info, Kind, Message, Reset};
use crate::{Held, Stats, Written};

/// Which servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All of them.
    All,
    /// This one.
    One(usize),
}

impl Client {
    /// Asks whether all servers are there.
    pub fn ping(&mut self) -> Result<Vec<Ack>, Error> {
        self.ask_all(&Message::plain(Kind::KeepAlive), |_, _| Ok(()))
    }

    /// What all servers say about themselves.
    pub fn info(&mut self) -> Result<Vec<Info>, Error> {
        self.collect(Kind::Info)
    }

    /// Figures of all servers.
    pub fn stats(&mut self) -> Result<Vec<Stats>, Error> {
        self.collect(Kind::Stats)
    }

    /// What was applied, on all partitions of all servers.
    pub fn applied(&mut self) -> Result<Vec<Held>, Error> {
        let held: Vec<Vec<Held>> = self.collect(Kind::Applied)?;
        Ok(held.into_iter().flatten().collect())
    }

    /// Forgets the applied names of epochs below, which count as applied from then on.
    pub fn prune(&mut self, below: u64) -> Result<Vec<Ack>, Error> {
        self.ask_all(&Message::prune(below), |_, _| Ok(()))
    }

    /// Starts another history, from the files of a checkpoint or, without any, from nothing at a
    /// version. Lineages count upwards; the same reset again does nothing. From now on the client
    /// is part of it.
    pub fn reset(
        &mut self,
        scope: Scope,
        lineage: u64,
        version: u64,
        files: &[PathBuf],
    ) -> Result<Vec<Ack>, Error> {
        self.caller.lineage = lineage;
        let reset = Reset { version, files: files.to_vec(), ..Reset::default() };
        self.ask_scope(scope, &Message::reset(&reset), |_, _| Ok(()))
    }

    /// The same, for each server with its share of the partitions.
    pub fn begin(
        &mut self,
        lineage: u64,
        version: u64,
        files: &[PathBuf],
    ) -> Result<Vec<Ack>, Error> {
        let share = |server| Reset {
            partitions: Some(self.map.partitions(server)),
            version,
            files: files.to_vec(),
            from: None,
        };
        let resets: Vec<Reset> = (0..self.links.len()).map(share).collect();
        self.reset_each(lineage, &resets)
    }

    /// Starts another history, for each server in its own way.
    pub fn reset_each(&mut self, lineage: u64, resets: &[Reset]) -> Result<Vec<Ack>, Error> {
        self.check_each(resets.len())?;
        self.caller.lineage = lineage;
        let messages: Vec<_> = resets.iter().map(Message::reset).collect();
        let messages: Vec<_> = messages.iter().map(Some).collect();
        self.ask(&messages, self.options.long_patience, |_, _| Ok(()))
    }

    fn check_each(&self, given: usize) -> Result<(), Error> {
        let servers = self.links.len();
        match given == servers {
            true => Ok(()),
            false => Err(Error::Request(format!("{given} requests for {servers} servers"))),
        }
    }

    /// From now on servers refuse those who have not heard of this lineage and map.
    pub fn fence(&mut self, lineage: u64, map: u32) -> Result<Vec<Ack>, Error> {
        (self.caller.lineage, self.caller.map, self.map.epoch) = (lineage, map, map);
        self.ask_all(&Message::plain(Kind::Fence), |_, _| Ok(()))
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
        let messages: Vec<_> = paths.iter().map(|path| Message::save(path)).collect();
        let messages: Vec<_> = messages.iter().map(Some).collect();
        self.ask(&messages, self.options.long_patience, |_, _| Ok(()))
    }

    /// Waits until all servers have written what they copied.
    pub fn written(&mut self, paths: &[PathBuf]) -> Result<Vec<Written>, Error> {
        self.check_each(paths.len())?;
        let messages: Vec<_> = paths.iter().map(|path| Message::written(path)).collect();
        let messages: Vec<_> = messages.iter().map(Some).collect();
        let mut written = Vec::with_capacity(paths.len());
        self.ask(&messages, self.options.long_patience, |_, reply| {
            written.push(reply.json()?);
            Ok(())
        })?;
        Ok(written)
    }

    /// A partition that a server had in the history before, for the one that has it in this one.
    pub(crate) fn take(&mut self, server: usize, partition: u16) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        self.ask_scope(Scope::One(server), &Message::take(partition), |_, reply| {
            bytes = reply.body()?.to_vec();
            Ok(())
        })?;
        Ok(bytes)
    }

    /// Tells all servers that each has its partitions: what they keep for others may go.
    pub fn release(&mut self) -> Result<Vec<Ack>, Error> {
        self.ask_all(&Message::plain(Kind::Release), |_, _| Ok(()))
    }

    fn collect<T: serde::de::DeserializeOwned>(&mut self, kind: Kind) -> Result<Vec<T>, Error> {
        let mut answers = Vec::with_capacity(self.links.len());
        self.ask_all(&Message::plain(kind), |_, reply| {
            answers.push(reply.json()?);
            Ok(())
        })?;
        Ok(answers)
    }

    fn ask_scope(
        &mut self,
        scope: Scope,
        message: &Message<'_>,
        receive: impl FnMut(usize, &mut Reply<'_>) -> Result<(), Trouble>,
    ) -> Result<Vec<Ack>, Error> {
        if let Scope::One(server) = scope
            && server >= self.links.len()
        {
            let servers = self.links.len();
            return Err(Error::Request(format!("server {server} of {servers} does not exist")));
        }
        let is_meant = |server| scope == Scope::All || scope == Scope::One(server);
        let messages: Vec<_> =
            (0..self.links.len()).map(|server| is_meant(server).then_some(message)).collect();
        self.ask(&messages, self.options.long_patience, receive)
    }
}
