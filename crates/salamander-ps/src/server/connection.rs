//! One connection: frames in, answers out. Its buffers stay, so that a request like the last one
//! takes no memory, and they grow with the bytes that come rather than with what a header promises.
//!
//! It has two hands, each a thread. While one of them does a large request, the other receives the next
//! one: a client that collects acknowledgements later keeps both busy.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::Scope;
use std::time::Duration;

use salamander_net::{Cancel, Patience, Stream};

use super::ServerOptions;
use super::service::{Lookups, RowService, ServiceAnswer};
use crate::wire::cursor::fill;
use crate::wire::{self, Code, Failure, Header, MessageKind, Request, header};

/// What has to come within the time that silence is allowed for.
const PIECE: usize = 64 << 20;
/// A buffer above this size goes after its request: partitions move seldom.
const KEPT: usize = 256 << 20;
/// Values that are gathered before they are sent: they stay in the second-level cache, and a stream's
/// buffer holds them.
const CHUNK: usize = 32 << 10;
/// While a body of this size is worked on, it pays to have another thread receive the next one.
const LARGE: u64 = 256 << 10;

pub(super) struct Connection<'a> {
    service: &'a RowService,
    stream: &'a Stream,
    options: &'a ServerOptions,
    shutdown: &'a Cancel,
    /// Held by the hand that receives.
    receiving: Mutex<()>,
    /// Held by the hand that does a request and answers it; taken before the other one is let go, so that
    /// answers come in the order of requests.
    serving: Mutex<()>,
    has_second: AtomicBool,
}

/// What a hand holds.
#[derive(Default)]
struct ServingThread {
    /// Words rather than bytes, so that arrays in it are aligned.
    body: Vec<u64>,
    outbox: Outbox,
}

/// What a connection gathers and converts values in.
#[derive(Default)]
pub(super) struct Outbox {
    pub(super) values: Vec<f32>,
    rounded: Vec<u16>,
}

/// Why a connection ends.
enum End {
    /// There is no more.
    Quiet,
    /// This is wrong with it.
    Trouble(String),
}

impl<'a> Connection<'a> {
    pub(super) fn new(
        service: &'a RowService,
        stream: &'a Stream,
        options: &'a ServerOptions,
        shutdown: &'a Cancel,
    ) -> Self {
        let (receiving, serving) = (Mutex::new(()), Mutex::new(()));
        let has_second = AtomicBool::new(false);
        Self { service, stream, options, shutdown, receiving, serving, has_second }
    }

    /// Serves until the other side has gone or has done something wrong.
    pub(super) fn attend(&self) {
        std::thread::scope(|scope| self.work(scope));
    }

    /// The life of a hand.
    fn work<'s>(&'s self, scope: &'s Scope<'s, '_>) {
        let mut hand = ServingThread::default();
        let end = loop {
            if let Err(end) = self.serve_until_large(&mut hand, scope) {
                break end;
            }
        };
        if let End::Trouble(reason) = end {
            tracing::warn!(reason, "a connection to the parameter server is closed");
        }
    }

    /// Receives and serves requests; after a large one it is the other hand's turn to receive.
    fn serve_until_large<'s>(
        &'s self,
        hand: &mut ServingThread,
        scope: &'s Scope<'s, '_>,
    ) -> Result<(), End> {
        let turn = lock(&self.receiving);
        loop {
            let header = self.or_close(self.receive(hand))?;
            let in_order = lock(&self.serving);
            if header.length < LARGE {
                self.or_close(self.answer(&header, hand))?;
                continue;
            }
            drop(turn);
            self.have_second(scope);
            self.or_close(self.answer(&header, hand))?;
            drop(in_order);
            if hand.body.len() * 8 > KEPT {
                *hand = ServingThread::default();
            }
            return Ok(());
        }
    }

    /// Ends the connection after trouble, for the other hand as well, before that one has its turn: it would be
    /// in the middle of a frame.
    fn or_close<T>(&self, outcome: Result<T, End>) -> Result<T, End> {
        outcome.inspect_err(|_| self.stream.close())
    }

    /// Starts the second hand when it is first needed: most connections only ask for little.
    fn have_second<'s>(&'s self, scope: &'s Scope<'s, '_>) {
        if !self.has_second.swap(true, Ordering::Relaxed) {
            let second = std::thread::Builder::new().name("ps-second".to_string());
            if let Err(error) = second.spawn_scoped(scope, || self.work(scope)) {
                tracing::warn!(%error, "no second thread for a connection");
            }
        }
    }

    /// Receives a request into the hand's body.
    fn receive(&self, hand: &mut ServingThread) -> Result<Header, End> {
        if !self.stream.wait(self.options.idle)? || self.stream.has_ended() {
            return Err(End::Quiet);
        }
        let mut bytes = [0; header::LENGTH];
        self.stream.receive(&mut bytes, &self.patience())?;
        let header = Header::decode(&bytes).map_err(|error| End::Trouble(error.to_string()))?;
        if header.length > self.options.limit {
            let (length, limit) = (header.length, self.options.limit);
            let text = format!("a request has {length} bytes, and {limit} are the limit");
            let _in_order = lock(&self.serving);
            self.fail(&header, &Failure::new(Code::TooLarge, &text))?;
            return Err(End::Trouble(text));
        }
        // Lossless: the limit is far below what a machine can address.
        let length = header.length as usize;
        fill(&mut hand.body, length, PIECE, |piece| self.stream.receive(piece, &self.patience()))?;
        Ok(header)
    }

    fn answer(&self, header: &Header, hand: &mut ServingThread) -> Result<(), End> {
        let ServingThread { body, outbox } = hand;
        // Lossless: it was received.
        let body = &bytemuck::cast_slice(body)[..header.length as usize];
        let request = match Request::decode(header, body) {
            Ok(request) => request,
            Err(error) => return self.fail(header, &Failure::new(Code::Malformed, error)),
        };
        match self.service.serve(header, request, outbox) {
            Ok(ServiceAnswer::Bytes(bytes)) => self.done(header, &[&bytes]),
            Ok(ServiceAnswer::Partition(bytes)) => self.send_partition(header, &bytes),
            Ok(ServiceAnswer::Rows { head, ids, values }) => {
                let (ids, values) = (bytemuck::cast_slice(&ids), bytemuck::cast_slice(&values));
                self.done(header, &[&head, ids, values])
            }
            Ok(ServiceAnswer::Lookups(lookups)) => self.send_values(header, &lookups, outbox),
            Err(failure) => self.fail(header, &failure),
        }
    }

    /// Gathers values and sends them a chunk at a time: the system takes a chunk at once, so that the
    /// next one is gathered while the other side receives it. (A thread that gathers ahead was tried:
    /// it makes more switches than it saves time.)
    fn send_values(
        &self,
        header: &Header,
        lookups: &Lookups<'_>,
        outbox: &mut Outbox,
    ) -> Result<(), End> {
        let width = if header.bf16 { 2 } else { 4 };
        let head = self.reply(header, MessageKind::Done, (lookups.values() * width) as u64);
        let mut chunks = lookups.chunks(CHUNK);
        let mut start = &head[..];
        loop {
            let chunk = match chunks.gather(self.service, header, &mut outbox.values) {
                Ok(chunk) => chunk,
                // Nothing was said yet, so that the truth still can be.
                Err(failure) if !start.is_empty() => return self.fail(header, &failure),
                Err(failure) => {
                    self.check_health();
                    return Err(End::Trouble(failure.text));
                }
            };
            let bytes = outbox.as_sent(chunk.values, header.bf16);
            self.stream.send(&[start, bytes], &self.patience())?;
            start = &[];
            if chunk.is_last {
                return Ok(());
            }
        }
    }

    /// Sends a partition, however long that takes as long as the other side takes its pieces.
    fn send_partition(&self, header: &Header, bytes: &[u8]) -> Result<(), End> {
        let head = self.reply(header, MessageKind::Done, bytes.len() as u64);
        self.stream.send(&[&head], &self.patience())?;
        for piece in bytes.chunks(wire::PIECE) {
            self.stream.send(&[piece], &self.patience())?;
        }
        Ok(())
    }

    fn done(&self, header: &Header, parts: &[&[u8]]) -> Result<(), End> {
        let length = parts.iter().map(|part| part.len() as u64).sum();
        let head = self.reply(header, MessageKind::Done, length);
        let mut all = vec![&head[..]];
        all.extend_from_slice(parts);
        // Slow networks carry 16 MB in a second.
        let time = self.options.silence + Duration::from_secs(length >> 24);
        Ok(self.stream.send(&all, &Patience::new(self.shutdown, time))?)
    }

    fn fail(&self, header: &Header, failure: &Failure) -> Result<(), End> {
        let body = failure.encode();
        let head = self.reply(header, MessageKind::Failed, body.len() as u64);
        let sent = self.stream.send(&[&head, &body], &self.patience());
        self.check_health();
        Ok(sent?)
    }

    /// Rows that went with a thread do not come back: the server ends, and another one takes its place.
    fn check_health(&self) {
        if self.service.engine.is_broken() {
            self.shutdown.cancel();
        }
    }

    fn reply(&self, request: &Header, kind: MessageKind, length: u64) -> [u8; header::LENGTH] {
        let tag = self.service.incarnation;
        Header { kind, tag, length, ..*request }.encode()
    }

    fn patience(&self) -> Patience<'a> {
        Patience::new(self.shutdown, self.options.silence)
    }
}

fn lock(mutex: &Mutex<()>) -> MutexGuard<'_, ()> {
    // It guards an order and no data.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Outbox {
    /// The first values as they travel.
    fn as_sent(&mut self, count: usize, bf16: bool) -> &[u8] {
        let values = &self.values[..count];
        if !bf16 {
            return bytemuck::cast_slice(values);
        }
        self.rounded.resize(self.rounded.len().max(count), 0);
        salamander_net::bf16::round(values, &mut self.rounded[..count]);
        bytemuck::cast_slice(&self.rounded[..count])
    }
}

impl From<salamander_net::Error> for End {
    fn from(error: salamander_net::Error) -> Self {
        use std::io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
        match error {
            salamander_net::Error::Cancelled => Self::Quiet,
            salamander_net::Error::Io(error)
                if matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof) =>
            {
                Self::Quiet
            }
            error => Self::Trouble(error.to_string()),
        }
    }
}
