//! A search on this machine: a table that lives while it goes on, or lines; the best trials at its end.
//!
//! # Layout
//! - [`run`]: what `train` does with a search; `live`: the table
//! - [`Command`]: `salamander search table` and `search importance`

mod command;
mod live;

use std::process::ExitCode;

use anyhow::{Result, bail};
use salamander_core::words::program_name;
use salamander_run::{SearchEnd, SearchNews, SearchRun};
use salamander_search::{Method, Trial};

use crate::out::{self, Out};
use crate::signals::Signals;
use crate::ui::hparams_line;

pub(crate) use command::{Command, run as run_command};
use live::LiveTable;

/// Trials of the table at the end.
const SHOWN: usize = 10;

pub(crate) fn run(search: SearchRun, slots: u32, json: bool) -> Result<ExitCode> {
    let out = if json { Out::Stderr } else { Out::Stdout };
    let signals = Signals::install()?;
    let folder = search.layout().folder().display().to_string();
    out.line(&format!("search in {folder}, seed {}", search.seed()));
    let mut live = LiveTable::new(out);
    let end = search.run(slots, &signals.stop, &mut |news| match news {
        SearchNews::Line(line) => live.line(&line),
        SearchNews::Standing(standing) => live.show(&standing),
    });
    live.finish();
    let end = end?;
    table(&end).iter().for_each(|line| out.line(line));
    if json {
        // A reader that has gone away must not hide how the search ended.
        match outln!("{}", end.to_json()) {
            Ok(()) | Err(out::Error::Closed) => {}
            Err(error) => return Err(error.into()),
        }
    }
    if end.interrupted {
        errln!("interrupted; go on with: {} train --resume {folder}", program_name());
        return Ok(ExitCode::from(signals.exit_code()));
    }
    match end.is_completed() {
        true => Ok(ExitCode::SUCCESS),
        false => bail!("every trial failed (their logs are in {folder}/trials)"),
    }
}

/// The trials, the best first: those that went furthest, then by what they measured.
fn ranked<'a>(trials: &'a [Trial], method: &Method) -> Vec<&'a Trial> {
    let score = |metric: Option<f64>| match (metric, method.smaller_is_better) {
        (Some(metric), _) if metric.is_nan() => f64::INFINITY,
        (Some(metric), true) => metric,
        (Some(metric), false) => -metric,
        (None, _) => f64::INFINITY,
    };
    let mut trials: Vec<&Trial> = trials.iter().collect();
    trials.sort_by(|a, b| {
        let further = b.length().cmp(&a.length());
        further.then(score(a.metric()).total_cmp(&score(b.metric())))
    });
    trials
}

/// The best trials, best first.
fn table(end: &SearchEnd) -> Vec<String> {
    let method = end.search().method();
    let trials = ranked(end.search().trials(), method);
    let mut lines =
        vec![format!("{:>5}  {:>8}  {:>12}  hyperparameters", "trial", "length", method.metric)];
    for trial in trials.iter().take(SHOWN) {
        let metric = trial.metric().map_or("-".to_string(), |metric| format!("{metric:.6}"));
        let (id, length) = (trial.id.0, trial.length());
        let hparams = hparams_line(&trial.hparams());
        lines.push(format!("{id:>5}  {length:>8}  {metric:>12}  {hparams}"));
    }
    if trials.len() > SHOWN {
        let folder = end.layout.folder().display();
        let more = trials.len() - SHOWN;
        lines.push(format!("and {more} more: {} search table {folder}", program_name()));
    }
    if let Some((best, value)) = end.search().best() {
        let folder = end.trial_folder(best.id);
        lines.push(format!("best: trial {} with {value} in {}", best.id, folder.display()));
    }
    lines
}
