//! The session of whoever starts and ends the processes of a run: the supervisor on one machine.

use std::sync::Arc;
use std::time::Duration;

use salamander_core::elastic::{Ended, Ending, Order};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Response, Status, Streaming};

use super::link::{Link, Side, Taken};
use super::outbox::{Matters, Outbox};
use super::{Client, Error, SessionOptions};
use crate::convert::process_end;
use crate::v1;
use crate::v1::platform_message::Message;

/// What a platform does with its session. All is called on the session's thread.
pub trait PlatformHandler: Send + 'static {
    /// The (slot, process) that run. A process leaves this list only after its end was given to
    /// [`Ends::ended`]: one that is in neither was never started.
    fn inventory(&mut self) -> Vec<(u32, u32)>;
    /// The master wants a process started or ended.
    fn order(&mut self, order: Order);
    /// The run is over.
    fn over(&mut self, ending: Ending);
    /// The master refuses this platform. The session tries on; told once per reason.
    fn refused(&mut self, _reason: &str) {}
}

/// A platform's session. It connects again, also to a restarted master, for as long as it lives.
#[derive(Debug)]
pub struct PlatformClient {
    link: Link<v1::PlatformMessage>,
    ends: Ends,
}

/// Tells of processes that ended, from any thread; never waits.
#[derive(Clone, Debug)]
pub struct Ends(Arc<Outbox<v1::PlatformMessage>>);

impl Ends {
    /// A process ended. Kept until a master has received it.
    pub fn ended(&self, slot: u32, pid: u32, how: Ended) {
        let end = process_end(slot, pid, how);
        self.0.push(Matters::Always, |number| v1::PlatformMessage {
            message: Some(Message::End(end)),
            number,
        });
    }
}

impl PlatformClient {
    /// Opens a session whose handler can tell of ends by itself. The master need not be there yet.
    pub fn open_with<H: PlatformHandler>(
        options: &SessionOptions,
        make: impl FnOnce(Ends) -> H,
    ) -> Result<Self, Error> {
        let outbox = Arc::new(Outbox::new());
        let ends = Ends(outbox.clone());
        let side = Platform { handler: make(ends.clone()), outbox: outbox.clone() };
        Ok(Self { link: Link::open(options, outbox, side)?, ends })
    }

    /// To tell of ends from other threads.
    pub fn ends(&self) -> Ends {
        self.ends.clone()
    }

    /// Ends the session, after at most this time for what must be received; false if something was not.
    pub fn close(self, flush: Duration) -> bool {
        self.link.close(flush)
    }
}

struct Platform<H> {
    handler: H,
    outbox: Arc<Outbox<v1::PlatformMessage>>,
}

impl<H: PlatformHandler> Side for Platform<H> {
    type Out = v1::PlatformMessage;
    type In = v1::PlatformOrder;

    fn first(&mut self) -> v1::PlatformMessage {
        // In this order: a process that ends in between is in both, which does no harm.
        let running = self.handler.inventory().into_iter();
        let running = running.map(|(slot, pid)| v1::Process { slot, pid }).collect();
        let kept = self.outbox.kept().into_iter().filter_map(|kept| match kept.message {
            Some(Message::End(end)) => Some(end),
            _ => None,
        });
        let inventory = v1::Inventory { running, ended: kept.collect() };
        v1::PlatformMessage { message: Some(Message::Inventory(inventory)), number: 0 }
    }

    fn beat(&mut self) -> Option<v1::PlatformMessage> {
        None
    }

    fn take(&mut self, order: v1::PlatformOrder) -> Result<Taken, String> {
        use v1::platform_order::Order as O;
        match order.order {
            Some(O::Welcome(_)) => return Ok(Taken::Welcome),
            Some(O::Received(number)) => return Ok(Taken::Received(number)),
            Some(O::Start(slot)) => self.handler.order(Order::Start(slot)),
            Some(O::End(slot)) => self.handler.order(Order::End(slot)),
            Some(O::Over(ending)) => {
                self.handler.over(ending.try_into().map_err(|error| format!("{error}"))?);
            }
            None => return Err("message PlatformOrder: field \"order\" is missing".into()),
        }
        Ok(Taken::Done)
    }

    fn connection(&mut self, _up: bool) {}

    fn refused(&mut self, reason: &str) {
        self.handler.refused(reason);
    }

    async fn call(
        client: &mut Client,
        out: ReceiverStream<v1::PlatformMessage>,
    ) -> Result<Response<Streaming<v1::PlatformOrder>>, Status> {
        client.serve(out).await
    }
}
