//! Versions of registered models.

use serde_json::{Value, json};

use super::super::Mlflow;
use super::super::asked::{Asked, decoded};
use super::super::events::TrackingEvent;
use super::super::filter::{Filter, Orders, Searchable};
use super::super::refusal::MlflowRefusal;
use super::super::registry::{ACTIVE, MlflowVersion, RegisteredModel, STAGES};
use super::registered_models::new_tag;
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
    let model = mlflow.change_registered(asked.required("name")?, |model| {
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
    tags.iter().try_for_each(|(key, value)| new_tag(key, value))?;
    let text = |name: &str| asked.text(name).unwrap_or_default().to_string();
    let named = source.strip_prefix("models:/").filter(|id| id.starts_with("m-"));
    let logged = asked.text("model_id").or(named).unwrap_or_default().to_string();
    let storage = storage_of(mlflow, &source)?;
    let time = now();
    let mut number = 0;
    let run = match asked.text("run_id") {
        Some(run) => run.to_string(),
        None => mlflow.said().logged(&logged).map(|model| model.run).unwrap_or_default(),
    };
    check_source(mlflow, &source, &run)?;
    let version = MlflowVersion {
        description: text("description"),
        source,
        storage,
        run,
        run_link: text("run_link"),
        model: logged.clone(),
        stage: STAGES[0].to_string(),
        created: time,
        updated: time,
        tags,
    };
    let model = mlflow.change_registered(asked.required("name")?, |model| {
        number = model.last + 1;
        model.last = number;
        model.versions.insert(number, version);
        Ok(())
    })?;
    let mut said = mlflow.said();
    if let Ok(mut logged) = said.logged(&logged) {
        let (name, version) = (&model.name, number.to_string());
        logged.registrations.push(json!({"name": name, "version": version}));
        said.say(vec![TrackingEvent::LoggedModel(logged)])?;
    }
    Ok(json!({"model_version": model.version_json(number)}))
}

/// Refuses what others could not fetch, or should not: files of somebody's machine that no run has logged there, and
/// paths that lead out of where they begin.
fn check_source(mlflow: &Mlflow, source: &str, run: &str) -> Result<(), MlflowRefusal> {
    let wrong = |why: &str| {
        MlflowRefusal::invalid(format!("Invalid model version source: '{source}': {why}"))
    };
    if decoded(source).split(['/', '\\', '?', '#']).any(|part| part == "..") {
        return Err(wrong("it leads out of its folder"));
    }
    // A letter alone is a disk.
    let scheme = source.split_once(':').map_or("", |(scheme, _)| scheme);
    if scheme.len() > 1 && !scheme.contains('/') && !scheme.eq_ignore_ascii_case("file") {
        return Ok(());
    }
    let is_of_run = || {
        let (run, _) = mlflow.run(run).ok()?;
        let rest = source.strip_prefix(run.artifacts.as_str())?;
        Some(rest.is_empty() || rest.starts_with('/'))
    };
    match is_of_run() {
        Some(true) => Ok(()),
        _ => Err(wrong("it is on one machine, and no artifact of the version's run")),
    }
}

/// Where the files of a version are that is made from another one: they stay when that is gone.
fn storage_of(mlflow: &Mlflow, source: &str) -> Result<Option<String>, MlflowRefusal> {
    let other = source.strip_prefix("models:/").filter(|other| !other.starts_with("m-"));
    let Some((name, number)) = other.and_then(|other| other.split_once('/')) else {
        return Ok(None);
    };
    let wrong = || MlflowRefusal::invalid(format!("{source} is no version of a model"));
    let number = number.parse().map_err(|_| wrong())?;
    let model = mlflow.registered(name)?;
    there(&model, number)?;
    Ok(Some(files_of(mlflow, &model, number)))
}

/// Where the files of a version are: those of the model that it was made from.
fn files_of(mlflow: &Mlflow, model: &RegisteredModel, number: u64) -> String {
    let version = &model.versions[&number];
    let logged = mlflow.said().logged(&version.model).map(|model| model.artifacts);
    let kept = || version.storage.clone().unwrap_or_else(|| version.source.clone());
    logged.unwrap_or_else(|_| kept())
}

pub(super) fn get(mlflow: &Mlflow, asked: &Asked) -> Result<Value, MlflowRefusal> {
    let number = number(asked)?;
    let model = mlflow.registered(asked.required("name")?)?;
    there(&model, number)?;
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
    mlflow.change_registered(asked.required("name")?, |model| {
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
    if archive && !ACTIVE.contains(&stage.as_str()) {
        return Err(MlflowRefusal::invalid(format!(
            "Model version transition cannot archive existing model versions because '{stage}' is not an Active \
             stage. Valid stages are {ACTIVE:?}"
        )));
    }
    let model = mlflow.change_registered(asked.required("name")?, |model| {
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
    new_tag(&key, &value)?;
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

pub(super) fn download_uri(mlflow: &Mlflow, asked: &Asked) -> Result<Value, MlflowRefusal> {
    let number = number(asked)?;
    let model = mlflow.registered(asked.required("name")?)?;
    there(&model, number)?;
    Ok(json!({"artifact_uri": files_of(mlflow, &model, number)}))
}

pub(super) fn search(mlflow: &Mlflow, asked: &Asked) -> Result<Value, MlflowRefusal> {
    let searchable = &Searchable::MODEL_VERSIONS;
    let filter = Filter::parse(asked.text("filter").unwrap_or_default(), searchable)?;
    let orders = Orders::parse(&asked.list("order_by"), searchable)?;
    let models = mlflow.all_registered()?;
    let mut all: Vec<(&RegisteredModel, u64)> = models
        .iter()
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
