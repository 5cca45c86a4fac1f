//! Connecting to another member: a socket that may take its time, then the handshake.

use std::os::fd::OwnedFd;

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with, sockopt,
};

use crate::cancel::{Patience, SLICE};
use crate::handshake::{Client, Purpose, Verdict};
use crate::socket::{Socket, ended};
use crate::token::random_bytes;
use crate::{Endpoint, Error, Token, endpoint};

/// Whom to call, and how.
pub(crate) struct Call<'a> {
    pub(crate) endpoint: &'a Endpoint,
    pub(crate) rank: usize,
    pub(crate) over_unix: bool,
}

/// Connects and proves to be a member.
pub(crate) fn dial(
    call: &Call<'_>,
    token: &Token,
    purpose: &Purpose,
    patience: &Patience<'_>,
) -> Result<Socket, Error> {
    let named = |error| match error {
        Error::Io(error) => Error::lost(call.rank, format!("cannot connect: {error}")),
        Error::Refused(reason) => Error::Refused(format!("by rank {}: {reason}", call.rank)),
        error => error,
    };
    let socket = open(call.endpoint, call.over_unix, patience).map_err(named)?;
    introduce(&socket, token, purpose, patience)
        .and_then(|done| done.ok_or_else(ended))
        .map_err(named)?;
    Ok(socket)
}

/// Connects to a member that has no rank, for a stream.
pub(crate) fn dial_stream(
    endpoint: &Endpoint,
    token: &Token,
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
    match introduce(&socket, token, &Purpose::STREAM, patience)? {
        Some(()) => Ok(socket),
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
    Ok(socket)
}

/// Goes through the handshake; nothing if the other side hangs up.
fn introduce(
    socket: &Socket,
    token: &Token,
    purpose: &Purpose,
    patience: &Patience<'_>,
) -> Result<Option<()>, Error> {
    let nonce = random_bytes()?;
    let client = Client::new(token, purpose, &nonce);
    socket.send_all(client.hello(), patience)?;
    let Some(challenge) = socket.receive_all(patience)? else { return Ok(None) };
    let answer = client.answer(&challenge).map_err(|error| Error::Refused(error.to_string()))?;
    socket.send_all(&answer, patience)?;
    let Some([verdict]) = socket.receive_all(patience)? else { return Ok(None) };
    match Verdict::decode(verdict) {
        Some(Verdict::Accepted) => Ok(Some(())),
        Some(Verdict::OldGeneration) => {
            Err(Error::Refused(format!("generation {} is over there", purpose.generation)))
        }
        Some(Verdict::NoRoom) => Err(Error::Refused("too many connections wait".to_string())),
        None => Err(Error::Refused("an unknown verdict".to_string())),
    }
}
