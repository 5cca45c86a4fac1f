//! What a run tells outside. Every member keeps the same reports; the first one sends them, each when all members
//! hold its version. Whoever is first next sends the last ones again, and the master takes each once.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use salamander_core::report::Report;
use salamander_proto::client::Sender;

use crate::callback::{Callback, Control, EpochReport, Start, StepReport};

/// Reports that are kept for a successor.
const KEPT: usize = 256;

/// Reports of this member, oldest first.
#[derive(Default)]
pub(super) struct Queue {
    /// The version that the next report is about.
    pub(super) version: u64,
    waiting: VecDeque<Versioned>,
    told: VecDeque<Versioned>,
}

/// A report and the version that it is about.
struct Versioned {
    version: u64,
    report: Report,
}

impl Versioned {
    fn send(&self, sender: &Sender) {
        sender.report(self.version, &self.report);
    }
}

impl Queue {
    pub(super) fn shared() -> Arc<Mutex<Self>> {
        Arc::default()
    }

    fn push(&mut self, report: Report) {
        self.waiting.push_back(Versioned { version: self.version, report });
    }

    /// All members hold versions up to this one.
    pub(super) fn release(&mut self, common: u64, sender: Option<&Sender>) {
        while self.waiting.front().is_some_and(|report| report.version <= common) {
            let Some(report) = self.waiting.pop_front() else { return };
            if let Some(sender) = sender {
                report.send(sender);
            }
            self.told.push_back(report);
        }
        let old = self.told.len().saturating_sub(KEPT);
        self.told.drain(..old);
    }

    /// This member is the first one from now on: the one before may not have sent them all.
    pub(super) fn repeat(&self, sender: &Sender) {
        for report in &self.told {
            report.send(sender);
        }
    }

    /// The state was replaced: what was not told yet is about another one.
    pub(super) fn forget(&mut self) {
        self.waiting.clear();
    }
}

/// Turns the course of training into reports.
pub(super) struct Reports(pub(super) Arc<Mutex<Queue>>);

impl Reports {
    fn push(&self, report: Report) {
        if let Ok(mut queue) = self.0.lock() {
            queue.push(report);
        }
    }
}

impl Callback for Reports {
    fn training_start(&mut self, start: &Start) {
        self.push(Report::Start(start.clone()));
    }

    fn step_end(&mut self, step: &StepReport, _control: &mut Control) {
        self.push(Report::Step(step.clone()));
    }

    fn epoch_end(&mut self, epoch: &EpochReport) {
        self.push(Report::Epoch(epoch.clone()));
    }
}
