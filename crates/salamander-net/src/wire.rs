//! The collectives round a ring of sockets: each member sends to its right neighbour and receives
//! from its left one, both at the same time and on one thread.
//!
//! Sums whose order is given do not go round: the parts of a chunk would meet in the order of ranks. Where the order is
//! a balanced tree over the members, pairs exchange halves; otherwise parts go directly from each member to all others.
//!
//! # Layout
//! - `pump`: the loop that sends and receives
//! - `links`: the connections to all others; `halving`, `direct`: sums over them
//! - `reduce`, `exchange`, `relay`: what a sum, a gathering and a broadcast feed it with

use crate::frame::{Frame, FrameKind};
use crate::ring::GATHER_LIMIT;
use crate::{Cancel, Error, Fold, fold};

mod direct;
mod exchange;
mod halving;
mod links;
mod pump;
mod reduce;
mod relay;

use direct::Direct;
use exchange::FrameExchange;
use halving::HalvingSum;
pub(crate) use links::Links;
pub(crate) use pump::{Neighbour, Neighbours};
use reduce::Reduce;
use relay::Relay;

/// Bytes that are received before they are summed: half of a second-level cache.
const INBOX: usize = 512 << 10;

/// A member's place in a ring of sockets.
pub(crate) struct Wire {
    neighbours: Neighbours,
    /// To those that are not neighbours; none where sums travel in 16 bits.
    links: Links,
    rank: usize,
    size: usize,
    bf16: bool,
    values: Vec<f32>,
    /// Words rather than bytes, so that values in it are aligned.
    inbox: Vec<u32>,
    outbox: Vec<u16>,
    /// Where parts of members wait that go directly to each other.
    inboxes: Vec<Vec<f32>>,
}

impl Wire {
    pub(crate) fn new(neighbours: Neighbours, links: Links, rank: usize, bf16: bool) -> Self {
        let size = links.size();
        let inbox = vec![0; INBOX / 4];
        let outbox = if bf16 { vec![0; INBOX / 2] } else { Vec::new() };
        let (values, inboxes) = (Vec::new(), Vec::new());
        Self { neighbours, links, rank, size, bf16, values, inbox, outbox, inboxes }
    }

    pub(crate) fn bucket(&mut self, len: usize) -> &mut [f32] {
        &mut self.values[..len]
    }

    pub(crate) fn grow(&mut self, len: usize) {
        self.values.resize(len, 0.0);
    }

    pub(crate) fn bucket_len(&self) -> usize {
        self.values.len()
    }

    pub(crate) fn bytes_moved(&self) -> u64 {
        self.neighbours.bytes_moved
    }

    pub(crate) fn fold(&mut self, frame: Frame, fold: &Fold, cancel: &Cancel) -> Result<(), Error> {
        let len = frame.length as usize;
        if self.bf16 {
            fold::add_own(&mut self.values, len, fold, self.rank);
            return self.all_reduce(frame, cancel);
        }
        if fold.is_balanced() {
            return self.halve(frame, cancel);
        }
        let sockets = self.links.with(&self.neighbours, self.rank);
        let (values, inboxes) = (&mut self.values, &mut self.inboxes);
        let mut direct = Direct::new(values, frame, fold, self.rank, inboxes);
        let moved = direct.run(&sockets, cancel)?;
        self.neighbours.bytes_moved += moved;
        Ok(())
    }

    fn halve(&mut self, frame: Frame, cancel: &Cancel) -> Result<(), Error> {
        let (links, neighbours) = (&self.links, &self.neighbours);
        let mut sum = HalvingSum {
            values: &mut self.values[..frame.length as usize],
            inbox: bytemuck::cast_slice_mut(&mut self.inbox),
            frame,
            rank: self.rank,
            size: self.size,
        };
        let moved = sum.run(|rank| links.ways(neighbours, rank), cancel)?;
        self.neighbours.bytes_moved += moved;
        Ok(())
    }

    pub(crate) fn all_reduce(&mut self, frame: Frame, cancel: &Cancel) -> Result<(), Error> {
        let mut reduce = Reduce::new(reduce::Parts {
            values: &mut self.values[..frame.length as usize],
            inbox: bytemuck::cast_slice_mut(&mut self.inbox),
            outbox: self.bf16.then_some(&mut self.outbox),
            rank: self.rank,
            size: self.size,
            frame,
            left: self.neighbours.left.rank,
        });
        self.neighbours.pump(&mut reduce, cancel)
    }

    pub(crate) fn all_gather(
        &mut self,
        frame: Frame,
        bytes: &[u8],
        cancel: &Cancel,
    ) -> Result<Vec<Vec<u8>>, Error> {
        let mut blocks = vec![Vec::new(); self.size];
        blocks[self.rank] = bytes.to_vec();
        let mut total = bytes.len() as u64;
        for step in 0..self.size - 1 {
            let origin = (self.rank + self.size - step) % self.size;
            let next = (self.rank + self.size - step - 1) % self.size;
            let body = &blocks[origin];
            let mine = Frame { origin: origin as u64, length: body.len() as u64, ..frame };
            let expected = Frame { origin: next as u64, ..mine };
            let left = self.neighbours.left.rank;
            let mut exchange =
                FrameExchange::new(mine, body, expected, left, GATHER_LIMIT.saturating_sub(total));
            self.neighbours.pump(&mut exchange, cancel)?;
            let received = exchange.into_received();
            total += received.len() as u64;
            blocks[next] = received;
        }
        Ok(blocks)
    }

    /// A gathering of nothing: what came round from all means that all have arrived.
    pub(crate) fn barrier(&mut self, frame: Frame, cancel: &Cancel) -> Result<(), Error> {
        debug_assert_eq!(frame.kind, FrameKind::Barrier);
        self.all_gather(frame, &[], cancel).map(drop)
    }

    pub(crate) fn broadcast(
        &mut self,
        frame: Frame,
        bytes: Vec<u8>,
        limit: u64,
        cancel: &Cancel,
    ) -> Result<Vec<u8>, Error> {
        let root = frame.origin as usize;
        let left = self.neighbours.left.rank;
        let mut relay = if root == self.rank {
            Relay::from_root(frame, bytes)
        } else {
            let is_last = self.neighbours.right.rank == root;
            Relay::to_member(frame, limit, left, is_last)
        };
        self.neighbours.pump(&mut relay, cancel)?;
        relay.into_bytes()
    }

    /// Lets the neighbours know that this member is out.
    pub(crate) fn close(&self) {
        self.neighbours.close();
        self.links.close();
    }
}
