//! Population based training (<https://arxiv.org/abs/1711.09846>): from time to time the worst trials go on as
//! copies of the best, with hyperparameters near theirs.
//!
//! All trials meet at each generation: then no result depends on which of them was faster.

use std::collections::BTreeMap;

use salamander_core::seed::{Rng, derive};

use super::flat::full_length;
use super::{Decision, Scheduler};
use crate::{Ending, TrialId};

/// How a population trains.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PopulationRule {
    /// The whole length of a trial.
    pub length: u64,
    /// The length of a generation.
    pub interval: u64,
    /// The part of the trials that is replaced.
    pub quantile: f64,
    /// How many trials there are.
    pub size: u64,
    /// The search's seed.
    pub seed: u64,
}

/// A population that meets after each generation.
#[derive(Clone, Debug)]
pub(crate) struct Population {
    rule: PopulationRule,
    /// The length of the next meeting.
    meeting: u64,
    /// What each has measured for it; `None`: not there yet.
    members: BTreeMap<TrialId, Option<MemberStanding>>,
}

#[derive(Clone, Copy, Debug)]
struct MemberStanding {
    score: f64,
    failed: bool,
}

impl Population {
    pub(crate) fn new(rule: PopulationRule) -> Self {
        Self { rule, meeting: rule.interval.min(rule.length), members: BTreeMap::new() }
    }

    fn arrive(&mut self, trial: TrialId, standing: MemberStanding) -> Vec<Decision> {
        self.members.insert(trial, Some(standing));
        let missing = self.members.values().filter(|standing| standing.is_none()).count();
        if missing > 0 || (self.members.len() as u64) < self.rule.size {
            let reason = format!("waits for the others at {}", self.meeting);
            return match standing.failed {
                true => Vec::new(),
                false => vec![Decision::Pause { trial, reason }],
            };
        }
        self.meet()
    }

    /// All are there: the worst become copies of the best.
    fn meet(&mut self) -> Vec<Decision> {
        let members = self.members.clone();
        let standing = |trial: &TrialId| members[trial].map_or(f64::MAX, |s| s.score);
        let failed = |trial: &TrialId| members[trial].is_some_and(|s| s.failed);
        let mut order: Vec<TrialId> = self.members.keys().copied().collect();
        order.sort_by(|a, b| {
            failed(a).cmp(&failed(b)).then(standing(a).total_cmp(&standing(b))).then(a.cmp(b))
        });
        let alive = order.iter().filter(|trial| !failed(trial)).count();
        if alive == 0 {
            return Vec::new();
        }
        let at = self.meeting;
        if at >= self.rule.length {
            let stop = |trial| Decision::Stop { trial, reason: full_length(at) };
            return order.into_iter().take(alive).map(stop).collect();
        }
        let size = order.len();
        let part =
            ((size as f64 * self.rule.quantile).floor() as usize).clamp(1, (size / 2).max(1));
        let best: Vec<TrialId> = order[..part.min(alive)].to_vec();
        self.meeting = (at + self.rule.interval).min(self.rule.length);
        let until = self.meeting;
        let mut verdicts = Vec::new();
        for (place, trial) in order.iter().copied().enumerate() {
            let replaced = failed(&trial) || (place >= size - part && !best.contains(&trial));
            let mut rng = Rng::new(derive(self.rule.seed, &[trial.0, at, 0x706f_7075]));
            verdicts.push(match replaced {
                true => {
                    let from = best[rng.below(best.len() as u64) as usize];
                    let reason = format!(
                        "place {} of {size} at {at}: goes on as a copy of trial {from}",
                        place + 1
                    );
                    Decision::Copy { trial, from, until, reason }
                }
                false => {
                    let reason = format!("place {} of {size} at {at}", place + 1);
                    Decision::Go { trial, until, reason }
                }
            });
        }
        self.members.values_mut().for_each(|standing| *standing = None);
        verdicts
    }
}

impl Scheduler for Population {
    fn begin(&mut self) -> Vec<usize> {
        vec![0; self.rule.size as usize]
    }

    fn first_length(&self, _bracket: usize) -> u64 {
        // Who is made later, for one that was refused, meets the others where they meet next.
        self.meeting
    }

    fn created(&mut self, trial: TrialId, _bracket: usize) {
        self.members.insert(trial, None);
    }

    fn report(&mut self, trial: TrialId, length: u64, score: f64) -> Vec<Decision> {
        match length < self.meeting {
            true => Vec::new(),
            false => self.arrive(trial, MemberStanding { score, failed: false }),
        }
    }

    fn ended(&mut self, trial: TrialId, how: Ending) -> Vec<Decision> {
        match how {
            Ending::Invalid => {
                self.members.remove(&trial);
                vec![Decision::New { bracket: 0 }]
            }
            Ending::Completed | Ending::Failed => {
                self.arrive(trial, MemberStanding { score: f64::MAX, failed: true })
            }
        }
    }
}
