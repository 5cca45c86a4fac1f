//! The port. Whoever connects and does not speak HTTP/2 at once, over TLS if the job has certificates, is sent away
//! and logged once, before anything of it reaches the server.

use std::error::Error;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use salamander_net::tls::{self, HANDSHAKE};
use salamander_net::{Refusals, Tls};
use salamander_proto::limits;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_stream::Stream;
use tonic::transport::server::{Connected, TcpConnectInfo};
use tracing::{debug, warn};

/// The first bytes of every HTTP/2 connection, <https://www.rfc-editor.org/rfc/rfc9113#section-3.4>.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The first bytes of every server of HTTP/2: settings, none of them unusual.
const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
/// How long to wait when no connection can be taken, for want of descriptors for example.
const PAUSE: Duration = Duration::from_millis(100);
/// Connections that may wait for the server.
const WAITING: usize = 64;

/// Connections of a listener, for as long as this lives.
pub(crate) struct Port {
    guarded: mpsc::Receiver<io::Result<Guarded>>,
    /// The task that takes connections; it ends with its owner.
    _accepting: JoinSet<()>,
}

impl Port {
    /// Within a runtime, which takes the connections.
    pub(crate) fn new(listener: TcpListener, tls: Option<Tls>) -> Self {
        let (out, guarded) = mpsc::channel(WAITING);
        let acceptor = tls.map(|tls| TlsAcceptor::from(tls.server()));
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(listener, acceptor, out));
        Self { guarded, _accepting: accepting }
    }
}

impl Stream for Port {
    type Item = io::Result<Guarded>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.guarded.poll_recv(cx)
    }
}

async fn accept(
    listener: TcpListener,
    acceptor: Option<TlsAcceptor>,
    out: mpsc::Sender<io::Result<Guarded>>,
) {
    let refusals = Refusals::default();
    // Each on its own, so that a slow one holds up nobody else.
    let mut greetings = JoinSet::new();
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
        let (acceptor, out, refusals) = (acceptor.clone(), out.clone(), refusals.clone());
        greetings.spawn(async move {
            let greeting = timeout(limits::FIRST_MESSAGE, greet(tcp, acceptor)).await;
            match greeting.unwrap_or_else(|_| Err(refused("it does not begin to speak"))) {
                // A server that is gone takes nothing any more.
                Ok(guarded) => drop(out.send(Ok(guarded)).await),
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    refusals.log(&peer.ip().to_string(), &error.to_string());
                }
                Err(error) => debug!(%peer, %error, "a connection broke"),
            }
        });
    }
}

/// The error of whoever is sent away.
fn refused(reason: impl Into<Box<dyn Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

/// Shakes hands and looks at the first bytes.
async fn greet(tcp: TcpStream, acceptor: Option<TlsAcceptor>) -> io::Result<Guarded> {
    // A control plane has small messages that somebody waits for.
    tcp.set_nodelay(true)?;
    let info = tcp.connect_info();
    let mut stream: Box<dyn Duplex> = match acceptor {
        None => Box::new(tcp),
        Some(acceptor) => {
            let meant = |error| match tls::Error::of_io(&error) {
                Some(meant) => refused(meant),
                None => refused(error),
            };
            Box::new(acceptor.accept(tcp).await.map_err(meant)?)
        }
    };
    let mut bytes = [0; PREFACE.len()];
    let mut seen = 0;
    while seen < PREFACE.len() {
        match stream.read(&mut bytes[seen..]).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => seen += read,
        }
        if bytes[0] == HANDSHAKE {
            // It hears what this is, and can say so.
            stream.write_all(&SETTINGS).await?;
            return Err(refused(tls::Error::unwanted()));
        }
        if bytes[..seen] != PREFACE[..seen] {
            return Err(refused("it does not speak HTTP/2"));
        }
    }
    Ok(Guarded { again: PREFACE, stream, info })
}

/// Both directions of a connection.
trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// A connection whose first bytes were looked at.
pub(crate) struct Guarded {
    /// What the server has yet to read of the preface.
    again: &'static [u8],
    stream: Box<dyn Duplex>,
    info: TcpConnectInfo,
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
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.info.clone()
    }
}
