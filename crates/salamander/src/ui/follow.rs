//! A distributed run as its supervisor sees it: the master's events drive the same bar and table as a local run.

use std::path::Path;

use indicatif::ProgressBar;
use salamander_core::elastic::Entry;
use salamander_master::journal::Journal;
use salamander_master::record::Record;
use salamander_proto::v1;
use salamander_train::callback::{Callback, Control, EpochReport, Start, StepReport};
use salamander_train::progress::Progress;
use serde::Deserialize;

use super::{Bar, EpochTable, Out};

/// What a local run has not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    /// The most workers that took part at a time.
    pub(crate) workers: u64,
    /// Memberships that began.
    pub(crate) generations: u64,
    /// Workers that were started again.
    pub(crate) worker_restarts: u64,
    /// Parameter servers that were started again.
    pub(crate) server_restarts: u64,
    /// Masters that were started again.
    pub(crate) master_restarts: u64,
}

impl Facts {
    /// A local run.
    pub(crate) const LOCAL: Facts = Facts {
        workers: 1,
        generations: 1,
        worker_restarts: 0,
        server_restarts: 0,
        master_restarts: 0,
    };

    /// From the journal of a run whose master has ended.
    pub(crate) fn read(folder: &Path) -> Self {
        let mut facts = Facts { workers: 0, generations: 0, ..Facts::LOCAL };
        let journal = Journal::<Record>::open(&folder.join("journal"));
        for record in journal.map(|(_, records)| records).unwrap_or_default() {
            match record {
                Record::Entry { entry: Entry::Activated { members, .. }, .. } => {
                    facts.generations += 1;
                    facts.workers = facts.workers.max(members.len() as u64);
                }
                Record::Restarts(restarts) => facts.worker_restarts = restarts,
                Record::ServerRestarts(restarts) => facts.server_restarts = restarts,
                _ => {}
            }
        }
        facts
    }
}

/// A report of a worker, as it comes over the wire.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Report {
    Start(Start),
    Step(StepReport),
    Epoch(EpochReport),
    End(serde::de::IgnoredAny),
}

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
    pub(crate) fn take(&mut self, event: &v1::Event) {
        match &event.event {
            Some(v1::event::Event::Report(json)) => {
                // A report of another version of this program is no reason to fail.
                if let Ok(report) = serde_json::from_str(json) {
                    self.show(report);
                }
            }
            Some(v1::event::Event::Note(text)) => match &self.handle {
                Some(bar) => bar.println(text),
                None => eprintln!("{text}"),
            },
            Some(v1::event::Event::Ended(_)) | None => {}
        }
    }

    fn show(&mut self, report: Report) {
        match report {
            Report::Start(start) if !self.begun => {
                self.begun = true;
                self.table.training_start(&start);
                self.bar.training_start(&start);
            }
            Report::Step(step) => {
                if self.epoch != Some(step.epoch) {
                    self.epoch = Some(step.epoch);
                    self.bar.epoch_start(step.epoch);
                }
                self.bar.step_end(&step, &mut Control::default());
            }
            Report::Epoch(epoch) => {
                self.table.epoch_end(&epoch);
                self.bar.epoch_end(&epoch);
            }
            Report::Start(_) | Report::End(_) => {}
        }
    }

    /// The run is over.
    pub(crate) fn finish(&mut self) {
        self.bar.training_end(&Progress::default());
    }
}
