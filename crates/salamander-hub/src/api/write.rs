//! Everything that is changed: what is wanted of experiments, the registry, users.

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::Deserialize;
use serde_json::json;

use super::Api;
use super::reply::Body;
use crate::Error;
use crate::create::{CreateRequest, check_label};
use crate::hub::{Hub, Registration, Speaker, now};
use crate::ids::{ExperimentId, RunId};
use crate::operation::{Operation, Wanted};
use crate::store::users::{User, UserRole};

/// Does something on a thread where waiting is allowed, and answers with what there is afterwards.
pub(super) async fn change<T: serde::Serialize + Send + 'static>(
    api: &Api,
    act: impl FnOnce(&Hub) -> Result<T, Error> + Send + 'static,
) -> Response {
    let hub = api.hub.clone();
    let done = tokio::task::spawn_blocking(move || act(&hub)).await;
    match done.unwrap_or(Err(Error::Closed)) {
        Ok(answer) => Json(answer).into_response(),
        Err(error) => error.into_response(),
    }
}

pub(super) async fn create(
    State(api): State<Api>,
    Extension(user): Extension<User>,
    Body(request): Body<CreateRequest>,
) -> Response {
    let programs = api.programs.clone();
    change(&api, move |hub| {
        let id = hub.create(&Speaker(user.name), request, &programs)?;
        hub.store().experiment(id)
    })
    .await
}

/// `pause`, `activate`, `cancel`, `kill`, `archive`, `unarchive`.
pub(super) async fn act(
    State(api): State<Api>,
    Extension(user): Extension<User>,
    Path((id, action)): Path<(String, String)>,
) -> Response {
    change(&api, move |hub| {
        let (id, by) = (id.parse::<ExperimentId>()?, Speaker(user.name));
        match action.as_str() {
            "pause" => hub.want(&by, id, Wanted::Paused)?,
            "activate" => hub.want(&by, id, Wanted::Run)?,
            "cancel" => hub.want(&by, id, Wanted::Canceled)?,
            "kill" => hub.want(&by, id, Wanted::Killed)?,
            "archive" | "unarchive" => {
                hub.store().experiment(id)?;
                let archived = action == "archive";
                hub.say(&by, Operation::Archive { experiment: id, archived })?;
            }
            other => return Err(Error::NotFound(format!("there is no action {other:?}"))),
        }
        hub.store().experiment(id)
    })
    .await
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Changes {
    add_labels: Vec<String>,
    remove_labels: Vec<String>,
    description: Option<String>,
    priority: Option<i64>,
}

pub(super) async fn change_experiment(
    State(api): State<Api>,
    Extension(user): Extension<User>,
    Path(id): Path<String>,
    Body(changes): Body<Changes>,
) -> Response {
    change(&api, move |hub| {
        let (id, by) = (id.parse::<ExperimentId>()?, Speaker(user.name));
        changes.add_labels.iter().try_for_each(|label| check_label(label))?;
        if changes.priority.is_some_and(|priority| !(1..=99).contains(&priority)) {
            return Err(Error::Invalid("priority: a number between 1 and 99".to_string()));
        }
        hub.say_after(&by, |store| {
            let experiment = store.experiment(id)?.id;
            let mut said = Vec::new();
            let (add, remove) = (changes.add_labels, changes.remove_labels);
            if !add.is_empty() || !remove.is_empty() {
                said.push(Operation::Label { experiment, add, remove });
            }
            let described = |description| Operation::Describe { experiment, description };
            said.extend(changes.description.map(described));
            let placed = |priority| Operation::Prioritise { experiment, priority };
            said.extend(changes.priority.map(placed));
            Ok(said)
        })?;
        hub.store().experiment(id)
    })
    .await
}

pub(super) async fn delete_experiment(
    State(api): State<Api>,
    Extension(user): Extension<User>,
    Path(id): Path<String>,
) -> Response {
    change(&api, move |hub| {
        let id = id.parse::<ExperimentId>()?;
        hub.want(&Speaker(user.name), id, Wanted::Deleted)?;
        Ok(json!({"experiment": id, "state": "deleting"}))
    })
    .await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewModel {
    name: String,
    #[serde(default)]
    description: String,
}

pub(super) async fn create_model(
    State(api): State<Api>,
    Extension(user): Extension<User>,
    Body(new): Body<NewModel>,
) -> Response {
    change(&api, move |hub| {
        check_name("model", &new.name)?;
        let name = new.name.clone();
        hub.say_after(&Speaker(user.name), |store| {
            if store.model(&new.name).is_ok() {
                return Err(Error::Conflict(format!("there is a model {:?} already", new.name)));
            }
            let (model, description) = (new.name, new.description);
            Ok(vec![Operation::CreateModel { model, description }])
        })?;
        hub.store().model(&name)
    })
    .await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewVersion {
    run: RunId,
    checkpoint: String,
    #[serde(default)]
    notes: String,
}

pub(super) async fn register(
    State(api): State<Api>,
    Extension(user): Extension<User>,
    Path(name): Path<String>,
    Body(new): Body<NewVersion>,
) -> Response {
    change(&api, move |hub| {
        let NewVersion { run, checkpoint, notes } = &new;
        let asked = Registration { model: &name, run: *run, checkpoint, notes };
        let version = hub.register(&Speaker(user.name), asked)?;
        hub.store().model_version(&format!("{name}@{version}"))
    })
    .await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Alias {
    alias: String,
    /// None: the name goes.
    version: Option<i64>,
}

pub(super) async fn alias(
    State(api): State<Api>,
    Extension(user): Extension<User>,
    Path(name): Path<String>,
    Body(new): Body<Alias>,
) -> Response {
    change(&api, move |hub| {
        check_name("alias", &new.alias)?;
        if new.alias.trim_start_matches('v').parse::<i64>().is_ok() {
            return Err(Error::Invalid(format!("alias: {:?} looks like a version", new.alias)));
        }
        hub.say_after(&Speaker(user.name), |store| {
            if let Some(version) = new.version {
                store.model_version(&format!("{name}@{version}"))?;
            }
            store.model(&name)?;
            let (model, alias, version) = (name.clone(), new.alias, new.version);
            Ok(vec![Operation::Alias { model, alias, version }])
        })?;
        hub.store().model(&name)
    })
    .await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewName {
    name: String,
}

pub(super) async fn move_model(
    State(api): State<Api>,
    Extension(user): Extension<User>,
    Path(name): Path<String>,
    Body(new): Body<NewName>,
) -> Response {
    change(&api, move |hub| {
        check_name("model", &new.name)?;
        hub.say_after(&Speaker(user.name), |store| {
            store.model(&name)?;
            if store.model(&new.name).is_ok() {
                return Err(Error::Conflict(format!("there is a model {:?} already", new.name)));
            }
            Ok(vec![Operation::MoveModel { model: name, to: new.name.clone() }])
        })?;
        hub.store().model(&new.name)
    })
    .await
}

pub(super) async fn delete_model(
    State(api): State<Api>,
    Extension(user): Extension<User>,
    Path(name): Path<String>,
) -> Response {
    delete(&api, user, name, None).await
}

pub(super) async fn delete_version(
    State(api): State<Api>,
    Extension(user): Extension<User>,
    Path((name, version)): Path<(String, i64)>,
) -> Response {
    delete(&api, user, name, Some(version)).await
}

async fn delete(api: &Api, user: User, name: String, version: Option<i64>) -> Response {
    change(api, move |hub| {
        hub.say_after(&Speaker(user.name), |store| {
            match version {
                Some(version) => drop(store.model_version(&format!("{name}@{version}"))?),
                None => drop(store.model(&name)?),
            }
            Ok(vec![Operation::DeleteModel { model: name.clone(), version }])
        })?;
        Ok(json!({"model": name, "version": version, "state": "deleted"}))
    })
    .await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewToken {
    user: String,
    role: UserRole,
    /// Days until it expires.
    days: Option<u32>,
}

/// Makes a user, if there is none of this name, and a token.
pub(super) async fn create_token(
    State(api): State<Api>,
    Extension(user): Extension<User>,
    Body(new): Body<NewToken>,
) -> Response {
    change(&api, move |hub| {
        if user.role < UserRole::Admin {
            return Err(Error::Forbidden(format!("{} may not make users", user.name)));
        }
        hub.store().set_user(&new.user, new.role, now())?;
        let expires = new.days.map(|days| now() + i64::from(days) * 86_400_000);
        let token = hub.store().new_token(&new.user, now(), expires)?;
        let done =
            json!({"do": "make_token", "name": new.user, "role": new.role, "expires": expires});
        hub.note_done(&user.name, &done);
        Ok(json!({"user": new.user, "role": new.role, "token": token, "expires": expires}))
    })
    .await
}

fn check_name(what: &str, name: &str) -> Result<(), Error> {
    let fits = |c: char| c.is_alphanumeric() || "-_. ".contains(c);
    if name.trim().is_empty()
        || name.len() > 128
        || name.starts_with('.')
        || !name.chars().all(fits)
    {
        let reason = format!("{name:?} is no name for a {what}: letters, digits, - _ . and spaces");
        return Err(Error::Invalid(reason));
    }
    Ok(())
}
