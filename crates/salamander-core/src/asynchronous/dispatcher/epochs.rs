//! The end of an epoch, which all names of it and of those before have to reach, and the end of the run.

use super::{DispatchAction, Dispatcher, NotYet};
use crate::asynchronous::AsynchronousEntry;
use crate::elastic::Ending;

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
        self.journal(AsynchronousEntry::Finished(epoch + 1));
        self.told = None;
        if self.is_complete() {
            self.end(Ending::Completed);
        }
        self.requeue();
        self.advance();
        Ok(())
    }

    pub(super) fn try_end_epoch(&mut self) {
        let epoch = self.history.finished;
        let stopping = self.history.stopping;
        let open = epoch < self.settings.epochs && self.told.is_none() && !stopping;
        if open && self.is_at_rest() && !self.save_wanted && self.resizes_to().is_none() {
            self.told = Some(epoch);
            self.orders.push(DispatchAction::Validate { epoch });
        }
    }

    /// An early end is wanted: nothing more is given out, and what is done goes into a checkpoint.
    pub fn stop(&mut self) {
        if !self.history.stopping && self.ending.is_none() {
            self.journal(AsynchronousEntry::Stopping);
        }
        self.advance();
    }

    /// Takes the last checkpoint.
    pub(super) fn try_end(&mut self) {
        let all = self.history.finished >= self.settings.epochs && self.is_at_rest();
        let enough = self.history.stopping && self.is_ready() && self.leases.is_empty();
        if (all || enough) && self.ending.is_none() && self.round.is_none() {
            self.save_wanted = true;
            self.try_save();
        }
    }

    /// Whether all epochs are finished and a checkpoint has all of them.
    pub(super) fn is_complete(&self) -> bool {
        let saved = self.history.checkpoint.is_some_and(|last| last.epochs >= self.settings.epochs);
        self.history.finished >= self.settings.epochs && saved
    }

    pub(super) fn end(&mut self, ending: Ending) {
        self.ending = Some(ending.clone());
        self.orders.push(DispatchAction::End(ending));
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
