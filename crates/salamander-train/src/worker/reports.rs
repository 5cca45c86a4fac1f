//! What a run tells outside. Every member keeps the same reports; the first one sends them, each when all members
//! hold its version. Whoever is first next sends the last ones again, and the master takes each once.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use salamander_core::elastic::Version;
use salamander_core::report::Report;
use salamander_proto::client::Sender;

use crate::callback::{Callback, Control, EpochReport, Start, StepReport};

/// Reports that are kept for a successor.
const KEPT: usize = 256;

/// Reports of this member, oldest first.
#[derive(Default)]
pub(super) struct Queue {
    /// The version that the next report is about.
    pub(super) version: Version,
    waiting: VecDeque<Versioned>,
    told: VecDeque<Versioned>,
}

/// A report and the version that it is about.
struct Versioned {
    version: Version,
    report: Report,
}

impl Queue {
    fn push(&mut self, report: Report) {
        self.waiting.push_back(Versioned { version: self.version, report });
    }

    /// All members hold versions up to this one.
    pub(super) fn release(&mut self, common: Version, sender: Option<&Sender>) {
        while let Some(told) = self.waiting.pop_front_if(|report| report.version <= common) {
            if let Some(sender) = sender {
                sender.report(told.version.0, &told.report);
            }
            self.told.push_back(told);
        }
        let old = self.told.len().saturating_sub(KEPT);
        self.told.drain(..old);
    }

    /// This member is the first one from now on: the one before may not have sent them all.
    pub(super) fn repeat(&self, sender: &Sender) {
        for Versioned { version, report } in &self.told {
            sender.report(version.0, report);
        }
    }

    /// The state was replaced: what was not told yet is about another one.
    pub(super) fn forget(&mut self) {
        self.waiting.clear();
    }
}

/// Turns the course of training into reports; clones have the same queue.
#[derive(Clone, Default)]
pub(super) struct Reports(Arc<Mutex<Queue>>);

impl Reports {
    pub(super) fn queue(&self) -> MutexGuard<'_, Queue> {
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
