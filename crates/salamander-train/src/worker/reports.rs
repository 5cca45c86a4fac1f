//! What a run tells outside. Every member keeps the same reports; the first one sends them, each when all members
//! hold its version. Whoever is first next sends the last ones again, and the master takes each once.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use salamander_proto::client::Sender;
use serde_json::{Value, json};

use crate::callback::{Callback, Control, EpochReport, Start, StepReport};

/// Reports that are kept for a successor.
const KEPT: usize = 256;

/// A report's place within its version.
const START: u32 = 0;
const STEP: u32 = 1;
const EPOCH: u32 = 2;

/// Reports of this member, oldest first.
#[derive(Default)]
pub(super) struct Queue {
    /// The version that the next report is about.
    pub(super) version: u64,
    waiting: VecDeque<Report>,
    told: VecDeque<Report>,
}

struct Report {
    version: u64,
    part: u32,
    json: String,
}

impl Queue {
    pub(super) fn shared() -> Arc<Mutex<Self>> {
        Arc::default()
    }

    fn push(&mut self, part: u32, value: &Value) {
        let report = Report { version: self.version, part, json: value.to_string() };
        self.waiting.push_back(report);
    }

    /// All members hold versions up to this one.
    pub(super) fn release(&mut self, common: u64, sender: Option<&Sender>) {
        while self.waiting.front().is_some_and(|report| report.version <= common) {
            let Some(report) = self.waiting.pop_front() else { return };
            if let Some(sender) = sender {
                sender.report(report.version, report.part, report.json.clone());
            }
            self.told.push_back(report);
        }
        let old = self.told.len().saturating_sub(KEPT);
        self.told.drain(..old);
    }

    /// This member is the first one from now on: the one before may not have sent them all.
    pub(super) fn repeat(&self, sender: &Sender) {
        for report in &self.told {
            sender.report(report.version, report.part, report.json.clone());
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
    fn push(&self, part: u32, value: &Value) {
        if let Ok(mut queue) = self.0.lock() {
            queue.push(part, value);
        }
    }
}

impl Callback for Reports {
    fn training_start(&mut self, start: &Start) {
        self.push(START, &json!({"start": start}));
    }

    fn step_end(&mut self, step: &StepReport, _control: &mut Control) {
        self.push(STEP, &json!({"step": step}));
    }

    fn epoch_end(&mut self, epoch: &EpochReport) {
        self.push(EPOCH, &json!({"epoch": epoch}));
    }
}
