//! Asynchronous successive halving (<https://arxiv.org/abs/1810.05934>) in both of Determined's forms.

use std::collections::{BTreeSet, HashMap};

use salamander_core::experiment::HalvingForm;

use super::flat::TrialCount;
use super::rung::{Divisor, Rung};
use super::{Bracket, Decision};
use crate::{Ending, TrialId};

/// What a trial that failed counts as.
const FAILED: f64 = f64::MAX;

/// The lengths of a bracket's rungs: what a rung needs, or in the promotion form the sum of what all up to it need.
pub(crate) fn rung_lengths(
    form: HalvingForm,
    divisor: Divisor,
    rungs: u64,
    longest: u64,
) -> Vec<u64> {
    let mut sum = 0;
    let length = |rung: u64| {
        let need = ((longest as f64 / divisor.power(rungs - 1 - rung)).floor() as u64).max(1);
        sum += need;
        match form {
            HalvingForm::Stopping => need,
            HalvingForm::Promotion => sum,
        }
    };
    (0..rungs).map(length).collect()
}

/// One bracket of halving.
#[derive(Clone, Debug)]
pub(super) struct Halving {
    bracket: usize,
    form: HalvingForm,
    divisor: Divisor,
    rungs: Vec<Rung>,
    /// The rung that a trial is on its way to, or waits at. In the stopping form those that are over are not in it.
    at: HashMap<TrialId, usize>,
    /// Promotion: how many are on their way to each rung.
    outstanding: Vec<u64>,
    /// Promotion: those that ended, so that nothing can be told to them.
    over: BTreeSet<TrialId>,
    trials: TrialCount,
    max_trials: u64,
}

impl Halving {
    pub(super) fn new(index: usize, form: HalvingForm, divisor: Divisor, plan: &Bracket) -> Self {
        let rungs: Vec<Rung> = plan.rungs.iter().map(|length| Rung::new(*length)).collect();
        Self {
            bracket: index,
            form,
            divisor,
            outstanding: vec![0; rungs.len()],
            rungs,
            at: HashMap::new(),
            over: BTreeSet::new(),
            trials: TrialCount::new(plan.max_trials, plan.max_concurrent_trials, true),
            max_trials: plan.max_trials,
        }
    }

    /// How many trials to begin with: without a bound as many as bring one to the top.
    pub(super) fn first(&self) -> u64 {
        match self.trials.concurrent {
            0 => {
                let enough = self.divisor.power(self.rungs.len() as u64 - 1) as u64;
                enough.clamp(1, self.max_trials.max(1))
            }
            _ => self.trials.first(),
        }
    }

    pub(super) fn first_length(&self) -> u64 {
        self.rungs[0].length
    }

    pub(super) fn created(&mut self, trial: TrialId) {
        self.at.insert(trial, 0);
        self.outstanding[0] += 1;
        self.trials.created();
    }

    pub(super) fn report(&mut self, trial: TrialId, length: u64, score: f64) -> Vec<Decision> {
        match self.form {
            HalvingForm::Stopping => self.stop_or_go(trial, length, score),
            HalvingForm::Promotion => {
                let Some(&rung) = self.at.get(&trial) else { return Vec::new() };
                if length < self.rungs[rung].length {
                    return Vec::new();
                }
                self.promote(trial, score)
            }
        }
    }

    pub(super) fn ended(&mut self, trial: TrialId, how: Ending) -> Vec<Decision> {
        let Some(&rung) = self.at.get(&trial) else { return Vec::new() };
        if how == Ending::Invalid {
            // It is in those that it has passed, and to look for it in others takes as long as they are.
            self.rungs[..rung].iter_mut().for_each(|rung| rung.remove(trial));
            self.at.remove(&trial);
            self.outstanding[rung] -= u64::from(self.form == HalvingForm::Promotion);
            self.trials.invalid(trial);
            return vec![Decision::New { bracket: self.bracket }];
        }
        match (self.form, how) {
            // It has told all that it had to tell: nobody stopped it, so nobody takes its place.
            (HalvingForm::Stopping, Ending::Completed) => {
                self.at.remove(&trial);
                Vec::new()
            }
            (HalvingForm::Stopping, _) => {
                self.at.remove(&trial);
                self.rungs[rung].insert_before_equals(trial, FAILED);
                self.trials.next(self.bracket).into_iter().collect()
            }
            (HalvingForm::Promotion, _) => {
                self.over.insert(trial);
                self.promote(trial, FAILED)
            }
        }
    }

    /// Entries of the lowest rung: what progress is counted by.
    pub(super) fn entered(&self) -> u64 {
        self.rungs[0].len() as u64
    }

    pub(super) fn max_trials(&self) -> u64 {
        self.max_trials
    }

    /// A trial goes on unless it is worse than most that came as far.
    fn stop_or_go(&mut self, trial: TrialId, length: u64, score: f64) -> Vec<Decision> {
        let Some(&first) = self.at.get(&trial) else { return Vec::new() };
        let top = self.rungs.len() - 1;
        for index in first..=top {
            let rung = &mut self.rungs[index];
            if length < rung.length {
                let until = rung.length;
                let reason = match index == first {
                    // It was measured between two rungs.
                    true => return Vec::new(),
                    false => self.passed(index - 1),
                };
                self.at.insert(trial, index);
                return vec![Decision::Go { trial, until, reason }];
            }
            let place = rung.insert_before_equals(trial, score);
            let go_on = self.divisor.at_least_one(rung.len());
            let (all, length) = (rung.len(), rung.length);
            if index == top {
                let reason = format!("reached the top rung at {length}");
                return self.stopped(trial, reason);
            }
            if place >= go_on {
                let reason = format!(
                    "stopped at rung {} of {} at {length}: place {} of {all}, the best {go_on} go on",
                    index + 1,
                    top + 1,
                    place + 1
                );
                return self.stopped(trial, reason);
            }
        }
        Vec::new()
    }

    fn passed(&self, rung: usize) -> String {
        let (rungs, length) = (self.rungs.len(), self.rungs[rung].length);
        format!("passed rung {} of {rungs} at {length}", rung + 1)
    }

    fn stopped(&mut self, trial: TrialId, reason: String) -> Vec<Decision> {
        self.at.remove(&trial);
        let stop = Decision::Stop { trial, reason };
        std::iter::once(stop).chain(self.trials.next(self.bracket)).collect()
    }

    /// A trial has come to its rung: it, or one that waits there, is promoted if it is among the best.
    fn promote(&mut self, trial: TrialId, score: f64) -> Vec<Decision> {
        let mut verdicts = Vec::new();
        let mut went_on = false;
        let mut arrived = Some((trial, score));
        // A failed trial that is promoted arrives at the next rung at once, as the worst.
        while let Some((trial, score)) = arrived.take() {
            let Some(&index) = self.at.get(&trial) else { break };
            self.outstanding[index] -= 1;
            let rungs = self.rungs.len();
            let rung = &mut self.rungs[index];
            rung.insert_after_equals(trial, score);
            if index + 1 == rungs {
                if self.over.insert(trial) {
                    let reason = format!("reached the top rung at {}", rung.length);
                    verdicts.push(Decision::Stop { trial, reason });
                }
                continue;
            }
            let top = self.divisor.share(rung.len());
            let promoted = rung.promote(top);
            if promoted != Some(trial) && !self.over.contains(&trial) {
                let all = self.rungs[index].len();
                let reason = format!(
                    "waits at rung {} of {rungs}: not among the best {top} of {all}",
                    index + 1
                );
                verdicts.push(Decision::Pause { trial, reason });
            }
            let Some(promoted) = promoted else { continue };
            self.at.insert(promoted, index + 1);
            self.outstanding[index + 1] += 1;
            if self.over.contains(&promoted) {
                arrived = Some((promoted, FAILED));
                continue;
            }
            let until = self.rungs[index + 1].length;
            let reason = format!("{}, among the best {top}", self.passed(index));
            verdicts.push(Decision::Go { trial: promoted, until, reason });
            went_on = true;
        }
        if !went_on {
            verdicts.extend(self.trials.next(self.bracket));
        }
        if self.rungs[0].len() as u64 >= self.max_trials && !self.trials.has_room() {
            verdicts.extend(self.close());
        }
        verdicts
    }

    /// Nobody comes to the lower rungs any more: whoever waits there waits in vain.
    fn close(&mut self) -> Vec<Decision> {
        let mut verdicts = Vec::new();
        for (index, rung) in self.rungs.iter().enumerate() {
            if self.outstanding[index] > 0 {
                break;
            }
            let go_on = self.divisor.share(rung.len());
            for entry in rung.entries() {
                if !entry.promoted && self.over.insert(entry.trial) {
                    let reason = format!(
                        "never promoted from rung {} of {} at {}: not among the best {go_on} of {}",
                        index + 1,
                        self.rungs.len(),
                        rung.length,
                        rung.len()
                    );
                    verdicts.push(Decision::Stop { trial: entry.trial, reason });
                }
            }
        }
        verdicts
    }
}
