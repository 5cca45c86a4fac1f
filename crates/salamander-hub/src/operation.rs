//! What people (and the hub for them) have said: operations, kept in a journal beside the runs. A store is made from
//! this and from the folders.

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::ids::{ExperimentId, RunId};
use crate::store::db::params;
use crate::store::{Touched, Tx, forget_experiment, set_meta};

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
    /// A model, or one version, goes.
    DeleteModel {
        /// The model.
        model: String,
        /// Only this version.
        version: Option<i64>,
    },
}

/// What an experiment of the hub is made from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NewExperiment {
    /// Its number.
    pub experiment: ExperimentId,
    /// The folder below the runs that it will have.
    pub folder: String,
    /// Its name.
    pub name: String,
    /// What it is about.
    pub description: String,
    /// Labels.
    pub labels: Vec<String>,
    /// The experiment file.
    pub config: String,
    /// The folder that the file's paths are relative to.
    pub base: Option<String>,
    /// Changes to the file: `a.b=v`.
    pub sets: Vec<String>,
    /// The program.
    pub program: String,
    /// Its hash.
    pub program_hash: String,
    /// Its place in the queue.
    pub priority: i64,
    /// Slots that it needs at least.
    pub slots: i64,
    /// Slots that it can use.
    pub max_slots: i64,
    /// Whether it waits to be activated.
    pub paused: bool,
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
                // One that is over and is wanted to run goes on.
                let sql = "UPDATE experiments SET wanted = ?2, state = CASE WHEN ?2 = 'run' AND \
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
            }
            Operation::Deleted { experiment } => forget_experiment(tx, *experiment)?,
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
        }
        if !matches!(self.operation, Operation::Found { .. }) {
            let said = serde_json::to_string(&self.operation).unwrap_or_default();
            let sql = "INSERT INTO audit (time, \"user\", operation) VALUES (?1, ?2, ?3)";
            tx.prepare_cached(sql)?.execute(params![self.time, self.user, said])?;
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
