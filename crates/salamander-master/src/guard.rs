//! The port. Whoever connects and does not greet at once is sent away and logged once, before anything of it reaches
//! the server. Connections are counted: those of strangers take nobody else's room.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use salamander_net::{Keys, Refusals};
use salamander_proto::limits;
use salamander_proto::token::ConnectionInfo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};
use tokio_stream::Stream;
use tonic::transport::server::Connected;
use tracing::{debug, warn};

use crate::greeting::{Duplex, Host, Room, refused};

/// How long to wait when no connection can be taken, for want of descriptors for example.
const PAUSE: Duration = Duration::from_millis(100);
/// Connections that may wait for the server.
const WAITING: usize = 64;
/// Connections that greet at a time. With one more the oldest goes: whoever is meant to be here is done at once.
const STRANGERS: usize = 128;
/// Plain connections that have proven nothing.
const UNPROVEN: usize = 32;

/// Connections of a listener, for as long as this lives.
pub(crate) struct Port {
    guarded: mpsc::Receiver<io::Result<Guarded>>,
    /// The task that takes connections; it ends with its owner.
    _accepting: JoinSet<()>,
}

impl Port {
    /// Within a runtime, which takes the connections.
    pub(crate) fn new(listener: TcpListener, keys: Keys) -> Self {
        Self::with_room(listener, &keys, Room::new(most_connections(), UNPROVEN))
    }

    fn with_room(listener: TcpListener, keys: &Keys, room: Room) -> Self {
        let (out, guarded) = mpsc::channel(WAITING);
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(listener, Host::new(keys, room), out));
        Self { guarded, _accepting: accepting }
    }
}

/// Half of the descriptors that this process may have: the journal, the folder and everybody else need some too.
fn most_connections() -> usize {
    let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    (most / 2).clamp(64, 16_384) as usize
}

impl Stream for Port {
    type Item = io::Result<Guarded>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.guarded.poll_recv(cx)
    }
}

async fn accept(listener: TcpListener, host: Host, out: mpsc::Sender<io::Result<Guarded>>) {
    let refusals = Refusals::default();
    // Each on its own, so that a slow one holds up nobody else.
    let mut greetings = JoinSet::new();
    let mut strangers: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let (tcp, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                warn!(%error, "cannot take a connection");
                sleep(PAUSE).await;
                continue;
            }
        };
        while greetings.try_join_next().is_some() {}
        strangers.retain(|stranger| !stranger.is_finished());
        if strangers.len() >= STRANGERS
            && let Some(oldest) = strangers.pop_front()
        {
            refusals.log("any", "too many connections greet at once, the oldest goes");
            oldest.abort();
        }
        let (host, out, refusals) = (host.clone(), out.clone(), refusals.clone());
        strangers.push_back(greetings.spawn(async move {
            let greeting = timeout(limits::FIRST_MESSAGE, host.greet(tcp)).await;
            match greeting.unwrap_or_else(|_| Err(refused("it does not begin to speak"))) {
                // A server that is gone takes nothing any more.
                Ok(guarded) => drop(out.send(Ok(guarded)).await),
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    refusals.log(&peer.ip().to_string(), &error.to_string());
                }
                Err(error) => debug!(%peer, %error, "a connection broke"),
            }
        }));
    }
}

/// A connection whose first bytes were looked at.
pub(crate) struct Guarded {
    /// What the server has yet to read of the preface.
    pub(crate) again: &'static [u8],
    pub(crate) stream: Box<dyn Duplex>,
    pub(crate) info: ConnectionInfo,
    /// Its place among all connections, given back when it goes.
    pub(crate) _place: OwnedSemaphorePermit,
}

impl AsyncRead for Guarded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.again.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, buf);
        }
        // It is read like any other bytes, as much as there is room for.
        Pin::new(&mut self.again).poll_read(cx, buf)
    }
}

impl AsyncWrite for Guarded {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

impl Connected for Guarded {
    type ConnectInfo = ConnectionInfo;

    fn connect_info(&self) -> ConnectionInfo {
        self.info
    }
}

#[cfg(test)]
mod tests {
    use salamander_net::Token;
    use salamander_net::handshake::{CHALLENGE, ClientHandshake, HandshakeVerdict, Purpose, nonce};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;
    use tokio_stream::StreamExt;

    use super::*;
    use crate::greeting::PREFACE;

    /// Connects as a client of the run does, up to what the port says.
    async fn client(port: std::net::SocketAddr, token: &Token) -> (TcpStream, u8) {
        let mut tcp = TcpStream::connect(port).await.expect("connected");
        let nonce = nonce().expect("randomness");
        let client = ClientHandshake::new(token, &Purpose::STREAM, &nonce);
        tcp.write_all(client.hello()).await.expect("sent");
        let mut challenge = [0; CHALLENGE];
        tcp.read_exact(&mut challenge).await.expect("a challenge");
        tcp.write_all(&client.answer(&challenge).expect("proven")).await.expect("sent");
        let verdict = tcp.read_u8().await.expect("a verdict");
        (tcp, verdict)
    }

    #[tokio::test]
    async fn a_connection_too_many_is_told_so_and_the_others_stay() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let keys = Keys::from(Token::random().expect("randomness"));
        let mut port = Port::with_room(listener, &keys, Room::new(2, 1));
        let accepted = HandshakeVerdict::Accepted.encode();
        let mut inside = Vec::new();
        for _ in 0..2 {
            let (mut tcp, verdict) = client(address, &keys.token).await;
            assert_eq!(verdict, accepted);
            tcp.write_all(PREFACE).await.expect("sent");
            let guarded = port.next().await.expect("open").expect("guarded");
            assert!(guarded.info.is_proven);
            inside.push((tcp, guarded));
        }
        let (_, verdict) = client(address, &keys.token).await;
        assert_eq!(verdict, HandshakeVerdict::NoRoom.encode());
        // Without a proof there is other room, which is small.
        let mut plain = TcpStream::connect(address).await.expect("connected");
        plain.write_all(PREFACE).await.expect("sent");
        let unproven = port.next().await.expect("open").expect("guarded");
        assert!(!unproven.info.is_proven);
        let mut second = TcpStream::connect(address).await.expect("connected");
        second.write_all(PREFACE).await.expect("sent");
        let mut said = Vec::new();
        second.read_to_end(&mut said).await.expect("closed");
        assert_eq!(said.last(), Some(&0xb), "calm is asked for: {said:?}");
        // A place that is given back is taken again.
        drop(inside.pop());
        let (_, verdict) = client(address, &keys.token).await;
        assert_eq!(verdict, accepted);
    }

    #[tokio::test]
    async fn idle_strangers_go_when_others_come() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let keys = Keys::from(Token::random().expect("randomness"));
        let mut port = Port::with_room(listener, &keys, Room::new(2, 1));
        let mut idle = Vec::new();
        for _ in 0..3 * STRANGERS {
            idle.push(TcpStream::connect(address).await.expect("connected"));
        }
        let (mut tcp, verdict) = client(address, &keys.token).await;
        assert_eq!(verdict, HandshakeVerdict::Accepted.encode());
        tcp.write_all(PREFACE).await.expect("sent");
        assert!(port.next().await.expect("open").expect("guarded").info.is_proven);
        // The first of them were sent away, and did not have to wait for the clock.
        let mut first = idle.remove(0);
        assert_eq!(first.read(&mut [0; 1]).await.unwrap_or(0), 0);
    }
}
