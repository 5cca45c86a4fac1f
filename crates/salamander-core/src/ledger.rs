//! The ledger: which records were applied in which epoch, kept from what was really reduced.
//!
//! Counts and a hash of record ids come with the gradients themselves, so that the ledger would
//! notice a record lost or repeated anywhere between the file and the optimizer.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::ranges::Ranges;
use crate::seed::mix;

/// What one optimizer step applied; sums of these over workers are exact.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Records whose gradient is in the sum.
    pub applied: u64,
    /// Records that could not be decoded and were skipped by the experiment's wish.
    pub skipped: u64,
    /// Records of a step that was skipped, since its gradients overflowed: computed, and nothing came of it.
    #[serde(default)]
    pub overflowed: u64,
    /// Sum of the hashes of all those records.
    pub digest: u64,
    /// Positions of the epoch's order that were taken.
    pub positions: Vec<Range<u64>>,
}

impl Tally {
    /// Counts one record.
    pub fn record(&mut self, id: u64, applied: bool) {
        *(if applied { &mut self.applied } else { &mut self.skipped }) += 1;
        self.digest = self.digest.wrapping_add(mix(id));
    }

    /// Adds another tally of the same step.
    pub fn merge(&mut self, other: &Tally) {
        self.applied += other.applied;
        self.skipped += other.skipped;
        self.overflowed += other.overflowed;
        self.digest = self.digest.wrapping_add(other.digest);
        self.positions.extend(other.positions.iter().cloned());
    }

    /// The same records, in a step that was skipped because its gradients overflowed.
    #[must_use]
    pub fn overflowed(self) -> Self {
        let overflowed = self.overflowed + self.applied;
        Self { applied: 0, overflowed, ..self }
    }
}

/// All epochs of a run. Part of every checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    epochs: BTreeMap<u64, EpochPage>,
}

/// One epoch's page.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct EpochPage {
    records: u64,
    applied: u64,
    skipped: u64,
    #[serde(default)]
    overflowed: u64,
    duplicated: u64,
    digest: u64,
    /// One range as long as steps come in order.
    positions: Ranges,
}

/// A line of `salamander ledger`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerLine {
    /// The epoch, from 0.
    pub epoch: u64,
    /// Records that the epoch has.
    pub records: u64,
    /// Records whose gradient was applied.
    pub applied: u64,
    /// Records not seen so far.
    pub missing: u64,
    /// Records applied more than once.
    pub duplicated: u64,
    /// Records that could not be decoded.
    pub skipped: u64,
    /// Records of steps that were skipped since their gradients overflowed: they moved no parameter.
    #[serde(default)]
    pub overflowed: u64,
    /// Whether the hash over the ids of a complete epoch is right.
    pub intact: bool,
}

impl Ledger {
    /// Enters a committed step of an epoch that has so many records.
    pub fn commit(&mut self, epoch: u64, records: u64, tally: &Tally) {
        let page = self.epochs.entry(epoch).or_default();
        page.records = records;
        page.applied += tally.applied;
        page.skipped += tally.skipped;
        page.overflowed += tally.overflowed;
        page.digest = page.digest.wrapping_add(tally.digest);
        for range in &tally.positions {
            page.duplicated += page.positions.add(range.clone());
        }
    }

    /// Replaces the page of an epoch by what somebody else has counted: so many records were counted more than once.
    pub fn replace(&mut self, epoch: u64, records: u64, tally: &Tally, duplicated: u64) {
        self.epochs.remove(&epoch);
        self.commit(epoch, records, tally);
        if let Some(page) = self.epochs.get_mut(&epoch) {
            page.duplicated += duplicated;
        }
    }

    /// The lines, one per epoch that was begun.
    pub fn lines(&self) -> Vec<LedgerLine> {
        self.epochs.iter().map(|(epoch, page)| page.line(*epoch)).collect()
    }
}

impl EpochPage {
    fn line(&self, epoch: u64) -> LedgerLine {
        let covered = self.positions.len();
        let counted = self.applied + self.skipped + self.overflowed;
        // Counts and positions are kept apart on purpose: a gap between them is a lost record too.
        let short = (covered + self.duplicated).saturating_sub(counted);
        let missing = self.records.saturating_sub(covered) + short;
        let complete = missing == 0 && self.duplicated == 0;
        let expected = || (0..self.records).fold(0u64, |sum, id| sum.wrapping_add(mix(id)));
        LedgerLine {
            epoch,
            records: self.records,
            applied: self.applied,
            missing,
            duplicated: self.duplicated,
            skipped: self.skipped,
            overflowed: self.overflowed,
            intact: !complete || self.digest == expected(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(positions: Range<u64>) -> Tally {
        let mut tally = Tally { positions: vec![positions.clone()], ..Tally::default() };
        positions.for_each(|id| tally.record(id, true));
        tally
    }

    #[test]
    fn a_complete_epoch_is_clean() {
        let mut ledger = Ledger::default();
        for range in [0..4, 8..10, 4..8] {
            ledger.commit(0, 10, &tally(range));
        }
        let line = &ledger.lines()[0];
        assert_eq!((line.applied, line.missing, line.duplicated), (10, 0, 0));
        assert!(line.intact);
    }

    #[test]
    fn lost_and_repeated_records_show() {
        let mut ledger = Ledger::default();
        ledger.commit(0, 10, &tally(0..6));
        ledger.commit(0, 10, &tally(4..8));
        let line = &ledger.lines()[0];
        assert_eq!((line.applied, line.missing, line.duplicated), (10, 2, 2));
    }

    #[test]
    fn a_swapped_record_shows_in_the_hash() {
        let mut wrong = tally(0..10);
        wrong.digest = wrong.digest.wrapping_sub(mix(3)).wrapping_add(mix(4));
        let mut ledger = Ledger::default();
        ledger.commit(0, 10, &wrong);
        assert!(!ledger.lines()[0].intact);
    }

    #[test]
    fn skipped_records_are_not_missing() {
        let mut tally = Tally { positions: Vec::from([0..1, 1..2]), ..Tally::default() };
        tally.record(0, true);
        tally.record(1, false);
        let mut ledger = Ledger::default();
        ledger.commit(0, 2, &tally);
        let line = &ledger.lines()[0];
        assert_eq!((line.applied, line.skipped, line.missing), (1, 1, 0));
        assert!(line.intact);
    }

    #[test]
    fn records_of_a_step_that_overflowed_are_neither_applied_nor_missing() {
        let mut ledger = Ledger::default();
        ledger.commit(0, 10, &tally(0..6));
        ledger.commit(0, 10, &tally(6..10).overflowed());
        let line = &ledger.lines()[0];
        assert_eq!((line.applied, line.overflowed, line.missing, line.duplicated), (6, 4, 0, 0));
        assert!(line.intact);
    }
}
