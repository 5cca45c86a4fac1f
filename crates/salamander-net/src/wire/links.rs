//! The connections of a member of a ring to all others: those of the ring to its neighbours, used both ways, and one
//! each to the rest.

use super::pump::{Neighbours, Ways};
use crate::Error;
use crate::socket::Socket;

/// The connections to members that are not neighbours, by rank.
pub(crate) struct Links(Vec<Option<Socket>>);

impl Links {
    /// None yet, of so many members.
    pub(crate) fn new(size: usize) -> Self {
        let mut links = Vec::new();
        links.resize_with(size, || None);
        Self(links)
    }

    pub(crate) fn size(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn put(&mut self, rank: usize, socket: Socket) {
        self.0[rank] = Some(socket);
    }

    /// Fails if one that is connected has gone.
    pub(crate) fn alive(&self) -> Result<(), Error> {
        let gone = |link: &Option<Socket>| link.as_ref().is_some_and(Socket::has_ended);
        self.0.iter().position(gone).map_or(Ok(()), |rank| Err(Error::gone(rank)))
    }

    pub(super) fn close(&self) {
        self.0.iter().flatten().for_each(Socket::close);
    }

    /// To another member and back.
    pub(super) fn ways<'a>(
        &'a self,
        neighbours: &'a Neighbours,
        rank: usize,
    ) -> Result<Ways<'a>, Error> {
        let ring = neighbours.ways();
        // Two members have a connection for each direction, so that neither waits while the other one is served.
        if ring.to.0 == rank && ring.from.0 == rank {
            return Ok(ring);
        }
        let other = || Some((rank, self.0.get(rank)?.as_ref()?));
        let found = [ring.to, ring.from].into_iter().find(|way| way.0 == rank).or_else(other);
        found.map(|way| Ways { to: way, from: way }).ok_or_else(|| Error::gone(rank))
    }

    /// One connection to each other member, with its rank; both ends take the same one.
    pub(super) fn with<'a>(
        &'a self,
        neighbours: &'a Neighbours,
        rank: usize,
    ) -> Vec<(usize, &'a Socket)> {
        let (left, right) = (&neighbours.left, &neighbours.right);
        // Two members are both neighbours of each other, by two connections.
        let pair = (left.rank == right.rank).then_some(if rank == 0 { right } else { left });
        let ring = match pair {
            Some(only) => vec![only],
            None => vec![left, right],
        };
        let ring = ring.into_iter().map(|neighbour| (neighbour.rank, &neighbour.socket));
        let links = self.0.iter().enumerate();
        let others = links.filter_map(|(rank, link)| Some((rank, link.as_ref()?)));
        let mut all: Vec<_> = ring.chain(others).collect();
        all.sort_by_key(|(rank, _)| *rank);
        all
    }
}
