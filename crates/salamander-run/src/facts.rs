//! What a distributed run has been through, from its journal.

use salamander_core::elastic::MembershipEntry;
use salamander_core::layout::RunLayout;
use salamander_master::journal::Journal;
use salamander_master::record::Record;

/// What a local run has not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The most workers that took part at a time.
    pub workers: u64,
    /// Memberships that began.
    pub generations: u64,
    /// Workers that were started again.
    pub worker_restarts: u64,
    /// Parameter servers that were started again.
    pub server_restarts: u64,
    /// Masters that were started again.
    pub master_restarts: u64,
}

impl Facts {
    /// A local run.
    pub const LOCAL: Facts = Facts {
        workers: 1,
        generations: 1,
        worker_restarts: 0,
        server_restarts: 0,
        master_restarts: 0,
    };

    /// From the journal of a run whose master has ended.
    pub(crate) fn read(run: &RunLayout) -> Self {
        let mut facts = Facts { workers: 0, generations: 0, ..Facts::LOCAL };
        let journal = Journal::<Record>::open(&run.journal());
        for record in journal.map(|(_, records)| records).unwrap_or_default() {
            match record {
                Record::Entry { entry: MembershipEntry::Activated { members, .. }, .. } => {
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
