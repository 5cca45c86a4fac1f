//! One connection: what rustls makes of the bytes of a socket, without ever waiting.
//!
//! A plain socket takes some of the bytes that it is offered and says how many. Here they are encrypted
//! first, and the socket may take less than that. Those bytes count as not sent and are remembered as
//! *owed*: the caller offers them again, as it does with a plain socket, and they count once they are out.

use std::io::{self, IoSlice, Read, Write};
use std::ops::Range;
use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::net::RecvFlags;
use rustls::Connection;

use super::{Error, broken_off};
use crate::socket::{Received, receive_plain, send_flags};

/// Bytes that are encrypted at a time, and received at a time: they stay in the second-level cache.
const CHUNK: usize = 128 << 10;

/// The state of a connection.
pub(crate) struct TlsSession {
    connection: Connection,
    /// Where bytes are received to; nothing before the first ones.
    inbox: Vec<u8>,
    /// The part of it that is not decrypted yet.
    waiting: Range<usize>,
    /// Bytes that are encrypted, but not all sent.
    owed: usize,
}

/// How far a handshake has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandshakeStep {
    /// Waits for the other side.
    Receive,
    /// Waits for room in the socket.
    Send,
    /// The other side is who it should be.
    Done,
}

impl TlsSession {
    pub(super) fn new(mut connection: Connection) -> Self {
        connection.set_buffer_limit(Some(CHUNK));
        Self { connection, inbox: Vec::new(), waiting: 0..0, owed: 0 }
    }

    /// Goes on with the handshake as far as bytes have come.
    pub(crate) fn shake_hands(
        &mut self,
        socket: BorrowedFd<'_>,
    ) -> Result<HandshakeStep, crate::Error> {
        loop {
            if !self.flush(socket)? {
                return Ok(HandshakeStep::Send);
            }
            if !self.connection.is_handshaking() {
                return Ok(HandshakeStep::Done);
            }
            match self.refill(socket)? {
                Received::Bytes(_) => self.feed(socket)?,
                Received::Nothing => return Ok(HandshakeStep::Receive),
                Received::End => return Err(broken_off().into()),
            }
        }
    }

    /// Sends what the socket takes at once of the parts; zero if it is full.
    pub(crate) fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        parts: &[IoSlice<'_>],
    ) -> io::Result<usize> {
        if !self.flush(socket)? {
            return Ok(0);
        }
        // A caller that offers less than before would otherwise be the end of the process.
        let offered = parts.iter().map(|part| part.len()).sum();
        let mut sent = std::mem::take(&mut self.owed).min(offered);
        let mut slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
        let mut rest = &mut slices[..];
        IoSlice::advance_slices(&mut rest, sent);
        while !rest.is_empty() {
            let taken = self.connection.writer().write_vectored(rest)?;
            if !self.flush(socket)? {
                self.owed = taken;
                break;
            }
            sent += taken;
            IoSlice::advance_slices(&mut rest, taken);
        }
        Ok(sent)
    }

    /// Receives what is there.
    pub(crate) fn receive(
        &mut self,
        socket: BorrowedFd<'_>,
        space: &mut [u8],
    ) -> io::Result<Received> {
        let mut filled = 0;
        while filled < space.len() {
            match self.connection.reader().read(&mut space[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    match self.refill(socket)? {
                        Received::Bytes(_) => self.feed(socket)?,
                        Received::Nothing if filled == 0 => return Ok(Received::Nothing),
                        Received::Nothing | Received::End => break,
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(if filled == 0 { Received::End } else { Received::Bytes(filled) })
    }

    /// Whether something was received that nobody has asked for yet.
    pub(crate) fn has_more(&mut self) -> bool {
        let decrypted = self.connection.process_new_packets();
        !self.waiting.is_empty() || decrypted.is_ok_and(|state| state.plaintext_bytes_to_read() > 0)
    }

    /// Sends what is encrypted; whether that is all.
    fn flush(&mut self, socket: BorrowedFd<'_>) -> io::Result<bool> {
        while self.connection.wants_write() {
            match self.connection.write_tls(&mut Raw(socket)) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Makes sure that there is something to decrypt.
    fn refill(&mut self, socket: BorrowedFd<'_>) -> io::Result<Received> {
        if !self.waiting.is_empty() {
            return Ok(Received::Bytes(self.waiting.len()));
        }
        self.inbox.resize(CHUNK, 0);
        let received = receive_plain(socket, &mut self.inbox, RecvFlags::DONTWAIT)?;
        if let Received::Bytes(count) = received {
            self.waiting = 0..count;
        }
        Ok(received)
    }

    /// Decrypts until there is something to read, or nothing is left.
    fn feed(&mut self, socket: BorrowedFd<'_>) -> io::Result<()> {
        while !self.waiting.is_empty() {
            match self.connection.read_tls(&mut &self.inbox[self.waiting.clone()])? {
                // The other side has said its last word: nothing counts after that.
                0 => self.waiting = 0..0,
                count => self.waiting.start += count,
            }
            match self.connection.process_new_packets() {
                Ok(state) if state.plaintext_bytes_to_read() > 0 => break,
                Ok(_) => {}
                Err(error) => {
                    // The other side is told, if it listens.
                    let _ = self.flush(socket);
                    return Err(Error::of_peer(&error).into());
                }
            }
        }
        Ok(())
    }
}

/// The socket below, which never waits.
struct Raw<'a>(BorrowedFd<'a>);

impl Write for Raw<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut nothing = rustix::net::SendAncillaryBuffer::default();
        match rustix::net::sendmsg(self.0, parts, &mut nothing, send_flags()) {
            Err(Errno::INTR) => Err(io::ErrorKind::WouldBlock.into()),
            sent => Ok(sent?),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
