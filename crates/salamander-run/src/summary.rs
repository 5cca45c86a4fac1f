//! The end of a run for programs: one JSON object, and the report of a classifier.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use salamander_core::experiment::{Experiment, Strategy};
use salamander_core::layout::RunLayout;
use salamander_core::metrics::{Metric, Metrics};
use salamander_core::progress::StepCount;
use salamander_core::status::State;
use salamander_ps::checkpoint::describe;
use salamander_train::DENSE_TABLE;
use salamander_train::checkpoint::{CheckpointStore, Manifest};
use salamander_train::trainer::{Outcome, Timings};
use serde::Serialize;
use serde_json::{Value, json};

use crate::Error;
use crate::facts::Facts;
use crate::folder_status::plan;
use crate::report::{ClassReport, confusion_svg};
use crate::run::Finished;

/// Classes up to which a report has the counts of all pairs.
const MOST_SHOWN: usize = 200;

/// A run that has ended, to be shown.
pub struct Summary<'a> {
    /// Where it is.
    pub run: &'a RunLayout,
    /// How it ended.
    pub state: State,
    /// What was trained; nothing where the run failed.
    pub outcome: Option<&'a Outcome>,
    /// What it has been through.
    pub facts: Facts,
    class_names: Vec<String>,
    error: Option<String>,
}

/// The checkpoint that `evaluate`, `predict` and `export` take unless told otherwise.
#[derive(Clone, Debug, PartialEq)]
pub struct BestCheckpoint {
    /// Its folder.
    pub path: PathBuf,
    /// Steps done then.
    pub steps: StepCount,
    /// The watched metric's name.
    pub metric: String,
    /// Its value then.
    pub value: Option<f64>,
}

/// How much a table of the model holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TableSize {
    /// The table's name.
    pub name: String,
    /// Its rows.
    pub rows: u64,
    /// Values of a row, each a parameter.
    pub dim: u64,
}

impl<'a> Summary<'a> {
    /// Of how a run ended.
    pub fn new(
        run: &'a RunLayout,
        ended: &'a Result<Finished, Error>,
        class_names: Vec<String>,
    ) -> Self {
        let state = match ended {
            Ok(finished) if finished.outcome.interrupted => State::Interrupted,
            Ok(_) => State::Completed,
            Err(_) => State::Failed,
        };
        Self {
            run,
            state,
            outcome: ended.as_ref().ok().map(|finished| &finished.outcome),
            facts: ended.as_ref().map_or(Facts::LOCAL, |finished| finished.facts),
            class_names,
            error: ended.as_ref().err().map(ToString::to_string),
        }
    }

    /// The report of a classifier, from its last validation.
    pub fn class_report(&self) -> Option<ClassReport> {
        let (names, counts) = self.confusion()?;
        Some(ClassReport::from_confusion(&names, counts))
    }

    /// The best checkpoint, where validations tell which one that is.
    pub fn best_checkpoint(&self) -> Option<BestCheckpoint> {
        let manifest = CheckpointStore::best(&self.run.checkpoints()).ok()??;
        let text = fs::read_to_string(self.run.experiment()).ok()?;
        let experiment = Experiment::parse(&text, &[]).ok()?;
        let metric = experiment.metric().to_string();
        let value = manifest.validation.get(&metric).copied();
        let path = self.run.checkpoints().join(&manifest.id);
        Some(BestCheckpoint { path, steps: manifest.steps, metric, value })
    }

    /// What the checkpoint of the last state says of itself.
    pub fn last_manifest(&self) -> Option<Manifest> {
        let steps = self.outcome?.progress.steps;
        CheckpointStore::list(&self.run.checkpoints())
            .ok()?
            .pop()
            .filter(|last| last.steps == steps)
    }

    /// What another run needs to come to the same bits, whatever its number of workers; nothing where sums are rounded
    /// on the way, or depend on who is faster.
    pub fn same_bits_with(&self, micro_batches: u32) -> Option<String> {
        let text = fs::read_to_string(self.run.experiment()).ok()?;
        let experiment = Experiment::parse(&text, &[]).ok()?;
        let rounded = experiment.optimizations.gradient_compression;
        let seed = experiment.reproducibility.experiment_seed?;
        (!rounded && experiment.strategy != Strategy::Ps).then(|| {
            format!(
                "--set micro_batches={micro_batches} --set reproducibility.experiment_seed={seed}"
            )
        })
    }

    /// Parameters of the model but for those in tables, whose number grows with the data.
    pub fn parameters(&self) -> Option<u64> {
        plan(self.run).map(|plan| plan.parameters)
    }

    /// The tables of the model, as the last checkpoint has them.
    pub fn tables(&self) -> Vec<TableSize> {
        let folder = self.run.checkpoints();
        let Some(last) = CheckpointStore::list(&folder).ok().and_then(|mut all| all.pop()) else {
            return Vec::new();
        };
        let files: Vec<PathBuf> =
            last.tables.keys().map(|file| folder.join(&last.id).join(file)).collect();
        if files.is_empty() {
            return Vec::new();
        }
        // Only headers are read; files that cannot be are named by whoever uses the checkpoint.
        let Ok(held) = describe(&files) else { return Vec::new() };
        let tables = held.tables.into_iter().zip(held.rows);
        // Dense parameters of strategy ps are rows, too, and are counted as what they are.
        let tables = tables.filter(|(table, _)| table.name != DENSE_TABLE);
        tables
            .map(|(table, rows)| TableSize { name: table.name, rows, dim: table.dim as u64 })
            .collect()
    }

    fn confusion(&self) -> Option<(Vec<String>, &[u64])> {
        confusion(self.outcome?.progress.validation.as_ref()?, &self.class_names)
    }

    /// Writes it into the run's folder.
    pub(crate) fn write(&self) {
        // A disk so full that this fails is reported by the run's own error.
        let _ = fs::write(self.run.summary(), format!("{:#}\n", self.to_json()));
        if let Some((names, counts)) = self.confusion() {
            let report = ClassReport::from_confusion(&names, counts);
            let _ = fs::write(self.run.confusion(), confusion_svg(&names, counts));
            let mut report = json!(report);
            if names.len() <= MOST_SHOWN {
                let rows: Vec<&[u64]> = counts.chunks(names.len()).collect();
                report["confusion"] = json!({"names": names, "counts": rows});
            }
            let _ = fs::write(self.run.report(), format!("{report:#}"));
        }
    }

    /// The object that the command line's contract describes.
    pub fn to_json(&self) -> Value {
        let (outcome, facts) = (self.outcome, self.facts);
        let progress = outcome.map(|outcome| &outcome.progress);
        let validation = progress.and_then(|progress| progress.validation.as_ref());
        let last = self.last_manifest();
        let micro_batches = last.as_ref().and_then(|last| last.micro_batches);
        json!({
            "run": self.run.id(),
            "dir": self.run.folder(),
            "state": self.state,
            "error": self.error,
            "steps": progress.map_or(0, |progress| progress.steps.0),
            "records": progress.map_or(0, |progress| progress.records),
            "epochs": progress.map_or(0, |progress| progress.epoch),
            "skipped_steps": progress.and_then(|progress| progress.scaler).map_or(0, |s| s.skipped),
            "loss_scale": progress.and_then(|progress| progress.scaler).map(|scaler| scaler.scale),
            "metrics": {
                "training": finite(progress.map(|p| p.last_training.clone()).unwrap_or_default()),
                "validation": finite(validation.map(Metrics::values).unwrap_or_default()),
            },
            "parameters": self.parameters(),
            "tables": self.tables(),
            "checkpoint": outcome.and_then(|outcome| outcome.checkpoint.as_ref()),
            "best_checkpoint": self.best_checkpoint().map(|best| best.path),
            "weights_hash": last.and_then(|last| last.weights_hash),
            "micro_batches": micro_batches,
            "same_bits_with": micro_batches.and_then(|slices| self.same_bits_with(slices)),
            "workers": facts.workers,
            "generations": facts.generations,
            "restarts": {
                "worker": facts.worker_restarts,
                "ps": facts.server_restarts,
                "master": facts.master_restarts,
            },
            "ledger": progress.map(|progress| progress.ledger.lines()).unwrap_or_default(),
            "timings": outcome.map(|outcome| outcome.timings.to_json()),
            "ranks": outcome.map(|o| o.ranks.iter().map(Timings::to_json).collect::<Vec<_>>()),
        })
    }
}

/// JSON has no NaN: such a value is shown as null.
fn finite(values: BTreeMap<String, f64>) -> BTreeMap<String, Option<f64>> {
    values.into_iter().map(|(name, value)| (name, Some(value).filter(|v| v.is_finite()))).collect()
}

/// The confusion matrix among the metrics, with names for its classes.
pub fn confusion<'a>(metrics: &'a Metrics, names: &[String]) -> Option<(Vec<String>, &'a [u64])> {
    metrics.iter().find_map(|(_, metric)| match metric {
        Metric::Confusion { classes, counts } if *classes >= 2 => {
            let named = names.len() == *classes;
            let numbers = || (0..*classes).map(|class| class.to_string()).collect();
            Some((if named { names.to_vec() } else { numbers() }, counts.as_slice()))
        }
        _ => None,
    })
}
