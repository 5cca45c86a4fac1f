//! Registered models, their tags and aliases.

use serde_json::{Value, json};

use super::super::asked::Asked;
use super::super::events::TrackingEvent;
use super::super::filter::{Filter, Orders};
use super::super::refusal::MlflowRefusal;
use super::super::registry::RegisteredModel;
use super::super::{Mlflow, MlflowRecords};
use super::{bounded, listed, page};
use crate::now;

/// Models of a page, at most.
const MOST: usize = 1000;

impl MlflowRecords {
    pub(super) fn registered(&self, name: &str) -> Result<&RegisteredModel, MlflowRefusal> {
        let missing =
            || MlflowRefusal::missing(format!("Registered Model with name={name} not found"));
        self.tracked.registered.get(name).ok_or_else(missing)
    }

    pub(super) fn change_registered(
        &mut self,
        name: &str,
        change: impl FnOnce(&mut RegisteredModel) -> Result<(), MlflowRefusal>,
    ) -> Result<&RegisteredModel, MlflowRefusal> {
        let mut model = self.registered(name)?.clone();
        change(&mut model)?;
        model.updated = now();
        self.say(vec![TrackingEvent::RegisteredModel(Box::new(model))])?;
        self.registered(name)
    }
}

pub(super) fn create(mlflow: &Mlflow, asked: &Asked) -> Result<Value, MlflowRefusal> {
    let name = asked.required("name")?;
    bounded("Registered model name", name, 256)?;
    if name.contains(['/', ':']) {
        let reason = format!("Invalid model name: '{name}'. It cannot contain '/' or ':'.");
        return Err(MlflowRefusal::invalid(reason));
    }
    let mut said = mlflow.said();
    if said.registered(name).is_ok() {
        return Err(MlflowRefusal::exists(format!(
            "Registered Model (name={name}) already exists."
        )));
    }
    let time = now();
    let model = RegisteredModel {
        name: name.to_string(),
        description: asked.text("description").unwrap_or_default().to_string(),
        created: time,
        updated: time,
        tags: asked.pairs("tags")?,
        aliases: Default::default(),
        versions: Default::default(),
        last: 0,
    };
    let answer = json!({"registered_model": model.to_json()});
    said.say(vec![TrackingEvent::RegisteredModel(Box::new(model))])?;
    Ok(answer)
}

pub(super) fn get(mlflow: &Mlflow, asked: &Asked) -> Result<Value, MlflowRefusal> {
    let said = mlflow.said();
    Ok(json!({"registered_model": said.registered(asked.required("name")?)?.to_json()}))
}

pub(super) fn rename(mlflow: &Mlflow, asked: &Asked) -> Result<Value, MlflowRefusal> {
    let (name, new_name) = (asked.required("name")?, asked.required("new_name")?);
    let mut said = mlflow.said();
    let mut model = said.registered(name)?.clone();
    if said.registered(new_name).is_ok() {
        return Err(MlflowRefusal::exists(format!(
            "Registered Model (name={new_name}) already exists."
        )));
    }
    model.name = new_name.to_string();
    model.updated = now();
    let answer = json!({"registered_model": model.to_json()});
    let (gone, new) = (
        TrackingEvent::Unregistered(name.to_string()),
        TrackingEvent::RegisteredModel(Box::new(model)),
    );
    said.say(vec![gone, new])?;
    Ok(answer)
}

pub(super) fn update(mlflow: &Mlflow, asked: &Asked) -> Result<Value, MlflowRefusal> {
    let description = asked.value("description").unwrap_or_default().to_string();
    let mut said = mlflow.said();
    let model = said.change_registered(asked.required("name")?, |model| {
        model.description = description;
        Ok(())
    })?;
    Ok(json!({"registered_model": model.to_json()}))
}

pub(super) fn delete(mlflow: &Mlflow, asked: &Asked) -> Result<Value, MlflowRefusal> {
    let mut said = mlflow.said();
    let name = said.registered(asked.required("name")?)?.name.clone();
    said.say(vec![TrackingEvent::Unregistered(name)])?;
    Ok(json!({}))
}

pub(super) fn search(mlflow: &Mlflow, asked: &Asked) -> Result<Value, MlflowRefusal> {
    let filter = Filter::parse(asked.text("filter").unwrap_or_default())?;
    let orders = Orders::parse(&asked.list("order_by"))?;
    let mut all: Vec<RegisteredModel> =
        mlflow.said().tracked.registered.values().cloned().collect();
    all.retain(|model| filter.matches_model(|field, key| model.found(field, key)));
    all.sort_by(|one, other| {
        let asked = orders.compare(|f, key| one.found(f, key), |f, key| other.found(f, key));
        asked.then_with(|| one.name.cmp(&other.name))
    });
    let (found, next) = page(all, asked, MOST)?;
    Ok(listed("registered_models", found.iter().map(RegisteredModel::to_json).collect(), next))
}

pub(super) fn latest_versions(mlflow: &Mlflow, asked: &Asked) -> Result<Value, MlflowRefusal> {
    let said = mlflow.said();
    let model = said.registered(asked.required("name")?)?;
    let versions = model.latest(&asked.list("stages")).into_iter();
    let versions: Vec<Value> = versions.map(|number| model.version_json(number)).collect();
    Ok(json!({"model_versions": versions}))
}

pub(super) fn set_tag(mlflow: &Mlflow, asked: &Asked) -> Result<Value, MlflowRefusal> {
    let (key, value) = (asked.required("key")?.to_string(), asked.value("value")?.to_string());
    mlflow.said().change_registered(asked.required("name")?, |model| {
        model.tags.insert(key, value);
        Ok(())
    })?;
    Ok(json!({}))
}

pub(super) fn delete_tag(mlflow: &Mlflow, asked: &Asked) -> Result<Value, MlflowRefusal> {
    let key = asked.required("key")?;
    mlflow.said().change_registered(asked.required("name")?, |model| {
        model.tags.remove(key);
        Ok(())
    })?;
    Ok(json!({}))
}

pub(super) fn set_alias(mlflow: &Mlflow, asked: &Asked) -> Result<Value, MlflowRefusal> {
    let (alias, number) = (asked.required("alias")?.to_string(), super::versions::number(asked)?);
    mlflow.said().change_registered(asked.required("name")?, |model| {
        super::versions::there(model, number)?;
        model.aliases.insert(alias, number);
        Ok(())
    })?;
    Ok(json!({}))
}

pub(super) fn delete_alias(mlflow: &Mlflow, asked: &Asked) -> Result<Value, MlflowRefusal> {
    let alias = asked.required("alias")?;
    mlflow.said().change_registered(asked.required("name")?, |model| {
        model.aliases.remove(alias);
        Ok(())
    })?;
    Ok(json!({}))
}

pub(super) fn by_alias(mlflow: &Mlflow, asked: &Asked) -> Result<Value, MlflowRefusal> {
    let alias = asked.required("alias")?;
    let said = mlflow.said();
    let model = said.registered(asked.required("name")?)?;
    let missing = || MlflowRefusal::missing(format!("Registered model alias {alias} not found."));
    let number = model.aliases.get(alias).copied().ok_or_else(missing)?;
    Ok(json!({"model_version": model.version_json(number)}))
}
