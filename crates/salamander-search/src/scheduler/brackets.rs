//! Several halvings side by side: Determined's adaptive search, and one bracket as a special case.

use salamander_core::experiment::{HalvingForm, HalvingMode};

use super::halving::{Halving, rung_lengths};
use super::{Decision, Divisor, Scheduler};
use crate::{Ending, TrialId};

/// A halving: its rungs' lengths and how many trials it has.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Bracket {
    /// The length of each rung.
    pub rungs: Vec<u64>,
    /// Trials in all.
    pub max_trials: u64,
    /// Trials at a time; 0: as many as bring one to the top.
    pub max_concurrent_trials: u64,
}

/// How many rungs are worth it: so that one trial comes to the top, and no rung is shorter than one unit.
pub(crate) fn default_rungs(most: u64, divisor: Divisor, longest: u64, trials: u64) -> u64 {
    most.min(divisor.log(longest) + 1).min(divisor.log(trials) + 1).max(1)
}

/// What adaptive halving is made of.
pub(crate) struct Adaptive {
    pub(crate) form: HalvingForm,
    pub(crate) divisor: Divisor,
    pub(crate) mode: HalvingMode,
    pub(crate) max_rungs: u64,
    pub(crate) bracket_rungs: Vec<u64>,
    pub(crate) longest: u64,
    pub(crate) max_trials: u64,
    pub(crate) concurrent: u64,
}

/// The brackets of adaptive halving, those that stop earliest first.
pub(crate) fn brackets(adaptive: &Adaptive) -> Vec<Bracket> {
    let Adaptive { form, divisor, longest, max_trials, .. } = *adaptive;
    let mut rungs = adaptive.bracket_rungs.clone();
    if rungs.is_empty() {
        let most = default_rungs(adaptive.max_rungs, divisor, longest, max_trials);
        rungs = match adaptive.mode {
            HalvingMode::Conservative => (1..=most).collect(),
            HalvingMode::Standard => ((most - 1) / 2 + 1..=most).collect(),
            HalvingMode::Aggressive => vec![most],
        };
    }
    rungs.sort_unstable_by(|a, b| b.cmp(a));
    let trials = shares(&rungs, divisor, max_trials);
    let concurrent = split(adaptive.concurrent, divisor, &trials);
    let bracket = |index: usize| Bracket {
        rungs: rung_lengths(form, divisor, rungs[index], longest),
        max_trials: trials[index],
        max_concurrent_trials: concurrent[index],
    };
    (0..rungs.len()).map(bracket).collect()
}

/// Trials of each bracket, so that each trains about as much as the others; what is left over goes to the first.
fn shares(rungs: &[u64], divisor: Divisor, max_trials: u64) -> Vec<u64> {
    let weight = |rungs: &u64| divisor.power(rungs - 1) / *rungs as f64;
    let sum: f64 = rungs.iter().map(weight).sum();
    let share = |rungs: &u64| ((weight(rungs) / sum * max_trials as f64) as u64).max(1);
    let mut trials: Vec<u64> = rungs.iter().map(share).collect();
    let given: u64 = trials.iter().sum();
    trials[0] += max_trials.saturating_sub(given);
    trials
}

/// Trials at a time of each bracket.
fn split(concurrent: u64, divisor: Divisor, trials: &[u64]) -> Vec<u64> {
    let count = trials.len() as u64;
    if concurrent == 0 {
        let fewest = trials[trials.len() - 1].max(divisor.0 as u64);
        return vec![fewest; trials.len()];
    }
    let all = concurrent.max(count);
    (0..count).map(|index| all / count + u64::from(index < all % count)).collect()
}

/// The brackets of a search, and who is in which.
#[derive(Clone, Debug)]
pub(crate) struct Brackets {
    brackets: Vec<Halving>,
    /// The bracket of each trial, in the order of their making.
    of: Vec<usize>,
}

impl Brackets {
    pub(crate) fn new(form: HalvingForm, divisor: Divisor, plans: &[Bracket]) -> Self {
        let halving = |(index, plan)| Halving::new(index, form, divisor, plan);
        Self { brackets: plans.iter().enumerate().map(halving).collect(), of: Vec::new() }
    }

    fn bracket(&mut self, trial: TrialId) -> Option<&mut Halving> {
        let bracket = *self.of.get((trial.0 as usize).checked_sub(1)?)?;
        self.brackets.get_mut(bracket)
    }
}

impl Scheduler for Brackets {
    fn begin(&mut self) -> Vec<usize> {
        let brackets = self.brackets.iter().enumerate();
        brackets.flat_map(|(index, bracket)| vec![index; bracket.first() as usize]).collect()
    }

    fn first_length(&self, bracket: usize) -> u64 {
        self.brackets[bracket].first_length()
    }

    fn created(&mut self, trial: TrialId, bracket: usize) {
        // They are made one after the other, from 1 on.
        self.of.push(bracket);
        self.brackets[bracket].created(trial);
    }

    fn report(&mut self, trial: TrialId, length: u64, score: f64) -> Vec<Decision> {
        self.bracket(trial).map_or(Vec::new(), |bracket| bracket.report(trial, length, score))
    }

    fn ended(&mut self, trial: TrialId, how: Ending) -> Vec<Decision> {
        self.bracket(trial).map_or(Vec::new(), |bracket| bracket.ended(trial, how))
    }

    fn progress(&self) -> Option<f64> {
        let entered: u64 = self.brackets.iter().map(Halving::entered).sum();
        let trials: u64 = self.brackets.iter().map(Halving::max_trials).sum();
        // Determined's: a fifth is kept for those that go on.
        Some((entered as f64 / (1.2 * trials as f64)).min(1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(trials: u64, divisor: f64, longest: u64, mode: HalvingMode, concurrent: u64) -> String {
        let adaptive = Adaptive {
            form: HalvingForm::Stopping,
            divisor: Divisor(divisor),
            mode,
            max_rungs: 5,
            bracket_rungs: Vec::new(),
            longest,
            max_trials: trials,
            concurrent,
        };
        let show =
            |b: &Bracket| format!("{:?}x{}/{}", b.rungs, b.max_trials, b.max_concurrent_trials);
        brackets(&adaptive).iter().map(show).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn brackets_are_determineds() {
        use HalvingMode::{Aggressive, Conservative, Standard};
        assert_eq!(
            plan(100, 4.0, 64, Standard, 16),
            "[1, 4, 16, 64]x70/6 [4, 16, 64]x22/5 [16, 64]x8/5"
        );
        assert_eq!(plan(100, 4.0, 64, Aggressive, 16), "[1, 4, 16, 64]x100/16");
        assert_eq!(
            plan(100, 4.0, 64, Conservative, 16),
            "[1, 4, 16, 64]x67/4 [4, 16, 64]x21/4 [16, 64]x8/4 [64]x4/4"
        );
        // Integer logarithms: in floating point both would have one rung less.
        assert_eq!(plan(1000, 10.0, 1000, Aggressive, 0), "[1, 10, 100, 1000]x1000/1000");
        assert_eq!(plan(243, 3.0, 81, Aggressive, 0), "[1, 3, 9, 27, 81]x243/243");
        // More brackets than trials at a time: each has one.
        assert_eq!(plan(16, 4.0, 64, Standard, 1), "[4, 16, 64]x12/1 [16, 64]x4/1");
    }

    #[test]
    fn the_promotion_form_adds_up() {
        let rungs = |form| rung_lengths(form, Divisor(4.0), 4, 100);
        assert_eq!(rungs(HalvingForm::Stopping), [1, 6, 25, 100]);
        assert_eq!(rungs(HalvingForm::Promotion), [1, 7, 32, 132]);
    }
}
