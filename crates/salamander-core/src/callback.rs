//! Who is told about the course of training: the progress bar, the metrics file, and users' code.
//!
//! With the strategies `allreduce` and `hybrid` a model's callbacks are called in every worker, with the same values,
//! and must come to the same decisions; [`Start::leads`] tells the one that may write files. With strategy `ps` they
//! are called in the master's process, which waits for them.

use std::path::Path;

use serde_json::Value;

use crate::metrics::Metrics;
use crate::progress::Progress;
pub use crate::report::{EpochReport, Start, StepReport};

/// Told about the course of training; every method may be left out.
pub trait Callback: Send {
    /// While the data is opened, before all else: so many of its files are indexed.
    fn indexing(&mut self, _files: u64, _of: u64) {}
    /// Training waits for streamed data, of which so many records are there.
    fn waiting(&mut self, _records: u64) {}
    /// Before the first step (again after a resume, and when streamed data is counted).
    fn training_start(&mut self, _start: &Start) {}
    /// Before an epoch's first step.
    fn epoch_start(&mut self, _epoch: u64) {}
    /// After the optimizer has stepped.
    fn step_end(&mut self, _step: &StepReport, _control: &mut Control) {}
    /// Before a validation of so many batches.
    fn validation_start(&mut self, _batches: u64) {}
    /// After each batch of it.
    fn validation_batch(&mut self) {}
    /// After a validation.
    fn validation_end(&mut self, _metrics: &Metrics, _control: &mut Control) {}
    /// After an epoch, or a validation within it.
    fn epoch_end(&mut self, _epoch: &EpochReport) {}
    /// When a checkpoint is safely on disk.
    fn checkpoint_saved(&mut self, _path: &Path) {}
    /// After the last step.
    fn training_end(&mut self, _progress: &Progress) {}
    /// State of its own for checkpoints; a callback that has some also has a name.
    fn state(&self) -> Option<(&'static str, Value)> {
        None
    }
    /// Takes the state back on resume.
    fn restore(&mut self, _state: &Value) {}
}

/// What a callback can ask for.
#[derive(Debug, Default)]
pub struct Control {
    stop: bool,
}

impl Control {
    /// Ends training after this step, as if its length were reached.
    pub fn stop(&mut self) {
        self.stop = true;
    }
}

/// All who are told, in order.
#[derive(Default)]
pub struct Callbacks(Vec<Box<dyn Callback>>);

impl Callbacks {
    /// These, in this order.
    pub fn new(callbacks: Vec<Box<dyn Callback>>) -> Self {
        Self(callbacks)
    }

    /// Tells all of them.
    pub fn tell(&mut self, mut each: impl FnMut(&mut dyn Callback)) {
        self.0.iter_mut().for_each(|callback| each(callback.as_mut()));
    }

    /// Tells all of them; whether one wants training to end.
    pub fn ask(&mut self, mut each: impl FnMut(&mut dyn Callback, &mut Control)) -> bool {
        let mut control = Control::default();
        self.tell(|callback| each(callback, &mut control));
        control.stop
    }

    /// Puts their state into the progress, for a checkpoint.
    pub fn save(&self, progress: &mut Progress) {
        for (name, state) in self.0.iter().filter_map(|callback| callback.state()) {
            progress.callbacks.insert(name.to_string(), state);
        }
    }

    /// Gives them their state back.
    pub fn restore(&mut self, progress: &Progress) {
        for callback in &mut self.0 {
            if let Some((name, _)) = callback.state()
                && let Some(state) = progress.callbacks.get(name)
            {
                callback.restore(state);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Counts(u64);

    impl Callback for Counts {
        fn step_end(&mut self, _step: &StepReport, control: &mut Control) {
            self.0 += 1;
            if self.0 == 2 {
                control.stop();
            }
        }
        fn state(&self) -> Option<(&'static str, Value)> {
            Some(("counts", self.0.into()))
        }
        fn restore(&mut self, state: &Value) {
            self.0 = state.as_u64().unwrap_or(0);
        }
    }

    #[test]
    fn a_callback_stops_training_and_keeps_its_state() {
        let report = StepReport::default();
        let mut callbacks = Callbacks::new(vec![Box::<Counts>::default()]);
        let step = |all: &mut Callbacks| all.ask(|one, control| one.step_end(&report, control));
        assert!(!step(&mut callbacks));
        let mut progress = Progress::default();
        callbacks.save(&mut progress);
        let mut others = Callbacks::new(vec![Box::<Counts>::default()]);
        others.restore(&progress);
        assert!(step(&mut others), "it goes on with its count");
    }
}
