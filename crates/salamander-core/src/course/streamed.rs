//! Data that is still being written while its first epoch goes on: how many records there are comes out in the end.
//!
//! Nothing that a step computes may depend on what is not there yet, so that the bits are those of data that was there
//! from the beginning. A step is done when it is known not to be the last of the epoch, or when all records are
//! counted; so validations, the end of the epoch and the end of training come after the same steps.

use super::{Course, Error, StepPlace, extents};
use crate::plan::Plan;
use crate::schedule::Schedule;

/// The number of records as long as nobody knows it: more than there can be, and little enough to be multiplied by
/// epochs.
pub const UNCOUNTED: u64 = 1 << 40;

/// Refuses what would have to know how long training is.
pub(super) fn check(schedule: &Schedule) -> Result<(), Error> {
    if schedule.needs_length() {
        let reason = "a curve over all of training needs to know its length, which nobody does while data is \
                      streamed: give it `over`, as in {by: step, curve: {cosine: {over: 10000}}}";
        return Err(Error::Refused { field: "schedule", reason: reason.to_string() });
    }
    Ok(())
}

impl Course {
    /// Whether it is known how many records an epoch has.
    pub fn is_counted(&self) -> bool {
        self.plan.records != UNCOUNTED
    }

    /// Records of an epoch, as far as they are known.
    pub(super) fn known_records(&self) -> u64 {
        if self.is_counted() { self.plan.records } else { self.there }
    }

    /// Of records that are still being written, so many are there.
    pub fn records_there(&mut self, records: u64) {
        self.there = records;
    }

    /// All records are written, and there are so many. What was done of them stays done.
    pub fn counted(&mut self, records: u64) -> Result<(), Error> {
        let plan = Plan { records, ..self.plan };
        let done = &self.progress;
        let too_few = records == 0 || records >= UNCOUNTED || done.step >= plan.steps().max(1);
        if too_few {
            let (step, epoch) = (done.step, done.epoch);
            let reason = format!(
                "it has {records} records, and {step} steps of epoch {epoch} are done: it is not the \
                 data that this run began with"
            );
            return Err(Error::Refused { field: "data.training", reason });
        }
        self.plan = plan;
        (self.extent, self.end) = extents(&self.experiment, &plan);
        Ok(())
    }

    /// Forgets the number of records of data that is streamed: members of a generation must all have learned it in
    /// the same place.
    pub fn uncount(&mut self) {
        self.plan.records = UNCOUNTED;
        self.there = 0;
        (self.extent, self.end) = extents(&self.experiment, &self.plan);
    }

    /// Whether the records of a step are there, and it is known whether others follow.
    pub fn is_ready(&self, place: StepPlace) -> bool {
        let behind = (place.step + 1) * self.plan.step_records();
        self.is_counted() || (place.epoch == 0 && behind < self.there)
    }

    /// All steps from here that can be done with the records that are there.
    pub fn ready_steps(&self) -> impl Iterator<Item = StepPlace> + Send + use<> {
        let (counted, there, records) = (self.is_counted(), self.there, self.plan.step_records());
        self.steps().take_while(move |place| {
            counted || (place.epoch == 0 && (place.step + 1) * records < there)
        })
    }
}
