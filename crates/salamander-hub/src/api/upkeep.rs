//! What is kept in order: checkpoints that go, what starts from what, budgets, and who is told of ends.

use axum::Extension;
use axum::extract::{Path, State};
use axum::response::Response;
use salamander_core::experiment::Budget;
use salamander_core::layout::RunLayout;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Api;
use super::reply::Body;
use super::write::change;
use crate::Error;
use crate::create::allowance;
use crate::gc::CollectRequest;
use crate::hub::{Hub, Speaker};
use crate::ids::{ExperimentId, RunId};
use crate::store::users::{User, UserRole};
use crate::store::webhooks::{Delivery, Webhook};

/// What an experiment is made from and starts from, and what starts from it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lineage {
    /// The experiment.
    pub experiment: ExperimentId,
    /// The program that a hub started it with, and its hash.
    #[serde(default)]
    pub program: Option<String>,
    /// The program's hash when the experiment was created.
    #[serde(default)]
    pub program_hash: Option<String>,
    /// The image of its jobs, where it trains on a cluster.
    #[serde(default)]
    pub image: Option<String>,
    /// Files, bytes and fingerprint of its `training` and `validation` data, as its folder has them.
    #[serde(default)]
    pub data: Value,
    /// The checkpoint that it starts from.
    pub source: Option<SourceCheckpoint>,
    /// Experiments that start from one of its checkpoints.
    pub started: Vec<ExperimentId>,
}

/// A checkpoint that something starts from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceCheckpoint {
    /// Its run.
    pub run: RunId,
    /// Its name.
    pub checkpoint: String,
}

pub(super) async fn collect(
    State(api): State<Api>,
    Extension(user): Extension<User>,
    Path(id): Path<String>,
    Body(request): Body<CollectRequest>,
) -> Response {
    change(&api, move |hub| hub.collect(&Speaker(user.name), id.parse()?, &request)).await
}

pub(super) async fn lineage(State(api): State<Api>, Path(id): Path<String>) -> Response {
    change(&api, move |hub| hub.lineage(id.parse()?)).await
}

pub(super) async fn kill_run(
    State(api): State<Api>,
    Extension(user): Extension<User>,
    Path(id): Path<String>,
) -> Response {
    change(&api, move |hub| {
        let run = id.parse()?;
        hub.kill_run(&Speaker(user.name), run)?;
        hub.store().run(run)
    })
    .await
}

pub(super) async fn usage(State(api): State<Api>, Path(id): Path<String>) -> Response {
    change(&api, move |hub| {
        let id = hub.store().experiment(id.parse()?)?.id;
        hub.usage(id)
    })
    .await
}

pub(super) async fn allow(
    State(api): State<Api>,
    Extension(user): Extension<User>,
    Path(id): Path<String>,
    Body(budget): Body<Budget>,
) -> Response {
    change(&api, move |hub| {
        let id = id.parse()?;
        hub.allow(&Speaker(user.name), id, allowance(budget))?;
        hub.usage(id)
    })
    .await
}

/// All webhooks with the secret that messages are signed with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Webhooks {
    /// The addresses.
    pub webhooks: Vec<Webhook>,
    /// What has not been heard yet.
    pub waiting: Vec<Delivery>,
    /// The secret, as libraries of Standard Webhooks take it.
    pub secret: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewWebhook {
    url: String,
    #[serde(default)]
    states: Vec<String>,
}

fn for_admins(user: &User) -> Result<(), Error> {
    match user.role < UserRole::Admin {
        true => Err(Error::Forbidden(format!("{} may not see or change webhooks", user.name))),
        false => Ok(()),
    }
}

pub(super) async fn webhooks(State(api): State<Api>, Extension(user): Extension<User>) -> Response {
    change(&api, move |hub| {
        for_admins(&user)?;
        let (webhooks, secret) = (hub.store().webhooks()?, hub.webhook_secret()?);
        Ok(Webhooks { webhooks, waiting: hub.store().deliveries(i64::MAX)?, secret })
    })
    .await
}

pub(super) async fn add_webhook(
    State(api): State<Api>,
    Extension(user): Extension<User>,
    Body(new): Body<NewWebhook>,
) -> Response {
    change(&api, move |hub| {
        for_admins(&user)?;
        hub.add_webhook(&Speaker(user.name), &new.url, &new.states)
    })
    .await
}

pub(super) async fn remove_webhook(
    State(api): State<Api>,
    Extension(user): Extension<User>,
    Path(id): Path<String>,
) -> Response {
    change(&api, move |hub| {
        for_admins(&user)?;
        hub.remove_webhook(&Speaker(user.name), &id)?;
        Ok(json!({"webhook": id, "state": "removed"}))
    })
    .await
}

impl Hub {
    /// What an experiment starts from, and what starts from it.
    pub fn lineage(&self, id: ExperimentId) -> Result<Lineage, Error> {
        let experiment = self.store().experiment(id)?;
        let folder = experiment.folder;
        let kept = self.store().source_of(id)?;
        // A plain run says it in its own file.
        let in_file = || {
            let config = self.config_in_force(&folder).ok()?;
            let parsed = salamander_core::experiment::Experiment::parse(&config, &[]).ok()?;
            self.place_of(parsed.start_from.as_deref()?)
        };
        let source = kept.or_else(in_file);
        let source = source.map(|(run, checkpoint)| SourceCheckpoint { run, checkpoint });
        let made_from = self.made_from(&folder);
        Ok(Lineage {
            experiment: id,
            program: experiment.program,
            program_hash: experiment.program_hash,
            image: made_from["image"].as_str().map(str::to_string),
            data: made_from["data"].clone(),
            source,
            started: self.store().started_from(id)?,
        })
    }

    /// What the folder of an experiment says of what it was made from; that of a search, or else of its first trial.
    fn made_from(&self, folder: &str) -> Value {
        let layout = RunLayout::new(self.runs().join(folder));
        let first = RunLayout::new(layout.trials().join("00001"));
        let read = |run: &RunLayout| std::fs::read(run.provenance()).ok();
        let bytes = read(&layout).or_else(|| read(&first)).unwrap_or_default();
        serde_json::from_slice(&bytes).unwrap_or_default()
    }
}
