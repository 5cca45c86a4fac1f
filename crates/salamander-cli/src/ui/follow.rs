//! A run as it is followed: its events drive the bar and the table, wherever it trains.

use salamander_run::{Event, Report};

use super::{Bar, EpochTable};
use crate::out::Out;

/// Shows a run.
pub(crate) struct RunDisplay {
    out: Out,
    bar: Bar,
    table: EpochTable,
    epoch: Option<u64>,
    begun: bool,
}

impl RunDisplay {
    pub(crate) fn new(out: Out) -> Self {
        let (bar, table) = (Bar::new(), EpochTable::default());
        Self { out, bar, table, epoch: None, begun: false }
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
            Event::Validating { .. } => self.bar.validating(),
            Event::Note(text) => self.bar.note(text),
            _ => {}
        }
    }

    fn show(&mut self, report: &Report) {
        match report {
            Report::Start(start) if !self.begun => {
                self.begun = true;
                self.bar.training_start(start);
            }
            Report::Step(step) => {
                if self.epoch != Some(step.epoch) {
                    self.epoch = Some(step.epoch);
                    self.bar.epoch_start(step.epoch);
                }
                self.bar.step_end(step);
            }
            Report::Epoch(epoch) => {
                let lines = self.table.add(epoch);
                self.bar.above(|| self.out.line(&lines));
                self.bar.epoch_end();
            }
            Report::Start(_) | Report::End(_) => {}
        }
    }

    /// The run is over.
    pub(crate) fn finish(&mut self) {
        self.bar.finish();
    }
}
