//! One server as a client sees it: a connection that is made when it is needed, requests and answers
//! with numbers, and answers that are received to where they belong.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use salamander_core::asynchronous::Lineage;
use salamander_net::{Endpoint, Keys, Patience, Stream};

use super::Error;
use crate::TableSpec;
use crate::wire::cursor::fill;
use crate::wire::reply::{decode_json, decode_number};
use crate::wire::{self, Code, Failure, Header, Message, MessageKind, header};

/// A connection that cannot be made in this time is tried again, perhaps elsewhere.
const DIAL: Duration = Duration::from_secs(5);
/// Values that are received before they are put in their places.
const CHUNK: usize = 64 << 10;

/// Who asks, and for which history.
#[derive(Debug)]
pub(super) struct Caller {
    pub(super) endpoints: Vec<String>,
    pub(super) keys: Keys,
    pub(super) lineage: Lineage,
    /// What servers are told of by every new connection.
    pub(super) tables: Vec<TableSpec>,
}

/// Why an attempt failed.
#[derive(Debug)]
pub(super) enum Trouble {
    /// It will fail again.
    Final(Error),
    /// The server may be back soon.
    Passing(String),
}

/// One server.
#[derive(Debug)]
pub(super) struct Link {
    server: usize,
    stream: Option<Stream>,
    number: u64,
    /// Requests that were sent ahead over this connection, whose answers come before any other.
    ahead: VecDeque<u64>,
    /// What became of those that were answered.
    answered: HashMap<u64, Result<u64, Trouble>>,
    buffers: Buffers,
}

/// What answers are received in.
#[derive(Debug, Default)]
struct Buffers {
    /// Words rather than bytes, so that arrays in it are aligned.
    body: Vec<u64>,
    values: Vec<f32>,
    rounded: Vec<u16>,
}

/// An answer whose body is still to be received.
pub(super) struct Reply<'a> {
    server: usize,
    header: Header,
    rest: u64,
    stream: &'a Stream,
    patience: &'a Patience<'a>,
    buffers: &'a mut Buffers,
}

impl Link {
    pub(super) fn new(server: usize) -> Self {
        let (ahead, answered) = (VecDeque::new(), HashMap::new());
        Self { server, stream: None, number: 0, ahead, answered, buffers: Buffers::default() }
    }

    pub(super) fn server(&self) -> usize {
        self.server
    }

    /// Ends the connection; the next request makes another one.
    pub(super) fn hang_up(&mut self) {
        self.stream = None;
        self.ahead.clear();
    }

    /// Sends a request, over a new connection if there is none; its number.
    pub(super) fn send(
        &mut self,
        caller: &Caller,
        message: &Message<'_>,
        patience: &Patience<'_>,
    ) -> Result<u64, Trouble> {
        let sent = self.try_send(caller, message, patience);
        if sent.is_err() {
            // Half of a frame may be on its way, and nothing can follow that.
            self.hang_up();
        }
        sent
    }

    fn try_send(
        &mut self,
        caller: &Caller,
        message: &Message<'_>,
        patience: &Patience<'_>,
    ) -> Result<u64, Trouble> {
        if self.stream.is_none() {
            self.dial(caller, patience)?;
            // The server may be a new one that has never heard of them.
            for table in &caller.tables {
                let number = self.write(caller, &Message::declare(table), patience)?;
                self.answer(number, patience, &mut |_, reply| reply.number().map(drop))?;
            }
        }
        self.write(caller, message, patience)
    }

    /// Sends a request whose answer, which has no body, is collected later; its number.
    pub(super) fn send_ahead(
        &mut self,
        caller: &Caller,
        message: &Message<'_>,
        patience: &Patience<'_>,
    ) -> Result<u64, Trouble> {
        let number = self.send(caller, message, patience)?;
        self.ahead.push_back(number);
        Ok(number)
    }

    /// Whether the answer to a request that was sent ahead is here.
    pub(super) fn has_answer(&self, number: u64) -> bool {
        self.answered.contains_key(&number)
    }

    /// Receives the answers to requests that were sent ahead, up to this one.
    fn collect_until(&mut self, last: u64, patience: &Patience<'_>) -> Result<(), Trouble> {
        while let Some(number) = self.ahead.pop_front_if(|number| *number <= last) {
            let outcome = self.receive_one(number, patience, &mut |_, _| Ok(()));
            match outcome {
                // The connection is as good as before.
                Ok(_) | Err(Trouble::Final(Error::Refused { .. })) => {
                    self.answered.insert(number, outcome);
                }
                Err(trouble) => return Err(trouble),
            }
        }
        Ok(())
    }

    /// The answer to the last request, or to one that was sent ahead; the incarnation of the server that gave it.
    pub(super) fn answer(
        &mut self,
        number: u64,
        patience: &Patience<'_>,
        receive: &mut impl FnMut(usize, &mut Reply<'_>) -> Result<(), Trouble>,
    ) -> Result<u64, Trouble> {
        self.collect_until(number, patience)?;
        match self.answered.remove(&number) {
            Some(outcome) => outcome,
            None if number == self.number => self.receive_one(number, patience, receive),
            // What was lost with its connection must be sent again.
            None => Err(Trouble::Passing("the connection was lost".to_string())),
        }
    }

    fn receive_one(
        &mut self,
        number: u64,
        patience: &Patience<'_>,
        receive: &mut impl FnMut(usize, &mut Reply<'_>) -> Result<(), Trouble>,
    ) -> Result<u64, Trouble> {
        let Some(stream) = &self.stream else {
            return Err(Trouble::Passing("the connection is closed".to_string()));
        };
        let mut bytes = [0; header::LENGTH];
        stream.receive(&mut bytes, patience)?;
        let header = Header::decode(&bytes).map_err(|error| wrong(self.server, error))?;
        if header.number != number {
            return Err(wrong(self.server, "it is the answer to another request"));
        }
        let (server, rest, buffers) = (self.server, header.length, &mut self.buffers);
        let mut reply = Reply { server, header, rest, stream, patience, buffers };
        match header.kind {
            MessageKind::Done => receive(server, &mut reply)?,
            MessageKind::Failed => return Err(reply.failure()),
            kind => return Err(wrong(server, wire::Error::Unexpected(kind))),
        }
        match reply.rest {
            0 => Ok(header.tag),
            rest => Err(wrong(server, format!("it has {rest} bytes too many"))),
        }
    }

    fn dial(&mut self, caller: &Caller, patience: &Patience<'_>) -> Result<(), Trouble> {
        let text = caller.endpoints[self.server].clone();
        // Nobody may know yet where a server listens that is being started again.
        let endpoint: Endpoint = text.parse().map_err(|error| {
            Trouble::Passing(format!("it has no address to connect to (\"{text}\": {error})"))
        })?;
        let stream = Stream::dial(&endpoint, &caller.keys, &patience.shortened(DIAL));
        self.stream = Some(stream.map_err(|error| match error {
            salamander_net::Error::Refused(reason) => {
                let (server, endpoint) = (self.server, text);
                Trouble::Final(Error::Stranger { server, endpoint, reason })
            }
            error => error.into(),
        })?);
        Ok(())
    }

    fn write(
        &mut self,
        caller: &Caller,
        message: &Message<'_>,
        patience: &Patience<'_>,
    ) -> Result<u64, Trouble> {
        let Some(stream) = &self.stream else {
            return Err(Trouble::Passing("the connection is closed".to_string()));
        };
        self.number += 1;
        let head = message.header(caller.lineage.0, self.number).encode();
        let mut parts = message.parts();
        parts.insert(0, &head);
        stream.send(&parts, patience)?;
        Ok(self.number)
    }
}

impl Reply<'_> {
    /// The incarnation of the server that gave it.
    pub(super) fn incarnation(&self) -> u64 {
        self.header.tag
    }

    /// Takes so many values, straight to where they belong.
    pub(super) fn values(&mut self, out: &mut [f32]) -> Result<(), Trouble> {
        if !self.header.bf16 {
            return self.bytes(bytemuck::cast_slice_mut(out), self.patience);
        }
        let mut rounded = std::mem::take(&mut self.buffers.rounded);
        rounded.resize(rounded.len().max(CHUNK.min(out.len())), 0);
        for chunk in out.chunks_mut(CHUNK) {
            let rounded = &mut rounded[..chunk.len()];
            self.bytes(bytemuck::cast_slice_mut(rounded), self.patience)?;
            salamander_net::bf16::widen(rounded, chunk);
        }
        self.buffers.rounded = rounded;
        Ok(())
    }

    /// Takes rows, and puts each in its place.
    pub(super) fn scatter(
        &mut self,
        dim: usize,
        places: &[u32],
        out: &mut [f32],
    ) -> Result<(), Trouble> {
        let mut values = std::mem::take(&mut self.buffers.values);
        let rows = (CHUNK / dim.max(1)).max(1);
        values.resize(values.len().max(rows.min(places.len()) * dim), 0.0);
        for places in places.chunks(rows) {
            let values = &mut values[..places.len() * dim];
            self.values(values)?;
            for (row, place) in values.chunks_exact(dim.max(1)).zip(places) {
                out[*place as usize * dim..][..dim].copy_from_slice(row);
            }
        }
        self.buffers.values = values;
        Ok(())
    }

    /// A single number.
    pub(super) fn number(&mut self) -> Result<u64, Trouble> {
        let server = self.server;
        decode_number(self.body()?).map_err(|error| wrong(server, error))
    }

    /// Something small.
    pub(super) fn json<T: serde::de::DeserializeOwned>(&mut self) -> Result<T, Trouble> {
        let server = self.server;
        decode_json(self.body()?).map_err(|error| wrong(server, error))
    }

    /// Takes the whole body, aligned for words; memory is taken as it comes.
    pub(super) fn body(&mut self) -> Result<&[u8], Trouble> {
        self.body_by(None)
    }

    /// Like [`body`](Self::body), for as long as it takes: only between two pieces no more than this time may pass.
    pub(super) fn long_body(&mut self, silence: Duration) -> Result<&[u8], Trouble> {
        self.body_by(Some(silence))
    }

    fn body_by(&mut self, silence: Option<Duration>) -> Result<&[u8], Trouble> {
        let Ok(length) = usize::try_from(self.rest) else {
            return Err(wrong(self.server, "it is longer than this machine's memory"));
        };
        let mut body = std::mem::take(&mut self.buffers.body);
        let piece = silence.map_or(length, |_| wire::PIECE);
        fill(&mut body, length, piece, |piece| {
            let patience = *self.patience;
            self.bytes(piece, &silence.map_or(patience, |time| patience.renewed(time)))
        })?;
        self.buffers.body = body;
        Ok(&bytemuck::cast_slice(&self.buffers.body)[..length])
    }

    /// The error of an answer that says no.
    fn failure(mut self) -> Trouble {
        let server = self.server;
        let failure = match self.body().map(Failure::decode) {
            Ok(Ok(failure)) => failure,
            Ok(Err(error)) => return wrong(server, error),
            Err(trouble) => return trouble,
        };
        match failure.code {
            // A new connection starts with all tables.
            Code::Undeclared => Trouble::Passing(failure.text),
            _ => Trouble::Final(Error::Refused { server, failure }),
        }
    }

    fn bytes(&mut self, space: &mut [u8], patience: &Patience<'_>) -> Result<(), Trouble> {
        let Some(rest) = self.rest.checked_sub(space.len() as u64) else {
            return Err(wrong(self.server, wire::Error::Short));
        };
        self.stream.receive(space, patience)?;
        self.rest = rest;
        Ok(())
    }
}

/// The error of an answer that makes no sense.
pub(super) fn wrong(server: usize, reason: impl ToString) -> Trouble {
    Trouble::Final(Error::Answer { server, reason: reason.to_string() })
}

impl From<salamander_net::Error> for Trouble {
    fn from(error: salamander_net::Error) -> Self {
        match error {
            salamander_net::Error::Cancelled => Self::Final(Error::Cancelled),
            error => Self::Passing(error.to_string()),
        }
    }
}
