//! A run as its parent sees it: the run's events drive the bar and the table, wherever it trains.

use indicatif::ProgressBar;
use salamander_run::{Event, Report};
use salamander_train::callback::{Callback, Control};
use salamander_train::progress::Progress;

use super::{Bar, EpochTable, Out};

/// Shows a run.
pub(crate) struct Follower {
    bar: Bar,
    table: EpochTable,
    handle: Option<ProgressBar>,
    epoch: Option<u64>,
    begun: bool,
}

impl Follower {
    pub(crate) fn new(out: Out) -> Self {
        let bar = Bar::new();
        let handle = bar.handle();
        let table = EpochTable::new(out, bar.handle());
        Self { bar, table, handle, epoch: None, begun: false }
    }

    /// Whether training has begun.
    pub(crate) fn begun(&self) -> bool {
        self.begun
    }

    /// Shows an event.
    pub(crate) fn take(&mut self, event: &Event) {
        match event {
            Event::Indexing { files, of } => self.bar.indexing(*files, *of),
            Event::Report(report) => self.show(report),
            Event::Validating { batches } => self.bar.validation_start(*batches),
            Event::Note(text) => match &self.handle {
                Some(bar) => bar.println(text),
                None => eprintln!("{text}"),
            },
            _ => {}
        }
    }

    fn show(&mut self, report: &Report) {
        match report {
            Report::Start(start) if !self.begun => {
                self.begun = true;
                self.table.training_start(start);
                self.bar.training_start(start);
            }
            Report::Step(step) => {
                if self.epoch != Some(step.epoch) {
                    self.epoch = Some(step.epoch);
                    self.bar.epoch_start(step.epoch);
                }
                self.bar.step_end(step, &mut Control::default());
            }
            Report::Epoch(epoch) => {
                self.table.epoch_end(epoch);
                self.bar.epoch_end(epoch);
            }
            Report::Start(_) | Report::End(_) => {}
        }
    }

    /// The run is over.
    pub(crate) fn finish(&mut self) {
        self.bar.training_end(&Progress::default());
    }
}
