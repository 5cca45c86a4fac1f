//! Connections that have proven themselves and wait for the ring that wants them, or as streams to be accepted.
//!
//! Members reach a generation at different times: who is early must be kept, and who belongs to
//! a generation that is over must go. Streams belong to no generation: no fence ends them, and they are taken
//! in the order in which they came. Both are bounded.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::cancel::{Patience, SLICE};
use crate::handshake::{ConnectionKind, HandshakeVerdict, Purpose};
use crate::socket::Socket;
use crate::{Cancel, Error};

/// So many connections may wait, for all generations together, and so many streams.
const SEATS: usize = 256;
/// How long a sleep may go without a look at the flag; who accepts streams may do so for hours, and a short
/// sleep would cost a little all the time.
const NAP: Duration = Duration::from_millis(25);

/// The waiting connections and the fence.
#[derive(Default)]
pub(crate) struct WaitingRoom {
    state: Mutex<Waiters>,
    arrived: Condvar,
}

#[derive(Default)]
struct Waiters {
    /// Generations below are over.
    fence: u64,
    waiting: Vec<(Purpose, Socket)>,
    streams: VecDeque<Socket>,
}

impl WaitingRoom {
    /// Ends all generations below this one.
    pub(crate) fn fence(&self, generation: u64) {
        let mut state = self.lock();
        state.fence = state.fence.max(generation);
        let fence = state.fence;
        state.waiting.retain(|(purpose, _)| purpose.generation >= fence);
    }

    /// Generations below this are over.
    pub(crate) fn fenced_below(&self) -> u64 {
        self.lock().fence
    }

    /// Seats a connection, or says why not. `accept` runs under the lock: it tells the other side,
    /// and nobody can take the connection before that.
    pub(crate) fn enter(
        &self,
        purpose: Purpose,
        socket: Socket,
        accept: impl FnOnce(&Socket, HandshakeVerdict) -> bool,
    ) -> HandshakeVerdict {
        let mut state = self.lock();
        let verdict = state.verdict(&purpose);
        if !accept(&socket, verdict) || verdict != HandshakeVerdict::Accepted {
            return verdict;
        }
        if purpose.link == ConnectionKind::Stream {
            state.streams.push_back(socket);
        } else {
            // A second connection for the same place means that the first one was given up.
            state.waiting.retain(|(other, _)| {
                (other.generation, other.rank) != (purpose.generation, purpose.rank)
            });
            state.waiting.push((purpose, socket));
        }
        self.arrived.notify_all();
        verdict
    }

    /// Waits for the connection of a member. `check` runs between sleeps and may fail.
    pub(crate) fn take(
        &self,
        generation: u64,
        rank: usize,
        patience: &Patience<'_>,
        check: impl Fn() -> Result<(), Error>,
    ) -> Result<(Purpose, Socket), Error> {
        let is_wanted =
            |purpose: &Purpose| purpose.generation == generation && purpose.rank as usize == rank;
        let started = Instant::now();
        let mut state = self.lock();
        loop {
            if generation < state.fence {
                return Err(Error::Refused(format!("generation {generation} is over")));
            }
            if let Some(found) = state.waiting.iter().position(|(purpose, _)| is_wanted(purpose)) {
                return Ok(state.waiting.swap_remove(found));
            }
            if patience.is_over()? {
                let waited = started.elapsed().as_secs_f32();
                let reason = format!("it did not connect within {waited:.1} s");
                return Err(Error::lost(rank, reason));
            }
            check()?;
            let woken = self.arrived.wait_timeout(state, SLICE);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits for a stream, until cancelled.
    pub(crate) fn take_stream(&self, cancel: &Cancel) -> Result<Socket, Error> {
        let mut state = self.lock();
        loop {
            cancel.check()?;
            if let Some(socket) = state.streams.pop_front() {
                return Ok(socket);
            }
            let woken = self.arrived.wait_timeout(state, NAP);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiters> {
        // The state is consistent between any two statements, also of a thread that panicked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiters {
    fn verdict(&mut self, purpose: &Purpose) -> HandshakeVerdict {
        let is_stream = purpose.link == ConnectionKind::Stream;
        if !is_stream && purpose.generation < self.fence {
            return HandshakeVerdict::OldGeneration;
        }
        let taken = |state: &Self| match is_stream {
            true => state.streams.len(),
            false => state.waiting.len(),
        };
        if taken(self) >= SEATS {
            // The dead make room.
            self.streams.retain(|socket| !socket.has_ended());
            self.waiting.retain(|(_, socket)| !socket.has_ended());
        }
        if taken(self) >= SEATS { HandshakeVerdict::NoRoom } else { HandshakeVerdict::Accepted }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use super::*;

    /// Lets a connection in and keeps its other end.
    fn enter(room: &WaitingRoom, generation: u64, rank: u32) -> (HandshakeVerdict, UnixStream) {
        enter_for(
            room,
            Purpose { generation, rank, size: u32::MAX, link: ConnectionKind::Ring, bf16: false },
        )
    }

    fn enter_for(room: &WaitingRoom, purpose: Purpose) -> (HandshakeVerdict, UnixStream) {
        let (near, far) = UnixStream::pair().expect("a pair of sockets");
        let socket = Socket::unix(near.into()).expect("a socket");
        (room.enter(purpose, socket, |_, _| true), far)
    }

    fn is_there(room: &WaitingRoom, generation: u64, rank: usize) -> bool {
        let cancel = Cancel::new();
        let patience = Patience::new(&cancel, Duration::ZERO);
        room.take(generation, rank, &patience, || Ok(())).is_ok()
    }

    #[test]
    fn early_is_kept_and_late_is_refused() {
        let room = WaitingRoom::default();
        room.fence(3);
        let (verdict, _early) = enter(&room, 7, 1);
        assert_eq!(verdict, HandshakeVerdict::Accepted);
        assert_eq!(enter(&room, 2, 1).0, HandshakeVerdict::OldGeneration);
        assert!(!is_there(&room, 7, 0));
        assert!(is_there(&room, 7, 1));
        assert!(!is_there(&room, 7, 1), "it was taken");
    }

    #[test]
    fn fence_sends_older_connections_away() {
        let room = WaitingRoom::default();
        let (_, mut old) = enter(&room, 1, 0);
        room.fence(2);
        let read = std::io::Read::read(&mut old, &mut [0]);
        assert_eq!(read.expect("its end was closed"), 0);
    }

    #[test]
    fn room_is_bounded_and_the_dead_make_room() {
        let room = WaitingRoom::default();
        let mut others: Vec<_> = (0..SEATS as u32).map(|rank| enter(&room, 1, rank)).collect();
        assert!(others.iter().all(|(verdict, _)| *verdict == HandshakeVerdict::Accepted));
        assert_eq!(enter(&room, 1, SEATS as u32).0, HandshakeVerdict::NoRoom);
        others.truncate(SEATS - 1);
        assert_eq!(enter(&room, 1, SEATS as u32).0, HandshakeVerdict::Accepted);
    }

    #[test]
    fn streams_are_bounded_and_the_dead_make_room() {
        let room = WaitingRoom::default();
        room.fence(7);
        let stream = || enter_for(&room, Purpose::STREAM);
        let mut others: Vec<_> = (0..SEATS).map(|_| stream()).collect();
        assert!(others.iter().all(|(verdict, _)| *verdict == HandshakeVerdict::Accepted));
        assert_eq!(stream().0, HandshakeVerdict::NoRoom);
        assert_eq!(
            enter(&room, 7, 0).0,
            HandshakeVerdict::Accepted,
            "members have seats of their own"
        );
        others.truncate(SEATS - 1);
        assert_eq!(stream().0, HandshakeVerdict::Accepted);
    }

    #[test]
    fn who_cannot_be_told_is_not_seated() {
        let (room, cancel) = (WaitingRoom::default(), Cancel::new());
        let (near, _far) = UnixStream::pair().expect("a pair of sockets");
        let socket = Socket::unix(near.into()).expect("a socket");
        room.enter(Purpose::STREAM, socket, |_, _| false);
        cancel.cancel();
        assert!(matches!(room.take_stream(&cancel), Err(Error::Cancelled)));
        assert!(room.lock().streams.is_empty());
    }
}
