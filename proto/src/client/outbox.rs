//! What is on its way to the master. Some messages must reach a master even if the connection, or the master,
//! dies on the way: they stay here until a master says that it has acted on them. Reports stay a while longer, since a
//! master that was replaced, or whose node is gone, may have written them where the next one cannot read.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, futures::Notified};
use tracing::warn;

use crate::{limits, v1};

/// Messages that are told again to another master.
const REPEATED: usize = 256;

/// How much a message matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Matters {
    /// To this connection only: the next one begins with the whole state.
    Now,
    /// Until it was received, unless a master is away for so long that too many pile up.
    Long,
    /// Until it was received.
    Always,
    /// Until it was received, and to each other master again: it is in no journal.
    ToEach,
}

#[derive(Debug)]
struct Unacknowledged {
    order: u64,
    matters: Matters,
    message: v1::ProcessMessage,
}

#[derive(Debug, Default)]
struct Unsent {
    messages: VecDeque<Unacknowledged>,
    /// The last messages for another master too that one has acted on.
    acted_on: VecDeque<Unacknowledged>,
    /// The order of the newest message.
    last: u64,
    /// Letters up to this order were sent over this connection.
    sent: u64,
    lost: u64,
    closed: bool,
}

/// A bounded queue between callers, who never wait, and the thread of a link.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    state: Mutex<Unsent>,
    changed: Notify,
    emptied: Condvar,
}

impl Outbox {
    /// Adds a message, whose number stays 0 if it need not be received.
    pub(super) fn push(&self, matters: Matters, mut message: v1::ProcessMessage) {
        let mut state = self.lock();
        if state.messages.len() >= limits::KEPT {
            make_room(&mut state);
        }
        state.last += 1;
        let order = state.last;
        message.number = if matters == Matters::Now { 0 } else { order };
        state.messages.push_back(Unacknowledged { order, matters, message });
        drop(state);
        self.changed.notify_one();
    }

    /// A new connection: what was not received is sent again.
    pub(super) fn rewind(&self) {
        let mut state = self.lock();
        state.sent = 0;
        state.messages.retain(|message| message.matters != Matters::Now);
    }

    /// The next message to send.
    pub(super) fn next(&self) -> Option<v1::ProcessMessage> {
        let mut state = self.lock();
        let at = state.messages.partition_point(|message| message.order <= state.sent);
        let message = state.messages.get(at)?;
        let (order, matters, message) = (message.order, message.matters, message.message.clone());
        state.sent = order;
        if matters == Matters::Now {
            state.messages.remove(at);
            self.tell_if_empty(&state);
        }
        Some(message)
    }

    /// Whether there is something to send.
    pub(super) fn is_waiting(&self) -> bool {
        let state = self.lock();
        state.messages.back().is_some_and(|message| message.order > state.sent)
    }

    /// A master has acted on everything up to this number.
    pub(super) fn received(&self, number: u64) {
        let mut state = self.lock();
        // A number that was never sent cannot have been received.
        let number = number.min(state.sent);
        while let Some(message) = state.messages.pop_front_if(|message| message.order <= number) {
            if matches!(message.matters, Matters::Long | Matters::ToEach) {
                state.acted_on.push_back(message);
            }
        }
        let old = state.acted_on.len().saturating_sub(REPEATED);
        state.acted_on.drain(..old);
        self.tell_if_empty(&state);
    }

    /// Another master: it hears the last reports again and what each is to hear, before what no master has received.
    pub(super) fn repeat(&self) {
        let state = &mut *self.lock();
        let waiting = std::mem::replace(&mut state.messages, std::mem::take(&mut state.acted_on));
        state.messages.extend(waiting);
    }

    /// What was not received yet.
    pub(super) fn kept(&self) -> Vec<v1::ProcessMessage> {
        let state = self.lock();
        let kept = state.messages.iter().filter(|message| message.matters != Matters::Now);
        kept.map(|message| message.message.clone()).collect()
    }

    /// Resolves when something may have changed.
    pub(super) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_one();
        self.emptied.notify_all();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Waits until everything was received; false if that took too long.
    pub(super) fn wait_until_empty(&self, longest: Duration) -> bool {
        let waits = |state: &mut Unsent| !state.messages.is_empty() && !state.closed;
        let waited = self.emptied.wait_timeout_while(self.lock(), longest, waits);
        waited.unwrap_or_else(PoisonError::into_inner).0.messages.is_empty()
    }

    fn tell_if_empty(&self, state: &Unsent) {
        if state.messages.is_empty() {
            self.emptied.notify_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Unsent> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Gives up the oldest message that may be given up.
fn make_room(state: &mut Unsent) {
    let may_go =
        |message: &Unacknowledged| !matches!(message.matters, Matters::Always | Matters::ToEach);
    let oldest = state.messages.iter().position(may_go);
    if let Some(oldest) = oldest {
        state.messages.remove(oldest);
        state.lost += 1;
        if state.lost.is_power_of_two() {
            warn!(lost = state.lost, "no master for so long that reports are given up");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(outbox: &Outbox, matters: Matters) {
        outbox.push(matters, v1::ProcessMessage::default());
    }

    fn filled(kinds: &[Matters]) -> Outbox {
        let outbox = Outbox::default();
        kinds.iter().for_each(|kind| push(&outbox, *kind));
        outbox
    }

    fn sent(outbox: &Outbox) -> Vec<u64> {
        std::iter::from_fn(|| outbox.next()).map(|message| message.number).collect()
    }

    fn kept(outbox: &Outbox) -> Vec<u64> {
        outbox.kept().iter().map(|message| message.number).collect()
    }

    #[test]
    fn what_was_not_received_is_sent_again_in_order() {
        let outbox = filled(&[Matters::Always, Matters::Now, Matters::Long, Matters::Always]);
        assert_eq!(sent(&outbox), [1, 0, 3, 4]);
        outbox.received(1);
        outbox.rewind();
        assert_eq!(sent(&outbox), [3, 4]);
        outbox.received(4);
        assert!(outbox.wait_until_empty(Duration::ZERO));
    }

    #[test]
    fn another_master_hears_the_last_reports_again() {
        let outbox = filled(&[Matters::Always, Matters::Long, Matters::Long, Matters::Always]);
        assert_eq!(sent(&outbox), [1, 2, 3, 4]);
        outbox.received(3);
        outbox.rewind();
        outbox.repeat();
        assert_eq!(sent(&outbox), [2, 3, 4]);
        outbox.received(4);
        assert!(outbox.wait_until_empty(Duration::ZERO));
        (0..2 * REPEATED).for_each(|_| push(&outbox, Matters::Long));
        sent(&outbox);
        outbox.received(u64::MAX);
        outbox.rewind();
        outbox.repeat();
        assert_eq!(sent(&outbox).len(), REPEATED);
    }

    #[test]
    fn what_is_in_no_journal_is_told_to_each_master() {
        let outbox = filled(&[Matters::Always, Matters::ToEach]);
        for heard in [[1u64, 2].as_slice(), &[2], &[2]] {
            assert_eq!(sent(&outbox), heard);
            outbox.received(2);
            assert!(outbox.wait_until_empty(Duration::ZERO));
            // The same master, and then another.
            outbox.rewind();
            assert!(sent(&outbox).is_empty());
            outbox.repeat();
        }
    }

    #[test]
    fn what_only_matters_now_is_gone_with_its_connection() {
        let outbox = filled(&[Matters::Now, Matters::Always]);
        outbox.rewind();
        assert_eq!(sent(&outbox), [2]);
    }

    #[test]
    fn a_number_that_was_not_sent_receives_nothing() {
        let outbox = filled(&[Matters::Always, Matters::Always]);
        assert_eq!(outbox.next().map(|message| message.number), Some(1));
        outbox.received(99);
        assert_eq!(kept(&outbox), [2]);
    }

    #[test]
    fn reports_are_given_up_before_anything_else() {
        let outbox = filled(&[Matters::Always]);
        (0..2 * limits::KEPT).for_each(|_| push(&outbox, Matters::Long));
        let kept = kept(&outbox);
        assert_eq!((kept.len(), kept[0]), (limits::KEPT, 1));
        assert_eq!(kept.last(), Some(&(2 * limits::KEPT as u64 + 1)));
    }

    #[test]
    fn waiting_for_a_master_that_is_away_ends() {
        assert!(!filled(&[Matters::Always]).wait_until_empty(Duration::from_millis(5)));
    }
}
