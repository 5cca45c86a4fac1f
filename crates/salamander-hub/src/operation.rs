//! What people (and the hub for them) have said: operations, kept in a journal beside the runs. A store is made from
//! this and from the folders.

use serde::{Deserialize, Serialize};

use crate::Error;
pub use crate::create::NewExperiment;
use crate::ids::{ExperimentId, RunId};
use crate::store::audit::{self, DoneBy};
use crate::store::checkpoints::{self, Checkpoint};
use crate::store::db::params;
use crate::store::limits::{self, Allowance};
use crate::store::webhooks::{self, Webhook};
use crate::store::{
    Touched, Tx, collected, forget_experiment, killed_trials, models, runs, set_meta,
};

/// What somebody wants of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Wanted {
    /// That it runs to its end.
    Run,
    /// That it waits, with a checkpoint.
    Paused,
    /// That it ends, with a checkpoint.
    Canceled,
    /// That it ends at once.
    Killed,
    /// That it goes, with its folder.
    Deleted,
}

impl Wanted {
    /// In a word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Paused => "paused",
            Self::Canceled => "canceled",
            Self::Killed => "killed",
            Self::Deleted => "deleted",
        }
    }

    /// From a word.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Run, Self::Paused, Self::Canceled, Self::Killed, Self::Deleted]
            .into_iter()
            .find(|wanted| wanted.as_str() == text)
    }
}

/// Something that was said, when and by whom.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// When, in milliseconds since 1970.
    pub time: i64,
    /// By whom; empty: by somebody on this machine.
    pub user: String,
    /// What.
    #[serde(flatten)]
    pub operation: Operation,
}

/// What was said.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Operation {
    /// A new experiment, for the queue.
    Create(Box<NewExperiment>),
    /// A folder that somebody else made.
    Found {
        /// The number that it got.
        experiment: ExperimentId,
        /// The folder below the runs.
        folder: String,
    },
    /// What is wanted of an experiment.
    Want {
        /// The experiment.
        experiment: ExperimentId,
        /// What is wanted.
        wanted: Wanted,
    },
    /// An experiment's place in the queue.
    Prioritise {
        /// The experiment.
        experiment: ExperimentId,
        /// The smaller number comes first.
        priority: i64,
    },
    /// Labels of an experiment.
    Label {
        /// The experiment.
        experiment: ExperimentId,
        /// New ones.
        add: Vec<String>,
        /// Those that go.
        remove: Vec<String>,
    },
    /// Whether lists leave an experiment out.
    Archive {
        /// The experiment.
        experiment: ExperimentId,
        /// Whether they do.
        archived: bool,
    },
    /// An experiment's name and description.
    Describe {
        /// The experiment.
        experiment: ExperimentId,
        /// What it is about.
        description: String,
    },
    /// An experiment of the hub is over.
    Ended {
        /// The experiment.
        experiment: ExperimentId,
        /// How it ended: `completed`, `failed` or `canceled`.
        state: String,
        /// Why.
        reason: Option<String>,
    },
    /// Checkpoints that go, as its policy says.
    Collect {
        /// The experiment.
        experiment: ExperimentId,
        /// Those that go, by run and name.
        checkpoints: Vec<(RunId, String)>,
        /// What was known of them, for a store that is made again when they are gone.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        known: Vec<Checkpoint>,
    },
    /// A checkpoint that somebody does not want any more.
    DeleteCheckpoint {
        /// The experiment.
        experiment: ExperimentId,
        /// The checkpoint.
        checkpoint: Box<Checkpoint>,
    },
    /// What was decided to go is gone.
    Swept {
        /// The experiment.
        experiment: ExperimentId,
        /// Which checkpoints, by run and name; none: all that were to go.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        checkpoints: Vec<(RunId, String)>,
    },
    /// The process of an experiment has ended without a word, and is started again.
    Restarted {
        /// The experiment.
        experiment: ExperimentId,
        /// How often that was.
        restarts: i64,
        /// Why.
        reason: Option<String>,
    },
    /// What the processes of an experiment have used in all.
    Used {
        /// The experiment.
        experiment: ExperimentId,
        /// Milliseconds.
        ms: i64,
        /// The same times slots.
        slot_ms: i64,
    },
    /// What an experiment may use from now on.
    Allow {
        /// The experiment.
        experiment: ExperimentId,
        /// What it may use.
        allowance: Allowance,
    },
    /// An experiment has used all that it may, and ends.
    Exhausted {
        /// The experiment.
        experiment: ExperimentId,
        /// Why.
        reason: String,
    },
    /// The logs of an experiment have stayed long enough, and are gone.
    LogsDropped {
        /// The experiment.
        experiment: ExperimentId,
    },
    /// An experiment that somebody else started was seen to end.
    Seen {
        /// The experiment.
        experiment: ExperimentId,
        /// How it ended.
        state: String,
        /// Why.
        reason: Option<String>,
        /// When, in milliseconds since 1970.
        ended: i64,
    },
    /// A trial of a search ends for good.
    KillTrial {
        /// The trial.
        run: RunId,
    },
    /// An address that is told of ends.
    AddWebhook {
        /// The address.
        webhook: Webhook,
    },
    /// It is not told any more.
    RemoveWebhook {
        /// Its name.
        webhook: String,
    },
    /// A webhook has heard something, or never will.
    Delivered {
        /// What was told.
        delivery: String,
        /// Why it is given up.
        error: Option<String>,
    },
    /// An experiment is gone.
    Deleted {
        /// The experiment.
        experiment: ExperimentId,
    },
    /// A new model.
    CreateModel {
        /// Its name.
        model: String,
        /// What it is for.
        description: String,
    },
    /// A new version of a model.
    Register {
        /// The model.
        model: String,
        /// The version's number.
        version: i64,
        /// The run.
        run: RunId,
        /// Its checkpoint.
        checkpoint: String,
        /// What is to be said of it.
        notes: String,
    },
    /// A name for a version, which another one may have had.
    Alias {
        /// The model.
        model: String,
        /// The name.
        alias: String,
        /// The version; none: the name goes.
        version: Option<i64>,
    },
    /// A model gets another name, with its versions and aliases.
    MoveModel {
        /// The model.
        model: String,
        /// Its name from now on.
        to: String,
    },
    /// A model, or one version, goes.
    DeleteModel {
        /// The model.
        model: String,
        /// Only this version.
        version: Option<i64>,
    },
}

impl Operation {
    /// The experiment that it is about.
    fn experiment(&self) -> Option<ExperimentId> {
        match self {
            Self::Create(new) => Some(new.experiment),
            Self::Found { experiment, .. }
            | Self::Want { experiment, .. }
            | Self::Prioritise { experiment, .. }
            | Self::Label { experiment, .. }
            | Self::Archive { experiment, .. }
            | Self::Describe { experiment, .. }
            | Self::Ended { experiment, .. }
            | Self::Collect { experiment, .. }
            | Self::DeleteCheckpoint { experiment, .. }
            | Self::Swept { experiment, .. }
            | Self::Restarted { experiment, .. }
            | Self::Used { experiment, .. }
            | Self::Allow { experiment, .. }
            | Self::Exhausted { experiment, .. }
            | Self::LogsDropped { experiment }
            | Self::Seen { experiment, .. }
            | Self::Deleted { experiment } => Some(*experiment),
            _ => None,
        }
    }
}

impl Entry {
    /// Puts it into the store; doing that twice changes nothing.
    pub(crate) fn apply(&self, tx: &Tx<'_>) -> Result<(), Error> {
        match &self.operation {
            Operation::Create(new) => self.create(tx, new)?,
            Operation::Found { experiment, folder } => {
                let sql = "INSERT INTO experiments (id, folder, origin, name, state, created, owner) \
                           VALUES (?1, ?2, 'folder', ?2, 'interrupted', ?3, ?4) ON CONFLICT DO NOTHING";
                let values = params![experiment.0, folder, self.time, self.user];
                tx.prepare_cached(sql)?.execute(values)?;
            }
            Operation::Want { experiment, wanted } => {
                // One that is over and is wanted to run goes on, with as many tries as a new one.
                let sql = "UPDATE experiments SET wanted = ?2, restarts = CASE WHEN ?2 = 'run' AND \
                           state = 'failed' THEN 0 ELSE restarts END, state = CASE WHEN ?2 = 'run' AND \
                           state IN ('canceled', 'failed') THEN 'queued' ELSE state END WHERE id = ?1";
                tx.prepare_cached(sql)?.execute(params![experiment.0, wanted.as_str()])?;
            }
            Operation::Prioritise { experiment, priority } => {
                let sql = "UPDATE experiments SET priority = ?2 WHERE id = ?1";
                tx.prepare_cached(sql)?.execute(params![experiment.0, priority])?;
            }
            Operation::Label { experiment, add, remove } => {
                for label in remove {
                    let sql = "DELETE FROM labels WHERE experiment = ?1 AND label = ?2";
                    tx.prepare_cached(sql)?.execute(params![experiment.0, label])?;
                }
                for label in add {
                    let sql = "INSERT INTO labels (experiment, label) VALUES (?1, ?2) ON CONFLICT DO NOTHING";
                    tx.prepare_cached(sql)?.execute(params![experiment.0, label])?;
                }
            }
            Operation::Archive { experiment, archived } => {
                let sql = "UPDATE experiments SET archived = ?2 WHERE id = ?1";
                tx.prepare_cached(sql)?.execute(params![experiment.0, archived])?;
            }
            Operation::Describe { experiment, description } => {
                let sql = "UPDATE experiments SET description = ?2 WHERE id = ?1";
                tx.prepare_cached(sql)?.execute(params![experiment.0, description])?;
            }
            Operation::Ended { experiment, state, reason } => {
                let sql = "UPDATE experiments SET state = ?2, reason = ?3 WHERE id = ?1";
                tx.prepare_cached(sql)?.execute(params![experiment.0, state, reason])?;
                collected::ended(tx, *experiment)?;
                limits::ended(tx, *experiment, self.time)?;
                webhooks::ended(tx, *experiment, (state, reason.as_deref()), self.time)?;
            }
            Operation::Collect { experiment, checkpoints, known } => {
                collected::collect(tx, *experiment, checkpoints)?;
                known.iter().try_for_each(|one| checkpoints::keep_known(tx, one))?;
            }
            Operation::DeleteCheckpoint { experiment, checkpoint } => {
                let place = (checkpoint.run, checkpoint.name.clone());
                collected::discard(tx, *experiment, &[place])?;
                checkpoints::keep_known(tx, checkpoint)?;
            }
            Operation::Swept { experiment, checkpoints } => {
                collected::swept(tx, *experiment, checkpoints)?;
            }
            Operation::Restarted { experiment, restarts, reason } => {
                let sql = "UPDATE experiments SET state = 'queued', reason = ?2, restarts = ?3 WHERE id = ?1";
                tx.prepare_cached(sql)?.execute(params![experiment.0, reason, restarts])?;
            }
            Operation::Used { experiment, ms, slot_ms } => {
                limits::used(tx, *experiment, *ms, *slot_ms)?;
            }
            Operation::Allow { experiment, allowance } => {
                limits::allow(tx, *experiment, *allowance)?;
            }
            Operation::Exhausted { experiment, reason } => {
                limits::exhaust(tx, *experiment, reason)?;
            }
            Operation::LogsDropped { experiment } => limits::drop_logs(tx, *experiment)?,
            Operation::Seen { experiment, state, reason, ended } => {
                webhooks::ended(tx, *experiment, (state, reason.as_deref()), *ended)?;
            }
            Operation::KillTrial { run } => killed_trials::kill(tx, *run)?,
            Operation::AddWebhook { webhook } => webhooks::add(tx, webhook, self.time)?,
            Operation::RemoveWebhook { webhook } => webhooks::remove(tx, webhook)?,
            Operation::Delivered { delivery, .. } => webhooks::delivered(tx, delivery)?,
            Operation::Deleted { experiment } => {
                forget_experiment(tx, *experiment)?;
                collected::forget(tx, *experiment)?;
            }
            _ => self.apply_to_models(tx)?,
        }
        if let Operation::Create(_) | Operation::Found { .. } = &self.operation
            && let Some(experiment) = self.operation.experiment()
        {
            // Numbers of deleted experiments are not given again.
            set_meta(tx, "last_experiment", &experiment.to_string())?;
        }
        if let Some(experiment) = self.operation.experiment() {
            let sql = "UPDATE experiments SET change = ?2 WHERE id = ?1";
            tx.prepare_cached(sql)?.execute(params![experiment.0, tx.change])?;
            tx.touch(Touched::Experiment(experiment.0));
            runs::touch_waiting(tx, experiment)?;
        }
        if !matches!(self.operation, Operation::Found { .. }) {
            let said = serde_json::to_string(&self.operation).unwrap_or_default();
            audit::add(tx, DoneBy { user: &self.user, time: self.time }, &said)?;
        }
        Ok(())
    }

    fn create(&self, tx: &Tx<'_>, new: &NewExperiment) -> Result<(), Error> {
        let sql = "INSERT INTO experiments (id, folder, origin, name, owner, description, state, wanted, \
                   config, base, sets, program, program_hash, priority, slots, max_slots, created) \
                   VALUES (?1, ?2, 'hub', ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16) \
                   ON CONFLICT DO NOTHING";
        let (state, wanted) =
            if new.paused { ("paused", Wanted::Paused) } else { ("queued", Wanted::Run) };
        tx.prepare_cached(sql)?.execute(params![
            new.experiment.0,
            new.folder,
            new.name,
            self.user,
            new.description,
            state,
            wanted.as_str(),
            new.config,
            new.base,
            serde_json::to_string(&new.sets).unwrap_or_default(),
            new.program,
            new.program_hash,
            new.priority,
            new.slots,
            new.max_slots,
            self.time,
        ])?;
        limits::begin(tx, new.experiment, new.allowance, new.log_days)?;
        if let Some(source) = &new.source {
            collected::set_source(tx, new.experiment, source)?;
        }
        for label in &new.labels {
            let sql =
                "INSERT INTO labels (experiment, label) VALUES (?1, ?2) ON CONFLICT DO NOTHING";
            tx.prepare_cached(sql)?.execute(params![new.experiment.0, label])?;
        }
        Ok(())
    }

    fn apply_to_models(&self, tx: &Tx<'_>) -> Result<(), Error> {
        match &self.operation {
            Operation::CreateModel { model, description } => {
                let sql = "INSERT INTO models (name, description, owner, created) VALUES (?1, ?2, ?3, ?4) \
                           ON CONFLICT DO NOTHING";
                let values = params![model, description, self.user, self.time];
                tx.prepare_cached(sql)?.execute(values)?;
            }
            Operation::Register { model, version, run, checkpoint, notes } => {
                let sql = "INSERT INTO model_versions (model, version, run, checkpoint, notes, owner, \
                           created) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT DO NOTHING";
                let run = run.number();
                let values = params![model, version, run, checkpoint, notes, self.user, self.time];
                tx.prepare_cached(sql)?.execute(values)?;
                set_meta(tx, &format!("last_version {model}"), &version.to_string())?;
            }
            Operation::Alias { model, alias, version } => {
                let sql = "DELETE FROM model_aliases WHERE model = ?1 AND alias = ?2";
                tx.prepare_cached(sql)?.execute(params![model, alias])?;
                if let Some(version) = version {
                    let sql =
                        "INSERT INTO model_aliases (model, alias, version) VALUES (?1, ?2, ?3)";
                    tx.prepare_cached(sql)?.execute(params![model, alias, version])?;
                }
            }
            Operation::MoveModel { model, to } => models::rename(tx, model, to)?,
            Operation::DeleteModel { model, version } => {
                for table in ["model_versions", "model_aliases"] {
                    let sql = format!(
                        "DELETE FROM {table} WHERE model = ?1 AND (version = ?2 OR ?2 IS NULL)"
                    );
                    tx.prepare_cached(&sql)?.execute(params![model, version])?;
                }
                if version.is_none() {
                    tx.prepare_cached("DELETE FROM models WHERE name = ?1")?.execute([model])?;
                }
            }
            _ => {}
        }
        tx.touch(Touched::Models);
        Ok(())
    }
}
