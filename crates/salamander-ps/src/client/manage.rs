//! What the master asks servers for: histories, files, partitions and figures.

use std::path::{Path, PathBuf};

use super::{Ack, Client, Error, Reply, Trouble};
use crate::wire::{Info, Kind, Message};
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
        let message = Message::reset(version, files);
        self.ask_scope(scope, &message, |_, _| Ok(()))
    }

    /// From now on servers refuse those who have not heard of this lineage and map.
    pub fn fence(&mut self, lineage: u64, map: u32) -> Result<Vec<Ack>, Error> {
        (self.caller.lineage, self.caller.map, self.map.epoch) = (lineage, map, map);
        self.ask_all(&Message::plain(Kind::Fence), |_, _| Ok(()))
    }

    /// Has each server write everything to its file, while training goes on.
    pub fn save(&mut self, paths: &[PathBuf]) -> Result<Vec<Written>, Error> {
        if paths.len() != self.links.len() {
            let (paths, servers) = (paths.len(), self.links.len());
            return Err(Error::Request(format!("{paths} files for {servers} servers")));
        }
        let messages: Vec<_> = paths.iter().map(|path| Message::save(Path::new(path))).collect();
        let messages: Vec<_> = messages.iter().map(Some).collect();
        let mut written = Vec::with_capacity(paths.len());
        self.ask(&messages, self.options.long_patience, |_, reply| {
            written.push(reply.json()?);
            Ok(())
        })?;
        Ok(written)
    }

    /// Takes partitions out of a server, which keeps a copy until they are released.
    pub fn take(&mut self, server: usize, partitions: &[u16]) -> Result<Vec<u8>, Error> {
        let message = Message::partitions(Kind::Take, partitions);
        let mut bytes = Vec::new();
        self.ask_scope(Scope::One(server), &message, |_, reply| {
            bytes = reply.body()?.to_vec();
            Ok(())
        })?;
        Ok(bytes)
    }

    /// Puts partitions into a server that were taken from another one.
    pub fn put(&mut self, server: usize, bytes: &[u8]) -> Result<(), Error> {
        self.ask_scope(Scope::One(server), &Message::put(bytes), |_, _| Ok(())).map(drop)
    }

    /// Tells a server that another one has what was taken from it.
    pub fn release(&mut self, server: usize, partitions: &[u16]) -> Result<(), Error> {
        let message = Message::partitions(Kind::Release, partitions);
        self.ask_scope(Scope::One(server), &message, |_, _| Ok(())).map(drop)
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
