//! Searches on drawn results: whatever is measured, and in whichever order it is heard, they end.

use salamander_core::seed::Rng;

use crate::{Ending, KnownCurve, SearchFile, TrialState, replay};

const SEARCHERS: [&str; 9] = [
    "name: random",
    "name: tpe, startup_trials: 3",
    "name: async_halving, num_rungs: 3, divisor: 2",
    "name: async_halving, num_rungs: 3, divisor: 2, form: promotion",
    "name: adaptive_asha, divisor: 3, mode: conservative",
    "name: tpe, startup_trials: 3, scheduler: adaptive_asha, divisor: 3, form: promotion",
    "name: pasha, divisor: 2",
    "name: median, interval: 3",
    "name: pbt, interval: 5",
];

/// A line of known results: a number, pairs at any lengths, a refusal or a failure.
fn line(rng: &mut Rng) -> String {
    let metric = |rng: &mut Rng| match rng.below(12) {
        0 => "NaN".to_string(),
        _ => (rng.below(40) as f64 / 8.0).to_string(),
    };
    match rng.below(10) {
        0 => "\"invalid\"".to_string(),
        1 => "\"error\"".to_string(),
        2..=5 => {
            let (mut length, mut parts) = (0, Vec::new());
            for _ in 0..rng.below(5) {
                length += 1 + rng.below(7);
                parts.push(format!("[{length}, {}]", metric(rng)));
            }
            if rng.below(4) == 0 {
                parts.push("\"error\"".to_string());
            }
            format!("[{}]", parts.join(", "))
        }
        _ => metric(rng),
    }
}

#[test]
fn every_search_ends_whatever_is_measured() {
    let mut rng = Rng::new(5);
    for round in 0..96 {
        let order = if round % 2 == 0 { "arrival" } else { "fixed" };
        let concurrent = [0, 1, 2, 5][round / 2 % 4];
        for searcher in SEARCHERS {
            let text = format!(
                "searcher: {{metric: loss, max_trials: 9, max_time: 20, order: {order}, \
                 max_concurrent_trials: {concurrent}, {searcher}}}\n\
                 hyperparameters: {{x: {{uniform: [0, 1]}}, kind: {{choice: [a, b]}}}}\n"
            );
            let file = SearchFile::parse(&text, &[]).unwrap_or_else(|error| panic!("{error}"));
            let mut search = file.search(1).unwrap_or_else(|error| panic!("{error}"));
            let lines: Vec<String> = (0..200).map(|_| line(&mut rng)).collect();
            let curves = KnownCurve::read(&lines.join("\n")).expect("curves");
            replay(&mut search, &curves).unwrap_or_else(|error| panic!("{text}{error}"));
            let trials = search.trials();
            assert!(search.is_over() && trials.iter().all(|t| t.state.is_over()), "{text}");
            let counted =
                trials.iter().filter(|t| t.state != TrialState::Ended(Ending::Invalid)).count();
            assert!((1..=9).contains(&counted), "{text}{counted}");
        }
    }
}
