//! What is in the journal, and what a master that takes over knows from it.

use std::collections::BTreeMap;

use salamander_core::asynchronous;
use salamander_core::elastic::{History, MembershipEntry, Term};
use salamander_core::report::TaskResult;
use salamander_proto::client::TrainedOn;
use serde::{Deserialize, Serialize};

use crate::config::AskedProcesses;
use crate::processes::Restarts;

/// One record of the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Record {
    /// Of the membership, by the master of this term.
    Entry {
        /// The master's. Journals of earlier releases call it `epoch`.
        #[serde(alias = "epoch")]
        term: Term,
        /// The entry.
        entry: MembershipEntry,
    },
    /// What the first worker trains on.
    Data(TrainedOn),
    /// How often workers were started again.
    Restarts(u64),
    /// How often parameter servers were started again.
    ServerRestarts(u64),
    /// Of asynchronous training, by the master of this term.
    MicroBatches {
        /// The master's term, which the file calls `epoch`.
        #[serde(rename = "epoch")]
        term: Term,
        /// The entry.
        entry: asynchronous::AsynchronousEntry,
    },
    /// A task is done.
    Finished {
        /// The task.
        task: u64,
        /// Its result.
        result: TaskResult,
    },
}

/// What happened before this master.
#[derive(Clone, Debug, Default)]
pub(crate) struct Past {
    pub(crate) history: History,
    pub(crate) data: Option<TrainedOn>,
    pub(crate) restarts: Restarts,
    pub(crate) finished: BTreeMap<u64, TaskResult>,
    pub(crate) names: asynchronous::History,
    /// Masters since the run began or was resumed.
    pub(crate) masters: u64,
}

impl Past {
    pub(crate) fn read(records: Vec<Record>) -> Self {
        let mut past = Self::default();
        records.into_iter().for_each(|record| past.apply(record));
        past
    }

    pub(crate) fn apply(&mut self, record: Record) {
        match record {
            Record::Entry { term, entry } => {
                match entry {
                    MembershipEntry::Opened => self.masters += 1,
                    MembershipEntry::Resumed => {
                        self.masters = 0;
                        // Who resumes a run says that it may go on with what there is now.
                        let forgotten = |data: TrainedOn| TrainedOn {
                            records: data.records,
                            fingerprint: data.fingerprint,
                            ..TrainedOn::default()
                        };
                        self.data = self.data.map(forgotten);
                    }
                    _ => {}
                }
                self.history.apply(term, &entry);
            }
            Record::Data(data) => self.data = Some(data),
            Record::Restarts(restarts) => self.restarts.workers = restarts,
            Record::ServerRestarts(restarts) => self.restarts.servers = restarts,
            Record::MicroBatches { term, entry } => self.names.apply(term, &entry),
            Record::Finished { task, result } => {
                self.finished.insert(task, result);
            }
        }
    }

    /// The record that lets a run go on that ended, or whose processes were all killed.
    pub(crate) fn resume(&mut self) -> Option<Record> {
        let begun = self.history.term > Term(0);
        begun.then(|| {
            let record = Record::Entry { term: self.history.term, entry: MembershipEntry::Resumed };
            self.apply(record.clone());
            record
        })
    }

    /// The records of numbers that are asked for with a resume: they go before what the run was scaled to.
    pub(crate) fn rescale(&mut self, asked: AskedProcesses) -> Vec<Record> {
        let differs = |asked: usize, known: Option<usize>| known.is_some_and(|it| it != asked);
        let (known, term) = (&self.history, self.history.term);
        let workers = asked.workers.filter(|number| differs(*number, known.workers));
        let servers = asked.servers.filter(|number| differs(*number, known.wanted_servers));
        let entries = workers.map(MembershipEntry::Scaled).into_iter();
        let entries = entries.chain(servers.map(MembershipEntry::ScaledServers));
        let records: Vec<Record> = entries.map(|entry| Record::Entry { term, entry }).collect();
        records.iter().for_each(|record| self.apply(record.clone()));
        records
    }

    /// The records that let asynchronous training go on, on this number of servers: none of the old ones is there any
    /// more, and all begin with the last checkpoint.
    pub(crate) fn resume_names(&mut self, servers: usize) -> Vec<Record> {
        let servers = self.history.wanted_servers.unwrap_or(servers) as u32;
        let Some(placement) = self.names.placement else { return Vec::new() };
        let term = self.names.term;
        let mut entries = vec![asynchronous::AsynchronousEntry::Resumed];
        if placement.map.servers != servers {
            let map = asynchronous::Map { number: placement.map.number.next(term), servers };
            let placed =
                asynchronous::Placement { map, source: asynchronous::PartitionSource::Checkpoint };
            entries.push(asynchronous::AsynchronousEntry::Placed(placed));
        }
        let record = |entry| Record::MicroBatches { term, entry };
        let records: Vec<Record> = entries.into_iter().map(record).collect();
        records.iter().for_each(|record| self.apply(record.clone()));
        records
    }
}

#[cfg(test)]
mod tests {
    use salamander_core::elastic::Ending;

    use super::*;

    fn entry(term: u32, entry: MembershipEntry) -> Record {
        Record::Entry { term: Term(term), entry }
    }

    #[test]
    fn an_ended_run_goes_on_when_it_is_resumed() {
        let ended = entry(2, MembershipEntry::Ended(Ending::Interrupted));
        let mut past = Past::read(vec![
            entry(1, MembershipEntry::Opened),
            entry(2, MembershipEntry::Opened),
            ended,
        ]);
        assert_eq!(past.masters, 2);
        assert_eq!(past.resume(), Some(entry(2, MembershipEntry::Resumed)));
        assert_eq!((past.masters, past.history.ending.clone()), (0, None));
    }

    #[test]
    fn what_is_asked_for_with_a_resume_goes_before_what_a_run_was_scaled_to() {
        let scaled = entry(1, MembershipEntry::Scaled(5));
        let mut past = Past::read(vec![entry(1, MembershipEntry::Opened), scaled]);
        assert!(past.rescale(AskedProcesses::default()).is_empty());
        assert_eq!(past.history.workers, Some(5), "nobody asks for another number");
        // Servers were not scaled: their number is that of the experiment, which has what is asked for.
        let asked = AskedProcesses { workers: Some(2), servers: Some(3) };
        assert_eq!(past.rescale(asked), [entry(1, MembershipEntry::Scaled(2))]);
        assert_eq!((past.history.workers, past.history.wanted_servers), (Some(2), None));
        assert!(past.rescale(asked).is_empty(), "it is known by now");
        past.apply(entry(1, MembershipEntry::ScaledServers(1)));
        assert_eq!(past.rescale(asked), [entry(1, MembershipEntry::ScaledServers(3))]);
    }

    #[test]
    fn names_that_were_stopped_go_on_with_another_number_of_servers() {
        let number = asynchronous::MapVersion::default().next(Term(1));
        let map = asynchronous::Map { number, servers: 2 };
        let placed =
            asynchronous::Placement { map, source: asynchronous::PartitionSource::Checkpoint };
        let entries = [
            asynchronous::AsynchronousEntry::Opened,
            asynchronous::AsynchronousEntry::Placed(placed),
            asynchronous::AsynchronousEntry::Stopping,
        ];
        let records = entries.map(|entry| Record::MicroBatches { term: Term(1), entry });
        let mut past = Past::read(records.to_vec());
        assert_eq!(past.resume_names(3).len(), 2);
        let map = past.names.placement.map(|placement| placement.map);
        assert_eq!((past.names.stopping, map.map(|map| map.servers)), (false, Some(3)));
        assert!(map.is_some_and(|map| map.number > number));
        assert!(Past::default().resume_names(3).is_empty());
    }

    #[test]
    fn a_run_whose_processes_were_all_killed_has_no_members_when_it_is_resumed() {
        let generation = salamander_core::elastic::Generation { term: Term(1), number: 1 };
        let begun = MembershipEntry::Activated {
            generation,
            members: Vec::new(),
            servers: Vec::new(),
            rows: generation,
            destination: Vec::new(),
        };
        let mut past = Past::read(vec![entry(1, MembershipEntry::Opened), entry(1, begun)]);
        assert!(past.resume().is_some());
        assert_eq!(past.history.activated, None);
        assert_eq!(Past::read(Vec::new()).resume(), None);
    }
}
