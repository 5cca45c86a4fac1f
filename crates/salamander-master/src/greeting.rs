//! The first words of a connection, before any of it reaches the server: TLS if the job has certificates, otherwise the
//! proof of the token on both sides; then HTTP/2.

use std::error::Error;
use std::io;
use std::sync::Arc;

use salamander_net::handshake::{self, HandshakeVerdict, MAGIC, ServerStep};
use salamander_net::tls::{self, HANDSHAKE};
use salamander_net::{Keys, Token};
use salamander_proto::token::ConnectionInfo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;

use crate::guard::Guarded;

/// The first bytes of every HTTP/2 connection, <https://www.rfc-editor.org/rfc/rfc9113#section-3.4>.
pub(crate) const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The first bytes of every server of HTTP/2: settings, none of them unusual.
const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
/// GOAWAY with ENHANCE_YOUR_CALM: as much as "try again later".
const GO_AWAY: [u8; 17] = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xb];

/// Both directions of a connection.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// How many connections there may be at a time.
#[derive(Clone)]
pub(crate) struct Room {
    /// That have shown a certificate or proven the token.
    pub(crate) proven: Arc<Semaphore>,
    /// That have only said that they speak HTTP/2, and may carry the token later. They must not take the room of
    /// others.
    pub(crate) unproven: Arc<Semaphore>,
}

impl Room {
    pub(crate) fn new(proven: usize, unproven: usize) -> Self {
        let places = |count| Arc::new(Semaphore::new(count));
        Self { proven: places(proven), unproven: places(unproven) }
    }
}

/// The error of whoever is sent away.
pub(crate) fn refused(reason: impl Into<Box<dyn Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

/// Who takes greetings.
#[derive(Clone)]
pub(crate) struct Host {
    pub(crate) token: Token,
    /// With certificates.
    pub(crate) acceptor: Option<TlsAcceptor>,
    pub(crate) room: Room,
}

impl Host {
    pub(crate) fn new(keys: &Keys, room: Room) -> Self {
        let acceptor = keys.tls.as_ref().map(|tls| TlsAcceptor::from(tls.server()));
        Self { token: keys.token.clone(), acceptor, room }
    }

    /// Takes a connection to where the server can read it.
    pub(crate) async fn greet(&self, tcp: TcpStream) -> io::Result<Guarded> {
        // A control plane has small messages that somebody waits for.
        tcp.set_nodelay(true)?;
        let peer = tcp.peer_addr().ok();
        match &self.acceptor {
            None => {
                self.greet_plain(Box::new(tcp), ConnectionInfo { peer, is_proven: false }).await
            }
            Some(acceptor) => {
                let meant = |error| match tls::Error::of_io(&error) {
                    Some(meant) => refused(meant),
                    None => refused(error),
                };
                let mut stream: Box<dyn Duplex> =
                    Box::new(acceptor.accept(tcp).await.map_err(meant)?);
                read_preface(&mut stream, 0).await?;
                // The token still comes with each call: certificates say who may connect, not who may order.
                let info = ConnectionInfo { peer, is_proven: false };
                self.admit(stream, info, &self.room.proven).await
            }
        }
    }

    async fn greet_plain(
        &self,
        mut stream: Box<dyn Duplex>,
        info: ConnectionInfo,
    ) -> io::Result<Guarded> {
        let first = stream.read_u8().await?;
        if first == HANDSHAKE {
            // It hears what this is, and can say so.
            stream.write_all(&SETTINGS).await?;
            return Err(refused(tls::Error::unwanted()));
        }
        if first != MAGIC[0] {
            if first != PREFACE[0] {
                return Err(refused("it does not speak HTTP/2"));
            }
            read_preface(&mut stream, 1).await?;
            return self.admit(stream, info, &self.room.unproven).await;
        }
        self.prove(&mut stream, first).await?;
        let Ok(place) = Arc::clone(&self.room.proven).try_acquire_owned() else {
            stream.write_all(&[HandshakeVerdict::NoRoom.encode()]).await?;
            return Err(refused("too many connections at once"));
        };
        stream.write_all(&[HandshakeVerdict::Accepted.encode()]).await?;
        read_preface(&mut stream, 0).await?;
        Ok(guarded(stream, ConnectionInfo { is_proven: true, ..info }, place))
    }

    /// Proves that it knows the token, and has the other side do the same.
    async fn prove(&self, stream: &mut Box<dyn Duplex>, first: u8) -> io::Result<()> {
        let nonce = handshake::nonce().map_err(io::Error::other)?;
        let mut server = handshake::ServerHandshake::new(self.token.clone(), nonce);
        server.space()[0] = first;
        let mut step = server.received(1);
        loop {
            match step.map_err(refused)? {
                ServerStep::More => {}
                ServerStep::Reply(challenge) => stream.write_all(&challenge).await?,
                ServerStep::Proven(_) => return Ok(()),
            }
            step = match stream.read(server.space()).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => server.received(read),
            };
        }
    }

    /// Finds a place for a connection whose preface was read.
    async fn admit(
        &self,
        mut stream: Box<dyn Duplex>,
        info: ConnectionInfo,
        places: &Arc<Semaphore>,
    ) -> io::Result<Guarded> {
        let Ok(place) = Arc::clone(places).try_acquire_owned() else {
            stream.write_all(&[&SETTINGS[..], &GO_AWAY].concat()).await?;
            return Err(refused("too many connections at once"));
        };
        Ok(guarded(stream, info, place))
    }
}

fn guarded(stream: Box<dyn Duplex>, info: ConnectionInfo, place: OwnedSemaphorePermit) -> Guarded {
    Guarded { again: PREFACE, stream, info, _place: place }
}

/// Reads the preface, of which so many bytes were seen.
async fn read_preface(stream: &mut Box<dyn Duplex>, seen: usize) -> io::Result<()> {
    let mut bytes = *PREFACE;
    let mut seen = seen;
    while seen < PREFACE.len() {
        match stream.read(&mut bytes[seen..]).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => seen += read,
        }
        if bytes[..seen] != PREFACE[..seen] {
            return Err(refused("it does not speak HTTP/2"));
        }
    }
    Ok(())
}
