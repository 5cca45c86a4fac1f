//! Shows the runs of clients beside all others: in the store, which lists, curves and the page are made from.
//!
//! The store is made from what clients said, as everything in it is made from files. A curve there goes forward by
//! steps; values that come late are in the history only. Who logs without a step sends 0 each time: the last value of
//! a step is the one that counts, as it is for clients.
//!
//! Each curve has another one beside it that tells when its points were. One for all would not do: the steps of a loss
//! are often batches where those of a validation are epochs.

use std::collections::BTreeMap;

use super::Mlflow;
use super::measured;
use super::tracked::{LifecycleStage, MetricValue, MlflowRun};
use crate::store::append;
use crate::store::experiments::{self, Facts};
use crate::store::points::{self, NewPoints, StoredPoint};
use crate::store::runs::{self, RunFacts};
use crate::store::set_meta;
use crate::{Error, ExperimentId, RunId};

/// What our lists call an experiment of clients.
pub(super) const KIND: &str = experiments::OF_CLIENTS;

/// What a store says of how it shows these runs, and what it says since their curves have times: of a store from before
/// that, the curves are made again.
const SHOWN_AS: (&str, &str) = ("mlflow_shown_as", "2");

impl Mlflow {
    /// Shows what is not shown yet: all of it in a store that is new, and what a killed hub had not come to.
    pub(super) fn show_all(&self) -> Result<(), Error> {
        let runs: Vec<MlflowRun> = self.said().tracked.runs.values().cloned().collect();
        let is_older = self.hub().store().meta(SHOWN_AS.0)?.as_deref() != Some(SHOWN_AS.1);
        for run in runs {
            let numbers = self.numbers(&run)?;
            if let Some((_, id)) = numbers.filter(|_| is_older)
                && let Err(error) = self.hub().store().write(move |tx| points::forget(tx, id))
            {
                tracing::warn!(%error, run = %run.id, "its curves are made again another time");
                self.unshown().insert(run.id);
                continue;
            }
            let shown = numbers.map(|(_, id)| self.hub().store().run(id));
            if is_older || run.status == "RUNNING" || !matches!(shown, Some(Ok(_))) {
                self.show(&run.id, self.all_values(&run.id)?);
            }
        }
        // What could not be shown has lost its points, and is to be shown anew by the next hub.
        if is_older
            && self.unshown().is_empty()
            && let Err(error) = self.hub().store().write(|tx| set_meta(tx, SHOWN_AS.0, SHOWN_AS.1))
        {
            tracing::warn!(%error, "the curves of MLflow's runs are made again another time");
        }
        Ok(())
    }

    /// Shows a run with values that are new. What cannot be shown now is kept all the same, and shown later.
    pub(super) fn show(&self, run: &str, values: Vec<(String, MetricValue)>) {
        let showing = self.showing(run);
        let shown = self.show_one(run, values);
        drop(showing);
        if shown {
            self.show_unshown();
        }
    }

    /// The same for whoever holds the run; says whether it is shown.
    pub(super) fn show_one(&self, run: &str, values: Vec<(String, MetricValue)>) -> bool {
        // What could not be shown before comes first: a curve does not go back.
        let behind = self.unshown().remove(run);
        let values = if behind { self.all_values(run) } else { Ok(values) };
        let shown = values.and_then(|values| self.try_to_show(run, values));
        if let Err(error) = &shown {
            tracing::warn!(%error, run, "a run of MLflow's cannot be shown in the store yet");
            self.unshown().insert(run.to_string());
        }
        shown.is_ok()
    }

    /// Shows what could not be shown before, until something cannot be shown again.
    pub(super) fn show_unshown(&self) {
        loop {
            let next = self.unshown().first().cloned();
            let Some(run) = next else { return };
            let _showing = self.showing(&run);
            if !self.show_one(&run, Vec::new()) {
                return;
            }
        }
    }

    fn all_values(&self, run: &str) -> Result<Vec<(String, MetricValue)>, Error> {
        let mut values = Vec::new();
        measured::read(&self.metrics_file(run), |key, one| values.push((key, one)))?;
        Ok(values)
    }

    fn try_to_show(&self, run: &str, values: Vec<(String, MetricValue)>) -> Result<(), Error> {
        let Some(run) = self.said().tracked.runs.get(run).cloned() else { return Ok(()) };
        let Some((experiment, id)) = self.numbers(&run)? else { return Ok(()) };
        let name = self.experiment_name(&run.experiment);
        let trials = self.said().tracked.of_experiment.get(&run.experiment).map_or(0, Vec::len);
        let facts = facts(&run);
        let of_experiment = Facts {
            name,
            state: facts.state.clone(),
            kind: KIND,
            started: run.started,
            ended: run.ended,
            trials: trials as i64,
            ..Facts::default()
        };
        let last = self.hub().store().last_steps(id, values.iter().map(|(key, _)| key.as_str()))?;
        let ForwardCurves { points, times } = forward(values, &last);
        let steps = points.values().filter_map(|points| points.last()).map(|point| point.step);
        let most = steps.max();
        self.hub().store().write(move |tx| {
            experiments::set_facts(tx, experiment, &of_experiment)?;
            runs::set_facts(tx, id, &facts)?;
            if let Some(steps) = most {
                append::append_or_replace(tx, id, &points)?;
                append::append_or_replace_times(tx, id, &times)?;
                runs::advance(tx, id, steps)?;
            }
            Ok(())
        })
    }

    fn experiment_name(&self, id: &str) -> Option<String> {
        let said = self.said();
        let number: u64 = id.parse().ok()?;
        said.tracked.experiments.get(&number).map(|experiment| experiment.name.clone())
    }

    /// The numbers of a run in our lists: those of its experiment, and its place among the runs of it.
    fn numbers(&self, run: &MlflowRun) -> Result<Option<(ExperimentId, RunId)>, Error> {
        let folder = format!(".hub/mlflow/{}", run.experiment);
        let place = {
            let said = self.said();
            let of_experiment = said.tracked.of_experiment.get(&run.experiment);
            of_experiment.and_then(|runs| runs.iter().position(|id| *id == run.id))
        };
        let known = match self.hub().store().experiment_of(&folder)? {
            Some(known) => Some(known),
            None => {
                self.hub().found(std::slice::from_ref(&folder))?;
                self.hub().store().experiment_of(&folder)?
            }
        };
        let (Some(experiment), Some(place)) = (known, place) else { return Ok(None) };
        Ok(RunId::new(experiment.0, place as i64 + 1).map(|id| (experiment, id)))
    }
}

/// What is new of curves, by metric: of each step one point and one time.
#[derive(Default)]
struct ForwardCurves {
    points: NewPoints,
    /// In seconds since 1970.
    times: NewPoints,
}

/// The points that follow what is there: of each step the last value. The first point of a curve may be of the step
/// that its last one was of, and takes its place.
fn forward(values: Vec<(String, MetricValue)>, last: &BTreeMap<String, i64>) -> ForwardCurves {
    let mut curves = ForwardCurves::default();
    for (key, one) in values {
        let before = curves.points.get(&key).and_then(|points| points.last());
        let before = before.map(|point| point.step).or(last.get(&key).copied());
        if before.is_some_and(|before| one.step < before) {
            continue;
        }
        let time = one.timestamp as f64 / 1000.0;
        for (all, value) in [(&mut curves.points, one.value), (&mut curves.times, time)] {
            let curve = all.entry(key.clone()).or_default();
            curve.pop_if(|last| last.step == one.step);
            curve.push(StoredPoint { step: one.step, value });
        }
    }
    curves
}

fn facts(run: &MlflowRun) -> RunFacts {
    let state = match (run.stage, run.status.as_str()) {
        (LifecycleStage::Deleted, _) => "deleted",
        (_, "FINISHED") => "completed",
        (_, "FAILED") => "failed",
        (_, "KILLED") => "canceled",
        (_, "SCHEDULED") => "queued",
        _ => "running",
    };
    RunFacts {
        folder: format!(".hub/mlflow/runs/{}", run.id),
        name: run.name.clone(),
        state: state.to_string(),
        hparams: serde_json::json!(run.params),
        smaller_is_better: true,
        started: run.started,
        ended: run.ended,
        ..RunFacts::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Hub;
    use crate::mlflow::events::TrackingEvent;
    use crate::store::Tx;
    use crate::store::points::Window;

    fn points(values: &[(i64, f64)], last: Option<i64>) -> Vec<(i64, f64)> {
        let measured = |(step, value): &(i64, f64)| {
            ("loss".to_string(), MetricValue { value: *value, timestamp: 0, step: *step })
        };
        let last = last.map(|step| ("loss".to_string(), step)).into_iter().collect();
        let curves = forward(values.iter().map(measured).collect(), &last);
        curves.points["loss"].iter().map(|point| (point.step, point.value)).collect()
    }

    #[test]
    fn a_store_from_before_times_gets_them_for_runs_that_are_over_too() {
        let runs = tempfile::tempdir().expect("a folder");
        let hub = Hub::open(runs.path(), None).expect("opened");
        let mlflow = Mlflow::open(&hub).expect("opened");
        let run = serde_json::json!({
            "id": "ab", "name": "old", "experiment": "0", "user": "", "status": "FINISHED",
            "started": 1, "ended": 2, "artifacts": "",
        });
        let run = serde_json::from_value(run).expect("a run");
        mlflow.said().say(vec![TrackingEvent::Run(run)]).expect("said");
        let loss = MetricValue { value: 0.5, timestamp: 1500, step: 1 };
        mlflow.measure("ab", vec![("loss".to_string(), loss)]).expect("kept");
        let id = hub.store().runs(&Default::default()).expect("read").items[0].id;
        let all = Window { from: i64::MIN, to: i64::MAX, stretches: 1000 };
        let values = |metric: &str| -> Option<Vec<Option<f64>>> {
            hub.store().curve(id, metric, &all).expect("read").map(|curve| curve.values)
        };
        let times = points::times_of("loss");
        assert_eq!(values(&times), Some(vec![Some(1.5)]));
        // As a hub of before has left it.
        let before = move |tx: &Tx<'_>| {
            points::forget(tx, id)?;
            let loss = vec![StoredPoint { step: 1, value: 0.5 }];
            append::append(tx, id, &[("loss".to_string(), loss)].into())?;
            set_meta(tx, SHOWN_AS.0, "1")
        };
        hub.store().write(before).expect("written");
        assert_eq!(values(&times), None);
        drop(mlflow);
        Mlflow::open(&hub).expect("opened");
        assert_eq!(values("loss"), Some(vec![Some(0.5)]));
        assert_eq!(values(&times), Some(vec![Some(1.5)]));
        let metrics = hub.store().metrics(id).expect("read");
        let listed: Vec<&str> = metrics.iter().map(|metric| metric.name.as_str()).collect();
        assert_eq!(listed, ["loss"], "times are in no list");
    }

    #[test]
    fn each_point_has_its_time_and_each_metric_its_own() {
        let measured = |key: &str, step, timestamp| {
            (key.to_string(), MetricValue { value: 0.5, timestamp, step })
        };
        // A batch, an epoch, and a step that is said again.
        let values = [
            measured("loss", 1, 1_000),
            measured("loss", 2, 2_500),
            measured("accuracy", 1, 2_600),
            measured("loss", 2, 2_750),
            measured("loss", 1, 9_000),
        ];
        let curves = forward(values.to_vec(), &BTreeMap::new());
        let of = |metric: &str| -> Vec<(i64, f64)> {
            curves.times[metric].iter().map(|point| (point.step, point.value)).collect()
        };
        assert_eq!(of("loss"), [(1, 1.0), (2, 2.75)]);
        assert_eq!(of("accuracy"), [(1, 2.6)]);
    }

    #[test]
    fn a_curve_goes_forward_and_has_the_last_value_of_each_step() {
        let values = [(1, 1.0), (3, 2.0), (3, 3.0), (2, 4.0), (5, 5.0)];
        assert_eq!(points(&values, None), [(1, 1.0), (3, 3.0), (5, 5.0)]);
        assert_eq!(points(&values, Some(2)), [(3, 3.0), (5, 5.0)]);
        // What is read again is what was there.
        assert_eq!(points(&values, Some(5)), [(5, 5.0)]);
        // Without a step it is 0 each time.
        assert_eq!(points(&[(0, 3.0), (0, 2.0), (0, 1.0)], Some(0)), [(0, 1.0)]);
    }
}
