//! A connected socket whose waits can be cancelled.
//!
//! Sockets block, and each call says for itself whether it may: small messages then cost one call
//! each, where a non-blocking socket would fail, poll and try again. With TLS nothing blocks: the
//! session is locked meanwhile, and the other direction needs it too.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, Shutdown, sockopt};

use crate::cancel::{Patience, SLICE};
use crate::tls::{HandshakeStep, TlsSession};
use crate::{Error, handshake};

/// One end of a connection.
pub(crate) struct Socket {
    descriptor: OwnedFd,
    /// Between it and those who send and receive, if the connection is encrypted.
    tls: Option<Box<Mutex<TlsSession>>>,
}

/// What a read found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// So many bytes, more than none.
    Bytes(usize),
    /// Nothing yet.
    Nothing,
    /// The other side has closed.
    End,
}

impl Socket {
    pub(crate) fn tcp(descriptor: OwnedFd) -> Result<Self, Error> {
        // Small messages must not wait for the acknowledgement of earlier ones.
        sockopt::set_tcp_nodelay(&descriptor, true)?;
        notice_cuts(&descriptor)?;
        Self::new(descriptor)
    }

    /// Makes the most of a TCP connection, once it is one.
    pub(crate) fn tune(&self) {
        if self.is_within_this_machine() {
            // Nothing is ever lost here. Where the system's choice is BBR, which sends at the speed that it has
            // estimated, bytes came at 4.3 GB/s at one time and at 7 at another; this one just sends. A system
            // that does not have it goes on with its own.
            let _ = sockopt::set_tcp_congestion(self, "reno");
        }
    }

    pub(crate) fn unix(descriptor: OwnedFd) -> Result<Self, Error> {
        // The default of 208 KB makes the two sides take turns; TCP's buffers grow by themselves.
        sockopt::set_socket_send_buffer_size(&descriptor, UNIX_BUFFER)?;
        Self::new(descriptor)
    }

    fn new(descriptor: OwnedFd) -> Result<Self, Error> {
        rustix::io::ioctl_fionbio(&descriptor, false)?;
        sockopt::set_socket_timeout(&descriptor, sockopt::Timeout::Recv, Some(SLICE))?;
        Ok(Self { descriptor, tls: None })
    }

    /// Encrypts all that is sent and received from now on. The handshake is still to be done.
    pub(crate) fn encrypt(&mut self, session: TlsSession) {
        self.tls = Some(Box::new(Mutex::new(session)));
    }

    /// Goes on with the handshake of a connection that is encrypted, as far as bytes have come.
    pub(crate) fn shake_hands(&self) -> Result<HandshakeStep, Error> {
        match self.session() {
            Some(mut session) => session.shake_hands(self.as_fd()),
            None => Ok(HandshakeStep::Done),
        }
    }

    /// Whether it is a Unix socket.
    pub(crate) fn is_unix(&self) -> bool {
        sockopt::socket_domain(self).is_ok_and(|family| family == AddressFamily::UNIX)
    }

    /// Whether the connection is encrypted.
    pub(crate) fn is_encrypted(&self) -> bool {
        self.tls.is_some()
    }

    /// Sends what the socket takes at once; zero if it is full.
    pub(crate) fn send_now(&self, bytes: &[u8]) -> io::Result<usize> {
        if self.is_encrypted() {
            return self.send_parts_now(&[IoSlice::new(bytes)]);
        }
        full_is_zero(rustix::net::send(self, bytes, send_flags()))
    }

    /// Like [`Socket::send_now`] for a header and its body in one call.
    pub(crate) fn send_both_now(&self, head: &[u8], body: &[u8]) -> io::Result<usize> {
        if head.is_empty() || body.is_empty() {
            return self.send_now(if head.is_empty() { body } else { head });
        }
        self.send_parts_now(&[IoSlice::new(head), IoSlice::new(body)])
    }

    /// Sends as much of the parts as the socket takes at once; zero if it is full. What it did not take
    /// must be offered again.
    pub(crate) fn send_parts_now(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        if let Some(mut session) = self.session() {
            return session.send(self.as_fd(), parts);
        }
        let mut nothing = rustix::net::SendAncillaryBuffer::default();
        full_is_zero(rustix::net::sendmsg(self, parts, &mut nothing, send_flags()))
    }

    /// Receives what is there, without waiting.
    pub(crate) fn receive_now(&self, space: &mut [u8]) -> io::Result<Received> {
        self.receive(space, RecvFlags::DONTWAIT)
    }

    /// Receives what is there, and waits for [`SLICE`] if that is nothing.
    pub(crate) fn receive_soon(&self, space: &mut [u8]) -> io::Result<Received> {
        self.receive(space, RecvFlags::empty())
    }

    /// Looks at what is there and leaves it.
    pub(crate) fn peek(&self, space: &mut [u8]) -> io::Result<Received> {
        receive_plain(self.as_fd(), space, RecvFlags::DONTWAIT | RecvFlags::PEEK)
    }

    fn receive(&self, space: &mut [u8], flags: RecvFlags) -> io::Result<Received> {
        if self.is_encrypted() {
            return self.receive_encrypted(space, !flags.contains(RecvFlags::DONTWAIT));
        }
        receive_plain(self.as_fd(), space, flags)
    }

    fn receive_encrypted(&self, space: &mut [u8], may_wait: bool) -> io::Result<Received> {
        let mut receive = || match self.session() {
            Some(mut session) => session.receive(self.as_fd(), space),
            None => Ok(Received::End),
        };
        match receive()? {
            Received::Nothing if may_wait => {
                let mut ready = [PollFd::new(self, PollFlags::IN)];
                if wait_for(&mut ready)? { receive() } else { Ok(Received::Nothing) }
            }
            received => Ok(received),
        }
    }

    fn session(&self) -> Option<MutexGuard<'_, TlsSession>> {
        // A panic inside would leave a connection that fails, which is what it should do.
        self.tls.as_ref().map(|tls| tls.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Sends all, however long the other side takes.
    pub(crate) fn send_all(&self, bytes: &[u8], patience: &Patience<'_>) -> Result<(), Error> {
        let mut sent = 0;
        while sent < bytes.len() {
            match self.send_now(&bytes[sent..])? {
                0 => self.wait(PollFlags::OUT, patience)?,
                count => sent += count,
            }
        }
        Ok(())
    }

    /// Fills the space; how far, if the other side closes before.
    pub(crate) fn receive_all(
        &self,
        space: &mut [u8],
        patience: &Patience<'_>,
    ) -> Result<usize, Error> {
        let mut filled = 0;
        while filled < space.len() {
            match self.receive_now(&mut space[filled..])? {
                Received::Bytes(count) => filled += count,
                Received::Nothing => self.wait(PollFlags::IN, patience)?,
                Received::End => break,
            }
        }
        Ok(filled)
    }

    /// Waits until the socket is ready for something.
    pub(crate) fn wait(&self, flags: PollFlags, patience: &Patience<'_>) -> Result<(), Error> {
        loop {
            if patience.is_over()? {
                return Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into());
            }
            if wait_for(&mut [PollFd::new(self, flags)])? {
                return Ok(());
            }
        }
    }

    /// Whether the other side is on this machine, as far as its address tells.
    pub(crate) fn is_within_this_machine(&self) -> bool {
        let Ok(peer) = rustix::net::getpeername(self) else { return false };
        match peer.map(SocketAddr::try_from) {
            Some(Ok(address)) => address.ip().is_loopback(),
            // A Unix socket, which has a name at most.
            Some(Err(_)) | None => true,
        }
    }

    /// Whether something was received already and waits to be asked for, which a poll does not see.
    pub(crate) fn has_more(&self) -> bool {
        self.session().is_some_and(|mut session| session.has_more())
    }

    /// Whether the other side has closed; bytes that wait hide it.
    pub(crate) fn has_ended(&self) -> bool {
        !self.has_more()
            && !matches!(self.peek(&mut [0]), Ok(Received::Bytes(_) | Received::Nothing))
    }

    /// Tells the other side that no more comes, and reads what it still says.
    pub(crate) fn hang_up(&self) -> io::Result<Received> {
        let _ = rustix::net::shutdown(self, Shutdown::Write);
        receive_plain(self.as_fd(), &mut [0; 1024], RecvFlags::DONTWAIT)
    }

    /// Tells the other side that no more comes, though this socket lives on.
    pub(crate) fn close(&self) {
        // It fails if the other side was faster, which is as good.
        let _ = rustix::net::shutdown(self, Shutdown::Both);
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Receives from a socket as it is.
pub(crate) fn receive_plain(
    socket: BorrowedFd<'_>,
    space: &mut [u8],
    flags: RecvFlags,
) -> io::Result<Received> {
    match rustix::net::recv(socket, space, flags) {
        Ok((_, 0)) => Ok(Received::End),
        Ok((_, count)) => Ok(Received::Bytes(count)),
        Err(Errno::AGAIN | Errno::INTR) => Ok(Received::Nothing),
        Err(Errno::CONNRESET | Errno::PIPE) => Ok(Received::End),
        Err(errno) => Err(errno.into()),
    }
}

/// Sleeps for [`SLICE`] at most; whether one of the descriptors is ready.
pub(crate) fn wait_for(descriptors: &mut [PollFd<'_>]) -> io::Result<bool> {
    wait_within(descriptors, SLICE)
}

/// Sleeps for so long at most; whether one of the descriptors is ready.
pub(crate) fn wait_within(descriptors: &mut [PollFd<'_>], time: Duration) -> io::Result<bool> {
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    let timeout = Timespec { tv_sec: seconds, tv_nsec: time.subsec_nanos().into() };
    match poll(descriptors, Some(&timeout)) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// The error of a handshake or greeting that the other side broke off.
pub(crate) fn ended() -> Error {
    let reason = format!("it closed the connection, perhaps since {}", handshake::Error::Proof);
    Error::Refused(reason)
}

/// Without these, a cable that is cut, or a firewall that drops in silence, is noticed after about 15 minutes by
/// whoever sends, and never by whoever only waits: a connection without an answer for this long is over.
fn notice_cuts(descriptor: &OwnedFd) -> Result<(), Error> {
    sockopt::set_socket_keepalive(descriptor, true)?;
    sockopt::set_tcp_keepidle(descriptor, UNANSWERED / 3)?;
    sockopt::set_tcp_keepintvl(descriptor, UNANSWERED / 6)?;
    sockopt::set_tcp_keepcnt(descriptor, 4)?;
    sockopt::set_tcp_user_timeout(descriptor, UNANSWERED.as_millis() as u32)?;
    Ok(())
}

/// How long the other side's system, not its program, may take to answer.
const UNANSWERED: Duration = Duration::from_secs(12);

const UNIX_BUFFER: usize = 1 << 20;

pub(crate) fn send_flags() -> SendFlags {
    // A signal would end the process where an error is meant.
    SendFlags::DONTWAIT | SendFlags::NOSIGNAL
}

fn full_is_zero(sent: Result<usize, Errno>) -> io::Result<usize> {
    match sent {
        Err(Errno::AGAIN | Errno::INTR) => Ok(0),
        sent => Ok(sent?),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_connection_that_is_cut_in_silence_does_not_last() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let stream = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
        let socket = Socket::tcp(stream.into()).expect("a socket");
        // Whoever sends and gets no answer, and whoever only waits.
        let sends = sockopt::tcp_user_timeout(&socket).expect("asked");
        assert_eq!(u128::from(sends), UNANSWERED.as_millis());
        let idle = sockopt::tcp_keepidle(&socket).expect("asked");
        let probes = sockopt::tcp_keepcnt(&socket).expect("asked");
        let waits = idle + sockopt::tcp_keepintvl(&socket).expect("asked") * probes;
        assert!(sockopt::socket_keepalive(&socket).expect("asked") && waits <= UNANSWERED);
    }
}
