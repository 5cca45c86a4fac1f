//! Sums in a given order over sockets: each member sends its parts of a chunk to the chunk's owner, who adds them up in
//! the order of the fold and sends the sums to all.
//!
//! On each connection a header goes first, then the parts of the other's chunk, then the sums of the own one. Parts are
//! cut into pieces, and all parts of a piece follow each other, so that the owner can sum it, and send it on, while the
//! next one travels. That takes as many bytes as a ring where each member has one part.
//!
//! Nobody waits in a circle: parts can be sent from the start, and what keeps a member from receiving them is only that
//! it has not yet got those of others.

use std::ops::Range;

use rustix::event::{PollFd, PollFlags};

use crate::fold::FoldStack;
use crate::frame::{self, Frame};
use crate::socket::{Received, Socket, wait_for};
use crate::{Cancel, Error, Fold, ring};

/// Values of a part that travel before those of the next part.
const PIECE: usize = 64 << 10;
/// Pieces of a member that may wait for those of the others.
const AHEAD: usize = 4;
const VALUE: usize = size_of::<f32>();

/// A sum on its way.
pub(super) struct Direct<'a> {
    values: &'a mut [f32],
    frame: Frame,
    header: [u8; frame::LENGTH],
    fold: &'a Fold,
    rank: usize,
    len: usize,
    /// The chunk that this member sums.
    own: Range<usize>,
    /// Values of it that are summed.
    summed: usize,
    stack: FoldStack,
    /// Memory of earlier sums: what is taken from the system anew has to be cleared page by page.
    inboxes: &'a mut Vec<Vec<f32>>,
}

/// What travels between this member and another one.
struct DirectPeer<'a> {
    rank: usize,
    socket: &'a Socket,
    /// The chunk that it sums.
    chunk: Range<usize>,
    /// Bytes sent: of the header, the parts and the sums together.
    sent: usize,
    to_send: usize,
    received: usize,
    to_receive: usize,
    header: [u8; frame::LENGTH],
    /// Its parts of the own chunk that are not summed yet, as a ring of pieces.
    inbox: Vec<f32>,
    parts: usize,
}

impl<'a> Direct<'a> {
    pub(super) fn new(
        values: &'a mut [f32],
        frame: Frame,
        fold: &'a Fold,
        rank: usize,
        inboxes: &'a mut Vec<Vec<f32>>,
    ) -> Self {
        let len = frame.length as usize;
        let own = ring::chunk(len, fold.size(), rank);
        let (header, stack) = (frame.encode(), FoldStack::default());
        Self { values, frame, header, fold, rank, len, own, summed: 0, stack, inboxes }
    }

    /// Sends, receives and sums until all is done; the bytes that were moved.
    pub(super) fn run(
        &mut self,
        sockets: &[(usize, &Socket)],
        cancel: &Cancel,
    ) -> Result<u64, Error> {
        let mut peers: Vec<DirectPeer<'_>> =
            sockets.iter().map(|(rank, socket)| self.peer(*rank, socket)).collect();
        let mut moved = 0;
        self.sum(&peers);
        while peers.iter().any(|peer| !peer.is_done()) {
            cancel.check()?;
            let before = moved;
            let only = waits_for_one(&peers);
            for peer in &mut peers {
                moved += self.send(peer)?;
                let is_last = only == Some(peer.rank) && before == moved;
                moved += self.receive(peer, is_last)?;
            }
            self.sum(&peers);
            if moved == before {
                self.wait(&peers)?;
            }
        }
        self.inboxes.extend(peers.into_iter().map(|peer| peer.inbox));
        Ok(moved as u64)
    }

    fn peer<'s>(&mut self, rank: usize, socket: &'s Socket) -> DirectPeer<'s> {
        let chunk = ring::chunk(self.len, self.fold.size(), rank);
        let parts = self.fold.parts(rank);
        let to_send = self.fold.parts(self.rank) * chunk.len() + self.own.len();
        let to_receive = parts * self.own.len() + chunk.len();
        let mut inbox = self.inboxes.pop().unwrap_or_default();
        inbox.resize(parts * self.own.len().min(AHEAD * PIECE), 0.0);
        DirectPeer {
            rank,
            socket,
            chunk,
            sent: 0,
            to_send: frame::LENGTH + to_send * VALUE,
            received: 0,
            to_receive: frame::LENGTH + to_receive * VALUE,
            header: [0; frame::LENGTH],
            inbox,
            parts,
        }
    }

    /// What can be sent to a member now, as the header and a row of values.
    fn outgoing(&self, peer: &DirectPeer<'_>) -> (&[u8], &[u8]) {
        let header = &self.header[peer.sent.min(frame::LENGTH)..];
        let at = peer.sent.saturating_sub(frame::LENGTH);
        let parts = self.fold.parts(self.rank);
        let of_parts = parts * peer.chunk.len() * VALUE;
        let bytes: &[u8] = bytemuck::cast_slice(self.values);
        if at < of_parts {
            let Spot { part, values, skip } = spot(peer.chunk.len(), parts, at);
            let start = Fold::part(self.len, part).start + peer.chunk.start;
            let row = start + values.start..start + values.end;
            return (header, &bytes[row.start * VALUE + skip..row.end * VALUE]);
        }
        let sums = &bytes[self.own.start * VALUE..(self.own.start + self.summed) * VALUE];
        let due = sums.get(at - of_parts..).unwrap_or_default();
        (header, &due[..due.len().min(PIECE * VALUE)])
    }

    /// Sends a piece at most, so that a member takes what comes while it is in the processor's caches: what all of them
    /// would send ahead of that fills the system's buffers, and comes from memory.
    fn send(&self, peer: &mut DirectPeer<'_>) -> Result<usize, Error> {
        let (header, body) = self.outgoing(peer);
        if header.is_empty() && body.is_empty() {
            return Ok(0);
        }
        let sent = peer.socket.send_both_now(header, body);
        let sent = sent.map_err(|error| Error::lost(peer.rank, error))?;
        peer.sent += sent;
        Ok(sent)
    }

    /// Receives what has come from a member, and waits for a moment if that is all there is to do.
    fn receive(&mut self, peer: &mut DirectPeer<'_>, may_wait: bool) -> Result<usize, Error> {
        let (socket, rank) = (peer.socket, peer.rank);
        let space = self.space(peer);
        if space.is_empty() {
            return Ok(0);
        }
        let received =
            if may_wait { socket.receive_soon(space) } else { socket.receive_now(space) };
        let count = match received {
            Ok(Received::Bytes(count)) => count,
            Ok(Received::Nothing) => return Ok(0),
            Ok(Received::End) => return Err(Error::gone(rank)),
            Err(error) => return Err(Error::lost(rank, error)),
        };
        let had_header = peer.received >= frame::LENGTH;
        peer.received += count;
        if !had_header && peer.received >= frame::LENGTH {
            Frame::decode(&peer.header)?.check(&self.frame, rank)?;
        }
        Ok(count)
    }

    /// Where the next bytes of a member go; empty while there is no room for them, or nothing is due.
    fn space<'s>(&'s mut self, peer: &'s mut DirectPeer<'_>) -> &'s mut [u8] {
        if peer.received < frame::LENGTH {
            return &mut peer.header[peer.received..];
        }
        let at = peer.received - frame::LENGTH;
        let of_parts = peer.parts * self.own.len() * VALUE;
        if at < of_parts {
            let Spot { part, values, skip } = spot(self.own.len(), peer.parts, at);
            if values.start >= self.summed + AHEAD * PIECE {
                return &mut [];
            }
            let row = peer.row(part, &values);
            let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut peer.inbox);
            return &mut bytes[row.start * VALUE + skip..row.end * VALUE];
        }
        // Whoever sends the sums of a piece has got the parts of it, so what was there is sent.
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(self.values);
        let chunk = &mut bytes[peer.chunk.start * VALUE..peer.chunk.end * VALUE];
        chunk.get_mut(at - of_parts..).unwrap_or_default()
    }

    /// Sums the pieces that all members have sent.
    fn sum(&mut self, peers: &[DirectPeer<'_>]) {
        while self.summed < self.own.len() {
            let piece = self.summed..self.own.len().min(self.summed + PIECE);
            if peers.iter().any(|peer| !peer.has_sent(&piece)) {
                return;
            }
            for block in FoldStack::blocks(piece.clone()) {
                for (rank, part, joins) in self.fold.steps() {
                    let of_peer = peers.iter().find(|peer| peer.rank == rank);
                    let values = match of_peer {
                        Some(peer) => {
                            let row = peer.row(part, &piece);
                            let skip = block.start - piece.start;
                            &peer.inbox[row.start + skip..row.start + skip + block.len()]
                        }
                        None => {
                            let start = Fold::part(self.len, part).start + self.own.start;
                            &self.values[start + block.start..start + block.end]
                        }
                    };
                    self.stack.take(values, joins);
                }
                let place = self.own.start + block.start..self.own.start + block.end;
                self.values[place].copy_from_slice(self.stack.finish(block.len()));
            }
            self.summed = piece.end;
        }
    }

    /// Nothing moved: waits for whatever can.
    fn wait(&mut self, peers: &[DirectPeer<'_>]) -> Result<(), Error> {
        let mut ready = Vec::with_capacity(peers.len());
        for peer in peers.iter().filter(|peer| !peer.is_done()) {
            let mut flags = PollFlags::empty();
            let (header, body) = self.outgoing(peer);
            flags.set(PollFlags::OUT, !header.is_empty() || !body.is_empty());
            flags.set(PollFlags::IN, peer.takes(self.own.len(), self.summed));
            // One that neither is asked for is looked at for its end only.
            ready.push(PollFd::new(peer.socket, flags));
        }
        wait_for(&mut ready)?;
        Ok(())
    }
}

impl DirectPeer<'_> {
    fn is_done(&self) -> bool {
        self.sent == self.to_send && self.received == self.to_receive
    }

    /// Whether its parts of a piece have come.
    fn has_sent(&self, piece: &Range<usize>) -> bool {
        self.received >= frame::LENGTH + self.parts * piece.end * VALUE
    }

    /// Whether there is room for what it sends next.
    fn takes(&self, own: usize, summed: usize) -> bool {
        let at = self.received.saturating_sub(frame::LENGTH);
        if self.received >= frame::LENGTH && at < self.parts * own * VALUE {
            return spot(own, self.parts, at).values.start < summed + AHEAD * PIECE;
        }
        self.received < self.to_receive
    }

    /// Where the values of a part's piece are in the inbox.
    fn row(&self, part: usize, piece: &Range<usize>) -> Range<usize> {
        let turn = piece.start / PIECE % AHEAD;
        let start = turn * PIECE * self.parts + part * piece.len();
        start..start + piece.len()
    }
}

/// A place in a row of pieces: which part, which values of it, and the bytes of these that are past.
struct Spot {
    part: usize,
    values: Range<usize>,
    skip: usize,
}

/// The place of a byte among the pieces of `parts` parts of `len` values each.
fn spot(len: usize, parts: usize, at: usize) -> Spot {
    let start = at / (PIECE * parts * VALUE) * PIECE;
    let values = start..len.min(start + PIECE);
    let inside = at - start * parts * VALUE;
    let bytes = values.len() * VALUE;
    Spot { part: inside / bytes, skip: inside % bytes, values }
}

/// The only member that something is still due from, if nothing is to be sent any more.
fn waits_for_one(peers: &[DirectPeer<'_>]) -> Option<usize> {
    let mut due = peers.iter().filter(|peer| !peer.is_done());
    match (due.next(), due.next()) {
        (Some(peer), None) if peer.sent == peer.to_send => Some(peer.rank),
        _ => None,
    }
}
