//! A search on this machine: lines while it goes on, a table at its end.

use std::process::ExitCode;

use anyhow::{Result, bail};
use salamander_run::{SearchEnd, SearchRun};

use crate::out::{self, Out};
use crate::signals::Signals;

/// Trials of the table at the end.
const SHOWN: usize = 10;

pub(crate) fn run(search: SearchRun, slots: u32, json: bool) -> Result<ExitCode> {
    let out = if json { Out::Stderr } else { Out::Stdout };
    let signals = Signals::install()?;
    let folder = search.layout().folder().display().to_string();
    out.line(&format!("search in {folder}, seed {}", search.seed()));
    let end = search.run(slots, &signals.stop, &mut |line| out.line(&line))?;
    table(&end).iter().for_each(|line| out.line(line));
    if json {
        // A reader that has gone away must not hide how the search ended.
        match outln!("{}", end.to_json()) {
            Ok(()) | Err(out::Error::Closed) => {}
            Err(error) => return Err(error.into()),
        }
    }
    if end.interrupted {
        errln!("interrupted; go on with: salamander train --resume {folder}");
        return Ok(ExitCode::from(signals.exit_code()));
    }
    match end.is_completed() {
        true => Ok(ExitCode::SUCCESS),
        false => bail!("every trial failed (their logs are in {folder}/trials)"),
    }
}

/// The best trials, best first.
fn table(end: &SearchEnd) -> Vec<String> {
    let method = end.search().method();
    let score = |metric: Option<f64>| match (metric, method.smaller_is_better) {
        (Some(metric), _) if metric.is_nan() => f64::INFINITY,
        (Some(metric), true) => metric,
        (Some(metric), false) => -metric,
        (None, _) => f64::INFINITY,
    };
    let mut trials: Vec<_> = end.search().trials().iter().collect();
    trials.sort_by(|a, b| {
        let further = b.length().cmp(&a.length());
        further.then(score(a.metric()).total_cmp(&score(b.metric())))
    });
    let mut lines =
        vec![format!("{:>5}  {:>8}  {:>12}  hyperparameters", "trial", "length", method.metric)];
    for trial in trials.iter().take(SHOWN) {
        let metric = trial.metric().map_or("-".to_string(), |metric| format!("{metric:.6}"));
        let (id, length, hparams) = (trial.id.0, trial.length(), &trial.hparams);
        lines.push(format!("{id:>5}  {length:>8}  {metric:>12}  {hparams}"));
    }
    if trials.len() > SHOWN {
        lines.push(format!("and {} more", trials.len() - SHOWN));
    }
    if let Some((best, value)) = end.search().best() {
        let folder = end.trial_folder(best.id);
        lines.push(format!("best: trial {} with {value} in {}", best.id, folder.display()));
    }
    lines
}
