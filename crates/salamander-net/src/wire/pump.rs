//! Sends to one member and receives from another one, or the same, at the same time and on one thread: a ring in
//! which everybody first sends and then receives stands still once the sockets are full.

use std::io;

use rustix::event::{PollFd, PollFlags};

use crate::socket::{Received, Socket, wait_for};
use crate::{Cancel, Error};

/// What the pump moves.
pub(super) trait Duplex {
    /// What can be sent now; the two parts follow each other. Nothing may become something once
    /// more is received.
    fn outgoing(&mut self) -> (&[u8], &[u8]);
    /// Takes notice that so many bytes of it were sent.
    fn sent(&mut self, count: usize);
    /// Where received bytes go; empty once nothing is due any more.
    fn space(&mut self) -> &mut [u8];
    /// Takes notice that so many bytes were put there.
    fn received(&mut self, count: usize) -> Result<(), Error>;
    /// Whether nothing will have to be sent any more.
    fn is_all_sent(&self) -> bool;
    /// Whether nothing will have to be received any more.
    fn is_all_received(&self) -> bool;
}

/// A member beside this one.
pub(crate) struct Neighbour {
    pub(crate) rank: usize,
    pub(crate) socket: Socket,
}

/// The connections of a member of a ring.
pub(crate) struct Neighbours {
    pub(super) left: Neighbour,
    pub(super) right: Neighbour,
    /// Bytes sent and received.
    pub(super) bytes_moved: u64,
}

impl Neighbours {
    pub(crate) fn new(left: Neighbour, right: Neighbour) -> Self {
        Self { left, right, bytes_moved: 0 }
    }

    pub(super) fn close(&self) {
        self.left.socket.close();
        self.right.socket.close();
    }

    /// Runs until all is sent and received.
    pub(super) fn pump(&mut self, work: &mut impl Duplex, cancel: &Cancel) -> Result<(), Error> {
        self.bytes_moved += self.ways().pump(work, cancel)?;
        Ok(())
    }

    /// Round the ring.
    pub(super) fn ways(&self) -> Ways<'_> {
        let (right, left) = (&self.right, &self.left);
        Ways { to: (right.rank, &right.socket), from: (left.rank, &left.socket) }
    }
}

/// Whom bytes go to, and whom they come from.
#[derive(Clone, Copy)]
pub(super) struct Ways<'a> {
    pub(super) to: (usize, &'a Socket),
    pub(super) from: (usize, &'a Socket),
}

impl Ways<'_> {
    /// Runs until all is sent and received; the bytes that were moved.
    pub(super) fn pump(&self, work: &mut impl Duplex, cancel: &Cancel) -> Result<u64, Error> {
        let mut moved = 0;
        while !(work.is_all_sent() && work.is_all_received()) {
            cancel.check()?;
            let (sent, wants_to_send) = self.send(work)?;
            let space = work.space();
            let wants_to_receive = !space.is_empty();
            let mut received = 0;
            if wants_to_receive {
                // With nothing to send there is only one thing to wait for, and no need to poll.
                let outcome = if wants_to_send {
                    self.from.1.receive_now(space)
                } else {
                    self.from.1.receive_soon(space)
                };
                received = self.count(outcome)?;
                work.received(received)?;
            }
            moved += (sent + received) as u64;
            if sent + received == 0 {
                self.idle(wants_to_send, wants_to_receive)?;
                self.check_receiver(work)?;
            }
        }
        Ok(moved)
    }

    /// Sends what the socket takes; how much it was, and whether there is more.
    fn send(&self, work: &mut impl Duplex) -> Result<(usize, bool), Error> {
        let (head, body) = work.outgoing();
        if head.is_empty() && body.is_empty() {
            return Ok((0, false));
        }
        let offered = head.len() + body.len();
        let (rank, socket) = self.to;
        let sent = socket.send_both_now(head, body);
        let sent = sent.map_err(|error| Error::lost(rank, error))?;
        work.sent(sent);
        let (head, body) = work.outgoing();
        Ok((sent, sent < offered || !head.is_empty() || !body.is_empty()))
    }

    fn count(&self, outcome: io::Result<Received>) -> Result<usize, Error> {
        match outcome {
            Ok(Received::Bytes(count)) => Ok(count),
            Ok(Received::Nothing) => Ok(0),
            Ok(Received::End) => Err(Error::gone(self.from.0)),
            Err(error) => Err(Error::lost(self.from.0, error)),
        }
    }

    /// Nothing moved: waits for whatever can. Receiving has waited already if it is all there is.
    fn idle(&self, wants_to_send: bool, wants_to_receive: bool) -> Result<(), Error> {
        if wants_to_send {
            let mut ready = vec![PollFd::new(self.to.1, PollFlags::OUT)];
            if wants_to_receive {
                ready.push(PollFd::new(self.from.1, PollFlags::IN));
            }
            wait_for(&mut ready)?;
        }
        Ok(())
    }

    /// Who receives may send nothing, so nothing shows that it has gone while there is nothing for
    /// it. It may go once it has all: that is how the last collective of a ring ends.
    fn check_receiver(&self, work: &impl Duplex) -> Result<(), Error> {
        let gone = !work.is_all_sent() && self.to.1.has_ended();
        if gone { Err(Error::gone(self.to.0)) } else { Ok(()) }
    }
}
