//! Connecting to another member: a socket that may take its time, then the handshake.

use std::os::fd::OwnedFd;

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with, sockopt,
};

use crate::cancel::{Patience, SLICE};
use crate::handshake::{CHALLENGE, ClientHandshake, HandshakeVerdict, Purpose};
use crate::socket::{Socket, ended};
use crate::tls::{self, HandshakeStep, Tls};
use crate::token::random_bytes;
use crate::{Endpoint, Error, Keys, Token, endpoint};

/// Whom to call, and how.
pub(crate) struct DialTarget<'a> {
    pub(crate) endpoint: &'a Endpoint,
    pub(crate) rank: usize,
    pub(crate) over_unix: bool,
}

/// Connects and proves to be a member.
pub(crate) fn dial(
    call: &DialTarget<'_>,
    keys: &Keys,
    purpose: &Purpose,
    patience: &Patience<'_>,
) -> Result<Socket, Error> {
    let named = |error| match error {
        Error::Io(error) => Error::lost(call.rank, format!("cannot connect: {error}")),
        Error::Refused(reason) => Error::Refused(format!("by rank {}: {reason}", call.rank)),
        error => error,
    };
    let socket = open(call.endpoint, call.over_unix, patience).map_err(named)?;
    meet(socket, keys, purpose, patience).and_then(|socket| socket.ok_or_else(ended)).map_err(named)
}

/// Connects to a member that has no rank, for a stream.
pub(crate) fn dial_stream(
    endpoint: &Endpoint,
    keys: &Keys,
    patience: &Patience<'_>,
) -> Result<Socket, Error> {
    let over_unix = endpoint.host == endpoint::this_host()?;
    let socket = match open(endpoint, over_unix, patience) {
        // A member that was started again on the same port has another Unix socket.
        Err(Error::Io(_)) if over_unix => open(endpoint, false, patience)?,
        opened => opened?,
    };
    // Both know the token, or this side would have said that the other does not: who hangs up is
    // not refusing but ending, and may be back soon.
    match meet(socket, keys, &Purpose::STREAM, patience)? {
        Some(socket) => Ok(socket),
        None => Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset).into()),
    }
}

fn open(endpoint: &Endpoint, over_unix: bool, patience: &Patience<'_>) -> Result<Socket, Error> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    if over_unix {
        let address = SocketAddrUnix::new_abstract_name(endpoint.unix.as_bytes())?;
        let descriptor = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        // A Unix socket connects at once or not at all; its queue may be full for a moment.
        while let Err(errno) = connect(&descriptor, &address) {
            if errno != Errno::AGAIN || patience.is_over()? {
                return Err(errno.into());
            }
            std::thread::sleep(SLICE);
        }
        return Socket::unix(descriptor);
    }
    let address = endpoint.tcp;
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let descriptor: OwnedFd = socket_with(family, SocketType::STREAM, flags, None)?;
    let outcome = connect(&descriptor, &address);
    let socket = Socket::tcp(descriptor)?;
    match outcome {
        Ok(()) => {}
        Err(Errno::INPROGRESS) => {
            socket.wait(PollFlags::OUT, patience)?;
            sockopt::socket_error(&socket)??;
        }
        Err(errno) => return Err(errno.into()),
    }
    socket.tune();
    Ok(socket)
}

/// Goes through all handshakes; nothing if the other side hangs up.
fn meet(
    mut socket: Socket,
    keys: &Keys,
    purpose: &Purpose,
    patience: &Patience<'_>,
) -> Result<Option<Socket>, Error> {
    let met = match &keys.tls {
        // What stays on this machine cannot be read by others.
        Some(tls) if !socket.is_unix() => encrypt(&mut socket, tls, patience),
        _ => Ok(()),
    };
    let met = met.and_then(|()| introduce(&socket, &keys.token, purpose, patience));
    match met {
        // With TLS 1.3 a client hears only later that its certificate was refused.
        Err(Error::Io(error)) => Err(match tls::Error::of_io(&error) {
            Some(refusal) => refusal.into(),
            None => Error::Io(error),
        }),
        met => Ok(met?.map(|()| socket)),
    }
}

fn encrypt(socket: &mut Socket, tls: &Tls, patience: &Patience<'_>) -> Result<(), Error> {
    socket.encrypt(tls.call()?);
    loop {
        match socket.shake_hands()? {
            HandshakeStep::Receive => socket.wait(PollFlags::IN, patience)?,
            HandshakeStep::Send => socket.wait(PollFlags::OUT, patience)?,
            HandshakeStep::Done => return Ok(()),
        }
    }
}

/// Proves to know the token; nothing if the other side hangs up.
fn introduce(
    socket: &Socket,
    token: &Token,
    purpose: &Purpose,
    patience: &Patience<'_>,
) -> Result<Option<()>, Error> {
    let nonce = random_bytes()?;
    let client = ClientHandshake::new(token, purpose, &nonce);
    socket.send_all(client.hello(), patience)?;
    let mut challenge = [0; CHALLENGE];
    let came = socket.receive_all(&mut challenge, patience);
    // After an alert the other side may close or reset the connection.
    if !matches!(came, Ok(CHALLENGE)) && challenge.starts_with(&tls::ALERT) {
        return Err(tls::Error::wanted().into());
    }
    if came? < CHALLENGE {
        return Ok(None);
    }
    let answer = client.answer(&challenge).map_err(|error| Error::Refused(error.to_string()))?;
    socket.send_all(&answer, patience)?;
    let mut verdict = [0];
    if socket.receive_all(&mut verdict, patience)? == 0 {
        return Ok(None);
    }
    match HandshakeVerdict::decode(verdict[0]) {
        Some(HandshakeVerdict::Accepted) => Ok(Some(())),
        Some(HandshakeVerdict::OldGeneration) => {
            Err(Error::Refused(format!("generation {} is over there", purpose.generation)))
        }
        Some(HandshakeVerdict::NoRoom) => {
            Err(Error::Refused("too many connections wait".to_string()))
        }
        None => Err(Error::Refused("an unknown verdict".to_string())),
    }
}
