//! Connecting the members of a generation: which transport they use, and who calls whom.

use crate::cancel::Patience;
use crate::dial::{DialTarget, dial};
use crate::handshake::{ConnectionKind, Purpose};
use crate::shared::{Mesh, Shared};
use crate::socket::Socket;
use crate::wire::{Links, Neighbour, Neighbours, Wire};
use crate::{Endpoint, Error, Listener, RingOptions, Transport};

/// A member that connects to the others.
pub(crate) struct Joining<'a> {
    pub(crate) listener: &'a Listener,
    pub(crate) generation: u64,
    pub(crate) rank: usize,
    pub(crate) members: &'a [Endpoint],
    pub(crate) options: &'a RingOptions,
    pub(crate) patience: Patience<'a>,
}

impl Joining<'_> {
    /// Whether all use shared memory; decided from what all members know, so that all agree.
    pub(crate) fn is_shared(&self) -> Result<bool, Error> {
        let is_one_host = self.members.iter().all(|member| self.is_near(member));
        match self.options.transport {
            Transport::Auto => Ok(is_one_host),
            Transport::Tcp => Ok(false),
            Transport::Shm if is_one_host => Ok(true),
            Transport::Shm => {
                let reason = "shared memory is asked for, but the members are on several hosts";
                Err(Error::Refused(reason.to_string()))
            }
        }
    }

    /// Whether some neighbours are connected by a Unix socket.
    pub(crate) fn is_mixed(&self) -> bool {
        let size = self.members.len();
        (0..size).any(|rank| self.is_over_unix(rank, (rank + 1) % size))
    }

    /// Connects to all others on this host: each member calls those before it and is called by
    /// those after it.
    pub(crate) fn share(&self) -> Result<Shared, Error> {
        let mut links: Vec<Option<Socket>> = Vec::new();
        links.resize_with(self.members.len(), || None);
        for (rank, link) in links[..self.rank].iter_mut().enumerate() {
            *link = Some(self.call(rank, ConnectionKind::Mesh, true)?);
        }
        for rank in self.rank + 1..self.members.len() {
            let socket = self.be_called(rank, ConnectionKind::Mesh, || alive(&links))?;
            links[rank] = Some(socket);
        }
        Shared::new(self.rank, Mesh::new(links), &self.patience)
    }

    /// Connects to the right neighbour and is called by the left one.
    pub(crate) fn wire(&self) -> Result<Wire, Error> {
        let size = self.members.len();
        let (right, left) = ((self.rank + 1) % size, (self.rank + size - 1) % size);
        let to_right =
            self.call(right, ConnectionKind::Ring, self.is_over_unix(self.rank, right))?;
        let from_left = self.be_called(left, ConnectionKind::Ring, || {
            if to_right.has_ended() { Err(Error::gone(right)) } else { Ok(()) }
        })?;
        let mut links = Links::new(size);
        if !self.options.bf16 {
            self.link(&mut links, &[left, right])?;
        }
        let left = Neighbour { rank: left, socket: from_left };
        let right = Neighbour { rank: right, socket: to_right };
        Ok(Wire::new(Neighbours::new(left, right), links, self.rank, self.options.bf16))
    }

    /// Connects to all who are not neighbours: each member calls those before it and is called by those
    /// after it.
    fn link(&self, links: &mut Links, neighbours: &[usize]) -> Result<(), Error> {
        let others = (0..self.members.len()).filter(|rank| *rank != self.rank);
        for rank in others.filter(|rank| !neighbours.contains(rank)) {
            let socket = match rank < self.rank {
                true => {
                    let over_unix = self.is_over_unix(self.rank, rank);
                    self.call(rank, ConnectionKind::Direct, over_unix)?
                }
                false => self.be_called(rank, ConnectionKind::Direct, || links.alive())?,
            };
            links.put(rank, socket);
        }
        Ok(())
    }

    fn is_near(&self, member: &Endpoint) -> bool {
        member.host == self.members[self.rank].host
    }

    fn is_over_unix(&self, one: usize, other: usize) -> bool {
        self.options.transport == Transport::Auto
            && self.members[one].host == self.members[other].host
    }

    fn purpose(&self, link: ConnectionKind) -> Purpose {
        Purpose {
            generation: self.generation,
            rank: self.rank as u32,
            size: self.members.len() as u32,
            link,
            bf16: self.options.bf16,
        }
    }

    fn call(&self, rank: usize, link: ConnectionKind, over_unix: bool) -> Result<Socket, Error> {
        let call = DialTarget { endpoint: &self.members[rank], rank, over_unix };
        dial(&call, self.listener.keys(), &self.purpose(link), &self.patience)
    }

    fn be_called(
        &self,
        rank: usize,
        link: ConnectionKind,
        check: impl Fn() -> Result<(), Error>,
    ) -> Result<Socket, Error> {
        let room = self.listener.room();
        let (theirs, socket) = room.take(self.generation, rank, &self.patience, check)?;
        let mine = Purpose { rank: rank as u32, ..self.purpose(link) };
        if theirs == mine {
            return Ok(socket);
        }
        Err(Error::Mismatch(format!("rank {rank} connects for {theirs:?}, not for {mine:?}")))
    }
}

/// Whether the members that are connected so far are still there.
fn alive(links: &[Option<Socket>]) -> Result<(), Error> {
    for (rank, link) in links.iter().enumerate() {
        if link.as_ref().is_some_and(Socket::has_ended) {
            return Err(Error::gone(rank));
        }
    }
    Ok(())
}
