//! The session with the master: its thread passes orders on, and says which pods there are.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use salamander_core::elastic::{Ending, Order};
use salamander_proto::client::{Ends, PlatformHandler};
use tokio::sync::mpsc::{self, error::TrySendError};
use tracing::warn;

use super::pod_set::{PodAction, PodSet};

/// Orders that may wait.
pub(super) const WAITING: usize = 1_024;

/// What the master says.
pub(super) enum MasterMessage {
    Order(Order),
    Over(Ending),
}

/// Passes the master's orders on.
pub(super) struct OrderHandler {
    pub(super) pods: Arc<Mutex<PodSet>>,
    pub(super) orders: mpsc::Sender<MasterMessage>,
}

impl PlatformHandler for OrderHandler {
    fn inventory(&mut self) -> Vec<(u32, u32)> {
        lock(&self.pods).inventory().iter().map(|key| (key.slot, key.process)).collect()
    }

    fn order(&mut self, order: Order) {
        self.send(MasterMessage::Order(order));
    }

    fn over(&mut self, ending: Ending) {
        self.send(MasterMessage::Over(ending));
    }

    fn refused(&mut self, reason: &str) {
        warn!(reason, "the master refuses its platform");
    }
}

impl OrderHandler {
    /// Waits for room: the session's thread has nothing more important to do, but is inside of a runtime.
    fn send(&self, mut message: MasterMessage) {
        while let Err(TrySendError::Full(back)) = self.orders.try_send(message) {
            std::thread::sleep(Duration::from_millis(1));
            message = back;
        }
        // Closed: the platform is gone, and the next one says what it has.
    }
}

pub(super) fn lock(pods: &Mutex<PodSet>) -> MutexGuard<'_, PodSet> {
    pods.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reports the ends among some actions to the master.
pub(super) fn report(ends: &Ends, actions: &[PodAction]) {
    for action in actions {
        if let PodAction::Report { key, how } = action {
            ends.ended(key.slot, key.process, how.clone());
        }
    }
}
