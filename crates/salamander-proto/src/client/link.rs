//! A connection to the master that is made again for as long as its owner lives, on a thread of its own.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use salamander_net::Backoff;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Response, Status, Streaming};
use tracing::{debug, warn};

use super::outbox::Outbox;
use super::road::Road;
use super::{Client, Error, SessionOptions, client, is_passing};
use crate::{limits, token::Bearer};

/// The first wait before it is tried again to connect; doubled each time.
const FIRST_WAIT: Duration = Duration::from_millis(50);

/// What a message of the master was.
pub(super) enum Taken {
    /// Something for the owner.
    Done,
    /// The first words of an acceptable master.
    Welcome,
    /// What was sent up to this number was acted on.
    Received(u64),
}

/// What differs between the sessions of workers and of platforms.
pub(super) trait Side: Send + 'static {
    type Out: Clone + Send + 'static;
    type In: 'static;

    /// The first words at each connection.
    fn first(&mut self) -> Self::Out;
    /// A sign of life, if this side gives any.
    fn beat(&mut self) -> Option<Self::Out>;
    /// Takes a message; the error is a reason to leave this master.
    fn take(&mut self, message: Self::In) -> Result<Taken, String>;
    fn connection(&mut self, up: bool);
    fn refused(&mut self, reason: &str);
    /// The call.
    fn call(
        client: &mut Client,
        out: ReceiverStream<Self::Out>,
    ) -> impl Future<Output = Result<Response<Streaming<Self::In>>, Status>>;
}

/// The owner of the thread.
#[derive(Debug)]
pub(super) struct Link<T: Clone> {
    outbox: Arc<Outbox<T>>,
    thread: Option<JoinHandle<()>>,
}

impl<T: Clone + Send + 'static> Link<T> {
    pub(super) fn open<S: Side<Out = T>>(
        options: &SessionOptions,
        outbox: Arc<Outbox<T>>,
        side: S,
    ) -> Result<Self, Error> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let dialer = Dialer {
            road: Road::new(options)?,
            bearer: Bearer::new(&options.token)?,
            options: options.clone(),
            outbox: outbox.clone(),
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

impl<T: Clone> Drop for Link<T> {
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
enum End {
    /// Its owner went.
    Closed,
    /// It broke, or was never there.
    Broken(String),
    /// It is not wanted, and trying again will not help soon.
    Refused(String),
}

impl From<Status> for End {
    fn from(status: Status) -> Self {
        let reason = match status.message() {
            "" => format!("{:?}", status.code()),
            message => message.to_string(),
        };
        if is_passing(&status) { Self::Broken(reason) } else { Self::Refused(reason) }
    }
}

struct Dialer<T: Clone> {
    road: Road,
    bearer: Bearer,
    options: SessionOptions,
    outbox: Arc<Outbox<T>>,
}

impl<T: Clone + Send + 'static> Dialer<T> {
    async fn drive<S: Side<Out = T>>(self, mut side: S) {
        let mut backoff = Backoff::new(FIRST_WAIT, self.options.longest_wait);
        let mut told = String::new();
        let master = self.options.master.as_str();
        while !self.outbox.is_closed() {
            let mut was_up = false;
            let end = self.connection(&mut side, &mut was_up).await;
            if was_up {
                side.connection(false);
                backoff.reset();
            }
            match end {
                End::Closed => return,
                End::Broken(reason) => debug!(master, reason, "no connection to the master"),
                End::Refused(reason) => {
                    // Said once, not at each of many tries.
                    if reason != told {
                        warn!(master, reason, "the master refuses; trying on");
                        side.refused(&reason);
                    }
                    told = reason;
                }
            }
            self.pause(backoff.wait().unwrap_or(self.options.longest_wait)).await;
        }
    }

    /// Waits, unless the owner goes.
    async fn pause(&self, wait: Duration) {
        tokio::select! {
            () = sleep(wait) => {}
            () = self.closed() => {}
        }
    }

    async fn connection<S: Side<Out = T>>(&self, side: &mut S, was_up: &mut bool) -> End {
        let begun = tokio::select! {
            begun = self.begin(side) => begun,
            () = self.closed() => return End::Closed,
        };
        let (sender, stream) = match begun {
            Ok(streams) => streams,
            Err(end) => return self.road.refusal().map_or(end, End::Refused),
        };
        *was_up = true;
        side.connection(true);
        self.talk(side, sender, stream).await
    }

    /// Connects and waits for the master's first words.
    async fn begin<S: Side<Out = T>>(
        &self,
        side: &mut S,
    ) -> Result<(mpsc::Sender<T>, Streaming<S::In>), End> {
        let channel = self.road.connect().await.map_err(End::Broken)?;
        let mut client = client(channel, self.bearer.clone());
        let (sender, receiver) = mpsc::channel(limits::IN_FLIGHT);
        self.outbox.rewind();
        if sender.try_send(side.first()).is_err() {
            return Err(End::Broken("the first message does not fit".into()));
        }
        let slow = |_| End::Broken("the master does not answer".into());
        let call = S::call(&mut client, ReceiverStream::new(receiver));
        let mut stream = timeout(limits::FIRST_MESSAGE, call).await.map_err(slow)??.into_inner();
        let message = timeout(limits::FIRST_MESSAGE, stream.message()).await.map_err(slow)??;
        match message.map(|message| side.take(message)) {
            Some(Ok(Taken::Welcome)) => Ok((sender, stream)),
            Some(Ok(_)) => Err(End::Broken("the master's first words are no welcome".into())),
            Some(Err(reason)) => Err(End::Refused(reason)),
            None => Err(End::Broken("the master went".into())),
        }
    }

    async fn talk<S: Side<Out = T>>(
        &self,
        side: &mut S,
        sender: mpsc::Sender<T>,
        mut stream: Streaming<S::In>,
    ) -> End {
        let mut beats = interval(self.options.beat_every);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                message = stream.message() => {
                    let taken = match message {
                        Ok(Some(message)) => side.take(message),
                        Ok(None) => return End::Broken("the master went".into()),
                        Err(status) => return status.into(),
                    };
                    match taken {
                        Ok(Taken::Received(number)) => self.outbox.received(number),
                        Ok(_) => {}
                        Err(reason) => return End::Refused(reason),
                    }
                }
                permit = sender.reserve(), if self.outbox.is_waiting() => match permit {
                    Ok(permit) => if let Some(message) = self.outbox.next() {
                        permit.send(message);
                    },
                    Err(_) => return End::Broken("the call ended".into()),
                },
                () = self.outbox.changed() => {
                    if self.outbox.is_closed() {
                        return End::Closed;
                    }
                }
                _ = beats.tick() => {
                    // A full pipe has signs of life enough.
                    if let Some(beat) = side.beat() {
                        drop(sender.try_send(beat));
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
