//! Does what the state machines decide.

use salamander_core::elastic::{Action, Activation, Entry, Millis, Source, ToMember, WorkerId};
use tracing::warn;

use super::Master;
use crate::journal;
use crate::record::Record;
use crate::workers::{Kind, Worker};

impl Master {
    /// Does what was decided: first the disk, then everybody else.
    pub(super) fn settle(&mut self, now: Millis) -> Result<(), journal::Error> {
        loop {
            let actions = self.coordinator.take_actions();
            let orders = self.take_orders();
            self.write(&actions)?;
            if actions.is_empty() && orders.is_empty() {
                break;
            }
            actions.into_iter().for_each(|action| self.perform(now, action));
            orders.into_iter().for_each(|order| self.follow_order(now, order));
        }
        self.answers.drain(..).for_each(|answer| answer());
        self.events.pump();
        Ok(())
    }

    fn write(&mut self, actions: &[Action]) -> Result<(), journal::Error> {
        let epoch = self.coordinator.epoch();
        for action in actions {
            if let Action::Journal(entry) = action {
                self.records.push(Record::Entry { epoch, entry: entry.clone() });
            }
        }
        if !self.records.is_empty() {
            self.journal.append(&self.records)?;
            self.records.clear();
        }
        if !self.lazy.is_empty() {
            self.journal.append_lazily(&self.lazy)?;
            self.lazy.clear();
        }
        Ok(())
    }

    fn perform(&mut self, now: Millis, action: Action) {
        match action {
            Action::Journal(entry) => self.journaled(now, entry),
            Action::Send(id, message) => {
                if let ToMember::Activate(activation) = &message
                    && activation.generation != self.told
                {
                    self.told = activation.generation;
                    if let Source::Checkpoint { mark, .. } = &activation.source {
                        self.events.restored(mark.as_ref().map_or(0, |mark| mark.version));
                        self.mark_report();
                    }
                    let took = now - self.regrouping.take().unwrap_or(now);
                    let text = describe(activation, took);
                    self.events.note(text);
                }
                if !self.workers.send(id, message) {
                    self.coordinator.disconnected(now, id);
                }
            }
            Action::Dropped(id, reason) => {
                self.pace.forget(id);
                if let Some(tasks) = &mut self.tasks {
                    tasks.release(id);
                }
                self.release_names(id);
                self.events.note(format!("worker {id} dropped: {reason}"));
            }
        }
    }

    fn journaled(&mut self, now: Millis, entry: Entry) {
        match entry {
            Entry::Prepared(_) => {
                self.regrouping.get_or_insert(now);
            }
            Entry::Checkpoint(mark) => {
                self.version = self.version.max(mark.version);
                self.events.kept(&mark.id);
                self.events.note(format!("checkpoint {} kept, version {}", mark.id, mark.version));
            }
            Entry::Scaled(workers) => self.events.note(format!("{workers} workers are wanted")),
            Entry::ScaledServers(servers) => {
                self.events.note(format!("{servers} parameter servers are wanted"));
            }
            Entry::Stopping => self.events.note("an early end was asked for".into()),
            Entry::Ended(ending) => {
                self.ended_at = Some(now);
                self.events.ended(ending.clone());
                self.processes.over(ending.clone());
                // Members hear of it from the coordinator; these are none.
                for id in self.others() {
                    self.workers.send(id, ToMember::Ended(ending.clone()));
                }
            }
            Entry::Moved(_) => {
                let servers = self.coordinator.history().servers.len();
                self.events.note(format!("the rows of tables are on {servers} parameter servers"));
            }
            Entry::Opened | Entry::Activated { .. } | Entry::Resumed => {}
        }
    }

    /// Notes which report was told last, for the next master.
    pub(super) fn mark_report(&self) {
        if let Err(error) = self.bookmark.set(self.events.reported()) {
            warn!(%error, "cannot note which report was taken");
        }
    }

    /// Processes that take no part in generations.
    fn others(&self) -> Vec<WorkerId> {
        let other = |worker: &Worker| worker.kind != Kind::Member;
        self.workers.iter().filter(|(_, worker)| other(worker)).map(|(id, _)| id).collect()
    }
}

fn describe(activation: &Activation, took: Millis) -> String {
    let members = activation.members.len();
    let holder = activation.members.get(activation.source.rank());
    let holder = holder.map(|peer| peer.id.to_string()).unwrap_or_default();
    let source = match &activation.source {
        Source::Member { identity, .. } => {
            format!("version {} of worker {holder}", identity.version)
        }
        Source::Checkpoint { mark: Some(mark), .. } => format!("checkpoint {}", mark.id),
        Source::Checkpoint { mark: None, .. } => "a new model".to_string(),
    };
    let generation = activation.generation;
    format!("generation {generation} began: {members} members, from {source}, after {took} ms")
}
