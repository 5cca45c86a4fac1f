//! Determined's rules once more, as plainly as they can be written down, and random searches that must do the same:
//! shapes that nobody has worked out by hand.

use std::collections::BTreeSet;

use salamander_core::seed::Rng;
use serde_json::json;

use crate::{KnownCurve, SearchFile, replay};

/// A search of whole numbers.
#[derive(Clone, Debug)]
struct PlainSearch {
    promotes: bool,
    smaller_is_better: bool,
    divisor: u64,
    brackets: Vec<PlainBracket>,
}

#[derive(Clone, Debug)]
struct PlainBracket {
    lengths: Vec<u64>,
    trials: u64,
    at_once: u64,
    /// What was measured at each rung, the best first: score, trial, whether it was promoted.
    rungs: Vec<Vec<(f64, usize, bool)>>,
    made: u64,
}

#[derive(Clone, Debug)]
struct PlainTrial {
    bracket: usize,
    rung: usize,
    length: u64,
}

/// `max(floor(max_time / div^(R-1-i)), 1)`, added up where trials are promoted.
fn lengths(promotes: bool, divisor: u64, rungs: u64, max_time: u64) -> Vec<u64> {
    let mut sum = 0;
    let length = |rung: u64| {
        let need =
            (u128::from(max_time) / u128::from(divisor).pow((rungs - 1 - rung) as u32)).max(1);
        sum = if promotes { sum + need as u64 } else { need as u64 };
        sum
    };
    (0..rungs).map(length).collect()
}

/// The greatest whole power of the divisor in a number.
fn log(divisor: u64, number: u64) -> u64 {
    (0..).take_while(|power| divisor.pow(*power + 1) <= number).count() as u64
}

/// Rungs, trials and trials at a time of the brackets of adaptive halving.
fn adaptive(mode: &str, divisor: u64, limits: [u64; 4]) -> Vec<(u64, u64, u64)> {
    let [max_rungs, max_time, max_trials, at_once] = limits;
    let most = max_rungs.min(log(divisor, max_time) + 1).min(log(divisor, max_trials) + 1);
    let first = match mode {
        "conservative" => 1,
        "standard" => (most - 1) / 2 + 1,
        _ => most,
    };
    let rungs: Vec<u64> = (first..=most).rev().collect();
    let weight = |rungs: &u64| (divisor as f64).powi(*rungs as i32 - 1) / *rungs as f64;
    let all: f64 = rungs.iter().map(weight).sum();
    let share = |rungs: &u64| ((weight(rungs) / all * max_trials as f64).floor() as u64).max(1);
    let mut trials: Vec<u64> = rungs.iter().map(share).collect();
    trials[0] += max_trials.saturating_sub(trials.iter().sum());
    let brackets = rungs.len() as u64;
    let fewest = trials[trials.len() - 1].max(divisor);
    let share = |index: u64| match at_once {
        0 => fewest,
        _ => at_once.max(brackets) / brackets + u64::from(index < at_once.max(brackets) % brackets),
    };
    rungs
        .iter()
        .zip(&trials)
        .zip(0..)
        .map(|((rungs, trials), index)| (*rungs, *trials, share(index)))
        .collect()
}

impl PlainSearch {
    fn new(promotes: bool, smaller_is_better: bool, divisor: u64) -> Self {
        Self { promotes, smaller_is_better, divisor, brackets: Vec::new() }
    }

    fn bracket(&mut self, rungs: u64, max_time: u64, trials: u64, at_once: u64) {
        let at_once = match at_once {
            0 => divisor_power(self.divisor, rungs - 1).clamp(1, trials),
            at_once => at_once.min(trials),
        };
        let lengths = lengths(self.promotes, self.divisor, rungs, max_time);
        let rungs = vec![Vec::new(); lengths.len()];
        self.brackets.push(PlainBracket { lengths, trials, at_once, rungs, made: 0 });
    }

    /// How far each trial goes, of which the i-th measures the i-th of these whenever it is looked at.
    fn run(mut self, metrics: &[f64]) -> Vec<u64> {
        let mut trials: Vec<PlainTrial> = Vec::new();
        // When whose next look is: running trials advance equally, ties by creation.
        let mut looks: BTreeSet<(u64, usize)> = BTreeSet::new();
        for bracket in 0..self.brackets.len() {
            for _ in 0..self.brackets[bracket].at_once {
                self.make(bracket, 0, &mut trials, &mut looks);
            }
        }
        while let Some((now, trial)) = looks.pop_first() {
            let bracket = trials[trial].bracket;
            trials[trial].length = self.brackets[bracket].lengths[trials[trial].rung];
            let metric = if self.smaller_is_better { metrics[trial] } else { -metrics[trial] };
            let score = if metric.is_nan() { f64::INFINITY } else { metric };
            let next = match self.promotes {
                true => self.promote(&mut trials, trial, score),
                false => self.stop(&mut trials, trial, score),
            };
            match next {
                Some(next) => {
                    let PlainTrial { rung, length, .. } = trials[next];
                    let until = self.brackets[bracket].lengths[rung];
                    looks.insert((now + until - length, next));
                }
                None => self.make(bracket, now, &mut trials, &mut looks),
            }
        }
        trials.iter().map(|trial| trial.length).collect()
    }

    fn make(
        &mut self,
        bracket: usize,
        now: u64,
        trials: &mut Vec<PlainTrial>,
        looks: &mut BTreeSet<(u64, usize)>,
    ) {
        let index = bracket;
        let bracket = &mut self.brackets[bracket];
        if bracket.made < bracket.trials {
            bracket.made += 1;
            looks.insert((now + bracket.lengths[0], trials.len()));
            trials.push(PlainTrial { bracket: index, rung: 0, length: 0 });
        }
    }

    /// The trial itself where it goes on.
    fn stop(&mut self, trials: &mut [PlainTrial], trial: usize, score: f64) -> Option<usize> {
        let known = &mut trials[trial];
        let bracket = &mut self.brackets[known.bracket];
        loop {
            if known.length < bracket.lengths[known.rung] {
                return Some(trial);
            }
            let rung = &mut bracket.rungs[known.rung];
            // Ties before existing entries.
            let place = rung.iter().filter(|(other, ..)| *other < score).count();
            rung.insert(place, (score, trial, false));
            let goes_on = (rung.len() as u64 / self.divisor).max(1);
            if known.rung + 1 == bracket.lengths.len() || place as u64 >= goes_on {
                return None;
            }
            known.rung += 1;
        }
    }

    /// Whoever is promoted.
    fn promote(&mut self, trials: &mut [PlainTrial], trial: usize, score: f64) -> Option<usize> {
        let known = &trials[trial];
        let PlainBracket { lengths, rungs, .. } = &mut self.brackets[known.bracket];
        let rung = &mut rungs[known.rung];
        let (before, now) =
            (rung.len() as u64 / self.divisor, (rung.len() as u64 + 1) / self.divisor);
        let place = rung.iter().filter(|(other, ..)| *other <= score).count();
        rung.insert(place, (score, trial, false));
        if known.rung + 1 == lengths.len() {
            return None;
        }
        let promoted = match (place as u64) < now {
            true => place,
            false if now > before && !rung[before as usize].2 => before as usize,
            false => return None,
        };
        rung[promoted].2 = true;
        let next = rung[promoted].1;
        trials[next].rung += 1;
        Some(next)
    }
}

fn divisor_power(divisor: u64, exponent: u64) -> u64 {
    divisor.saturating_pow(exponent as u32)
}

/// A random search: its searcher as text, and the same plainly.
fn drawn(rng: &mut Rng) -> (String, PlainSearch) {
    let (promotes, smaller) = (rng.below(2) == 1, rng.below(3) > 0);
    let divisor = 2 + rng.below(4);
    let (max_time, max_trials) = (1 + rng.below(300), 1 + rng.below(40));
    let at_once = [0, 1, 2, 3, 7, 16][rng.below(6) as usize];
    let mut plain = PlainSearch::new(promotes, smaller, divisor);
    let unit = ["batches", "records", "epochs"][rng.below(3) as usize];
    let shape = match rng.below(3) {
        0 => {
            let rungs = 1 + rng.below(6);
            plain.bracket(rungs, max_time, max_trials, at_once);
            format!("name: async_halving, num_rungs: {rungs}")
        }
        _ => {
            let mode = ["conservative", "standard", "aggressive"][rng.below(3) as usize];
            let max_rungs = 1 + rng.below(7);
            for (rungs, trials, at_once) in
                adaptive(mode, divisor, [max_rungs, max_time, max_trials, at_once])
            {
                plain.bracket(rungs, max_time, trials, at_once);
            }
            format!("name: adaptive_asha, mode: {mode}, max_rungs: {max_rungs}")
        }
    };
    let text = format!(
        "{shape}, divisor: {divisor}, max_time: {max_time}, time_metric: {unit}, max_trials: {max_trials}, \
         max_concurrent_trials: {at_once}, stop_once: {}, smaller_is_better: {smaller}",
        !promotes
    );
    (text, plain)
}

#[test]
fn random_shapes_have_the_rungs_and_lengths_of_the_rules() {
    let mut rng = Rng::new(7);
    let (mut several, mut ties) = (0, 0);
    for _ in 0..600 {
        let (searcher, plain) = drawn(&mut rng);
        let text = format!(
            "searcher: {{metric: loss, {searcher}}}\nhyperparameters: {{x: {{uniform: [0, 1]}}}}\n"
        );
        let file = SearchFile::parse(&text, &[]).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let method = file.method(1).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let crate::SchedulerRule::Halving { brackets, .. } = &method.rule else { panic!("{text}") };
        let shown: Vec<(Vec<u64>, u64)> =
            brackets.iter().map(|bracket| (bracket.rungs.clone(), bracket.max_trials)).collect();
        let plainly: Vec<(Vec<u64>, u64)> = plain
            .brackets
            .iter()
            .map(|bracket| (bracket.lengths.clone(), bracket.trials))
            .collect();
        assert_eq!(shown, plainly, "{text}");
        several += u32::from(brackets.len() > 1);
        // Few values, so that many are equal, and some that are none.
        let values = 2 + rng.below(60);
        ties += u32::from(values < 20);
        let metrics: Vec<f64> = (0..60)
            .map(|_| if rng.below(9) == 0 { f64::NAN } else { rng.below(values) as f64 })
            .collect();
        let lines: Vec<String> = metrics.iter().map(|metric| json!(metric).to_string()).collect();
        let curves = KnownCurve::read(&lines.join("\n")).expect("curves");
        let mut search = file.search(1).expect("a search");
        replay(&mut search, &curves).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let lengths: Vec<u64> = search.trials().iter().map(crate::Trial::length).collect();
        assert_eq!(lengths, plain.run(&metrics), "{text} {metrics:?}");
    }
    assert!(several > 100 && ties > 100, "{several} {ties}");
}
