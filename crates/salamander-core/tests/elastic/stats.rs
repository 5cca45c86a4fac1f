//! What a seed went through.

use crate::simulation::Counts;

/// Counts of one run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stats {
    pub(crate) masters: u64,
    pub(crate) master_crashes: u64,
    pub(crate) two_masters: u64,
    pub(crate) refused_masters: u64,
    pub(crate) refused_entries: u64,
    pub(crate) generations: u64,
    pub(crate) restores: u64,
    pub(crate) dropped_sleepers: u64,
    pub(crate) kills: u64,
    pub(crate) kills_in_exchange: u64,
    pub(crate) late_results: u64,
    pub(crate) late_promises: u64,
    pub(crate) transfers: u64,
    pub(crate) checkpoints: u64,
    pub(crate) late_checkpoints: u64,
    pub(crate) interrupted: u64,
    pub(crate) resumed: u64,
    pub(crate) commits: u64,
}

impl Stats {
    /// Name and count of each.
    pub(crate) fn rows(&self) -> Counts {
        vec![
            ("masters", self.masters),
            ("master crashes", self.master_crashes),
            ("two masters at once", self.two_masters),
            ("old masters refused by workers", self.refused_masters),
            ("old masters refused by the journal", self.refused_entries),
            ("generations", self.generations),
            ("restores from a checkpoint", self.restores),
            ("sleepers dropped", self.dropped_sleepers),
            ("kills", self.kills),
            ("kills in mid-exchange", self.kills_in_exchange),
            ("results that came too late", self.late_results),
            ("promises that waited for a commit", self.late_promises),
            ("states sent", self.transfers),
            ("checkpoints journaled", self.checkpoints),
            ("checkpoints that came too late", self.late_checkpoints),
            ("runs stopped early", self.interrupted),
            ("stopped runs resumed", self.resumed),
            ("commits", self.commits),
        ]
    }
}
