//! What a worker shows of itself while it trains: kept by whoever trains, read by whoever is asked for metrics.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use salamander_core::elastic::{Beat, TrainingFigures};
use salamander_core::progress::StepCount;

use crate::callback::{Callback, Control, Start, StepReport};

/// Clones show the same figures.
#[derive(Clone, Debug, Default)]
pub struct Meter(Arc<Mutex<TrainingFigures>>);

impl Meter {
    /// What is known now.
    pub fn figures(&self) -> TrainingFigures {
        *self.lock()
    }

    /// It trains with so many, itself included.
    pub(crate) fn begins(&self, members: u64) {
        let mut figures = self.lock();
        figures.members = members;
        figures.generations += 1;
    }

    /// It waits for others to train with.
    pub(crate) fn waits(&self) {
        self.lock().members = 0;
    }

    /// So many steps of the run are done.
    pub(crate) fn stepped(&self, steps: StepCount, epoch: u64, loss: f64) {
        let mut figures = self.lock();
        (figures.steps, figures.epoch, figures.loss) = (steps, epoch, loss);
    }

    /// What it has done so far.
    pub(crate) fn worked(&self, beat: Beat) {
        self.lock().beat = beat;
    }

    fn lock(&self) -> MutexGuard<'_, TrainingFigures> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Callback for Meter {
    fn training_start(&mut self, start: &Start) {
        self.begins(start.workers);
    }

    fn step_end(&mut self, step: &StepReport, _control: &mut Control) {
        self.stepped(step.steps, step.epoch, step.loss);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_meter_follows_the_course_of_training() {
        let mut meter = Meter::default();
        meter.training_start(&Start { workers: 3, ..Start::default() });
        let steps = StepCount(7);
        let step = StepReport { steps, epoch: 1, loss: 0.5, ..StepReport::default() };
        meter.step_end(&step, &mut Control::default());
        meter.worked(Beat { records: 9, ..Beat::default() });
        let beat = Beat { records: 9, ..Beat::default() };
        let seen = TrainingFigures { steps, epoch: 1, loss: 0.5, members: 3, generations: 1, beat };
        assert_eq!(meter.clone().figures(), seen);
        meter.waits();
        meter.begins(1);
        assert_eq!((meter.figures().members, meter.figures().generations), (1, 2));
    }
}
