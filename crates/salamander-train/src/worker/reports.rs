//! Turns the course of training into reports, which go along with a state that is sent.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use salamander_core::elastic::ReportQueue;
use salamander_core::report::Report;

use crate::Error;
use crate::callback::{Callback, Control, EpochReport, Start, StepReport};

/// Clones have the same queue.
#[derive(Clone, Default)]
pub(super) struct Reports(Arc<Mutex<ReportQueue<Report>>>);

impl Reports {
    pub(super) fn queue(&self) -> MutexGuard<'_, ReportQueue<Report>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts them behind a state, with their length at the end.
    pub(super) fn append(&self, state: &mut Vec<u8>) -> Result<(), Error> {
        let begin = state.len();
        serde_json::to_writer(&mut *state, &*self.queue()).map_err(not_readable)?;
        let len = (state.len() - begin) as u64;
        state.extend(len.to_le_bytes());
        Ok(())
    }

    /// Takes them off a state that arrived.
    pub(super) fn split(state: &mut Vec<u8>) -> Result<ReportQueue<Report>, Error> {
        let cut = || Error::Broken("a state arrived without its reports".to_string());
        let (rest, len) = state.split_last_chunk::<8>().ok_or_else(cut)?;
        let len = usize::try_from(u64::from_le_bytes(*len)).map_err(|_| cut())?;
        let begin = rest.len().checked_sub(len).ok_or_else(cut)?;
        let queue = serde_json::from_slice(&rest[begin..]).map_err(not_readable)?;
        state.truncate(begin);
        Ok(queue)
    }
}

fn not_readable(error: serde_json::Error) -> Error {
    Error::Broken(format!("the reports of a state: {error}"))
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reports_come_off_the_state_that_they_were_put_behind() {
        let mut reports = Reports::default();
        reports.epoch_end(&EpochReport { epoch: 3, ..EpochReport::default() });
        let mut state = vec![7, 8, 9];
        reports.append(&mut state).expect("written");
        let queue = Reports::split(&mut state).expect("whole");
        assert_eq!(state, [7, 8, 9]);
        assert_eq!(format!("{queue:?}"), format!("{:?}", reports.queue()));
    }

    proptest! {
        #[test]
        fn whatever_arrives_never_panics(mut bytes: Vec<u8>) {
            let before = bytes.clone();
            if Reports::split(&mut bytes).is_err() {
                prop_assert_eq!(bytes, before);
            }
        }
    }
}
