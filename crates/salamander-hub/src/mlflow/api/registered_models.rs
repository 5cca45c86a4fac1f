//! Registered models, their tags and aliases.

use serde_json::{Value, json};

use super::super::asked::Asked;
use super::super::events::TrackingEvent;
use super::super::filter::{Filter, Orders, Searchable};
use super::super::refusal::MlflowRefusal;
use super::super::registry::{RegisteredModel, STAGES};
use super::super::{Mlflow, MlflowRecords};
use super::{bounded, listed, named, page};
use crate::now;

/// Models of a page, at most.
const MOST: usize = 1000;
/// The longest name, the longest key of a tag, the longest tag, the longest alias.
const NAME: usize = 256;
const KEY: usize = 250;
const TAG: usize = 100_000;
const ALIAS: usize = 255;

impl MlflowRecords {
    /// A model that a client made.
    fn registered(&self, name: &str) -> Result<&RegisteredModel, MlflowRefusal> {
        let missing =
            || MlflowRefusal::missing(format!("Registered Model with name={name} not found"));
        self.tracked.registered.get(name).ok_or_else(missing)
    }
}

impl Mlflow {
    /// A model that a client made, or one of ours.
    pub(super) fn registered(&self, name: &str) -> Result<RegisteredModel, MlflowRefusal> {
        let found = self.said().registered(name).cloned();
        match found {
            Ok(model) => Ok(model),
            Err(missing) => self.our_model(name)?.ok_or(missing),
        }
    }

    /// All of them; one of ours that has the name of a client's is behind it.
    pub(super) fn all_registered(&self) -> Result<Vec<RegisteredModel>, MlflowRefusal> {
        let ours = self.our_models()?;
        let mut all: Vec<RegisteredModel> =
            self.said().tracked.registered.values().cloned().collect();
        let theirs = all.len();
        for model in ours {
            if all[..theirs].iter().all(|other| other.name != model.name) {
                all.push(model);
            }
        }
        Ok(all)
    }

    /// Changes a model that a client made.
    pub(super) fn change_registered(
        &self,
        name: &str,
        change: impl FnOnce(&mut RegisteredModel) -> Result<(), MlflowRefusal>,
    ) -> Result<RegisteredModel, MlflowRefusal> {
        let mut said = self.said();
        let mut model = match said.registered(name).cloned() {
            Ok(model) => model,
            Err(missing) => {
                drop(said);
                return Err(self.not_theirs(name, missing));
            }
        };
        change(&mut model)?;
        model.updated = now();
        said.say(vec![TrackingEvent::RegisteredModel(Box::new(model.clone()))])?;
        Ok(model)
    }

    /// Why a client cannot change a model that it has not made.
    fn not_theirs(&self, name: &str, missing: MlflowRefusal) -> MlflowRefusal {
        match self.our_model(name) {
            Ok(Some(_)) => MlflowRefusal::state(format!(
                "model {name} is of Salamander's own registry: `salamander model` and the page change it"
            )),
            Ok(None) => missing,
            Err(error) => error.into(),
        }
    }
}

fn new_name(name: &str) -> Result<(), MlflowRefusal> {
    bounded("Registered model name", name, NAME)?;
    if name.contains(['/', ':']) || name.trim().is_empty() || name.starts_with("..") || name == "."
    {
        let reason = format!("Invalid model name: '{name}'. It cannot contain '/' or ':'.");
        return Err(MlflowRefusal::invalid(reason));
    }
    Ok(())
}

fn is_taken(name: &str) -> MlflowRefusal {
    MlflowRefusal::exists(format!("Registered Model (name={name}) already exists."))
}

/// Refuses a tag that a model or a version cannot have.
pub(super) fn new_tag(key: &str, value: &str) -> Result<(), MlflowRefusal> {
    named("Tag name", key, KEY)?;
    bounded("Tag value", value, TAG)
}

/// Refuses an alias that could be taken for a version.
fn new_alias(alias: &str) -> Result<(), MlflowRefusal> {
    bounded("Registered model alias name", alias, ALIAS)?;
    let is_sign = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
    let number = alias.strip_prefix(['v', 'V']);
    let is_number =
        number.is_some_and(|rest| !rest.is_empty() && rest.chars().all(|c| c.is_ascii_digit()));
    if is_number || alias.eq_ignore_ascii_case("latest") || !alias.chars().all(is_sign) {
        let reason = format!(
            "Invalid alias name: '{alias}'. Names may only contain alphanumerics, underscores (_), and dashes (-); \
             'latest' and versions such as 'v1' are reserved."
        );
        return Err(MlflowRefusal::invalid(reason));
    }
    Ok(())
}

pub(super) fn create(mlflow: &Mlflow, asked: &Asked) -> Result<Value, MlflowRefusal> {
    let name = asked.required("name")?;
    new_name(name)?;
    let tags = asked.pairs("tags")?;
    tags.iter().try_for_each(|(key, value)| new_tag(key, value))?;
    if mlflow.our_model(name)?.is_some() {
        return Err(is_taken(name));
    }
    let mut said = mlflow.said();
    if said.registered(name).is_ok() {
        return Err(is_taken(name));
    }
    let time = now();
    let model = RegisteredModel {
        name: name.to_string(),
        description: asked.text("description").unwrap_or_default().to_string(),
        created: time,
        updated: time,
        tags,
        aliases: Default::default(),
        versions: Default::default(),
        last: 0,
    };
    let answer = json!({"registered_model": model.to_json()});
    said.say(vec![TrackingEvent::RegisteredModel(Box::new(model))])?;
    Ok(answer)
}

pub(super) fn get(mlflow: &Mlflow, asked: &Asked) -> Result<Value, MlflowRefusal> {
    Ok(json!({"registered_model": mlflow.registered(asked.required("name")?)?.to_json()}))
}

pub(super) fn rename(mlflow: &Mlflow, asked: &Asked) -> Result<Value, MlflowRefusal> {
    let (name, to) = (asked.required("name")?, asked.required("new_name")?);
    new_name(to)?;
    if mlflow.our_model(to)?.is_some() {
        return Err(is_taken(to));
    }
    let mut said = mlflow.said();
    let mut model = match said.registered(name).cloned() {
        Ok(model) => model,
        Err(missing) => {
            drop(said);
            return Err(mlflow.not_theirs(name, missing));
        }
    };
    if said.registered(to).is_ok() {
        return Err(is_taken(to));
    }
    model.name = to.to_string();
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
    let model = mlflow.change_registered(asked.required("name")?, |model| {
        model.description = description;
        Ok(())
    })?;
    Ok(json!({"registered_model": model.to_json()}))
}

pub(super) fn delete(mlflow: &Mlflow, asked: &Asked) -> Result<Value, MlflowRefusal> {
    let name = asked.required("name")?;
    let mut said = mlflow.said();
    if let Err(missing) = said.registered(name).cloned() {
        drop(said);
        return Err(mlflow.not_theirs(name, missing));
    }
    said.say(vec![TrackingEvent::Unregistered(name.to_string())])?;
    Ok(json!({}))
}

pub(super) fn search(mlflow: &Mlflow, asked: &Asked) -> Result<Value, MlflowRefusal> {
    let searchable = &Searchable::REGISTERED_MODELS;
    let filter = Filter::parse(asked.text("filter").unwrap_or_default(), searchable)?;
    let orders = Orders::parse(&asked.list("order_by"), searchable)?;
    let mut all = mlflow.all_registered()?;
    all.retain(|model| filter.matches_model(|field, key| model.found(field, key)));
    all.sort_by(|one, other| {
        let asked = orders.compare(|f, key| one.found(f, key), |f, key| other.found(f, key));
        asked.then_with(|| one.name.cmp(&other.name))
    });
    let (found, next) = page(all, asked, MOST)?;
    Ok(listed("registered_models", found.iter().map(RegisteredModel::to_json).collect(), next))
}

pub(super) fn latest_versions(mlflow: &Mlflow, asked: &Asked) -> Result<Value, MlflowRefusal> {
    let model = mlflow.registered(asked.required("name")?)?;
    let stages = asked.list("stages");
    let is_known = |stage: &String| STAGES.iter().any(|known| known.eq_ignore_ascii_case(stage));
    if let Some(unknown) = stages.iter().find(|stage| !is_known(stage)) {
        return Err(MlflowRefusal::invalid(format!("Invalid Model Version stage: {unknown}")));
    }
    let versions = model.latest(&stages).into_iter();
    let versions: Vec<Value> = versions.map(|number| model.version_json(number)).collect();
    Ok(json!({"model_versions": versions}))
}

pub(super) fn set_tag(mlflow: &Mlflow, asked: &Asked) -> Result<Value, MlflowRefusal> {
    let (key, value) = (asked.required("key")?.to_string(), asked.value("value")?.to_string());
    new_tag(&key, &value)?;
    mlflow.change_registered(asked.required("name")?, |model| {
        model.tags.insert(key, value);
        Ok(())
    })?;
    Ok(json!({}))
}

pub(super) fn delete_tag(mlflow: &Mlflow, asked: &Asked) -> Result<Value, MlflowRefusal> {
    let key = asked.required("key")?;
    mlflow.change_registered(asked.required("name")?, |model| {
        model.tags.remove(key);
        Ok(())
    })?;
    Ok(json!({}))
}

pub(super) fn set_alias(mlflow: &Mlflow, asked: &Asked) -> Result<Value, MlflowRefusal> {
    let (alias, number) = (asked.required("alias")?.to_string(), super::versions::number(asked)?);
    new_alias(&alias)?;
    mlflow.change_registered(asked.required("name")?, |model| {
        super::versions::there(model, number)?;
        model.aliases.insert(alias, number);
        Ok(())
    })?;
    Ok(json!({}))
}

pub(super) fn delete_alias(mlflow: &Mlflow, asked: &Asked) -> Result<Value, MlflowRefusal> {
    let alias = asked.required("alias")?;
    mlflow.change_registered(asked.required("name")?, |model| {
        model.aliases.remove(alias);
        Ok(())
    })?;
    Ok(json!({}))
}

pub(super) fn by_alias(mlflow: &Mlflow, asked: &Asked) -> Result<Value, MlflowRefusal> {
    let (name, alias) = (asked.required("name")?, asked.required("alias")?);
    let model = mlflow.registered(name)?;
    if alias.eq_ignore_ascii_case("latest") {
        let none = || MlflowRefusal::missing(format!("Latest version not found for model {name}."));
        let (number, _) = model.versions.last_key_value().ok_or_else(none)?;
        return Ok(json!({"model_version": model.version_json(*number)}));
    }
    let missing = || MlflowRefusal::invalid(format!("Registered model alias {alias} not found."));
    let number = model.aliases.get(alias).copied().ok_or_else(missing)?;
    Ok(json!({"model_version": model.version_json(number)}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aliases_are_no_versions() {
        for alias in ["champion", "a-b_c", "v", "version1", "1st"] {
            assert_eq!(new_alias(alias), Ok(()), "{alias}");
        }
        for alias in ["latest", "LATEST", "v1", "V22", "a b", "a/b", "a@b"] {
            assert!(new_alias(alias).is_err(), "{alias}");
        }
    }
}
