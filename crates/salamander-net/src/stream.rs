//! A connection between two members for bulk data of any kind, such as the rows of a parameter
//! server: proven by the same handshake as a ring's, and with a limit to every wait.

use std::fmt;
use std::io::{self, IoSlice};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::net::sockopt;

use crate::cancel::Patience;
use crate::dial::dial_stream;
use crate::socket::{Received, Socket, wait_within};
use crate::{Cancel, Endpoint, Error, Keys};

/// The most parts that the system takes in one call.
const PARTS: usize = 1024;
/// What the kernel keeps of a stream within one machine. With much more the bytes fall out of the
/// caches before they are read: 4 MB take 2.5 times as long over TCP with the buffers that it grows by
/// itself, and 1.3 times over Unix sockets with a megabyte. (The kernel doubles the number.)
const NEAR_BUFFER: usize = 256 << 10;
/// How long to look again and again for what is about to come before sleeping. Waking a sleeping core takes
/// up to 70 us on a virtual machine, about what a chunk of rows takes: rows over TCP came at half the speed.
const SPIN: Duration = Duration::from_micros(100);
/// After so much silence TCP asks whether the other machine is still there.
const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// Bytes in both directions: over a Unix socket on one host, over TCP otherwise.
///
/// All methods take `&self`, so that one thread may send while another receives, and any thread may
/// [`Stream::close`]; two threads that send, or two that receive, get each other's bytes.
///
/// ```
/// use std::time::Duration;
/// use salamander_net::{Cancel, Keys, Listener, Patience, Stream, Token};
///
/// let (keys, cancel) = (Keys::from(Token::random()?), Cancel::new());
/// let listener = Listener::bind("127.0.0.1:0".parse().expect("an address"), keys.clone())?;
/// let patience = Patience::new(&cancel, Duration::from_secs(10));
/// let there = Stream::dial(&listener.endpoint(), &keys, &patience)?;
/// let here = listener.accept(&cancel)?;
/// there.send(&[b"head", b"body"], &patience)?;
/// let mut bytes = [0; 8];
/// here.receive(&mut bytes, &patience)?;
/// assert_eq!(&bytes, b"headbody");
/// # Ok::<(), salamander_net::Error>(())
/// ```
pub struct Stream {
    socket: Socket,
}

impl Stream {
    /// Connects to a listener of the same job, and proves to be of it.
    pub fn dial(endpoint: &Endpoint, keys: &Keys, patience: &Patience<'_>) -> Result<Self, Error> {
        dial_stream(endpoint, keys, patience).map(Self::new)
    }

    pub(crate) fn new(socket: Socket) -> Self {
        // Between machines the buffers have to hold what is under way, which TCP finds out.
        if socket.is_within_this_machine() {
            let _ = sockopt::set_socket_send_buffer_size(&socket, NEAR_BUFFER);
        }
        // A machine that lost its power says nothing any more. Unix sockets need and have no such
        // thing, so failing is fine.
        if sockopt::set_tcp_keepidle(&socket, KEEP_ALIVE).is_ok() {
            let _ = sockopt::set_tcp_keepintvl(&socket, KEEP_ALIVE / 3);
            let _ = sockopt::set_socket_keepalive(&socket, true);
        }
        Self { socket }
    }

    /// Sends the parts one after the other, as few calls of the system as it takes.
    pub fn send(&self, parts: &[&[u8]], patience: &Patience<'_>) -> Result<(), Error> {
        let mut slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
        let mut rest = &mut slices[..];
        // Empty parts go, because nothing would be sent of them.
        IoSlice::advance_slices(&mut rest, 0);
        let mut spin = Spin::default();
        while !rest.is_empty() {
            match self.socket.send_parts_now(&rest[..rest.len().min(PARTS)]) {
                Ok(0) if spin.again() => {}
                Ok(0) => self.socket.wait(PollFlags::OUT, patience)?,
                Ok(count) => {
                    IoSlice::advance_slices(&mut rest, count);
                    spin = Spin::default();
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => {
                        return Err(ended());
                    }
                    _ => return Err(error.into()),
                },
            }
        }
        Ok(())
    }

    /// Fills the space.
    pub fn receive(&self, space: &mut [u8], patience: &Patience<'_>) -> Result<(), Error> {
        let mut filled = 0;
        let mut spin = Spin::default();
        while filled < space.len() {
            let rest = &mut space[filled..];
            let received = match spin.again() {
                true => self.socket.receive_now(rest)?,
                false => self.socket.receive_soon(rest)?,
            };
            match received {
                Received::Bytes(count) => {
                    filled += count;
                    spin = Spin::default();
                }
                Received::Nothing => {}
                Received::End => return Err(ended()),
            }
            if filled < space.len() && patience.is_over()? {
                return Err(io::Error::from(io::ErrorKind::TimedOut).into());
            }
        }
        Ok(())
    }

    /// Sleeps until there is something to receive, or the end, for so long at most; whether there
    /// is. Unlike other waits it looks at no flag: it is for those who wait long, and ends when
    /// another thread closes the stream.
    pub fn wait(&self, time: Duration) -> Result<bool, Error> {
        if self.socket.has_more() {
            return Ok(true);
        }
        let ready = |time| wait_within(&mut [PollFd::new(&self.socket, PollFlags::IN)], time);
        let mut spin = Spin::default();
        while spin.again() {
            if ready(Duration::ZERO)? {
                return Ok(true);
            }
        }
        Ok(ready(time)?)
    }

    /// Whether the other side has closed; bytes that wait hide it.
    pub fn has_ended(&self) -> bool {
        self.socket.has_ended()
    }

    /// Ends the connection for both sides and all threads.
    pub fn close(&self) {
        self.socket.close();
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").finish_non_exhaustive()
    }
}

/// A wait that looks again for a while before it sleeps, and lets others have the core if they want it.
#[derive(Default)]
struct Spin {
    since: Option<Instant>,
}

impl Spin {
    /// Whether to look once more; always for the first time.
    fn again(&mut self) -> bool {
        match self.since {
            None => {
                self.since = Some(Instant::now());
                true
            }
            Some(since) => {
                std::thread::yield_now();
                since.elapsed() < SPIN
            }
        }
    }
}

/// The error of every call after the other side is gone.
fn ended() -> Error {
    let reason = "the other side closed the connection";
    io::Error::new(io::ErrorKind::UnexpectedEof, reason).into()
}

/// So that a stream can be moved to the thread that serves it, and closed from another.
const _: () = {
    const fn shared<T: Send + Sync>() {}
    shared::<Stream>();
    shared::<Cancel>();
};
