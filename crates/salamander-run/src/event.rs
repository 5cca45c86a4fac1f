//! What a run tells while it goes on.

use std::sync::mpsc::Sender;

use salamander_core::report::{EpochReport, Report, Start, StepReport};
use salamander_core::words::count;
use salamander_train::callback::{Callback, Control};

/// Something that happened in a run.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// The data is opened: so many of its files are indexed.
    Indexing {
        /// Files so far.
        files: u64,
        /// All of them.
        of: u64,
    },
    /// Training has come further.
    Report(Report),
    /// A validation begins.
    Validating {
        /// Its batches.
        batches: u64,
    },
    /// Something that people may want to know.
    Note(String),
}

/// Passes the course of training on to whoever follows the run. The channel has no bound: a follower that is slow, or
/// looks away, is no reason for training to wait.
#[derive(Clone)]
pub(crate) struct Forward(pub(crate) Sender<Event>);

impl Forward {
    pub(crate) fn send(&self, event: Event) {
        // Nobody follows any more.
        let _ = self.0.send(event);
    }
}

impl Callback for Forward {
    fn indexing(&mut self, files: u64, of: u64) {
        self.send(Event::Indexing { files, of });
    }

    fn waiting(&mut self, records: u64) {
        let there = count(records, "record");
        self.send(Event::Note(format!(
            "waits for data that is still being written: {there} so far"
        )));
    }

    fn training_start(&mut self, start: &Start) {
        self.send(Event::Report(Report::Start(start.clone())));
    }

    fn step_end(&mut self, step: &StepReport, _control: &mut Control) {
        self.send(Event::Report(Report::Step(step.clone())));
    }

    fn validation_start(&mut self, batches: u64) {
        self.send(Event::Validating { batches });
    }

    fn epoch_end(&mut self, epoch: &EpochReport) {
        self.send(Event::Report(Report::Epoch(epoch.clone())));
    }
}
