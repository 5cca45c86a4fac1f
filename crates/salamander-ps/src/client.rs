//! Talks to all parameter servers of a job: splits ids by where they live, asks all servers at the
//! same time, and asks again until a deadline when one of them goes away and comes back.
//!
//! Every request can be sent twice without being done twice, so that a lost answer costs nothing but
//! time. A server that comes back with another incarnation shows in what requests return.
//!
//! # Layout
//! - `link`: one server: connecting, sending, receiving
//! - `routing`: which ids go where
//! - `rows`: pulls, stages, pushes; `manage`: what the master asks for

use std::time::{Duration, Instant};

use salamander_core::asynchronous::{Envelope, Lineage};
use salamander_core::elastic::Term;
use salamander_core::progress::StepCount;
use salamander_net::{Backoff, Cancel, Keys, Patience};

use crate::TableId;
use crate::TableSpec;
use crate::wire::{Failure, Message, TableKey};

mod link;
mod manage;
mod routing;
mod rows;

use link::{Caller, Link, Reply, Trouble};
pub use rows::{News, Seen, WantedRows};

/// The pause after a failed attempt, which doubles up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// How a client asks.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// How long a request may take, with all its attempts.
    pub patience: Duration,
    /// How long requests may take that read or write whole tables.
    pub long_patience: Duration,
    /// Whether values of rows travel as bfloat16, which halves the bytes.
    pub bf16: bool,
    /// The history to take part in.
    pub lineage: Lineage,
    /// The term of the master whose orders are given; at least that of the history.
    pub term: Term,
    /// The processes that orders are for, by server; where none is named, the one that answers first.
    pub processes: Vec<u64>,
    /// Ends every wait.
    pub cancel: Cancel,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            patience: Duration::from_secs(60),
            long_patience: Duration::from_secs(3600),
            bf16: false,
            lineage: Lineage::default(),
            term: Term(0),
            processes: Vec::new(),
            cancel: Cancel::new(),
        }
    }
}

/// A failed request. Some servers may have done it; asking again does not do it twice.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A server did not answer in time.
    #[error("parameter server {server} ({endpoint}) did not answer within {waited:.1} s: {reason}")]
    Unreachable {
        /// Its number.
        server: usize,
        /// Where it was thought to be.
        endpoint: String,
        /// Seconds.
        waited: f64,
        /// What the last attempt ended with.
        reason: String,
    },
    /// A server does not want to talk.
    #[error("parameter server {server} ({endpoint}) refuses the connection: {reason}")]
    Stranger {
        /// Its number.
        server: usize,
        /// Where it is.
        endpoint: String,
        /// Why.
        reason: String,
    },
    /// A server says no.
    #[error("parameter server {server}: {failure}")]
    Refused {
        /// Its number.
        server: usize,
        /// Why.
        failure: Failure,
    },
    /// An answer makes no sense.
    #[error("parameter server {server} gives a wrong answer: {reason}")]
    Answer {
        /// Its number.
        server: usize,
        /// What is wrong.
        reason: String,
    },
    /// The caller's mistake.
    #[error("wrong request: {0}")]
    Request(String),
    /// The holder of the flag gave up.
    #[error("cancelled")]
    Cancelled,
}

/// A server that has done a request, and in which life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// Its number.
    pub server: usize,
    /// Drawn when it was started.
    pub incarnation: u64,
}

/// A connection to each server.
#[derive(Debug)]
pub struct Client {
    caller: Caller,
    /// The server of each partition.
    owners: Vec<u32>,
    options: ClientOptions,
    links: Vec<Link>,
    keys: Vec<TableKey>,
    /// The version that this client has had servers complete: rows of another one are of no use to it.
    version: Option<StepCount>,
}

impl Client {
    /// Connects to all servers, which are given by the texts of their [`salamander_net::Endpoint`]s, waiting for
    /// those that are not there yet.
    pub fn connect(
        endpoints: Vec<String>,
        keys: impl Into<Keys>,
        options: ClientOptions,
    ) -> Result<Self, Error> {
        let servers = endpoints.len();
        if servers == 0 {
            return Err(Error::Request("there is no parameter server to connect to".to_string()));
        }
        let links = (0..servers).map(Link::new).collect();
        let (lineage, keys, tables) = (options.lineage, keys.into(), Vec::new());
        let caller = Caller { endpoints, keys, lineage, tables };
        let owners = crate::placement::owners(servers);
        let (keys, version) = (Vec::new(), None);
        let mut client = Self { caller, owners, options, links, keys, version };
        let answered = client.ping()?;
        let named = client.options.processes.len();
        client.options.processes.extend(answered.iter().skip(named).map(|ack| ack.incarnation));
        Ok(client)
    }

    /// Takes part in another history from now on.
    pub fn set_lineage(&mut self, lineage: Lineage) {
        (self.caller.lineage, self.version) = (lineage, None);
    }

    /// Makes a table known to all servers. The number is this client's own.
    pub fn declare(&mut self, spec: TableSpec) -> Result<TableId, Error> {
        let message = Message::declare(&spec);
        self.ask_all(&message, |_, reply| reply.number().map(drop))?;
        let key = TableKey::of(&spec.name);
        let found = self.keys.iter().position(|other| *other == key);
        let number = found.unwrap_or_else(|| {
            // From now on every new connection starts with it.
            self.keys.push(key);
            self.caller.tables.push(spec);
            self.keys.len() - 1
        });
        Ok(TableId(number as u32))
    }

    /// An order of this client's master to a server.
    fn envelope(&self, server: usize) -> Envelope {
        let term = self.options.term.max(self.caller.lineage.term());
        Envelope { term, to: self.options.processes[server] }
    }

    /// Asks every server the same.
    fn ask_all(
        &mut self,
        message: &Message<'_>,
        receive: impl FnMut(usize, &mut Reply<'_>) -> Result<(), Trouble>,
    ) -> Result<Vec<Ack>, Error> {
        self.ask(std::iter::repeat(Some(message)), self.options.patience, receive)
    }

    /// Sends a message to each server that has one, then receives from each of them.
    fn ask<'m>(
        &mut self,
        messages: impl IntoIterator<Item = Option<&'m Message<'m>>>,
        patience: Duration,
        receive: impl FnMut(usize, &mut Reply<'_>) -> Result<(), Trouble>,
    ) -> Result<Vec<Ack>, Error> {
        let cancel = self.options.cancel.clone();
        let attempts = Attempts::new(&cancel, patience);
        let mut sent = Vec::with_capacity(self.links.len());
        for (link, message) in self.links.iter_mut().zip(messages) {
            let Some(message) = message else { continue };
            // A failure shows again, and is dealt with, when the answer is waited for.
            let number = link.send(&self.caller, message, &attempts.patience);
            sent.push(SentTo { server: link.server(), message, number });
        }
        self.take_answers(sent, &attempts, receive)
    }

    /// Takes the answers of all servers, until one of them fails for good.
    fn take_answers(
        &mut self,
        sent: Vec<SentTo<'_>>,
        attempts: &Attempts<'_>,
        mut receive: impl FnMut(usize, &mut Reply<'_>) -> Result<(), Trouble>,
    ) -> Result<Vec<Ack>, Error> {
        let mut acks = Vec::with_capacity(sent.len());
        let mut failed = None;
        for part in sent {
            let (server, link) = (part.server, &mut self.links[part.server]);
            if failed.is_some() {
                // Its answer would be taken for that of the next request.
                link.hang_up();
                continue;
            }
            match part.insist(&self.caller, link, attempts.clone(), &mut receive) {
                Ok(incarnation) => acks.push(Ack { server, incarnation }),
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(acks), Err)
    }

    /// Sends a message to each server, whose answers are collected by [`Client::finish`].
    fn send_ahead<'m>(&mut self, messages: Vec<Message<'m>>) -> Sent<'m> {
        let patience = Patience::new(&self.options.cancel, self.options.patience);
        let mut parts = Vec::with_capacity(messages.len());
        for (link, message) in self.links.iter_mut().zip(messages) {
            let number = link.send_ahead(&self.caller, &message, &patience);
            parts.push((message, number));
        }
        Sent(parts)
    }

    /// Whether the acknowledgements of what was sent ahead are here, since they came before the answer to
    /// something else.
    pub fn is_acknowledged(&self, sent: &Sent<'_>) -> bool {
        let mut parts = self.links.iter().zip(&sent.0);
        parts
            .all(|(link, (_, number))| number.as_ref().is_ok_and(|number| link.has_answer(*number)))
    }

    /// Collects the acknowledgements of what was sent ahead, and sends it again where that can help.
    pub fn finish(&mut self, sent: Sent<'_>) -> Result<Vec<Ack>, Error> {
        let cancel = self.options.cancel.clone();
        let (messages, numbers): (Vec<_>, Vec<_>) = sent.0.into_iter().unzip();
        let parts = messages.iter().zip(numbers).enumerate();
        let part = |(server, (message, number))| SentTo { server, message, number };
        let attempts = Attempts::new(&cancel, self.options.patience);
        self.take_answers(parts.map(part).collect(), &attempts, |_, _| Ok(()))
    }
}

/// Requests that were sent to all servers and whose acknowledgements are still to be collected. Later requests
/// of the same client are served after them, as long as no connection is lost.
#[derive(Debug)]
#[must_use = "nobody knows whether it was done before `Client::finish` says so"]
pub struct Sent<'a>(Vec<(Message<'a>, Result<u64, Trouble>)>);

impl Sent<'_> {
    /// The same, which needs nobody else's memory: what may have to be sent again is copied.
    pub fn into_owned(self) -> Sent<'static> {
        let parts = self.0.into_iter();
        Sent(parts.map(|(message, number)| (message.into_owned(), number)).collect())
    }
}

/// What was sent to a server, and its number there.
struct SentTo<'m> {
    server: usize,
    message: &'m Message<'m>,
    number: Result<u64, Trouble>,
}

/// The time that a request has, with all its attempts.
#[derive(Clone)]
struct Attempts<'a> {
    patience: Patience<'a>,
    backoff: Backoff,
}

impl<'a> Attempts<'a> {
    fn new(cancel: &'a Cancel, patience: Duration) -> Self {
        let backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        Self { patience: Patience::new(cancel, patience), backoff }
    }

    /// Waits for the next attempt; false when there is no time for one.
    fn pause(&mut self) -> bool {
        let in_time = |pause: &Duration| Instant::now() + *pause < self.patience.deadline();
        let pause = self.backoff.wait().filter(in_time);
        pause.inspect(|pause| std::thread::sleep(*pause)).is_some()
    }
}

impl SentTo<'_> {
    /// Takes the answer of the server, and asks again as long as that can help.
    fn insist(
        self,
        caller: &Caller,
        link: &mut Link,
        mut attempts: Attempts<'_>,
        receive: &mut impl FnMut(usize, &mut Reply<'_>) -> Result<(), Trouble>,
    ) -> Result<u64, Error> {
        let Self { server, message, mut number } = self;
        loop {
            let answered =
                number.and_then(|number| link.answer(number, &attempts.patience, receive));
            let reason = match answered {
                Ok(incarnation) => return Ok(incarnation),
                Err(Trouble::Final(error)) => {
                    if !matches!(error, Error::Refused { .. }) {
                        link.hang_up();
                    }
                    return Err(error);
                }
                Err(Trouble::Passing(reason)) => reason,
            };
            link.hang_up();
            tracing::debug!(server, reason, "asking a parameter server again");
            if !attempts.pause() {
                let waited = attempts.backoff.elapsed().as_secs_f64();
                let endpoint = caller.endpoints[server].clone();
                return Err(Error::Unreachable { server, endpoint, waited, reason });
            }
            number = link.send(caller, message, &attempts.patience);
        }
    }
}
