//! Experiments.

use serde_json::{Value, json};

use super::super::asked::Asked;
use super::super::events::TrackingEvent;
use super::super::filter::{Filter, Orders, Searchable};
use super::super::refusal::MlflowRefusal;
use super::super::tracked::{LifecycleStage, MlflowExperiment, context_of};
use super::super::{Mlflow, MlflowRecords, artifacts};
use super::{bounded, listed, named, page};
use crate::now;

/// Experiments of a page, at most.
const MOST: usize = 50_000;
/// The longest name, the longest key of a tag and the longest tag.
const NAME: usize = 500;
const KEY: usize = 250;
const TAG: usize = 20_000;

impl Mlflow {
    /// All experiments: those that clients made, and ours.
    pub(super) fn experiments(&self) -> Result<Vec<MlflowExperiment>, MlflowRefusal> {
        let ours = self.our_experiments()?;
        let mut all: Vec<MlflowExperiment> =
            self.said().tracked.experiments.values().cloned().collect();
        // One that a client made under our name has runs of its own.
        all.extend(
            ours.into_iter()
                .map(|mut one| {
                    if all.iter().any(|other| other.name == one.name) {
                        one.name = format!("{} (salamander)", one.name);
                    }
                    one
                })
                .collect::<Vec<_>>(),
        );
        Ok(all)
    }

    pub(super) fn experiment(&self, id: &str) -> Result<MlflowExperiment, MlflowRefusal> {
        let missing = || MlflowRefusal::missing(format!("No Experiment with id={id} exists"));
        self.experiments()?.into_iter().find(|one| one.id == id).ok_or_else(missing)
    }
}

impl MlflowRecords {
    /// An experiment that a client made, to be changed.
    fn theirs(&self, id: &str) -> Result<MlflowExperiment, MlflowRefusal> {
        let found = id.parse().ok().and_then(|number: u64| self.tracked.experiments.get(&number));
        let missing = || {
            MlflowRefusal::missing(format!(
                "No Experiment with id={id} exists that a client has made"
            ))
        };
        found.cloned().ok_or_else(missing)
    }

    fn change(
        &mut self,
        id: &str,
        change: impl FnOnce(&mut MlflowExperiment) -> Result<(), MlflowRefusal>,
    ) -> Result<Value, MlflowRefusal> {
        let mut experiment = self.theirs(id)?;
        if experiment.stage == LifecycleStage::Deleted {
            let reason =
                format!("The experiment {id} must be in the 'active' state: it is deleted");
            return Err(MlflowRefusal::invalid(reason));
        }
        change(&mut experiment)?;
        experiment.updated = now();
        self.say(vec![TrackingEvent::Experiment(experiment)])?;
        Ok(json!({}))
    }
}

pub(super) fn create(mlflow: &Mlflow, asked: &Asked) -> Result<Value, MlflowRefusal> {
    let name = asked.required("name")?;
    bounded("Experiment name", name, NAME)?;
    let tags = asked.pairs("tags")?;
    tags.iter().try_for_each(|(key, value)| new_tag(key, value))?;
    if let Some(taken) = mlflow.experiments()?.into_iter().find(|one| one.name == name) {
        return Err(is_taken(&taken));
    }
    let mut said = mlflow.said();
    // Another client may have been faster.
    if let Some(taken) = said.tracked.experiments.values().find(|one| one.name == name) {
        return Err(is_taken(taken));
    }
    let id = said.tracked.experiments.keys().next_back().map_or(0, |last| last + 1).to_string();
    let location = asked.text("artifact_location").map(str::to_string);
    let time = now();
    said.say(vec![TrackingEvent::Experiment(MlflowExperiment {
        artifacts: location.unwrap_or_else(|| artifacts::location(&id)),
        id: id.clone(),
        name: name.to_string(),
        stage: LifecycleStage::Active,
        created: time,
        updated: time,
        tags,
    })])?;
    Ok(json!({"experiment_id": id}))
}

fn is_taken(taken: &MlflowExperiment) -> MlflowRefusal {
    let more = match taken.stage {
        LifecycleStage::Deleted => " It is deleted: restore it, or choose another name.",
        LifecycleStage::Active => "",
    };
    MlflowRefusal::exists(format!("Experiment '{}' already exists.{more}", taken.name))
}

fn new_tag(key: &str, value: &str) -> Result<(), MlflowRefusal> {
    named("Tag name", key, KEY)?;
    bounded("Tag value", value, TAG)
}

pub(super) fn get(mlflow: &Mlflow, asked: &Asked) -> Result<Value, MlflowRefusal> {
    let found = mlflow.experiment(asked.required("experiment_id")?)?;
    Ok(json!({"experiment": found.to_json()}))
}

pub(super) fn get_by_name(mlflow: &Mlflow, asked: &Asked) -> Result<Value, MlflowRefusal> {
    let name = asked.required("experiment_name")?;
    let found = mlflow.experiments()?.into_iter().find(|one| one.name == name);
    let missing =
        || MlflowRefusal::missing(format!("Could not find experiment with name '{name}'"));
    Ok(json!({"experiment": found.ok_or_else(missing)?.to_json()}))
}

/// Whether something of a stage is asked for: only what is active, unless told otherwise.
pub(super) fn is_viewed(asked: &Asked, field: &str, stage: LifecycleStage) -> bool {
    match asked.text(field) {
        Some("ALL") => true,
        Some("DELETED_ONLY") => stage == LifecycleStage::Deleted,
        _ => stage == LifecycleStage::Active,
    }
}

pub(super) fn search(mlflow: &Mlflow, asked: &Asked) -> Result<Value, MlflowRefusal> {
    let filter = Filter::parse(asked.text("filter").unwrap_or_default(), &Searchable::EXPERIMENTS)?;
    let orders = Orders::parse(&asked.list("order_by"), &Searchable::EXPERIMENTS)?;
    let mut all = mlflow.experiments()?;
    all.retain(|one| {
        is_viewed(asked, "view_type", one.stage)
            && filter.matches(|field, key| one.found(field, key))
    });
    all.sort_by(|one, other| {
        let asked = orders.compare(|f, key| one.found(f, key), |f, key| other.found(f, key));
        asked.then(other.updated.cmp(&one.updated)).then_with(|| one.id.cmp(&other.id))
    });
    let (found, next) = page(all, asked, MOST)?;
    Ok(listed("experiments", found.iter().map(MlflowExperiment::to_json).collect(), next))
}

pub(super) fn update(mlflow: &Mlflow, asked: &Asked) -> Result<Value, MlflowRefusal> {
    let (id, name) = (asked.required("experiment_id")?, asked.required("new_name")?);
    bounded("Experiment name", name, NAME)?;
    if mlflow.experiments()?.iter().any(|one| one.name == name && one.id != id) {
        return Err(MlflowRefusal::exists(format!("Experiment '{name}' already exists.")));
    }
    let mut said = mlflow.said();
    let is_other = |one: &&MlflowExperiment| one.name == name && one.id != id;
    if let Some(taken) = said.tracked.experiments.values().find(is_other) {
        return Err(is_taken(taken));
    }
    if said.theirs(id)?.stage == LifecycleStage::Deleted {
        return Err(MlflowRefusal::state("Cannot rename a non-active experiment."));
    }
    said.change(id, |experiment| {
        experiment.name = name.to_string();
        Ok(())
    })
}

/// Deletes an experiment or brings it back, with its runs.
fn set_stage(mlflow: &Mlflow, id: &str, stage: LifecycleStage) -> Result<Value, MlflowRefusal> {
    let runs = {
        let mut said = mlflow.said();
        let mut experiment = said.theirs(id)?;
        if experiment.stage == stage {
            let reason = format!("Experiment with id={id} is {} already", stage.as_str());
            return Err(MlflowRefusal::missing(reason));
        }
        (experiment.stage, experiment.updated) = (stage, now());
        let runs = said.tracked.of_experiment.get(id).cloned().unwrap_or_default();
        let mut events = vec![TrackingEvent::Experiment(experiment)];
        events.extend(runs.iter().map(|run| TrackingEvent::RunChanged {
            id: run.clone(),
            name: None,
            status: None,
            ended: None,
            stage: Some(stage),
        }));
        said.say(events)?;
        runs
    };
    runs.iter().for_each(|run| mlflow.show(run, Vec::new()));
    Ok(json!({}))
}

pub(super) fn delete(mlflow: &Mlflow, asked: &Asked) -> Result<Value, MlflowRefusal> {
    let id = asked.required("experiment_id")?;
    if id == super::super::DEFAULT_EXPERIMENT {
        return Err(MlflowRefusal::invalid("the default experiment stays"));
    }
    set_stage(mlflow, id, LifecycleStage::Deleted)
}

pub(super) fn restore(mlflow: &Mlflow, asked: &Asked) -> Result<Value, MlflowRefusal> {
    set_stage(mlflow, asked.required("experiment_id")?, LifecycleStage::Active)
}

pub(super) fn set_tag(mlflow: &Mlflow, asked: &Asked) -> Result<Value, MlflowRefusal> {
    let (key, value) = (asked.required("key")?, asked.value("value")?);
    new_tag(key, value)?;
    mlflow.said().change(asked.required("experiment_id")?, |experiment| {
        experiment.tags.insert(key.to_string(), value.to_string());
        Ok(())
    })
}

pub(super) fn delete_tag(mlflow: &Mlflow, asked: &Asked) -> Result<Value, MlflowRefusal> {
    let key = asked.required("key")?;
    mlflow.said().change(asked.required("experiment_id")?, |experiment| {
        let missing = || MlflowRefusal::missing(format!("No tag with name: {key}"));
        experiment.tags.remove(key).map(drop).ok_or_else(missing)
    })
}

/// The data sets that the runs of experiments have used.
pub(super) fn datasets(mlflow: &Mlflow, asked: &Asked) -> Result<Value, MlflowRefusal> {
    let said = mlflow.said();
    let mut found: Vec<Value> = Vec::new();
    for experiment in asked.list("experiment_ids") {
        let runs = said.tracked.of_experiment.get(&experiment).into_iter().flatten();
        for input in runs.filter_map(|run| said.tracked.runs.get(run)).flat_map(|run| &run.datasets)
        {
            let one = json!({
                "experiment_id": experiment,
                "name": input["dataset"]["name"],
                "digest": input["dataset"]["digest"],
                "context": context_of(input),
            });
            if !found.contains(&one) {
                found.push(one);
            }
        }
    }
    Ok(json!({"dataset_summaries": found}))
}
