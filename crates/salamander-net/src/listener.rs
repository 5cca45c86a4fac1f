//! Where other members connect to: one thread takes all connections, checks who they are, and seats
//! them in the waiting room.
//!
//! The thread never waits for one connection alone, so that silent or slow ones do not hold up the
//! others, and reads no more than the handshake.

use std::fmt;
use std::net::{SocketAddr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};

use crate::handshake::{HandshakeVerdict, Purpose, ServerHandshake, ServerStep};
use crate::refusals::Refusals;
use crate::socket::{Received, Socket, wait_for};
use crate::tls::HandshakeStep;
use crate::token::random_bytes;
use crate::waiting_room::WaitingRoom;
use crate::{Cancel, Endpoint, Error, Keys, Stream, endpoint};

/// A stranger has this long to say who it is.
const HANDSHAKE_TIME: Duration = Duration::from_secs(2);
/// So many strangers may be at it at the same time; the oldest makes room for another.
const STRANGERS: usize = 64;
/// Of one that was sent away, so many times 1 KiB are read before others have their turn.
const READS_AT_ONCE: usize = 64;
/// A pause where the system is out of something, so that the thread does not take a core.
const BREATH: Duration = Duration::from_millis(20);

/// Takes the connections of other members, for all generations of a job.
pub struct Listener {
    endpoint: Endpoint,
    keys: Keys,
    room: Arc<WaitingRoom>,
    /// Closing it ends the thread.
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    /// Listens on this address, where port 0 means any, and on a Unix socket for members on the
    /// same host. Who does not have the keys is refused.
    pub fn bind(address: SocketAddr, keys: impl Into<Keys>) -> Result<Self, Error> {
        let keys = keys.into();
        let tcp = TcpListener::bind(address)?;
        tcp.set_nonblocking(true)?;
        let name = format!("salamander-{}", u128::from_le_bytes(random_bytes()?));
        let abstract_name = std::os::unix::net::SocketAddr::from_abstract_name(&name)?;
        let unix = UnixListener::bind_addr(&abstract_name)?;
        unix.set_nonblocking(true)?;
        let endpoint =
            Endpoint { tcp: tcp.local_addr()?, host: endpoint::this_host()?, unix: name };
        let (stop, stopped) = UnixStream::pair()?;
        let room = Arc::new(WaitingRoom::default());
        let acceptor = Acceptor {
            tcp,
            unix,
            stopped,
            keys: keys.clone(),
            room: room.clone(),
            strangers: Vec::new(),
            refusals: Refusals::default(),
        };
        let thread = std::thread::Builder::new()
            .name("net-listener".to_string())
            .spawn(|| acceptor.run())?;
        Ok(Self { endpoint, keys, room, stop: Some(stop), thread: Some(thread) })
    }

    /// Where it listens.
    pub fn endpoint(&self) -> Endpoint {
        self.endpoint.clone()
    }

    /// Waits for the next stream that somebody dials, until cancelled. Streams that nobody accepts
    /// wait, and beyond a bound they are refused.
    pub fn accept(&self, cancel: &Cancel) -> Result<Stream, Error> {
        Ok(Stream::new(self.room.take_stream(cancel)?))
    }

    /// Ends all generations below this one: their connections are dropped, and new ones refused.
    pub fn fence(&self, generation: u64) {
        self.room.fence(generation);
    }

    pub(crate) fn room(&self) -> &WaitingRoom {
        &self.room
    }

    /// What callers have to know, and what this side needs to call others.
    pub fn keys(&self) -> &Keys {
        &self.keys
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported where it happened.
            let _ = thread.join();
        }
    }
}

/// The thread's state.
struct Acceptor {
    tcp: TcpListener,
    unix: UnixListener,
    /// Hung up when the listener is dropped.
    stopped: UnixStream,
    keys: Keys,
    room: Arc<WaitingRoom>,
    strangers: Vec<Stranger>,
    refusals: Refusals,
}

/// A connection in its handshake.
struct Stranger {
    socket: Socket,
    name: String,
    server: ServerHandshake,
    deadline: Instant,
    /// It was refused, and gets a moment to hear why: a connection that is closed before all is read
    /// loses what was sent last.
    refused: bool,
}

/// What became of a connection.
enum Fate {
    Undecided,
    Proven(Purpose),
    Refused(String),
    Gone,
}

impl Acceptor {
    fn run(mut self) {
        while self.sleep() {
            self.accept_all();
            let now = Instant::now();
            for mut stranger in std::mem::take(&mut self.strangers) {
                match stranger.proceed(now) {
                    Fate::Undecided => self.strangers.push(stranger),
                    Fate::Proven(purpose) => self.seat(purpose, stranger),
                    Fate::Refused(reason) => {
                        self.refusals.log(&stranger.name, &reason);
                        stranger.refused = true;
                        if stranger.socket.is_encrypted() {
                            self.strangers.push(stranger);
                        }
                    }
                    Fate::Gone => {}
                }
            }
        }
    }

    /// Sleeps until something happens; false once the listener is gone.
    fn sleep(&self) -> bool {
        let mut descriptors = vec![
            // Its hanging up is all that can happen to it, and needs no flag.
            PollFd::new(&self.stopped, PollFlags::empty()),
            PollFd::new(&self.tcp, PollFlags::IN),
            PollFd::new(&self.unix, PollFlags::IN),
        ];
        for stranger in &self.strangers {
            descriptors.push(PollFd::new(&stranger.socket, PollFlags::IN));
        }
        // Without strangers there is no deadline to watch.
        let polled = if self.strangers.is_empty() {
            rustix::event::poll(&mut descriptors, None).is_ok()
        } else {
            wait_for(&mut descriptors).is_ok()
        };
        if !polled {
            std::thread::sleep(BREATH);
        }
        descriptors[0].revents().is_empty()
    }

    fn accept_all(&mut self) {
        loop {
            match self.unix.accept() {
                Ok((stream, _)) => self.welcome(Socket::unix(stream.into()), "unix".to_string()),
                Err(error) => break self.complain(&error),
            }
        }
        loop {
            match self.tcp.accept() {
                Ok((stream, peer)) => {
                    let socket = Socket::tcp(stream.into()).inspect(Socket::tune);
                    let socket = socket.and_then(|socket| self.secured(socket));
                    self.welcome(socket, peer.ip().to_string());
                }
                Err(error) => break self.complain(&error),
            }
        }
    }

    fn secured(&self, mut socket: Socket) -> Result<Socket, Error> {
        if let Some(tls) = &self.keys.tls {
            socket.encrypt(tls.be_called()?);
        }
        Ok(socket)
    }

    fn complain(&mut self, error: &std::io::Error) {
        if error.kind() != std::io::ErrorKind::WouldBlock {
            // Out of descriptors, most likely: the connection stays in the queue.
            self.refusals.log("any", &error.to_string());
            std::thread::sleep(BREATH);
        }
    }

    fn welcome(&mut self, socket: Result<Socket, Error>, name: String) {
        let (Ok(socket), Ok(nonce)) = (socket, random_bytes()) else { return };
        let now = Instant::now();
        if self.strangers.len() >= STRANGERS {
            let oldest = self.strangers.remove(0);
            self.refusals.log(&oldest.name, "too many connections at once");
        }
        let server = ServerHandshake::new(self.keys.token.clone(), nonce);
        let deadline = now + HANDSHAKE_TIME;
        self.strangers.push(Stranger { socket, name, server, deadline, refused: false });
    }

    fn seat(&mut self, purpose: Purpose, stranger: Stranger) {
        let tell = |socket: &Socket, verdict: HandshakeVerdict| {
            socket.send_now(&[verdict.encode()]).is_ok_and(|sent| sent == 1)
        };
        let refusal = match self.room.enter(purpose, stranger.socket, tell) {
            HandshakeVerdict::Accepted => return,
            HandshakeVerdict::OldGeneration => "its generation is over",
            HandshakeVerdict::NoRoom => "too many connections wait",
        };
        self.refusals.log(&stranger.name, refusal);
    }
}

impl Stranger {
    /// Goes on with the handshakes as far as bytes have come.
    fn proceed(&mut self, now: Instant) -> Fate {
        let is_late = now >= self.deadline;
        if self.refused {
            return self.hang_up(is_late);
        }
        match self.socket.shake_hands() {
            Ok(HandshakeStep::Done) => self.prove(is_late),
            Ok(HandshakeStep::Receive) if !is_late => Fate::Undecided,
            Ok(HandshakeStep::Receive) => {
                Fate::Refused("its TLS handshake takes too long".to_string())
            }
            // A fresh socket has room for so little, or something is wrong with it.
            Ok(HandshakeStep::Send) => Fate::Refused("it does not read".to_string()),
            Err(error) => Fate::Refused(error.to_string()),
        }
    }

    /// Reads what it still says until it hangs up too.
    fn hang_up(&self, is_late: bool) -> Fate {
        // Some at a time: one that never stops must not keep the thread from all the others.
        for _ in 0..READS_AT_ONCE {
            match self.socket.hang_up() {
                Ok(Received::Bytes(_)) if !is_late => {}
                Ok(Received::Nothing) if !is_late => return Fate::Undecided,
                _ => return Fate::Gone,
            }
        }
        Fate::Undecided
    }

    /// Goes on with the proof that it knows the token.
    fn prove(&mut self, is_late: bool) -> Fate {
        loop {
            let progress = match self.socket.receive_now(self.server.space()) {
                Ok(Received::Bytes(count)) => self.server.received(count),
                Ok(Received::Nothing) if !is_late => return Fate::Undecided,
                Ok(Received::Nothing) => {
                    return Fate::Refused("its handshake takes too long".to_string());
                }
                Ok(Received::End) => return Fate::Refused("it hung up".to_string()),
                Err(error) => return Fate::Refused(error.to_string()),
            };
            match progress {
                Ok(ServerStep::More) => {}
                Ok(ServerStep::Reply(challenge)) => {
                    let sent = self.socket.send_now(&challenge);
                    if !sent.is_ok_and(|count| count == challenge.len()) {
                        return Fate::Refused("it does not read".to_string());
                    }
                }
                Ok(ServerStep::Proven(purpose)) => return Fate::Proven(purpose),
                Err(error) => return Fate::Refused(error.to_string()),
            }
        }
    }
}
