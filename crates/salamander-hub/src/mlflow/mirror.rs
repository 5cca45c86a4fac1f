//! Shows the runs of clients beside all others: in the store, which lists, curves and the page are made from.
//!
//! The store is made from what clients said, as everything in it is made from files. A curve there goes forward by
//! steps; values that come late are in the history only. Who logs without a step sends 0 each time: the last value of
//! a step is the one that counts, as it is for clients.

use std::collections::BTreeMap;

use super::Mlflow;
use super::measured;
use super::tracked::{LifecycleStage, MetricValue, MlflowRun};
use crate::store::experiments::{self, Facts};
use crate::store::points::{self, NewPoints, StoredPoint};
use crate::store::runs::{self, MetricsProgress, RunFacts};
use crate::{Error, ExperimentId, RunId};

/// What our lists call an experiment of clients.
pub(super) const KIND: &str = experiments::OF_CLIENTS;

impl Mlflow {
    /// Shows what is not shown yet: all of it in a store that is new, and what a killed hub had not come to.
    pub(super) fn show_all(&self) -> Result<(), Error> {
        let runs: Vec<MlflowRun> = self.said().tracked.runs.values().cloned().collect();
        for run in runs {
            let shown = self.numbers(&run)?.map(|(_, id)| self.hub().store().run(id));
            if run.status == "RUNNING" || !matches!(shown, Some(Ok(_))) {
                self.show(&run.id, self.all_values(&run.id)?);
            }
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
        let last: BTreeMap<String, i64> = match values.is_empty() {
            true => BTreeMap::new(),
            false => {
                let metrics = self.hub().store().metrics(id)?;
                metrics.into_iter().map(|metric| (metric.name, metric.last_step)).collect()
            }
        };
        let points = forward(values, &last);
        let steps = points.values().filter_map(|points| points.last()).map(|point| point.step);
        // A metric that is behind does not take the run back.
        let most = steps.max().max(last.values().copied().max().filter(|_| !points.is_empty()));
        self.hub().store().write(move |tx| {
            experiments::set_facts(tx, experiment, &of_experiment)?;
            runs::set_facts(tx, id, &facts)?;
            if let Some(steps) = most {
                points::append_or_replace(tx, id, &points)?;
                runs::set_progress(tx, id, &MetricsProgress { steps, epoch: 0 })?;
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

/// The points that follow what is there, by metric: of each step the last value. The first point of a curve may be of
/// the step that its last one was of, and takes its place.
fn forward(values: Vec<(String, MetricValue)>, last: &BTreeMap<String, i64>) -> NewPoints {
    let mut points = NewPoints::new();
    for (key, one) in values {
        let before = points.get(&key).and_then(|points: &Vec<StoredPoint>| points.last());
        let before = before.map(|point| point.step).or(last.get(&key).copied());
        if before.is_some_and(|before| one.step < before) {
            continue;
        }
        let curve = points.entry(key).or_default();
        curve.pop_if(|last| last.step == one.step);
        curve.push(StoredPoint { step: one.step, value: one.value });
    }
    points
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

    fn points(values: &[(i64, f64)], last: Option<i64>) -> Vec<(i64, f64)> {
        let measured = |(step, value): &(i64, f64)| {
            ("loss".to_string(), MetricValue { value: *value, timestamp: 0, step: *step })
        };
        let last = last.map(|step| ("loss".to_string(), step)).into_iter().collect();
        let points = forward(values.iter().map(measured).collect(), &last);
        points["loss"].iter().map(|point| (point.step, point.value)).collect()
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
