//! Messages take of the same room as bodies over REST: what all clients send at a time has one bound, unpacked and in
//! memory. A message that has begun has to go on as a body does, or a few clients would hold all of the room.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};
use tonic::Status;

use super::FRAME;
use crate::http::{SLOWEST, TakenRoom};
use crate::refusal::Refusal;

/// What the messages of a call take of the room.
pub(crate) struct MessageRoom {
    room: TakenRoom,
    /// The bytes of the messages that came and were not read yet, in their order.
    came: Mutex<VecDeque<usize>>,
}

impl MessageRoom {
    /// Of which nothing is taken yet.
    pub(crate) fn new(room: TakenRoom) -> Self {
        Self { room, came: Mutex::default() }
    }

    /// Takes what the next message takes in memory beyond the bytes that came, since it may have been packed. The
    /// bytes that it has by now, to be given back when it is answered; refused, it has none.
    pub(super) fn read(&self, bytes: usize) -> Result<usize, Refusal> {
        let came = self.came.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let came = came.unwrap_or_default();
        let more = bytes.saturating_sub(came);
        self.room.take_values(more).inspect_err(|_| self.room.give_back(came))?;
        Ok(came + more)
    }

    /// Gives back what a message had.
    pub(super) fn give_back(&self, bytes: usize) {
        self.room.give_back(bytes);
    }
}

/// The body of a call, which counts what came.
pub(crate) struct CountedBody {
    body: Incoming,
    room: Arc<MessageRoom>,
    patience: Duration,
    place: MessagePlace,
    /// When the message began that has not ended, and how much of it came since.
    begun: Option<(Instant, usize)>,
    /// When patience with it ends.
    stuck: Option<Pin<Box<Sleep>>>,
}

impl CountedBody {
    /// The room is to be kept until the call is answered; who stops within a message is given up after `patience`.
    pub(crate) fn new(body: Incoming, room: Arc<MessageRoom>, patience: Duration) -> Self {
        let place = MessagePlace::default();
        Self { body, room, patience, place, begun: None, stuck: None }
    }

    fn count(&mut self, data: &[u8]) -> Result<(), Status> {
        let ended = self.place.go_on(data);
        if !ended.is_empty() {
            self.begun = None;
            self.room.came.lock().unwrap_or_else(PoisonError::into_inner).extend(ended);
        }
        match self.place.is_within() {
            true => self.begun.get_or_insert((Instant::now(), 0)).1 += data.len(),
            false => self.begun = None,
        }
        self.room.room.take(data.len()).map_err(super::status)
    }

    /// Waits for more, but not for ever.
    fn wait(&mut self, cx: &mut Context<'_>) -> Poll<Status> {
        let Some((since, received)) = self.begun else { return Poll::Pending };
        let until = since + self.patience + Duration::from_secs((received / SLOWEST) as u64);
        let stuck = self.stuck.get_or_insert_with(|| Box::pin(sleep_until(until)));
        if stuck.deadline() != until {
            stuck.as_mut().reset(until);
        }
        stuck.as_mut().poll(cx).map(|()| {
            super::status(Refusal::Slow(format!("the message stopped after {received} bytes")))
        })
    }
}

impl Body for CountedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) else {
            return self.wait(cx).map(|gone| Some(Err(gone)));
        };
        Poll::Ready(frame.map(|frame| {
            let frame = frame.map_err(|error| Status::from_error(error.into()))?;
            if let Some(data) = frame.data_ref() {
                self.count(data)?;
            }
            Ok(frame)
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Where in its messages a body is: each has a flag and four bytes of length before it.
#[derive(Debug, Default)]
struct MessagePlace {
    head: [u8; FRAME],
    /// Bytes of the head that came.
    known: usize,
    /// Bytes of the message, and of its head.
    whole: usize,
    /// Bytes of the message that are to come.
    rest: usize,
}

impl MessagePlace {
    /// The bytes of each message that ended in these.
    fn go_on(&mut self, mut data: &[u8]) -> Vec<usize> {
        let mut ended = Vec::new();
        while let Some((first, others)) = data.split_first() {
            if self.rest > 0 {
                let own = self.rest.min(data.len());
                self.rest -= own;
                data = &data[own..];
                if self.rest == 0 {
                    ended.push(self.whole);
                }
                continue;
            }
            self.head[self.known] = *first;
            self.known += 1;
            data = others;
            if self.known == FRAME {
                let [_, length @ ..] = self.head;
                self.rest = u32::from_be_bytes(length) as usize;
                self.whole = FRAME + self.rest;
                self.known = 0;
                if self.rest == 0 {
                    ended.push(FRAME);
                }
            }
        }
        ended
    }

    fn is_within(&self) -> bool {
        self.known > 0 || self.rest > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_begin_and_end_wherever_they_are_cut() {
        let bytes = [0, 0, 0, 0, 2, 7, 7, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 7];
        let ends = [7, 12, 18];
        let lengths = [7, 5, 6];
        for piece in 1..=bytes.len() {
            let (mut place, mut came) = (MessagePlace::default(), 0);
            for data in bytes.chunks(piece) {
                let before = came;
                came += data.len();
                let within = |(end, _): &(&usize, &usize)| (before + 1..=came).contains(end);
                let expected = ends.iter().zip(&lengths).filter(within);
                let expected: Vec<usize> = expected.map(|(_, length)| *length).collect();
                assert_eq!(place.go_on(data), expected, "{came} bytes by {piece}");
                assert_eq!(place.is_within(), !ends.contains(&came), "{came} bytes by {piece}");
            }
        }
    }
}
