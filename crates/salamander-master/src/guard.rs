//! The port. Whoever connects and does not speak HTTP/2 at once is sent away and logged once, before anything of it
//! reaches the server.

use std::collections::HashSet;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use salamander_proto::limits;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Sleep, sleep};
use tokio_stream::Stream;
use tonic::transport::server::{Connected, TcpConnectInfo};
use tracing::warn;

/// The first bytes of every HTTP/2 connection, <https://www.rfc-editor.org/rfc/rfc9113#section-3.4>.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// How long to wait when no connection can be taken, for want of descriptors for example.
const PAUSE: Duration = Duration::from_millis(100);
/// So many refused peers are told apart; beyond, refusals are silent.
const REMEMBERED: usize = 256;

type Refused = Arc<Mutex<HashSet<IpAddr>>>;

/// Connections of a listener, for as long as the listener lives.
pub(crate) struct Port {
    listener: TcpListener,
    pause: Option<Pin<Box<Sleep>>>,
    refused: Refused,
}

impl Port {
    pub(crate) fn new(listener: TcpListener) -> Self {
        Self { listener, pause: None, refused: Refused::default() }
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
                    let refused = self.refused.clone();
                    return Poll::Ready(Some(Ok(Guarded::new(stream, peer.ip(), refused))));
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
    stream: TcpStream,
    seen: usize,
    deadline: Option<Pin<Box<Sleep>>>,
    peer: IpAddr,
    refused: Refused,
}

impl Guarded {
    fn new(stream: TcpStream, peer: IpAddr, refused: Refused) -> Self {
        let deadline = Some(Box::pin(sleep(limits::FIRST_MESSAGE)));
        Self { stream, seen: 0, deadline, peer, refused }
    }

    fn refuse(&self, reason: &'static str) -> io::Error {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if refused.len() < REMEMBERED && refused.insert(self.peer) {
            let peer = self.peer;
            warn!(%peer, reason, "refused a connection; later ones of this peer are not logged");
        }
        io::Error::new(io::ErrorKind::InvalidData, reason)
    }
}

impl AsyncRead for Guarded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Some(deadline) = &mut self.deadline else {
            return Pin::new(&mut self.stream).poll_read(cx, buf);
        };
        if deadline.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(self.refuse("it does not begin to speak")));
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        let new = &buf.filled()[before..];
        let expected = &PREFACE[self.seen..];
        let common = new.len().min(expected.len());
        if new[..common] != expected[..common] {
            return Poll::Ready(Err(self.refuse("it does not speak HTTP/2")));
        }
        self.seen += common;
        if self.seen == PREFACE.len() {
            self.deadline = None;
        }
        Poll::Ready(Ok(()))
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
        self.stream.connect_info()
    }
}
