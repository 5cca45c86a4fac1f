//! One connection to a master, plain or encrypted, which finds out when the two sides do not agree on that. On a plain
//! one both prove that they have the run's token before anything is said: whoever has a port that was a master's hears
//! nothing of use.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use salamander_net::handshake::{self, CHALLENGE, HandshakeVerdict, Purpose};
use salamander_net::tls::{self, ALERT};
use salamander_net::{Keys, Token};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;
use tonic::transport::Uri;

use super::address::LastRefusal;

/// A connection.
pub(super) struct ControlStream {
    stream: Either<TcpStream, Box<TlsStream<TcpStream>>>,
    /// Whether the first byte of the other side was looked at.
    heard: bool,
    refusal: LastRefusal,
}

impl ControlStream {
    /// Connects, and shakes hands.
    pub(super) async fn open(to: &Uri, keys: &Keys, refusal: LastRefusal) -> io::Result<Self> {
        let host = to.host().unwrap_or_default().trim_matches(['[', ']']);
        let mut tcp = TcpStream::connect((host, to.port_u16().unwrap_or_default())).await?;
        // Small messages that somebody waits for.
        tcp.set_nodelay(true)?;
        let stream = match &keys.tls {
            None => {
                prove(&mut tcp, &keys.token, &refusal).await?;
                return Ok(Self { stream: Either::Left(tcp), heard: true, refusal });
            }
            Some(tls) => {
                let shaking = TlsConnector::from(tls.client()).connect(tls::name(), tcp);
                let shaken = shaking.await.map_err(|error| explain(error, &refusal))?;
                Either::Right(Box::new(shaken))
            }
        };
        Ok(Self { stream, heard: false, refusal })
    }
}

/// Has the other side prove that it has the token, and proves the same to it.
async fn prove(tcp: &mut TcpStream, token: &Token, refusal: &LastRefusal) -> io::Result<()> {
    let nonce = handshake::nonce().map_err(io::Error::other)?;
    let client = handshake::ClientHandshake::new(token, &Purpose::STREAM, &nonce);
    tcp.write_all(client.hello()).await?;
    let mut challenge = [0; CHALLENGE];
    let mut heard = 0;
    while heard < CHALLENGE {
        match tcp.read(&mut challenge[heard..]).await? {
            // A master that wants TLS says so in a few bytes, and closes.
            0 if heard > 0 && challenge[0] == ALERT[0] => return Err(wanted(refusal)),
            0 => return Err(io::Error::other("it closed the connection")),
            read => heard += read,
        }
    }
    let proof = client.answer(&challenge).map_err(|_| {
        let reason = "it does not carry the token of this run: another program has the port, or the token is wrong";
        refusal.note(reason.to_string());
        io::Error::new(io::ErrorKind::InvalidData, reason)
    })?;
    tcp.write_all(&proof).await?;
    match HandshakeVerdict::decode(tcp.read_u8().await?) {
        Some(HandshakeVerdict::Accepted) => Ok(()),
        _ => Err(io::Error::other("it has as many connections as it takes")),
    }
}

/// Whether the first byte that waits to be read begins an alert. Asked after a write has failed, so that the
/// connection is over and something is heard for certain: what came before the end, or the end.
fn poll_alert(tcp: &TcpStream, cx: &mut Context<'_>) -> Poll<bool> {
    let mut first = [0];
    let heard = ready!(tcp.poll_peek(cx, &mut ReadBuf::new(&mut first)));
    Poll::Ready(heard.is_ok() && first[0] == ALERT[0])
}

/// The error of a plain line to a master that wants TLS.
fn wanted(refusal: &LastRefusal) -> io::Error {
    explain(tls::Error::wanted().into(), refusal)
}

/// Says what an error of TLS means, and notes it.
fn explain(error: io::Error, refusal: &LastRefusal) -> io::Error {
    match tls::Error::of_io(&error) {
        Some(meant) => {
            refusal.note(meant.to_string());
            meant.into()
        }
        None if error.kind() == io::ErrorKind::UnexpectedEof => tls::broken_off(),
        None => error,
    }
}

impl AsyncRead for ControlStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { stream, heard, refusal } = &mut *self;
        let before = buf.filled().len();
        let read = ready!(Pin::new(stream).poll_read(cx, buf));
        read.map_err(|error| explain(error, refusal))?;
        // An HTTP/2 server begins with settings, whose first byte is a zero.
        let first = buf.filled()[before..].first();
        if !std::mem::replace(heard, true) && first == Some(&ALERT[0]) {
            return Poll::Ready(Err(wanted(refusal)));
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ControlStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let Self { stream, heard, refusal } = &mut *self;
        let written = ready!(Pin::new(&mut *stream).poll_write(cx, bytes));
        // Writing may fail before the alert is read that says why.
        if written.is_err()
            && !*heard
            && let Either::Left(tcp) = stream
            && ready!(poll_alert(tcp, cx))
        {
            return Poll::Ready(Err(wanted(refusal)));
        }
        Poll::Ready(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
