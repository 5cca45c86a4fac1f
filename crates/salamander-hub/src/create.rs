//! A new experiment: its file is read and checked before anybody is told that it is in the queue.

use std::collections::HashMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use salamander_core::experiment::{Budget, Experiment, Strategy};
use salamander_search::SearchFile;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::Error;
use crate::hub::{Hub, Speaker};
use crate::ids::{ExperimentId, RunId};
use crate::operation::Operation;
use crate::store::limits::Allowance;

/// The place in the queue of those who ask for none.
const PRIORITY: i64 = 42;
/// Trials of a search at a time where its file names no number.
const CONCURRENT: u64 = 16;

/// What an experiment is made from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CreateRequest {
    /// The experiment file's text.
    pub config: String,
    /// The folder, on the hub's machine, that the file's paths are relative to.
    pub base: Option<String>,
    /// Changes to the file: `a.b=v`.
    pub sets: Vec<String>,
    /// A name instead of the file's.
    pub name: Option<String>,
    /// What it is about, instead of the file's.
    pub description: Option<String>,
    /// Labels beside the file's.
    pub labels: Vec<String>,
    /// Its place in the queue, 1 to 99; 42 unless the file or somebody says otherwise.
    pub priority: Option<i64>,
    /// Whether it waits to be activated.
    pub paused: bool,
    /// The program, one of those that the hub may start; its own unless told otherwise.
    pub program: Option<String>,
    /// The program's hash, where whoever asks knows it.
    pub program_hash: Option<String>,
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
    /// The checkpoint that it starts from, by run and name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<(RunId, String)>,
    /// What it may use.
    #[serde(default)]
    pub allowance: Allowance,
    /// Days that its logs stay after its end, where its file says that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_days: Option<i64>,
}

/// The programs that a hub may start.
pub struct Programs {
    allowed: Vec<PathBuf>,
    /// Hashes by path, as long as the file is the same.
    hashes: Mutex<HashMap<PathBuf, (SystemTime, u64, String)>>,
}

impl Programs {
    /// The first one is what is started unless told otherwise.
    pub fn new(allowed: Vec<PathBuf>) -> Self {
        let real = |path: PathBuf| fs::canonicalize(&path).unwrap_or(path);
        Self { allowed: allowed.into_iter().map(real).collect(), hashes: Mutex::default() }
    }

    fn find(&self, wanted: Option<&str>) -> Result<&Path, Error> {
        let Some(first) = self.allowed.first() else {
            return Err(Error::Conflict("this hub starts no programs".to_string()));
        };
        let Some(wanted) = wanted else { return Ok(first) };
        let real = fs::canonicalize(wanted).unwrap_or_else(|_| PathBuf::from(wanted));
        self.allowed.iter().find(|path| **path == real).map(PathBuf::as_path).ok_or_else(|| {
            Error::Forbidden(format!(
                "{wanted}: this hub may not start that program; `salamander hub --program {wanted}` lets it"
            ))
        })
    }

    /// A program's hash.
    pub(crate) fn hash(&self, path: &Path) -> Result<String, Error> {
        let about = fs::metadata(path).map_err(Error::io(path))?;
        let (time, length) = (about.modified().map_err(Error::io(path))?, about.len());
        let mut hashes = self.hashes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((then, size, hash)) = hashes.get(path)
            && (*then, *size) == (time, length)
        {
            return Ok(hash.clone());
        }
        let mut hasher = blake3::Hasher::new();
        let file = File::open(path).map_err(Error::io(path))?;
        hasher.update_reader(file).map_err(Error::io(path))?;
        let hash = hasher.finalize().to_hex().to_string();
        hashes.insert(path.to_path_buf(), (time, length, hash.clone()));
        Ok(hash)
    }

    /// Refuses a program that is not what it was when the experiment was created.
    pub(crate) fn check(&self, path: &str, hash: &str) -> Result<PathBuf, Error> {
        let program = self.find(Some(path))?;
        if !program.is_file() {
            return Err(Error::Conflict(format!("{path}: the program of this experiment is gone")));
        }
        if self.hash(program)? != hash {
            return Err(Error::Conflict(format!(
                "{path}: this program has changed since the experiment was created; create it again to train with \
                 the new one"
            )));
        }
        Ok(program.to_path_buf())
    }
}

impl Hub {
    /// Puts a new experiment into the queue.
    pub fn create(
        &self,
        by: &Speaker,
        request: CreateRequest,
        programs: &Programs,
    ) -> Result<ExperimentId, Error> {
        let program = programs.find(request.program.as_deref())?.to_path_buf();
        let program_hash = programs.hash(&program)?;
        if request.program_hash.as_ref().is_some_and(|hash| *hash != program_hash) {
            let path = program.display();
            let reason = format!(
                "{path}: the hub's program is another one than yours; use its own, or restart it"
            );
            return Err(Error::Conflict(reason));
        }
        let wrong =
            |error: &dyn ToString| Error::Invalid(format!("the experiment: {}", error.to_string()));
        let file = SearchFile::parse(&request.config, &request.sets).map_err(|e| wrong(&e))?;
        let experiment = file.experiment();
        let mut sets = request.sets.clone();
        sets.extend(absolute(experiment, request.base.as_deref())?);
        let (slots, max_slots) = slots(&file);
        let priority = request.priority.or(experiment.resources.priority).unwrap_or(PRIORITY);
        if !(1..=99).contains(&priority) {
            return Err(Error::Invalid(format!("priority: {priority} is not between 1 and 99")));
        }
        let model = experiment.model().map(str::to_string);
        let name = request.name.or_else(|| experiment.name.clone()).or(model);
        let name = name.unwrap_or_else(|| "experiment".to_string());
        let labels: Vec<String> = experiment.labels.iter().cloned().chain(request.labels).collect();
        labels.iter().try_for_each(|label| check_label(label))?;
        let description = request.description.or_else(|| experiment.description.clone());
        let new = NewExperiment {
            experiment: ExperimentId(0),
            folder: String::new(),
            description: description.unwrap_or_default(),
            labels,
            config: request.config,
            base: request.base,
            sets,
            program: program.to_string_lossy().into_owned(),
            program_hash,
            priority,
            slots,
            max_slots,
            paused: request.paused,
            source: None,
            allowance: allowance(experiment.budget),
            log_days: experiment.retention_policy.log_retention_days,
            name,
        };
        let said = self.say_after(by, |store| {
            // Found while nobody else says anything, so that nobody decides that it goes.
            let start = self.warm_start(file.experiment())?;
            let experiment_number = store.next_experiment()?;
            let folder = self.free_folder(&new.name, experiment_number);
            let mut new = NewExperiment { experiment: experiment_number, folder, ..new };
            if let Some(start) = start {
                new.sets.push(format!("start_from={}", json!(start.weights)));
                new.source = start.place;
            }
            Ok(vec![Operation::Create(Box::new(new))])
        })?;
        match said.first() {
            Some(Operation::Create(new)) => Ok(new.experiment),
            _ => Err(Error::Closed),
        }
    }

    /// A name among the runs that nobody has.
    fn free_folder(&self, name: &str, id: ExperimentId) -> String {
        let safe = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
        let slug: String = name.chars().map(safe).take(40).collect();
        let slug = match slug.trim_matches('-') {
            "" => "experiment",
            slug => slug,
        };
        let mut folder = format!("{slug}-{id}");
        while self.runs().join(&folder).exists() {
            folder.push_str("-x");
        }
        folder
    }
}

/// A label is a word or a few.
pub(crate) fn check_label(label: &str) -> Result<(), Error> {
    if label.trim().is_empty() || label.len() > 64 || label.chars().any(char::is_control) {
        return Err(Error::Invalid(format!("{label:?} is no label: 1 to 64 letters")));
    }
    Ok(())
}

/// The file's paths as they are on this machine, since the hub has its own copy of the file.
fn absolute(experiment: &Experiment, base: Option<&str>) -> Result<Vec<String>, Error> {
    let Some(base) = base else { return Ok(Vec::new()) };
    let folder = Path::new(base);
    if !folder.is_absolute() || !folder.is_dir() {
        return Err(Error::Invalid(format!(
            "base: there is no folder {base:?} on the hub's machine"
        )));
    }
    let mut resolved = experiment.clone();
    resolved.resolve_paths(folder);
    let mut sets = Vec::new();
    let paths =
        [("training", &resolved.data.training.0), ("validation", &resolved.data.validation.0)];
    for (name, paths) in paths.into_iter().filter(|(_, paths)| !paths.is_empty()) {
        sets.push(format!("data.{name}={}", json!(paths)));
    }
    if let Some(path) = &resolved.start_from {
        sets.push(format!("start_from={}", json!(path)));
    }
    Ok(sets)
}

/// Slots that an experiment needs, and that it can use.
fn slots(file: &SearchFile) -> (i64, i64) {
    let experiment = file.experiment();
    let each = match experiment.strategy {
        Strategy::Local => 1,
        _ => i64::from(experiment.workers.max.max(1)),
    };
    if !file.is_search() {
        return (each, each);
    }
    let searcher = &experiment.searcher;
    let trials = searcher.max_concurrent_trials.filter(|most| *most > 0).unwrap_or(CONCURRENT);
    let most = each * trials.clamp(1, 1024) as i64;
    let allowed = experiment.resources.max_slots.map_or(most, i64::from);
    (each, most.min(allowed).max(each))
}

/// What a file allows.
pub(crate) fn allowance(budget: Budget) -> Allowance {
    // However short, it is more than nothing, which is refused.
    let ms = |hours: f64| {
        if hours > 0.0 { ((hours * 3.6e6).round() as i64).max(1) } else { 0 }
    };
    Allowance { max_ms: budget.hours.map(ms), max_slot_ms: budget.slot_hours.map(ms) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trials_take_their_slots_and_a_search_as_many_as_it_may() {
        let check = |text: &str, expected: (i64, i64)| {
            let text = format!("entrypoint: net\n{text}");
            let file = SearchFile::parse(&text, &[]).expect("a file");
            assert_eq!(slots(&file), expected, "{text}");
        };
        check("", (1, 1));
        check("strategy: allreduce\nworkers: {min: 2, max: 3}\n", (3, 3));
        check("resources: {slots_per_trial: 4}\n", (4, 4));
        let search = "hyperparameters: {learning_rate: {type: double, minval: 0.1, maxval: 1}}\n\
                      searcher: {name: random, metric: loss, max_trials: 9, max_length: {batches: 3}, \
                      max_concurrent_trials: 5}\n";
        check(search, (1, 5));
        check(&format!("{search}resources: {{slots_per_trial: 2}}\n"), (2, 10));
        check(&format!("{search}resources: {{slots_per_trial: 2, max_slots: 5}}\n"), (2, 5));
        check(&format!("{search}resources: {{slots_per_trial: 2, max_slots: 1}}\n"), (2, 2));
    }
}
