//! Progressive halving (<https://arxiv.org/abs/2207.06940>): the top rung is raised only while the order of the best
//! trials still changes from one rung to the next by more than noise.

use std::collections::{BTreeSet, HashMap};

use super::flat::TrialCount;
use super::noise::{NEIGHBOURS, RankingNoise};
use super::rung::{Divisor, Rung};
use super::{Bracket, Decision, Scheduler};
use crate::{Ending, TrialId};

/// How many of the best must keep their order. The paper compares all of the top rung; whom a search chooses is decided
/// among the first, and on curves of lcdb the others cost a sixth more training for nothing.
const COMPARED: usize = 2;

/// Halving in the promotion form whose top rung is raised step by step.
#[derive(Clone, Debug)]
pub(crate) struct Pasha {
    divisor: Divisor,
    rungs: Vec<Rung>,
    /// The highest rung that is in use.
    top: usize,
    at: HashMap<TrialId, usize>,
    running: BTreeSet<TrialId>,
    over: BTreeSet<TrialId>,
    trials: TrialCount,
    noise: RankingNoise,
    /// The best scores at the rung below of those who have come to the top one.
    best_below: Vec<f64>,
}

impl Pasha {
    pub(crate) fn new(divisor: Divisor, plan: &Bracket) -> Self {
        let rungs: Vec<Rung> = plan.rungs.iter().map(|length| Rung::new(*length)).collect();
        Self {
            divisor,
            top: 1.min(rungs.len() - 1),
            rungs,
            at: HashMap::new(),
            running: BTreeSet::new(),
            over: BTreeSet::new(),
            trials: TrialCount::new(plan.max_trials, plan.max_concurrent_trials, true),
            noise: RankingNoise::default(),
            best_below: Vec::new(),
        }
    }

    /// Whether the best of the top rung stand there in another order than they did in the rung below: one has a place
    /// that was another's, who differed from it by more than noise.
    fn order_changes(&self) -> bool {
        let equal = self.noise.level();
        let best = self.rungs[self.top].entries().take(COMPARED);
        let now = best.map(|entry| self.below(entry.trial));
        now.zip(&self.best_below).any(|(now, then)| (now - then).abs() > equal)
    }

    /// What a trial measured at the rung below the top one; whoever failed on the way is the worst.
    fn below(&self, trial: TrialId) -> f64 {
        let below = self.rungs[self.top - 1].length;
        self.noise.score_at(trial, below).unwrap_or(f64::MAX)
    }

    fn arrive(&mut self, trial: TrialId, score: f64) {
        let rung = self.at.get(&trial).copied().unwrap_or(0);
        let place = self.rungs[rung].insert_after_equals(trial, score);
        self.running.remove(&trial);
        if rung == self.top && self.top + 1 < self.rungs.len() {
            self.noise.arrived(trial, &self.rungs[rung].around(place, NEIGHBOURS));
            self.best_below.push(self.below(trial));
            self.best_below.sort_by(f64::total_cmp);
            self.best_below.truncate(COMPARED);
            if self.order_changes() {
                self.top += 1;
                self.best_below.clear();
                self.noise.raised();
            }
        }
    }

    /// Gives work to every place that is free: a promotion from the highest rung that has one, else a new trial.
    fn fill(&mut self, verdicts: &mut Vec<Decision>) {
        let mut places = match self.trials.concurrent {
            0 => u64::MAX,
            concurrent => concurrent.saturating_sub(self.running.len() as u64),
        };
        let mut room = self.trials.most.saturating_sub(self.trials_made());
        while places > 0 {
            match self.promotion() {
                Some((promoted, verdict)) => {
                    if let Some(verdict) = verdict {
                        self.running.insert(promoted);
                        verdicts.push(verdict);
                        places -= 1;
                    }
                }
                None if room > 0 => {
                    verdicts.push(Decision::New { bracket: 0 });
                    (room, places) = (room - 1, places - 1);
                }
                None => break,
            }
        }
        let begins = verdicts.iter().any(|verdict| matches!(verdict, Decision::New { .. }));
        if self.running.is_empty() && !begins {
            self.close(verdicts);
        }
    }

    fn trials_made(&self) -> u64 {
        self.at.len() as u64
    }

    /// The next to promote; a failed one arrives at once, without a verdict.
    fn promotion(&mut self) -> Option<(TrialId, Option<Decision>)> {
        for index in (0..self.top).rev() {
            let share = self.divisor.share(self.rungs[index].len());
            let Some(trial) = self.rungs[index].promote(share) else { continue };
            self.at.insert(trial, index + 1);
            if self.over.contains(&trial) {
                self.arrive(trial, f64::MAX);
                return Some((trial, None));
            }
            let until = self.rungs[index + 1].length;
            let reason = format!("among the best {share} of rung {}", index + 1);
            return Some((trial, Some(Decision::Go { trial, until, reason })));
        }
        None
    }

    fn close(&mut self, verdicts: &mut Vec<Decision>) {
        let rungs = self.rungs.len();
        let mut waiting: Vec<(TrialId, usize)> = self.at.iter().map(|(t, r)| (*t, *r)).collect();
        waiting.sort_unstable();
        for (trial, rung) in waiting {
            if self.over.insert(trial) {
                let length = self.rungs[rung].length;
                let reason = match rung == self.top {
                    true if rung + 1 == rungs => format!("reached the top rung at {length}"),
                    true => format!(
                        "reached rung {} of {rungs} at {length}: the order of the best has settled",
                        rung + 1
                    ),
                    false => {
                        format!("never promoted from rung {} of {rungs} at {length}", rung + 1)
                    }
                };
                verdicts.push(Decision::Stop { trial, reason });
            }
        }
    }
}

impl Scheduler for Pasha {
    fn begin(&mut self) -> Vec<usize> {
        vec![0; self.trials.first() as usize]
    }

    fn first_length(&self, _bracket: usize) -> u64 {
        self.rungs[0].length
    }

    fn created(&mut self, trial: TrialId, _bracket: usize) {
        self.trials.created();
        self.at.insert(trial, 0);
        self.running.insert(trial);
    }

    fn report(&mut self, trial: TrialId, length: u64, score: f64) -> Vec<Decision> {
        let rung = self.at.get(&trial).copied().unwrap_or(0);
        let needed = self.rungs[rung].length;
        if length < needed {
            self.noise.measured(trial, length, score);
            return Vec::new();
        }
        // Beyond a rung counts as at it: what is compared was measured at the same length.
        self.noise.measured(trial, needed, score);
        self.arrive(trial, score);
        let mut verdicts = Vec::new();
        self.fill(&mut verdicts);
        let goes_on = |verdict: &Decision| match verdict {
            Decision::Go { trial: other, .. } | Decision::Stop { trial: other, .. } => {
                *other == trial
            }
            _ => false,
        };
        if !verdicts.iter().any(goes_on) {
            let reason = format!("waits at rung {} of {}", rung + 1, self.rungs.len());
            verdicts.insert(0, Decision::Pause { trial, reason });
        }
        verdicts
    }

    fn ended(&mut self, trial: TrialId, how: Ending) -> Vec<Decision> {
        let mut verdicts = Vec::new();
        match how {
            Ending::Invalid => {
                let passed = self.at.remove(&trial).unwrap_or(0);
                self.rungs[..passed].iter_mut().for_each(|rung| rung.remove(trial));
                self.running.remove(&trial);
            }
            Ending::Completed | Ending::Failed => {
                self.over.insert(trial);
                self.arrive(trial, f64::MAX);
            }
        }
        self.fill(&mut verdicts);
        verdicts
    }
}
