//! Turns the course of training into reports.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use salamander_core::elastic::ReportQueue;
use salamander_core::report::Report;

use crate::callback::{Callback, Control, EpochReport, Start, StepReport};

/// Clones have the same queue.
#[derive(Clone, Default)]
pub(super) struct Reports(Arc<Mutex<ReportQueue<Report>>>);

impl Reports {
    pub(super) fn queue(&self) -> MutexGuard<'_, ReportQueue<Report>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Callback for Reports {
    fn training_start(&mut self, start: &Start) {
        self.queue().push(Report::Start(start.clone()));
    }

    fn step_end(&mut self, step: &StepReport, _control: &mut Control) {
        self.queue().push(Report::Step(step.clone()));
    }

    fn epoch_end(&mut self, epoch: &EpochReport) {
        self.queue().push(Report::Epoch(epoch.clone()));
    }
}
