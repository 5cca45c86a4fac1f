//! The session of whoever starts and ends the processes of a run: the supervisor on one machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use salamander_core::elastic::{Ended, Ending, Order, ToMember};

use super::link::{Link, Side};
use super::outbox::{Matters, Outbox};
use super::{Error, SessionOptions};
use crate::convert::{FromMaster, FromProcess, Inventory, ProcessEnd};
use crate::v1;
use crate::v1::process_message::Said;

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
    link: Link,
    ends: Ends,
}

/// Tells of processes that ended, from any thread; never waits.
#[derive(Clone, Debug)]
pub struct Ends {
    outbox: Arc<Outbox>,
    /// The id of the next end. The first is random, so that those of two platforms differ.
    next: Arc<AtomicU64>,
}

impl Ends {
    fn new(outbox: Arc<Outbox>) -> Result<Self, Error> {
        let first = salamander_net::random_number().map_err(std::io::Error::other)?;
        Ok(Self { outbox, next: Arc::new(AtomicU64::new(first)) })
    }

    /// A process ended. Kept until a master has received it.
    pub fn ended(&self, slot: u32, pid: u32, how: Ended) {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let end = FromProcess::End(ProcessEnd { id, slot, pid, how });
        self.outbox.push(Matters::Always, end.into());
    }
}

impl PlatformClient {
    /// Opens a session whose handler can tell of ends by itself. The master need not be there yet.
    pub fn open_with<H: PlatformHandler>(
        options: &SessionOptions,
        make: impl FnOnce(Ends) -> H,
    ) -> Result<Self, Error> {
        let outbox = Arc::new(Outbox::default());
        let ends = Ends::new(outbox.clone())?;
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
    outbox: Arc<Outbox>,
}

impl<H: PlatformHandler> Side for Platform<H> {
    fn first(&mut self) -> FromProcess {
        // In this order: a process that ends in between is in both, which does no harm.
        let running = self.handler.inventory().into_iter();
        let running = running.map(|(slot, pid)| v1::Process { slot, pid }).collect();
        let kept = self.outbox.kept().into_iter().filter_map(|kept| match kept.said {
            Some(Said::End(end)) => end.try_into().ok(),
            _ => None,
        });
        FromProcess::Inventory(Inventory { running, ended: kept.collect() })
    }

    fn take(&mut self, message: FromMaster) {
        match message {
            FromMaster::Order(order) => self.handler.order(order),
            FromMaster::Member(ToMember::Ended(ending)) => self.handler.over(ending),
            _ => {}
        }
    }

    fn refused(&mut self, reason: &str) {
        self.handler.refused(reason);
    }
}
