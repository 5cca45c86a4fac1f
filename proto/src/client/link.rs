//! A connection to the master that is made again for as long as its owner lives, on a thread of its own.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use salamander_core::elastic::{Beat, Term};
use salamander_net::Backoff;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};
use tracing::{debug, warn};

use super::address::MasterAddress;
use super::outbox::Outbox;
use super::{Error, SessionOptions, client, is_passing};
use crate::convert::{self, FromMaster, FromProcess};
use crate::{limits, token::Bearer, v1};

/// The first wait before it is tried again to connect; doubled each time.
const FIRST_WAIT: Duration = Duration::from_millis(50);

/// What differs between the sessions of workers and of platforms.
pub(super) trait Side: Send + 'static {
    /// The first words at each connection.
    fn first(&mut self) -> FromProcess;
    /// A master introduces itself; the error is a reason to leave it.
    fn welcome(&mut self, _term: Term) -> Result<(), String> {
        Ok(())
    }
    /// Takes what the master says.
    fn take(&mut self, message: FromMaster);
    /// A heartbeat, if this side gives any.
    fn beat(&mut self) -> Option<Beat> {
        None
    }
    /// The connection is there, or gone.
    fn connection(&mut self, _up: bool) {}
    /// The master refuses this side; told once per reason.
    fn refused(&mut self, reason: &str);
}

/// The owner of the thread.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) outbox: Arc<Outbox>,
    thread: Option<JoinHandle<()>>,
}

impl Link {
    pub(super) fn open(
        options: &SessionOptions,
        outbox: Arc<Outbox>,
        side: impl Side,
    ) -> Result<Self, Error> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let address = MasterAddress::new(options)?;
        let dialer = Dialer {
            bearer: address.bearer(options)?,
            address,
            options: options.clone(),
            outbox: outbox.clone(),
            newest: None,
        };
        let thread = std::thread::Builder::new().name("control".into());
        let thread = thread.spawn(move || runtime.block_on(dialer.drive(side)))?;
        Ok(Self { outbox, thread: Some(thread) })
    }

    /// Waits for what must be received, but not longer than this; false if something was not.
    pub(super) fn close(self, flush: Duration) -> bool {
        self.outbox.wait_until_empty(flush)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.outbox.close();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            warn!("the thread of a session panicked");
        }
    }
}

/// Why a connection ended.
enum Disconnect {
    /// Its owner went.
    Closed,
    /// It broke, or was never there.
    Broken(String),
    /// It is not wanted, and trying again will not help soon.
    Refused(String),
    /// The two sides do not have the same keys.
    Stranger(String),
}

impl From<Status> for Disconnect {
    fn from(status: Status) -> Self {
        let reason = match status.message() {
            "" => format!("{:?}", status.code()),
            message => message.to_string(),
        };
        if is_passing(&status) { Self::Broken(reason) } else { Self::Refused(reason) }
    }
}

type ProcessSender = mpsc::Sender<v1::ProcessMessage>;
type MasterStream = Streaming<v1::MasterMessage>;

struct Dialer {
    address: MasterAddress,
    bearer: Bearer,
    options: SessionOptions,
    outbox: Arc<Outbox>,
    /// The newest master that was met.
    newest: Option<Term>,
}

impl Dialer {
    async fn drive(mut self, mut side: impl Side) {
        let mut backoff = Backoff::new(FIRST_WAIT, self.options.longest_wait);
        let mut told = String::new();
        let mut has_met = false;
        let master = self.options.master.clone();
        while !self.outbox.is_closed() {
            let mut was_up = false;
            let end = self.connection(&mut side, &mut was_up).await;
            if was_up {
                side.connection(false);
                backoff.reset();
                has_met = true;
            }
            match end {
                Disconnect::Closed => return,
                // Its keys were good for the master, so that somebody else has the port, perhaps not for long.
                Disconnect::Stranger(reason) if has_met => {
                    warn!(master, reason, "this is not the master; trying on");
                }
                Disconnect::Broken(reason) => debug!(master, reason, "no connection to the master"),
                Disconnect::Refused(reason) | Disconnect::Stranger(reason) => {
                    // Said once, not at each of many tries.
                    if reason != told {
                        warn!(master, reason, "the master refuses; trying on");
                        side.refused(&reason);
                    }
                    told = reason;
                }
            }
            let wait = backoff.wait().unwrap_or(self.options.longest_wait);
            // Not for an owner that goes.
            drop(timeout(wait, self.closed()).await);
        }
    }

    async fn connection(&mut self, side: &mut impl Side, was_up: &mut bool) -> Disconnect {
        let begun = tokio::select! {
            begun = self.begin(side) => begun,
            () = self.closed() => return Disconnect::Closed,
        };
        let (term, sender, stream) = match begun {
            Ok(streams) => streams,
            Err(end) => return self.address.refusal().map_or(end, Disconnect::Stranger),
        };
        if self.newest.replace(term).is_some_and(|before| before != term) {
            self.outbox.repeat();
        }
        *was_up = true;
        side.connection(true);
        self.talk(side, sender, stream).await
    }

    /// Connects and waits for the master's first words.
    async fn begin(
        &self,
        side: &mut impl Side,
    ) -> Result<(Term, ProcessSender, MasterStream), Disconnect> {
        let channel = self.address.connect().await.map_err(Disconnect::Broken)?;
        let mut client = client(channel, self.bearer.clone());
        let (sender, receiver) = mpsc::channel(limits::IN_FLIGHT);
        self.outbox.rewind();
        if sender.try_send(side.first().into()).is_err() {
            return Err(Disconnect::Broken("the first message does not fit".into()));
        }
        let slow = |_| Disconnect::Broken("the master does not answer".into());
        let call = client.join(ReceiverStream::new(receiver));
        let mut stream = timeout(limits::FIRST_MESSAGE, call).await.map_err(slow)??.into_inner();
        let first = timeout(limits::FIRST_MESSAGE, next(&mut stream)).await.map_err(slow)??;
        let FromMaster::Welcome(term) = first else {
            return Err(Disconnect::Broken("the master's first words are no welcome".into()));
        };
        // It was replaced: the one that did so is somewhere, or will be soon.
        side.welcome(term).map_err(Disconnect::Broken)?;
        Ok((term, sender, stream))
    }

    async fn talk(
        &self,
        side: &mut impl Side,
        sender: ProcessSender,
        mut stream: MasterStream,
    ) -> Disconnect {
        let mut beats = interval(self.options.beat_every);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                message = next(&mut stream) => match message {
                    Ok(FromMaster::Received(number)) => self.outbox.received(number),
                    Ok(message) => side.take(message),
                    Err(end) => return end,
                },
                permit = sender.reserve(), if self.outbox.is_waiting() => match permit {
                    Ok(permit) => if let Some(message) = self.outbox.next() {
                        permit.send(message);
                    },
                    Err(_) => return Disconnect::Broken("the call ended".into()),
                },
                () = self.outbox.changed() => {
                    if self.outbox.is_closed() {
                        return Disconnect::Closed;
                    }
                }
                _ = beats.tick() => {
                    // A full pipe has heartbeats enough.
                    if let Some(beat) = side.beat() {
                        drop(sender.try_send(FromProcess::Beat(beat).into()));
                    }
                }
            }
        }
    }

    async fn closed(&self) {
        while !self.outbox.is_closed() {
            self.outbox.changed().await;
        }
    }
}

/// What the master says next.
async fn next(answers: &mut MasterStream) -> Result<FromMaster, Disconnect> {
    let message =
        answers.message().await?.ok_or_else(|| Disconnect::Broken("the master went".into()))?;
    message.try_into().map_err(|error: convert::Error| Disconnect::Refused(error.to_string()))
}
