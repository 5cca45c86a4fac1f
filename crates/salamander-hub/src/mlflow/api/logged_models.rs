//! Models that runs have logged.

use serde_json::{Value, json};

use super::super::asked::Asked;
use super::super::events::TrackingEvent;
use super::super::filter::{Field, Filter, OrderBy, Orders, Searchable};
use super::super::refusal::MlflowRefusal;
use super::super::tracked::{LifecycleStage, LoggedModel};
use super::super::{Mlflow, MlflowRecords, artifacts, new_id};
use super::{listed, page};
use crate::now;

/// Models of a page, at most.
const MOST: usize = 1000;

impl MlflowRecords {
    pub(super) fn logged(&self, id: &str) -> Result<LoggedModel, MlflowRefusal> {
        let missing = || MlflowRefusal::missing(format!("Logged model with ID '{id}' not found."));
        let found =
            self.tracked.logged.get(id).filter(|model| model.stage == LifecycleStage::Active);
        found.cloned().ok_or_else(missing)
    }

    fn change_logged(
        &mut self,
        asked: &Asked,
        change: impl FnOnce(&mut LoggedModel) -> Result<(), MlflowRefusal>,
    ) -> Result<Value, MlflowRefusal> {
        let mut model = self.logged(asked.required("model_id")?)?;
        change(&mut model)?;
        model.updated = now();
        let answer = json!({"model": model.to_json()});
        self.say(vec![TrackingEvent::LoggedModel(model)])?;
        Ok(answer)
    }
}

pub(super) fn create(mlflow: &Mlflow, asked: &Asked) -> Result<Value, MlflowRefusal> {
    let experiment = mlflow.experiment(asked.required("experiment_id")?)?;
    let id = format!("m-{}", new_id()?);
    let name = asked.text("name").map_or_else(|| format!("model-{}", &id[2..10]), String::from);
    let time = now();
    let root = match artifacts::root(&experiment.artifacts) {
        Ok(root) if root != super::super::ours::PLACE => experiment.artifacts,
        _ => artifacts::location(&experiment.id),
    };
    let model = LoggedModel {
        artifacts: format!("{}/models/{id}/artifacts", root.trim_end_matches('/')),
        id,
        experiment: experiment.id,
        name,
        created: time,
        updated: time,
        status: "LOGGED_MODEL_PENDING".to_string(),
        kind: asked.text("model_type").unwrap_or_default().to_string(),
        run: asked.text("source_run_id").unwrap_or_default().to_string(),
        tags: asked.pairs("tags")?,
        params: asked.pairs("params")?,
        metrics: Vec::new(),
        registrations: Vec::new(),
        stage: LifecycleStage::Active,
    };
    let answer = json!({"model": model.to_json()});
    mlflow.said().say(vec![TrackingEvent::LoggedModel(model)])?;
    Ok(answer)
}

pub(super) fn get(mlflow: &Mlflow, asked: &Asked) -> Result<Value, MlflowRefusal> {
    let model = mlflow.said().logged(asked.required("model_id")?)?;
    Ok(json!({"model": model.to_json()}))
}

pub(super) fn finalize(mlflow: &Mlflow, asked: &Asked) -> Result<Value, MlflowRefusal> {
    let status = match asked.required("status")? {
        status @ ("LOGGED_MODEL_READY" | "LOGGED_MODEL_UPLOAD_FAILED" | "LOGGED_MODEL_PENDING") => {
            status
        }
        status => {
            return Err(MlflowRefusal::invalid(format!("{status:?} is no status of a model")));
        }
    };
    mlflow.said().change_logged(asked, |model| {
        model.status = status.to_string();
        Ok(())
    })
}

pub(super) fn delete(mlflow: &Mlflow, asked: &Asked) -> Result<Value, MlflowRefusal> {
    mlflow.said().change_logged(asked, |model| {
        model.stage = LifecycleStage::Deleted;
        Ok(())
    })?;
    Ok(json!({}))
}

pub(super) fn set_tags(mlflow: &Mlflow, asked: &Asked) -> Result<Value, MlflowRefusal> {
    let tags = asked.pairs("tags")?;
    mlflow.said().change_logged(asked, |model| {
        model.tags.extend(tags);
        Ok(())
    })
}

pub(super) fn delete_tag(mlflow: &Mlflow, asked: &Asked) -> Result<Value, MlflowRefusal> {
    let key = asked.required("tag_key")?;
    mlflow.said().change_logged(asked, |model| {
        let missing = || MlflowRefusal::missing(format!("No tag with key {key:?}"));
        model.tags.remove(key).map(drop).ok_or_else(missing)
    })?;
    Ok(json!({}))
}

pub(super) fn log_params(mlflow: &Mlflow, asked: &Asked) -> Result<Value, MlflowRefusal> {
    let params = asked.pairs("params")?;
    mlflow.said().change_logged(asked, |model| {
        let differs = |(key, value): &(&String, &String)| {
            model.params.get(*key).is_some_and(|before| before != *value)
        };
        if let Some((key, _)) = params.iter().find(differs) {
            let reason =
                format!("Changing param values is not allowed: '{key}' was logged already");
            return Err(MlflowRefusal::invalid(reason));
        }
        model.params.extend(params);
        Ok(())
    })?;
    Ok(json!({}))
}

pub(super) fn list_artifacts(mlflow: &Mlflow, asked: &Asked) -> Result<Value, MlflowRefusal> {
    let model = mlflow.said().logged(asked.required("model_id")?)?;
    let root = artifacts::root(&model.artifacts)?.to_string();
    let path = asked.text("artifact_directory_path").unwrap_or_default().trim_matches('/');
    Ok(json!({"root_uri": model.artifacts, "files": mlflow.list(&root, path)?}))
}

pub(super) fn search(mlflow: &Mlflow, asked: &Asked) -> Result<Value, MlflowRefusal> {
    let searchable = &Searchable::LOGGED_MODELS;
    let filter = Filter::parse(asked.text("filter").unwrap_or_default(), searchable)?;
    let mut orders = Orders::default();
    for order in asked.objects("order_by") {
        let mut by = OrderBy::parse(order.required("field_name")?, searchable)?;
        by.ascending = order.raw("ascending").is_none() || order.flag("ascending");
        orders.0.push(by);
    }
    if orders.0.is_empty() {
        let (field, key) = (Field::Attribute, "creation_time".to_string());
        orders.0.push(OrderBy { field, key, ascending: false });
    }
    let (wanted, datasets) = (asked.list("experiment_ids"), asked.objects("datasets"));
    // Of each model what is looked at, and the model: values on other data are not meant.
    let mut all: Vec<(LoggedModel, LoggedModel)> = {
        let said = mlflow.said();
        let active = said.tracked.logged.values().filter(|model| {
            model.stage == LifecycleStage::Active && wanted.contains(&model.experiment)
        });
        active.map(|model| (of_datasets(model, &datasets), model.clone())).collect()
    };
    all.retain(|(looked_at, _)| {
        let is_meant = datasets.is_empty() || filter.has_metrics() || !looked_at.metrics.is_empty();
        is_meant && filter.matches(|field, key| looked_at.found(field, key))
    });
    all.sort_by(|(one, _), (other, _)| {
        let asked = orders.compare(|f, key| one.found(f, key), |f, key| other.found(f, key));
        asked.then_with(|| one.id.cmp(&other.id))
    });
    let (found, next) = page(all, asked, MOST)?;
    Ok(listed("models", found.iter().map(|(_, model)| model.to_json()).collect(), next))
}

/// A model with the values that it has on some data sets; on all, if none is named.
fn of_datasets(model: &LoggedModel, datasets: &[Asked]) -> LoggedModel {
    let mut model = model.clone();
    if !datasets.is_empty() {
        let is_on = |metric: &Value, dataset: &Asked| {
            let same = |field: &str| metric[field].as_str() == dataset.text(field);
            same("dataset_name")
                && (dataset.text("dataset_digest").is_none() || same("dataset_digest"))
        };
        model.metrics.retain(|metric| datasets.iter().any(|dataset| is_on(metric, dataset)));
    }
    model
}
