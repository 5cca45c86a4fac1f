//! The names of a run's files, each written once: `runs/<id>/`, an exported model, and a pipeline's folder.
//!
//! ```
//! use salamander_core::layout::RunLayout;
//!
//! let run = RunLayout::new("runs/mnist-1");
//! assert_eq!(run.experiment(), std::path::Path::new("runs/mnist-1/experiment.yaml"));
//! ```

use std::path::{Path, PathBuf};

/// The experiment in force, of a run, a checkpoint and an exported model.
pub const EXPERIMENT: &str = "experiment.yaml";
/// Trained weights, of a checkpoint and an exported model; names are module paths.
pub const MODEL: &str = "model.safetensors";
/// The folder of statistics and vocabularies that examples are read with, of a run and an exported model.
pub const ASSETS: &str = "assets";
/// The master's journal.
pub const JOURNAL: &str = "journal";
/// How long a run will be, as its start was told.
pub const PLAN: &str = "plan.json";
/// Steps and validations, one JSON object per line.
pub const METRICS: &str = "metrics.jsonl";
/// How a run ended, as people and programs are told; of a pipeline as well.
pub const SUMMARY: &str = "summary.json";
/// The folder of pipelines, each in one of its own; beside the folder of runs.
pub const PIPELINES: &str = "pipelines";
/// How good a classifier is, by class.
pub const REPORT: &str = "report.json";
/// Which classes are taken for which, as a picture.
pub const CONFUSION: &str = "confusion.svg";
/// The state of asynchronous training that its master keeps.
pub const COURSE: &str = "course.json";
/// A search's file as it was read, and its seed.
pub const SEARCH: &str = "search.json";
/// What was heard of a search's trials, in the order in which it counted.
pub const SEARCH_JOURNAL: &str = "search.jsonl";
/// The folder of a search's trials, by their numbers.
pub const TRIALS: &str = "trials";
/// What a run was made from besides its experiment.
pub const PROVENANCE: &str = "provenance.json";
/// The folder of checkpoints, and the list of those that count within it.
pub const CHECKPOINTS: &str = "checkpoints";
/// Checkpoints that the master has journaled, one id per line.
pub const COUNTED: &str = "counted";
/// The list of a checkpoint's files with their checksums, written last; what a step of a pipeline leaves, and a folder
/// that a flow has written, have one of that name.
pub const MANIFEST: &str = "manifest.json";
/// Held by the process that works in a folder.
pub const LOCK: &str = "run.lock";
const STOP_REQUEST: &str = "stop";
const TOKEN: &str = "token";
const CERTIFICATES: &str = "tls";
const MASTER_ADDRESS: &str = "master.address";
const TOLD_HUB: &str = "hub.json";
const REMOTE_LIVE: &str = "remote.live";

/// A folder by the names of what is in it: each line is a function that gives the path.
macro_rules! layout {
    ($(#[$about:meta])* $layout:ident { $($(#[$doc:meta])* $name:ident: $file:expr,)* }) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $layout {
            folder: PathBuf,
        }

        impl $layout {
            /// The layout of a folder, which need not be there.
            pub fn new(folder: impl Into<PathBuf>) -> Self {
                Self { folder: folder.into() }
            }

            $($(#[$doc])*
            pub fn $name(&self) -> PathBuf {
                self.folder.join($file)
            })*
        }
    };
}

layout! {
    /// A run's folder.
    RunLayout {
        /// The experiment in force.
        experiment: EXPERIMENT,
        /// The folder of statistics and vocabularies that examples are read with.
        assets: ASSETS,
        /// Held by the process that trains here, and has its number.
        lock: LOCK,
        /// Asks the process that trains here to stop, where no master can be asked.
        stop_request: STOP_REQUEST,
        /// The secret of the run's connections.
        token: TOKEN,
        /// The folder of certificates, for runs on several hosts.
        certificates: CERTIFICATES,
        /// Where the master listens.
        master_address: MASTER_ADDRESS,
        /// The master's journal.
        journal: JOURNAL,
        /// Which report the master took last.
        reported: "reported",
        /// How long the run will be, as its start was told.
        plan: PLAN,
        /// Steps and validations, one JSON object per line.
        metrics: METRICS,
        /// Weights and gradients as histograms, where they were asked for; one JSON object per line.
        histograms: "histograms.jsonl",
        /// The state of asynchronous training.
        course: COURSE,
        /// How training ended, as its workers tell it.
        end: "end.json",
        /// How the run ended, as people and programs are told.
        summary: SUMMARY,
        /// How good a classifier is, by class.
        report: REPORT,
        /// Which classes are taken for which, as a picture.
        confusion: CONFUSION,
        /// What an MLflow server has been told, and what it is being told.
        mlflow: "mlflow.json",
        /// Which trace of OpenTelemetry the run is, and how far a collector was told of it.
        traces: "traces.json",
        /// The name by which a hub knows a run whose folder it does not see.
        told_hub: TOLD_HUB,
        /// A run of another machine: whose files a hub has here.
        remote: "remote.json",
        /// A run of another machine: was written when the hub heard of it last; absent: nobody trains there.
        remote_live: REMOTE_LIVE,
        /// What the run was made from besides its experiment: the fingerprint of its data, the image of its job.
        provenance: PROVENANCE,
        /// Where each worker's time went.
        stats: "stats.csv",
        /// The folder of logs.
        logs: "logs",
        /// The folder of what each process took: its time by kind of work, processor, memory, network.
        profile: "profile",
        /// The folder of checkpoints.
        checkpoints: CHECKPOINTS,
        /// A search: its file as it was read, and its seed.
        search: SEARCH,
        /// A search: what was heard of its trials, in the order in which it counted.
        search_journal: SEARCH_JOURNAL,
        /// A search: its trials in SQLite, made from its journal.
        search_store: "search.sqlite",
        /// A search: the folders of its trials.
        trials: TRIALS,
        /// A trial of a population: whose checkpoint it has gone on from.
        copied: "copied",
        /// An elastic trial: how many workers its search wants it to have.
        width: "width",
        /// A trial of a search: somebody has ended it for good.
        killed: "killed",
        /// A run that trains as a job of a cluster: the job's name.
        cluster_job: "cluster.job",
        /// What the tasks of an evaluation or a prediction are, in their own folder within the run's.
        job: "job.json",
    }
}

impl RunLayout {
    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The run's id: the folder's name.
    pub fn id(&self) -> String {
        self.folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// A file by its name in the folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The log of a process, such as `worker-0`.
    pub fn log(&self, process: &str) -> PathBuf {
        self.logs().join(format!("{process}.log"))
    }

    /// The checkpoints that count.
    pub fn counted(&self) -> PathBuf {
        self.checkpoints().join(COUNTED)
    }
}

/// What belongs to the place where a run has trained and to no copy of the run: its secrets, its process's lock and
/// address, what it was asked, and the name by which a hub knows it.
pub const NOT_COPIED: [&str; 7] =
    [LOCK, STOP_REQUEST, TOKEN, CERTIFICATES, MASTER_ADDRESS, TOLD_HUB, REMOTE_LIVE];

/// Files of a run that a hub is told of, and whether they are appended to; the others are replaced as a whole. Logs are
/// told of as well.
pub const TOLD: [(&str, bool); 7] = [
    (EXPERIMENT, false),
    (SEARCH, false),
    (PLAN, false),
    (PROVENANCE, false),
    (METRICS, true),
    (SEARCH_JOURNAL, true),
    (SUMMARY, false),
];

/// Whether a path is one of a file that a hub is told of.
pub fn is_told_file(path: &str) -> bool {
    let of_trial = path.strip_prefix("trials/").and_then(|rest| rest.split_once('/'));
    let path = match of_trial {
        Some((number, rest)) if number.len() == 5 && number.bytes().all(|b| b.is_ascii_digit()) => {
            rest
        }
        Some(_) => return false,
        None => path,
    };
    let is_log =
        path.strip_prefix("logs/").and_then(|name| name.strip_suffix(".log")).is_some_and(|name| {
            let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            !name.is_empty()
                && name.len() <= 100
                && !name.starts_with('.')
                && name.chars().all(fits)
        });
    is_log || TOLD.iter().any(|(name, _)| *name == path)
}

/// Whether such a file is appended to.
pub fn is_appended(path: &str) -> bool {
    path.ends_with(".log") || TOLD.iter().any(|(name, appended)| *appended && path.ends_with(name))
}

layout! {
    /// The folder of an exported model.
    ExportLayout {
        /// The weights.
        model: MODEL,
        /// The experiment that they were trained by.
        experiment: EXPERIMENT,
    }
}

layout! {
    /// The folder of a pipeline.
    PipelineLayout {
        /// Held by the process that runs the pipeline, and has its number.
        lock: "pipeline.lock",
        /// What steps have left, named by what decided about it.
        artifacts: "artifacts",
        /// Where steps write until they are done.
        unfinished: "unfinished",
        /// What decided about each step when it was done last.
        steps: "steps",
        /// The logs of steps.
        logs: "logs",
        /// Hashes of files, by path, size and time.
        digests: "digests.json",
        /// How the last run ended.
        summary: SUMMARY,
        /// The steps as they were when one had ended last, as a picture.
        graph: "graph.svg",
    }
}

impl PipelineLayout {
    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_of_a_run_has_all_that_was_learned_and_no_secret() {
        let run = RunLayout::new("runs/a");
        let is_copied = |path: PathBuf| {
            let name = path.file_name().expect("a name").to_owned();
            NOT_COPIED.iter().all(|left| name != *left)
        };
        assert!(!is_copied(run.token()) && !is_copied(run.certificates()));
        assert!(TOLD.iter().all(|(name, _)| is_copied(run.file(name))));
        assert!(is_copied(run.checkpoints()) && is_copied(run.assets()));
    }

    #[test]
    fn only_files_that_a_hub_is_told_of_have_such_paths() {
        for path in ["metrics.jsonl", "trials/00012/summary.json", "trials/00012/logs/worker-0.log"]
        {
            assert!(is_told_file(path), "{path}");
        }
        for path in
            ["", "token", "../metrics.jsonl", "trials/00012/../token", "logs/a/b.log", "logs/.log"]
        {
            assert!(!is_told_file(path), "{path}");
        }
        assert!(is_appended("trials/00001/search.jsonl") && is_appended("logs/master.log"));
        assert!(!is_appended("search.json"));
    }
}
