//! Versions of registered models.

use serde_json::{Value, json};

use super::super::Mlflow;
use super::super::asked::Asked;
use super::super::events::TrackingEvent;
use super::super::filter::{Filter, Orders};
use super::super::refusal::MlflowRefusal;
use super::super::registry::{MlflowVersion, RegisteredModel, STAGES};
use super::{listed, page};
use crate::now;

/// Versions of a page, at most.
const MOST: usize = 200_000;

/// The version that is asked for.
pub(super) fn number(asked: &Asked) -> Result<u64, MlflowRefusal> {
    let wrong = || MlflowRefusal::invalid("Missing value for required parameter 'version'.");
    let number = asked.number("version")?.ok_or_else(wrong)?;
    u64::try_from(number).map_err(|_| wrong())
}

/// Refuses a version that is not there.
pub(super) fn there(model: &RegisteredModel, number: u64) -> Result<(), MlflowRefusal> {
    let missing = || {
        MlflowRefusal::missing(format!(
            "Model Version (name={}, version={number}) not found",
            model.name
        ))
    };
    model.versions.contains_key(&number).then_some(()).ok_or_else(missing)
}

fn change(
    mlflow: &Mlflow,
    asked: &Asked,
    change: impl FnOnce(&mut MlflowVersion) -> Result<(), MlflowRefusal>,
) -> Result<Value, MlflowRefusal> {
    let number = number(asked)?;
    let mut said = mlflow.said();
    let model = said.change_registered(asked.required("name")?, |model| {
        there(model, number)?;
        let Some(version) = model.versions.get_mut(&number) else { return Ok(()) };
        change(version)?;
        version.updated = now();
        Ok(())
    })?;
    Ok(json!({"model_version": model.version_json(number)}))
}

pub(super) fn create(mlflow: &Mlflow, asked: &Asked) -> Result<Value, MlflowRefusal> {
    let source = asked.required("source")?.to_string();
    let tags = asked.pairs("tags")?;
    let text = |name: &str| asked.text(name).unwrap_or_default().to_string();
    let named = source.strip_prefix("models:/").filter(|id| id.starts_with("m-"));
    let logged = asked.text("model_id").or(named).unwrap_or_default().to_string();
    let time = now();
    let mut number = 0;
    let mut said = mlflow.said();
    let run = match asked.text("run_id") {
        Some(run) => run.to_string(),
        None => said.logged(&logged).map(|model| model.run).unwrap_or_default(),
    };
    let version = MlflowVersion {
        description: text("description"),
        source,
        run,
        run_link: text("run_link"),
        model: logged.clone(),
        stage: STAGES[0].to_string(),
        created: time,
        updated: time,
        tags,
    };
    let model = said.change_registered(asked.required("name")?, |model| {
        number = model.last + 1;
        model.last = number;
        model.versions.insert(number, version);
        Ok(())
    })?;
    let (name, answer) = (model.name.clone(), json!({"model_version": model.version_json(number)}));
    if let Ok(mut logged) = said.logged(&logged) {
        logged.registrations.push(json!({"name": name, "version": number.to_string()}));
        said.say(vec![TrackingEvent::LoggedModel(logged)])?;
    }
    Ok(answer)
}

pub(super) fn get(mlflow: &Mlflow, asked: &Asked) -> Result<Value, MlflowRefusal> {
    let number = number(asked)?;
    let said = mlflow.said();
    let model = said.registered(asked.required("name")?)?;
    there(model, number)?;
    Ok(json!({"model_version": model.version_json(number)}))
}

pub(super) fn update(mlflow: &Mlflow, asked: &Asked) -> Result<Value, MlflowRefusal> {
    let description = asked.value("description").unwrap_or_default().to_string();
    change(mlflow, asked, |version| {
        version.description = description;
        Ok(())
    })
}

pub(super) fn delete(mlflow: &Mlflow, asked: &Asked) -> Result<Value, MlflowRefusal> {
    let number = number(asked)?;
    mlflow.said().change_registered(asked.required("name")?, |model| {
        there(model, number)?;
        model.versions.remove(&number);
        model.aliases.retain(|_, version| *version != number);
        Ok(())
    })?;
    Ok(json!({}))
}

pub(super) fn transition(mlflow: &Mlflow, asked: &Asked) -> Result<Value, MlflowRefusal> {
    let asked_stage = asked.required("stage")?;
    let stage = STAGES.iter().find(|stage| stage.eq_ignore_ascii_case(asked_stage));
    let wrong = || MlflowRefusal::invalid(format!("Invalid Model Version stage: {asked_stage}"));
    let stage = stage.ok_or_else(wrong)?.to_string();
    let (number, archive) = (number(asked)?, asked.flag("archive_existing_versions"));
    let mut said = mlflow.said();
    let model = said.change_registered(asked.required("name")?, |model| {
        there(model, number)?;
        for (other, version) in &mut model.versions {
            if *other == number {
                version.stage.clone_from(&stage);
                version.updated = now();
            } else if archive && version.stage == stage {
                version.stage = "Archived".to_string();
            }
        }
        Ok(())
    })?;
    Ok(json!({"model_version": model.version_json(number)}))
}

pub(super) fn set_tag(mlflow: &Mlflow, asked: &Asked) -> Result<Value, MlflowRefusal> {
    let (key, value) = (asked.required("key")?.to_string(), asked.value("value")?.to_string());
    change(mlflow, asked, |version| {
        version.tags.insert(key, value);
        Ok(())
    })?;
    Ok(json!({}))
}

pub(super) fn delete_tag(mlflow: &Mlflow, asked: &Asked) -> Result<Value, MlflowRefusal> {
    let key = asked.required("key")?;
    change(mlflow, asked, |version| {
        version.tags.remove(key);
        Ok(())
    })?;
    Ok(json!({}))
}

/// Where the files of a version are: those of the model that it was made from.
pub(super) fn download_uri(mlflow: &Mlflow, asked: &Asked) -> Result<Value, MlflowRefusal> {
    let number = number(asked)?;
    let said = mlflow.said();
    let model = said.registered(asked.required("name")?)?;
    there(model, number)?;
    let version = &model.versions[&number];
    let logged = said.logged(&version.model).map(|model| model.artifacts);
    Ok(json!({"artifact_uri": logged.unwrap_or_else(|_| version.source.clone())}))
}

pub(super) fn search(mlflow: &Mlflow, asked: &Asked) -> Result<Value, MlflowRefusal> {
    let filter = Filter::parse(asked.text("filter").unwrap_or_default())?;
    let orders = Orders::parse(&asked.list("order_by"))?;
    let said = mlflow.said();
    let models = said.tracked.registered.values();
    let mut all: Vec<(&RegisteredModel, u64)> = models
        .flat_map(|model| model.versions.keys().map(move |number| (model, *number)))
        .filter(|(model, number)| {
            filter.matches_model(|field, key| model.version_found(*number, field, key))
        })
        .collect();
    all.sort_by(|(one, first), (other, second)| {
        let asked = orders.compare(
            |field, key| one.version_found(*first, field, key),
            |field, key| other.version_found(*second, field, key),
        );
        let time = |model: &RegisteredModel, number: u64| model.versions[&number].updated;
        asked
            .then_with(|| time(other, *second).cmp(&time(one, *first)))
            .then_with(|| one.name.cmp(&other.name))
            .then_with(|| second.cmp(first))
    });
    let (found, next) = page(all, asked, MOST)?;
    let found = found.iter().map(|(model, number)| model.version_json(*number)).collect();
    Ok(listed("model_versions", found, next))
}
