//! What the seeds went through, so that nobody has to believe that they went through anything.

use std::fmt;

const KINDS: usize = 17;

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
    pub(crate) transfers: u64,
    pub(crate) checkpoints: u64,
    pub(crate) late_checkpoints: u64,
    pub(crate) interrupted: u64,
    pub(crate) resumed: u64,
    pub(crate) commits: u64,
}

impl Stats {
    /// Name and count of each.
    pub(crate) fn rows(&self) -> [(&'static str, u64); KINDS] {
        [
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
            ("states sent", self.transfers),
            ("checkpoints journaled", self.checkpoints),
            ("checkpoints that came too late", self.late_checkpoints),
            ("runs stopped early", self.interrupted),
            ("stopped runs resumed", self.resumed),
            ("commits", self.commits),
        ]
    }
}

/// Sums over many runs, and in how many of them something happened at all.
#[derive(Clone, Copy, Default)]
pub(crate) struct Tally {
    sums: [u64; KINDS],
    runs: [u64; KINDS],
}

impl Tally {
    pub(crate) fn add(&mut self, stats: &Stats) {
        for (index, (_, count)) in stats.rows().into_iter().enumerate() {
            self.sums[index] += count;
            self.runs[index] += u64::from(count > 0);
        }
    }

    pub(crate) fn merge(mut self, other: Self) -> Self {
        for index in 0..self.sums.len() {
            self.sums[index] += other.sums[index];
            self.runs[index] += other.runs[index];
        }
        self
    }

    /// In how many runs each happened.
    pub(crate) fn runs(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let names = Stats::default().rows().map(|(name, _)| name);
        names.into_iter().zip(self.runs)
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for ((name, runs), sum) in self.runs().zip(self.sums) {
            writeln!(f, "{sum:9} {name}, in {runs} runs")?;
        }
        Ok(())
    }
}
