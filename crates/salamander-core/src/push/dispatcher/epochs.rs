//! The end of an epoch, which all names of it and of those before have to reach, and the end of the run.

use super::{Dispatcher, NotYet, Order};
use crate::push::Entry;

impl Dispatcher {
    /// The epoch was validated: the next one begins. Refused when a server was lost meanwhile, and names with it; the
    /// epoch's end is then told again.
    pub fn next_epoch(&mut self, epoch: u64) -> Result<(), NotYet> {
        if epoch != self.history.finished || epoch >= self.settings.epochs {
            return Err(NotYet::OtherEpoch(epoch));
        }
        if self.told != Some(epoch) || !self.is_at_rest() {
            self.told = None;
            self.advance();
            return Err(NotYet::Reopened(epoch));
        }
        self.journal(Entry::Finished(epoch + 1));
        self.told = None;
        self.requeue();
        if epoch + 1 == self.settings.epochs {
            // The run ends with a checkpoint that has everything.
            self.save_wanted = true;
        }
        self.advance();
        Ok(())
    }

    pub(super) fn try_end_epoch(&mut self) {
        let epoch = self.history.finished;
        let open = epoch < self.settings.epochs && self.told.is_none();
        if open && self.is_at_rest() && !self.save_wanted && self.resizes_to().is_none() {
            self.told = Some(epoch);
            self.orders.push(Order::Validate { epoch });
            if !self.fences.prune {
                self.order_prune(epoch + 1);
            }
        }
    }

    pub(super) fn try_end(&mut self) {
        if self.is_complete() {
            if !std::mem::replace(&mut self.ended, true) {
                self.orders.push(Order::Complete);
            }
        } else if self.history.finished >= self.settings.epochs
            && self.round.is_none()
            && self.is_at_rest()
        {
            self.save_wanted = true;
            self.try_save();
        }
    }

    /// How many epochs are completely done.
    pub(super) fn complete_epochs(&self) -> u64 {
        let complete = |epoch: &u64| self.done.lacks(*epoch, self.settings.names.all()).is_empty();
        let from = self.done.pruned().min(self.settings.epochs);
        from + (from..self.settings.epochs).take_while(complete).count() as u64
    }

    /// Whether all names that were begun are done and nobody works.
    fn is_at_rest(&self) -> bool {
        self.is_ready() && self.leases.is_empty() && self.pending.is_empty()
    }
}
