//! The port. Whoever connects and does not speak HTTP/2 at once, over TLS if the job has certificates, is sent away
//! and logged once, before anything of it reaches the server.

use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use salamander_net::tls::{self, HANDSHAKE};
use salamander_net::{Refusals, Tls};
use salamander_proto::limits;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Sleep, sleep};
use tokio_rustls::server::TlsStream;
use tokio_rustls::{Accept, TlsAcceptor};
use tokio_stream::Stream;
use tonic::transport::server::{Connected, TcpConnectInfo};
use tracing::warn;

/// The first bytes of every HTTP/2 connection, <https://www.rfc-editor.org/rfc/rfc9113#section-3.4>.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// How long to wait when no connection can be taken, for want of descriptors for example.
const PAUSE: Duration = Duration::from_millis(100);

/// Connections of a listener, for as long as the listener lives.
pub(crate) struct Port {
    listener: TcpListener,
    acceptor: Option<TlsAcceptor>,
    pause: Option<Pin<Box<Sleep>>>,
    refusals: Refusals,
}

impl Port {
    pub(crate) fn new(listener: TcpListener, tls: Option<Tls>) -> Self {
        let acceptor = tls.map(|tls| TlsAcceptor::from(tls.server()));
        Self { listener, acceptor, pause: None, refusals: Refusals::default() }
    }
}

impl Stream for Port {
    type Item = io::Result<Guarded>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(pause) = &mut self.pause {
                ready!(pause.as_mut().poll(cx));
                self.pause = None;
            }
            match ready!(self.listener.poll_accept(cx)) {
                Ok((stream, peer)) => {
                    // A control plane has small messages that somebody waits for.
                    if let Err(error) = stream.set_nodelay(true) {
                        warn!(%peer, %error, "cannot send small messages at once");
                    }
                    return Poll::Ready(Some(Ok(Guarded {
                        info: stream.connect_info(),
                        line: match &self.acceptor {
                            Some(acceptor) => Line::Shaking(Box::new(acceptor.accept(stream))),
                            None => Line::Plain(stream),
                        },
                        seen: 0,
                        deadline: Some(Box::pin(sleep(limits::FIRST_MESSAGE))),
                        peer: peer.ip(),
                        refusals: self.refusals.clone(),
                    })));
                }
                Err(error) => {
                    warn!(%error, "cannot take a connection");
                    self.pause = Some(Box::pin(sleep(PAUSE)));
                }
            }
        }
    }
}

/// A connection whose first bytes are looked at.
pub(crate) struct Guarded {
    line: Line,
    info: TcpConnectInfo,
    seen: usize,
    /// Handshakes and first bytes must be there by then.
    deadline: Option<Pin<Box<Sleep>>>,
    peer: IpAddr,
    refusals: Refusals,
}

/// What is below: handshakes happen while the server asks for bytes, so that a slow one holds up nobody else.
enum Line {
    Plain(TcpStream),
    Shaking(Box<Accept<TcpStream>>),
    Encrypted(Box<TlsStream<TcpStream>>),
    Refused,
}

/// Both directions of a line.
trait Duplex: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> Duplex for T {}

impl Guarded {
    fn refuse(&self, reason: &str) -> io::Error {
        self.refusals.log(&self.peer.to_string(), reason);
        io::Error::new(io::ErrorKind::InvalidData, reason)
    }

    /// The line, once hands are shaken.
    fn poll_line(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Pin<&mut dyn Duplex>>> {
        if let Some(deadline) = &mut self.deadline
            && deadline.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(Err(self.refuse("it does not begin to speak")));
        }
        if let Line::Shaking(accept) = &mut self.line {
            match ready!(Pin::new(accept).poll(cx)) {
                Ok(stream) => self.line = Line::Encrypted(Box::new(stream)),
                Err(error) => {
                    self.line = Line::Refused;
                    let meant = tls::Error::of_io(&error).map(|error| error.to_string());
                    return Poll::Ready(Err(
                        self.refuse(&meant.unwrap_or_else(|| error.to_string()))
                    ));
                }
            }
        }
        let line: Pin<&mut dyn Duplex> = match &mut self.line {
            Line::Plain(stream) => Pin::new(stream),
            Line::Encrypted(stream) => Pin::new(stream),
            Line::Shaking(_) | Line::Refused => {
                return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
            }
        };
        Poll::Ready(Ok(line))
    }

    /// Looks at the first bytes that have come.
    fn check(&mut self, new: &[u8]) -> io::Result<()> {
        let expected = &PREFACE[self.seen..];
        let common = new.len().min(expected.len());
        if new[..common] != expected[..common] {
            return Err(match (self.seen, new.first()) {
                (0, Some(&HANDSHAKE)) => self.refuse(&tls::Error::unwanted().to_string()),
                _ => self.refuse("it does not speak HTTP/2"),
            });
        }
        self.seen += common;
        if self.seen == PREFACE.len() {
            self.deadline = None;
        }
        Ok(())
    }
}

impl AsyncRead for Guarded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(ready!(self.poll_line(cx))?.poll_read(cx, buf))?;
        if self.deadline.is_none() {
            return Poll::Ready(Ok(()));
        }
        Poll::Ready(self.check(&buf.filled()[before..]))
    }
}

impl AsyncWrite for Guarded {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_line(cx))?.poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_line(cx))?.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Without hands shaken there is nothing to end in order.
        if let Line::Shaking(_) | Line::Refused = self.line {
            return Poll::Ready(Ok(()));
        }
        ready!(self.poll_line(cx))?.poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_line(cx))?.poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        match &self.line {
            Line::Plain(stream) => stream.is_write_vectored(),
            // As its stream will be.
            Line::Shaking(_) | Line::Encrypted(_) | Line::Refused => true,
        }
    }
}

impl Connected for Guarded {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.info.clone()
    }
}
