//! What a run tells outside. Every member keeps the same reports; the first one sends them, each when all members hold
//! its version. Whoever receives a state receives its reports with it, since their holder may leave before it has told
//! them. Whoever is first next sends the last ones again, and the master takes each once, unless the generation that it
//! is from was given up.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::{Generation, GenerationChain, Identity, Version};

/// Reports that are kept for a successor.
const KEPT: usize = 256;

/// The reports of a member, oldest first.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReportQueue<R> {
    /// What the next report is about.
    version: Version,
    generation: Generation,
    waiting: VecDeque<MemberReport<R>>,
    told: VecDeque<MemberReport<R>>,
}

/// A report and the state that it is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberReport<R> {
    /// Its version.
    pub version: Version,
    /// The generation that came by it.
    pub generation: Generation,
    /// What is told of it.
    pub report: R,
}

impl<R> Default for ReportQueue<R> {
    fn default() -> Self {
        let (version, generation) = (Version::default(), Generation::default());
        Self { version, generation, waiting: VecDeque::new(), told: VecDeque::new() }
    }
}

impl<R: Clone> ReportQueue<R> {
    /// From now on reports are about this state, which the generation has.
    pub fn follow(&mut self, state: Identity, generation: Generation) {
        (self.version, self.generation) = (state.version, generation);
    }

    /// Adds a report.
    pub fn push(&mut self, report: R) {
        let (version, generation) = (self.version, self.generation);
        self.waiting.push_back(MemberReport { version, generation, report });
    }

    /// All members hold versions up to this one: what may be told now.
    pub fn release(&mut self, common: Version) -> Vec<MemberReport<R>> {
        let mut released = Vec::new();
        while let Some(told) = self.waiting.pop_front_if(|report| report.version <= common) {
            self.told.push_back(told.clone());
            released.push(told);
        }
        let old = self.told.len().saturating_sub(KEPT);
        self.told.drain(..old);
        released
    }

    /// What was told last: this member is the first one from now on, and the one before may not have sent it all.
    pub fn repeated(&self) -> impl Iterator<Item = &MemberReport<R>> {
        self.told.iter()
    }

    /// The state is gone: what was not told yet was about it.
    pub fn forget(&mut self) {
        self.waiting.clear();
    }
}

/// Which report a master took last. Each is taken once, in growing order; those of another line are told anew from the
/// version that it began with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TakenReports {
    /// The first generation of the line that it is of.
    pub line: Generation,
    /// Its place in that line.
    pub newest: Option<ReportPlace>,
}

/// Where a report stands among those of its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReportPlace {
    /// The version that it is about.
    pub version: Version,
    /// Which report about that version it is.
    pub part: u32,
}

impl TakenReports {
    /// Takes a report of a line, if nothing as new of it was taken before.
    pub fn take(&mut self, line: GenerationChain, place: ReportPlace) -> bool {
        if line.generation != self.line {
            self.line = line.generation;
            self.restored(line.from);
        }
        let is_news = self.newest.is_none_or(|newest| newest < place);
        if is_news {
            self.newest = Some(place);
        }
        is_news
    }

    /// The run goes on from a checkpoint of this version: what comes after it is told anew.
    pub fn restored(&mut self, version: Version) {
        let before = version.0.checked_sub(1).map(Version);
        self.newest = before.map(|version| ReportPlace { version, part: u32::MAX });
    }
}

#[cfg(test)]
mod tests {
    use super::super::{StateLineage, Term};
    use super::*;

    const FIRST: Generation = Generation { term: Term(1), number: 1 };

    fn queue(versions: u64) -> ReportQueue<u64> {
        let mut queue = ReportQueue::default();
        for version in 1..=versions {
            let (version, lineage) = (Version(version), StateLineage(0));
            queue.follow(Identity { version, generation: FIRST, lineage }, FIRST);
            queue.push(version.0);
        }
        queue
    }

    fn told(released: &[MemberReport<u64>]) -> Vec<u64> {
        released.iter().map(|told| told.report).collect()
    }

    #[test]
    fn a_report_is_told_when_all_hold_its_version() {
        let mut queue = queue(3);
        assert_eq!(told(&queue.release(Version(2))), [1, 2]);
        assert_eq!(queue.release(Version(2)), []);
        assert_eq!(queue.repeated().map(|told| told.report).collect::<Vec<_>>(), [1, 2]);
        queue.forget();
        assert_eq!(queue.release(Version(9)), []);
    }

    #[test]
    fn only_the_last_reports_are_kept() {
        let mut queue = queue(KEPT as u64 + 5);
        queue.release(Version(1_000));
        assert_eq!(queue.repeated().next().map(|told| told.report), Some(6));
    }

    #[test]
    fn a_report_is_taken_once_and_anew_on_another_line() {
        let mut taken = TakenReports::default();
        let line = GenerationChain::default();
        let place = |(version, part)| ReportPlace { version: Version(version), part };
        let places = [(1, 0), (1, 0), (2, 0), (2, 0), (1, 9), (2, 1), (5, 0), (3, 0)];
        let news = places.map(|at| taken.take(line, place(at)));
        assert_eq!(news, [true, false, true, false, false, true, true, false]);
        // A master that was killed before it heard anything of the new line reads this from its file.
        let other = GenerationChain { generation: FIRST, from: Version(2) };
        let news = [(1, 0), (2, 0), (3, 0), (3, 0)].map(|at| taken.take(other, place(at)));
        assert_eq!(news, [false, true, true, false]);
    }
}
