//! What progressive halving trains beside plain halving, and how good its choice is.
//!
//! On MFHartmann (Kandasamy and others, 2017: a function of six numbers whose cheap form is biased) and on learning
//! curves of lcdb: 20 learners on a data set, by the size of the training set.

use std::fs;

use salamander_search::{KnownCurve, SearchFile, replay};
use serde_json::Value as Json;

use crate::median;
use crate::peers::Peers;
use crate::record::Record;

const SEEDS: u32 = 30;

pub(crate) fn measure(record: &Record) {
    println!(
        "{:<36} {:>9} {:>12} {:>12}",
        "median of resources and regret", "resources", "halving", "pasha"
    );
    let hartmann = |seed: u32| {
        let mut rng = salamander_core::seed::Rng::new(u64::from(seed));
        let point = |_| -> [f64; 6] { std::array::from_fn(|_| rng.uniform()) };
        let points: Vec<[f64; 6]> = (0..256).map(point).collect();
        let curve = |x: &[f64; 6]| (1..=81).map(|z| hartmann6(x, f64::from(z) / 81.0)).collect();
        points.iter().map(curve).collect::<Vec<Vec<f64>>>()
    };
    compare(record, "MFHartmann, 256 trials", (0..SEEDS).map(hartmann).collect(), 3.0);
    let Some(peers) = Peers::find("lcdb") else { return };
    let folder = peers.folder("curves", "lcdb.json");
    let text = fs::read_to_string(folder.join("lcdb.json")).expect("curves");
    let curves: Json = serde_json::from_str(&text).expect("JSON");
    let one = |data: &Json| -> Vec<Vec<f64>> {
        let learners = data.as_array().expect("learners").iter();
        let curve = |curve: &Json| {
            curve.as_array().expect("a curve").iter().map(|v| v.as_f64().unwrap_or(1.0)).collect()
        };
        learners.map(curve).collect()
    };
    let data = curves.as_object().expect("data sets").values().map(one).collect();
    compare(record, "lcdb, accuracy", data, 2.0);
}

/// Both on each set of curves, which have one value for each length.
fn compare(record: &Record, name: &str, sets: Vec<Vec<Vec<f64>>>, divisor: f64) {
    let mut shares = Vec::new();
    let mut regrets = [Vec::new(), Vec::new()];
    for curves in &sets {
        let length = curves[0].len();
        let finals = || curves.iter().map(|curve| curve[length - 1]);
        let all = || curves.iter().flatten().copied();
        let (best, worst) =
            (finals().fold(f64::INFINITY, f64::min), all().fold(f64::NEG_INFINITY, f64::max));
        let known: String = curves
            .iter()
            .map(|curve| {
                let points: Vec<(usize, f64)> =
                    curve.iter().enumerate().map(|(i, v)| (i + 1, *v)).collect();
                format!("{}\n", serde_json::json!(points))
            })
            .collect();
        let known = KnownCurve::read(&known).expect("curves");
        let mut trained = [0.0, 0.0];
        for (index, scheduler) in ["async_halving\n  form: promotion", "pasha"].iter().enumerate() {
            let text = format!(
                "searcher:\n  name: random\n  scheduler: {scheduler}\n  metric: loss\n  divisor: {divisor}\n  \
                 max_trials: {}\n  max_concurrent_trials: 4\n  max_length: {{batches: {length}}}\n  max_rungs: 9\n\
                 hyperparameters: {{x: {{uniform: [0, 1]}}}}\n",
                curves.len()
            );
            let file = SearchFile::parse(&text, &[]).unwrap_or_else(|error| panic!("{error}"));
            let mut search = file.search(1).expect("a search");
            replay(&mut search, &known).expect("enough curves");
            trained[index] = search.trials().iter().map(|trial| trial.length() as f64).sum();
            // Whoever went furthest and measured best there is what a user would take, trained to the end.
            let furthest = search.trials().iter().map(|trial| trial.length()).max().unwrap_or(0);
            let reached = search.trials().iter().filter(|trial| trial.length() == furthest);
            let chosen = reached.min_by(|a, b| {
                let metric = |t: &&salamander_search::Trial| t.metric().unwrap_or(f64::INFINITY);
                metric(a).total_cmp(&metric(b))
            });
            let chosen = chosen.map_or(0, |trial| trial.id.0 as usize - 1);
            regrets[index].push((curves[chosen][length - 1] - best) / (worst - best));
        }
        shares.push(trained[1] / trained[0]);
    }
    let share = median(&mut shares);
    let [halving, pasha] = &mut regrets;
    let (halving, pasha) = (median(halving), median(pasha));
    println!("{name:<36} {share:>9.3} {halving:>12.5} {pasha:>12.5}");
    record.figure(&format!("pasha, {name}"), ("of halving's resources", "less"), share, None);
    record.figure(
        &format!("pasha's regret, {name}"),
        ("of the range", "less"),
        pasha,
        Some(halving),
    );
}

/// Hartmann's function of six numbers in the form with a fidelity from 0 to 1; less is better.
fn hartmann6(x: &[f64; 6], fidelity: f64) -> f64 {
    const A: [[f64; 6]; 4] = [
        [10.0, 3.0, 17.0, 3.5, 1.7, 8.0],
        [0.05, 10.0, 17.0, 0.1, 8.0, 14.0],
        [3.0, 3.5, 1.7, 10.0, 17.0, 8.0],
        [17.0, 8.0, 0.05, 10.0, 0.1, 14.0],
    ];
    const P: [[f64; 6]; 4] = [
        [1312.0, 1696.0, 5569.0, 124.0, 8283.0, 5886.0],
        [2329.0, 4135.0, 8307.0, 3736.0, 1004.0, 9991.0],
        [2348.0, 1451.0, 3522.0, 2883.0, 3047.0, 6650.0],
        [4047.0, 8828.0, 8732.0, 5743.0, 1091.0, 381.0],
    ];
    let alpha = [1.0, 1.2, 3.0, 3.2].map(|alpha: f64| alpha - 0.1 * (1.0 - fidelity));
    let term = |i: usize| {
        let sum: f64 = (0..6).map(|j| A[i][j] * (x[j] - P[i][j] * 1e-4).powi(2)).sum();
        alpha[i] * (-sum).exp()
    };
    -(0..4).map(term).sum::<f64>()
}
