//! Which hyperparameters mattered: the share of the metric's variance that each explains by itself.

use std::collections::BTreeMap;

use crate::forest::{Sample, explained};
use crate::machine::Search;
use crate::space::Distribution;
use crate::trial::Trial;

/// With fewer trials nothing can be told.
const FEWEST: usize = 4;

/// What hyperparameters explain of the metric.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Importance {
    /// The metric.
    pub metric: String,
    /// The length at which trials were compared: the one that most of them were measured at, the longest of equals.
    pub length: u64,
    /// How many trials were measured there.
    pub trials: usize,
    /// Each hyperparameter with the share of the variance that it explains by itself, 0 to 1, the greatest first.
    pub hyperparameters: Vec<(String, f64)>,
    /// What only several of them explain together.
    pub together: f64,
}

/// Why nothing can be said.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImportanceError {
    /// Too few trials were measured.
    #[error(
        "importance needs at least {FEWEST} trials that were measured at one length, and there are {0}"
    )]
    TooFew(usize),
    /// There is nothing that differs.
    #[error("the search has no hyperparameters with a range")]
    NoRanges,
    /// All measured the same.
    #[error("all {0} trials measured the same: nothing mattered")]
    AllEqual(usize),
}

/// Works out which hyperparameters mattered: a forest of regression trees is fitted to what trials measured at one
/// length, and functional ANOVA says how much of its variance each hyperparameter explains. What is not a number counts
/// as the worst that was measured.
pub fn importance(search: &Search) -> Result<Importance, ImportanceError> {
    let axes: Vec<(String, &Distribution)> =
        search.space().drawn().map(|(_, path, distribution)| (path, distribution)).collect();
    if axes.is_empty() {
        return Err(ImportanceError::NoRanges);
    }
    let length = common_length(search.trials()).ok_or(ImportanceError::TooFew(0))?;
    let score = |metric: f64| if search.method().smaller_is_better { metric } else { -metric };
    let measured: Vec<(&Trial, f64)> = search
        .trials()
        .iter()
        .filter_map(|trial| at(trial, length).map(|metric| (trial, score(metric))))
        .collect();
    let finite = measured.iter().map(|(_, score)| *score).filter(|score| score.is_finite());
    let worst = finite.fold(f64::NEG_INFINITY, f64::max);
    if measured.len() < FEWEST || worst.is_infinite() {
        return Err(ImportanceError::TooFew(measured.len()));
    }
    let sample = |(trial, score): &(&Trial, f64)| {
        let values = trial.hparams();
        let place = |(path, distribution): &(String, &Distribution)| {
            let value = values.pointer(&format!("/{}", path.replace('.', "/")));
            // What is not there for this trial cannot have mattered: it stands in the middle.
            value.and_then(|value| distribution.place(value)).unwrap_or(0.5)
        };
        let at = axes.iter().map(place).collect();
        Sample { at, score: if score.is_finite() { *score } else { worst } }
    };
    let samples: Vec<Sample> = measured.iter().map(sample).collect();
    let shares = explained(&samples, axes.len(), search.method().seed)
        .ok_or(ImportanceError::AllEqual(measured.len()))?;
    let together = (1.0 - shares.iter().sum::<f64>()).max(0.0);
    let mut hyperparameters: Vec<(String, f64)> =
        axes.into_iter().map(|(path, _)| path).zip(shares).collect();
    hyperparameters.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let metric = search.method().metric.clone();
    Ok(Importance { metric, length, trials: measured.len(), hyperparameters, together })
}

/// What a trial measured at a length.
fn at(trial: &Trial, length: u64) -> Option<f64> {
    trial.reports.iter().find(|(at, _)| *at == length).map(|(_, metric)| *metric)
}

/// The length that most trials were measured at, the longest of equals.
fn common_length(trials: &[Trial]) -> Option<u64> {
    let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
    for (length, _) in trials.iter().flat_map(|trial| &trial.reports) {
        *counts.entry(*length).or_default() += 1;
    }
    counts.into_iter().max_by_key(|(length, count)| (*count, *length)).map(|(length, _)| length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SearchEvent, SearchFile};

    /// A search whose trials measure a function of their hyperparameters.
    fn searched(trials: u64, metric: impl Fn(&serde_json::Value) -> f64) -> Search {
        let text = format!(
            "searcher: {{name: random, metric: loss, max_trials: {trials}, max_length: {{batches: 9}}}}\n\
             hyperparameters:\n  rate: {{loguniform: [0.0001, 1]}}\n  net: {{units: {{randint: [1, 64]}}}}\n\
             \x20 kind: {{choice: [a, b]}}\n  fixed: 3"
        );
        let file = SearchFile::parse(&text, &[]).expect("valid");
        let mut search = file.search(4).expect("a search");
        search.begin();
        for number in 1..=trials {
            let trial = crate::TrialId(number);
            let known = search.trial(trial).expect("made");
            let (length, metric) = (known.until, metric(&known.hparams()));
            search.arrive(SearchEvent::Report { trial, length, metric });
        }
        search
    }

    #[test]
    fn what_decides_comes_first() {
        let search = searched(120, |hparams| {
            let rate = hparams["rate"].as_f64().expect("a number").log10();
            rate + if hparams["kind"] == "a" { 0.5 } else { 0.0 }
        });
        let found = importance(&search).expect("enough");
        let names: Vec<&str> = found.hyperparameters.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, ["rate", "kind", "net.units"]);
        assert!(found.hyperparameters[0].1 > 0.7, "{found:?}");
        assert_eq!((found.length, found.trials, &*found.metric), (9, 120, "loss"));
    }

    #[test]
    fn what_cannot_be_told_is_said() {
        let check = |trials, metric: f64, expected: &str| {
            let found = importance(&searched(trials, |_| metric));
            assert_eq!(found.expect_err("nothing").to_string(), expected);
        };
        let few =
            "importance needs at least 4 trials that were measured at one length, and there are";
        check(3, 1.0, &format!("{few} 3"));
        check(9, f64::NAN, &format!("{few} 9"));
        check(9, 1.0, "all 9 trials measured the same: nothing mattered");
    }
}
