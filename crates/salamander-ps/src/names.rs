//! Which names the partitions of a thread have applied, kept once for all partitions with the same
//! history: a push marks a handful of sets and not a thousand.

use salamander_core::plan::MicroBatch;

use crate::section::PartitionHistory;
use crate::{Applied, Held, LedgerPage, PARTITIONS, Pages};

/// The partitions of a thread and their histories.
#[derive(Clone, Debug)]
pub(crate) struct PartitionHistories {
    groups: Vec<Held>,
    /// Advances or pushes that each partition has seen.
    ages: Vec<u64>,
}

impl PartitionHistories {
    /// Fresh partitions.
    pub(crate) fn new(slices: u32, mut partitions: Vec<u16>, age: u64) -> Self {
        partitions.sort_unstable();
        let group = Held { partitions, applied: Applied::new(slices), pages: Pages::new() };
        let mut names = Self { groups: vec![group], ages: vec![age; PARTITIONS] };
        names.join();
        names
    }

    /// The partitions, group by group.
    pub(crate) fn partitions(&self) -> impl Iterator<Item = u16> + '_ {
        self.groups.iter().flat_map(|group| group.partitions.iter().copied())
    }

    /// The age of each partition; of no meaning for those that are elsewhere.
    pub(crate) fn ages(&self) -> &[u64] {
        &self.ages
    }

    /// All partitions become older.
    pub(crate) fn advance(&mut self) {
        self.ages.iter_mut().for_each(|age| *age += 1);
    }

    /// Marks a name; returns the partitions to which it is new, which become older.
    pub(crate) fn mark(&mut self, name: MicroBatch, tally: &LedgerPage) -> Vec<u16> {
        let mut fresh = Vec::new();
        for group in &mut self.groups {
            if group.applied.insert(name) {
                group.pages.entry(name.epoch).or_default().add(tally);
                fresh.extend_from_slice(&group.partitions);
            }
        }
        fresh.iter().for_each(|partition| self.ages[usize::from(*partition)] += 1);
        if self.groups.len() > 1 && !fresh.is_empty() {
            self.join();
        }
        fresh
    }

    pub(crate) fn prune(&mut self, below: u64) {
        self.groups.iter_mut().for_each(|group| group.applied.prune(below));
        self.join();
    }

    pub(crate) fn held(&self) -> Vec<Held> {
        self.groups.clone()
    }

    /// The history of a partition, unless it is elsewhere.
    pub(crate) fn history(&self, partition: u16) -> Option<PartitionHistory> {
        let here = |group: &&Held| group.partitions.binary_search(&partition).is_ok();
        let group = self.groups.iter().find(here)?;
        let age = self.ages[usize::from(partition)];
        Some(PartitionHistory { age, applied: group.applied.clone(), pages: group.pages.clone() })
    }

    pub(crate) fn remove(&mut self, partition: u16) {
        for group in &mut self.groups {
            group.partitions.retain(|there| *there != partition);
        }
        self.join();
    }

    /// Adds a partition that comes with its history.
    pub(crate) fn install(&mut self, partition: u16, history: PartitionHistory) {
        self.remove(partition);
        self.ages[usize::from(partition)] = history.age;
        let PartitionHistory { applied, pages, .. } = history;
        self.groups.push(Held { partitions: vec![partition], applied, pages });
        self.join();
    }

    /// Puts groups with the same history together again.
    fn join(&mut self) {
        self.groups = Held::joined(std::mem::take(&mut self.groups));
    }
}
