//! `salamander preview-search`: the trials of a search without running it.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow};
use salamander_core::experiment::Length;
use salamander_core::words::count;
use salamander_run::experiment::wrong;
use salamander_search::{
    AskedSearch, KnownCurve, Method, SchedulerRule, SearchFile, Trial, plan, replay,
};
use salamander_train::model::Models;
use serde_json::{Value as Json, json};

use crate::ui::hparams_line;

/// The seed of a preview whose file names none: a plan is the same every time it is looked at.
const SEED: u32 = 0;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The experiment file
    experiment: PathBuf,
    /// Change a field: --set searcher.max_trials=20
    #[arg(long = "set", value_name = "A.B=V")]
    sets: Vec<String>,
    /// Show the search of so many trials that `train --search N` would make
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    search: Option<u64>,
    /// Known results: line i is what the i-th trial would measure, one number or [[length, metric], ..]
    #[arg(long, value_name = "FILE")]
    curves: Option<PathBuf>,
    /// Print one JSON object instead
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, models: &Models) -> Result<ExitCode> {
    let file = read(args, models)?;
    let in_file = |error| wrong(&args.experiment, error);
    let method = file.method(SEED).map_err(in_file)?;
    let rows: Vec<PreviewRow> = match &args.curves {
        None => {
            let planned = plan(&method, file.space()).map_err(in_file)?;
            planned.into_iter().map(PreviewRow::from).collect()
        }
        Some(path) => {
            let name = || format!("curves {}", path.display());
            let text = fs::read_to_string(path).with_context(name)?;
            let curves = KnownCurve::read(&text).with_context(name)?;
            let mut search = file.search(SEED).map_err(in_file)?;
            replay(&mut search, &curves).with_context(name)?;
            search.trials().iter().map(PreviewRow::from).collect()
        }
    };
    match args.json {
        true => outln!("{}", to_json(&method, &rows))?,
        false => print(&method, &rows)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads a file and checks its hyperparameters against those of its model, if this program has it.
fn read(args: &Args, models: &Models) -> Result<SearchFile> {
    let path = &args.experiment;
    let in_file = |error| wrong(path, error);
    let text = fs::read_to_string(path).map_err(|error| wrong(path, error))?;
    let mut file = SearchFile::parse(&text, &args.sets).map_err(in_file)?;
    let model = models.find(file.experiment().model());
    let known = model.as_ref().map(|model| model.hparams()).unwrap_or_default();
    if let Some(trials) = args.search {
        let (model, sets) = (known.as_slice(), args.sets.as_slice());
        file = file.asked(&AskedSearch { trials, concurrent: 1, model, sets }).map_err(in_file)?;
    }
    if file.experiment().model().is_some() && model.is_ok() {
        file.space().check(&known).map_err(|error| anyhow!(wrong(path, error)))?;
    }
    Ok(file)
}

/// A trial of a preview.
struct PreviewRow {
    id: u64,
    hparams: Json,
    length: u64,
    metric: Option<f64>,
    reason: String,
}

impl From<salamander_search::PlannedTrial> for PreviewRow {
    fn from(trial: salamander_search::PlannedTrial) -> Self {
        let salamander_search::PlannedTrial { id, hparams, length, reason } = trial;
        Self { id: id.0, hparams, length, metric: None, reason }
    }
}

impl From<&Trial> for PreviewRow {
    fn from(trial: &Trial) -> Self {
        Self {
            id: trial.id.0,
            hparams: trial.hparams(),
            length: trial.length(),
            metric: trial.metric(),
            reason: trial.reason.clone(),
        }
    }
}

fn to_json(method: &Method, rows: &[PreviewRow]) -> Json {
    let trial = |row: &PreviewRow| {
        let mut trial = json!({"id": row.id, "hparams": row.hparams, "length": row.length,
            "reason": row.reason});
        if let Some(metric) = row.metric {
            trial["metric"] = json!(metric);
        }
        trial
    };
    let mut whole = json!({
        "trials": rows.iter().map(trial).collect::<Vec<Json>>(),
        "total_length": rows.iter().map(|row| row.length).sum::<u64>(),
    });
    match &method.rule {
        SchedulerRule::Halving { brackets, .. } => whole["brackets"] = json!(brackets),
        SchedulerRule::Pasha { bracket, .. } => whole["brackets"] = json!([bracket]),
        SchedulerRule::None | SchedulerRule::Median(_) | SchedulerRule::Population(_) => {}
    }
    whole
}

fn print(method: &Method, rows: &[PreviewRow]) -> Result<()> {
    if let SchedulerRule::Halving { brackets, .. } = &method.rule {
        for (index, bracket) in brackets.iter().enumerate() {
            let rungs: Vec<String> = bracket.rungs.iter().map(u64::to_string).collect();
            let trials = count(bracket.max_trials, "trial");
            outln!("bracket {}: {trials}, rungs at {}", index + 1, rungs.join(", "))?;
        }
    }
    outln!("{:>5}  {:>8}  {:<44}  hyperparameters", "trial", "length", "reason")?;
    for row in rows {
        let hparams = match &row.hparams {
            Json::Null => "from the results before it".to_string(),
            hparams => hparams_line(hparams),
        };
        outln!("{:>5}  {:>8}  {:<44}  {hparams}", row.id, row.length, row.reason)?;
    }
    let total: u64 = rows.iter().map(|row| row.length).sum();
    let trials = count(rows.len() as u64, "trial");
    outln!("{trials}, {total} in all ({} each at most)", in_words(method.length))?;
    Ok(())
}

/// `10 epochs`.
fn in_words(length: Length) -> String {
    let (number, what) = match length {
        Length::Batches(number) => (number, "batch"),
        Length::Records(number) => (number, "record"),
        Length::Epochs(number) => (number, "epoch"),
    };
    count(number, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_is_told_in_words() {
        assert_eq!(in_words(Length::Epochs(10)), "10 epochs");
        assert_eq!(in_words(Length::Batches(2)), "2 batches");
        assert_eq!(in_words(Length::Records(1)), "1 record");
    }
}
