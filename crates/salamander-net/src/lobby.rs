//! Streams that have proven themselves and wait to be accepted, in the order in which they came.
//!
//! They are apart from the connections of rings because they belong to no generation: a fence must
//! not end them.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::handshake::Verdict;
use crate::socket::Socket;
use crate::{Cancel, Error};

/// So many streams may wait.
const SEATS: usize = 256;
/// How long a sleep may go without a look at the flag; who accepts may do so for hours, and a short
/// sleep would cost a little all the time.
const NAP: Duration = Duration::from_millis(25);

/// The waiting streams.
#[derive(Default)]
pub(crate) struct Lobby {
    waiting: Mutex<VecDeque<Socket>>,
    arrived: Condvar,
}

impl Lobby {
    /// Seats a stream, or says why not. `accept` runs under the lock: it tells the other side, and
    /// nobody can take the stream before that.
    pub(crate) fn enter(
        &self,
        socket: Socket,
        accept: impl FnOnce(&Socket, Verdict) -> bool,
    ) -> Verdict {
        let mut waiting = self.lock();
        if waiting.len() >= SEATS {
            waiting.retain(|socket| !socket.has_ended());
        }
        let verdict = if waiting.len() >= SEATS { Verdict::NoRoom } else { Verdict::Accepted };
        if accept(&socket, verdict) && verdict == Verdict::Accepted {
            waiting.push_back(socket);
            self.arrived.notify_one();
        }
        verdict
    }

    /// Waits for a stream.
    pub(crate) fn take(&self, cancel: &Cancel) -> Result<Socket, Error> {
        let mut waiting = self.lock();
        loop {
            cancel.check()?;
            if let Some(socket) = waiting.pop_front() {
                return Ok(socket);
            }
            let woken = self.arrived.wait_timeout(waiting, NAP);
            waiting = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Socket>> {
        // The queue is consistent between any two statements, also of a thread that panicked.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    fn enter(lobby: &Lobby) -> (Verdict, UnixStream) {
        let (near, far) = UnixStream::pair().expect("a pair of sockets");
        let socket = Socket::unix(near.into()).expect("a socket");
        (lobby.enter(socket, |_, _| true), far)
    }

    #[test]
    fn lobby_is_bounded_and_the_dead_make_room() {
        let lobby = Lobby::default();
        let mut others: Vec<_> = (0..SEATS).map(|_| enter(&lobby)).collect();
        assert!(others.iter().all(|(verdict, _)| *verdict == Verdict::Accepted));
        assert_eq!(enter(&lobby).0, Verdict::NoRoom);
        others.truncate(SEATS - 1);
        assert_eq!(enter(&lobby).0, Verdict::Accepted);
    }

    #[test]
    fn who_cannot_be_told_is_not_seated() {
        let (lobby, cancel) = (Lobby::default(), Cancel::new());
        let (near, _far) = UnixStream::pair().expect("a pair of sockets");
        lobby.enter(Socket::unix(near.into()).expect("a socket"), |_, _| false);
        cancel.cancel();
        assert!(matches!(lobby.take(&cancel), Err(Error::Cancelled)));
        assert!(lobby.lock().is_empty());
    }
}
