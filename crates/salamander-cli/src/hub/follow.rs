//! An experiment, followed to its end.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use salamander_hub::store::experiments::Experiment;
use salamander_hub::store::logs::LogQuery;
use salamander_hub::store::page::ListQuery;
use salamander_hub::store::runs::Run;
use salamander_hub::{Error, ExperimentId, HubClient};
use serde_json::{Value, json};

use crate::out::Out;
use crate::signals::Signals;

const LOOK: Duration = Duration::from_millis(200);
/// How long a hub that does not answer is asked again: it may have been started anew.
const PATIENCE: Duration = Duration::from_secs(60);

/// Whether nothing more happens by itself.
pub(super) fn is_over(experiment: &Experiment) -> bool {
    match experiment.state.as_str() {
        "completed" | "failed" | "canceled" => true,
        // Nobody trains it, and nobody will before somebody resumes it. Before it was looked at it is called so, too.
        "interrupted" => experiment.started.is_some(),
        _ => false,
    }
}

/// Asks a hub, and one that does not answer again, unless somebody does not want to wait any more.
pub(super) fn patiently<T>(
    mut ask: impl FnMut() -> Result<T, Error>,
    is_tired: impl Fn() -> bool,
) -> Result<T, Error> {
    let mut silent: Option<Instant> = None;
    loop {
        match ask() {
            Err(Error::Remote(reason)) if !is_tired() => {
                if silent.is_none() {
                    errln!("{reason}; it is asked again");
                }
                if silent.get_or_insert_with(Instant::now).elapsed() >= PATIENCE {
                    return Err(Error::Remote(reason));
                }
                std::thread::sleep(LOOK);
            }
            other => return other,
        }
    }
}

/// How a following ended.
pub(super) enum Followed {
    /// The experiment is over, or paused.
    Over(Box<Experiment>),
    /// Somebody pressed Ctrl-C.
    Left,
}

/// Shows what an experiment's command prints, until it is over or paused.
pub(super) fn follow(
    client: &HubClient,
    id: ExperimentId,
    out: Out,
    signals: &Signals,
) -> Result<Followed> {
    let mut query = LogQuery { limit: Some(1000), ..LogQuery::default() };
    let mut last = String::new();
    let is_tired = || signals.asked();
    loop {
        // Its end is looked at before its last lines.
        let experiment = patiently(|| client.experiment(id), is_tired)?;
        loop {
            let page = patiently(|| client.experiment_logs(id, &query), is_tired)?;
            page.lines.iter().for_each(|line| out.line(&line.text));
            query.after = Some(page.after);
            if page.lines.is_empty() {
                break;
            }
        }
        if experiment.state != last {
            let reason = experiment.reason.as_ref().map_or(String::new(), |r| format!(": {r}"));
            out.line(&format!("experiment {id} is {}{reason}", experiment.state));
            last.clone_from(&experiment.state);
        }
        if is_over(&experiment) || experiment.state == "paused" {
            return Ok(Followed::Over(Box::new(experiment)));
        }
        if signals.asked() {
            return Ok(Followed::Left);
        }
        std::thread::sleep(LOOK);
    }
}

/// All trials of an experiment.
pub(super) fn trials(client: &HubClient, id: ExperimentId) -> Result<Vec<Run>> {
    let mut query = ListQuery {
        experiment: Some(id.0),
        archived: Some(true),
        sort: Some("trial".to_string()),
        limit: Some(1000),
        ..ListQuery::default()
    };
    let mut all = Vec::new();
    loop {
        let page = client.runs(&query)?;
        all.extend(page.items);
        query.cursor = page.next;
        if query.cursor.is_none() {
            return Ok(all);
        }
    }
}

/// The last value of the metric that trials are compared by.
pub(super) fn compared(run: &Run) -> Option<f64> {
    let name = run.metric.as_deref().unwrap_or_default();
    let last = || run.metrics.get(&format!("validation/{name}")).copied().flatten();
    run.measured.or_else(last).or(run.best)
}

/// The object that the command line's contract describes.
pub(super) fn to_json(experiment: &Experiment, trials: &[Run]) -> Value {
    let trial = |run: &Run| {
        json!({
            "id": run.trial, "run": run.id, "state": run.state, "hparams": run.hparams,
            "length": run.length.unwrap_or(run.steps), "metric": compared(run), "reason": run.reason,
            "dir": run.folder,
        })
    };
    json!({
        "experiment": experiment.id,
        "name": experiment.name,
        "state": experiment.state,
        "reason": experiment.reason,
        "dir": experiment.folder,
        "metric": experiment.metric,
        "trials": trials.iter().map(trial).collect::<Vec<_>>(),
        "best": experiment.best_run.map(|run| json!({
            "id": run.trial(), "run": run, "metric": experiment.best,
        })),
    })
}

/// What a command ends with whose experiment has come to this.
pub(super) fn outcome(experiment: &Experiment) -> Result<ExitCode> {
    let reason = experiment.reason.as_ref().map_or(String::new(), |r| format!(": {r}"));
    match experiment.state.as_str() {
        "completed" => Ok(ExitCode::SUCCESS),
        state => bail!("experiment {} is {state}{reason}", experiment.id),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hub_that_is_away_is_asked_again_and_what_it_says_counts() {
        let away = || Err::<u32, _>(Error::Remote("nobody is there".to_string()));
        let mut asked = 0;
        let answer = patiently(
            || {
                asked += 1;
                if asked < 3 { away() } else { Ok(7) }
            },
            || false,
        );
        assert_eq!((answer.ok(), asked), (Some(7), 3));
        let gone = patiently(|| Err::<(), _>(Error::NotFound("gone".to_string())), || false);
        assert!(matches!(gone, Err(Error::NotFound(_))));
        assert!(matches!(patiently(away, || true), Err(Error::Remote(_))), "Ctrl-C");
    }
}
