//! Messages take of the same room as bodies over REST: what all clients send at a time has one bound.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tonic::Status;

use crate::http::TakenRoom;

/// The body of a call, which counts what came.
pub(crate) struct CountedBody {
    body: Incoming,
    room: Arc<TakenRoom>,
}

impl CountedBody {
    /// The room is to be kept until the call is answered.
    pub(crate) fn new(body: Incoming, room: Arc<TakenRoom>) -> Self {
        Self { body, room }
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
            return Poll::Pending;
        };
        Poll::Ready(frame.map(|frame| {
            let frame = frame.map_err(|error| Status::from_error(error.into()))?;
            if let Some(data) = frame.data_ref() {
                self.room.take(data.len()).map_err(super::status)?;
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
