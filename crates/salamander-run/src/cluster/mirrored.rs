//! A run that trains as a job of a cluster while its folder is here: the job is submitted, or found again by a process
//! that was started anew, and what it tells becomes the files of the run.
//!
//! A job that came to where it pauses is deleted, and the next one of its name goes on from the object store: for that
//! reason trials of a search need one. The name is kept before anything is submitted, so that nothing is lost.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use salamander_core::elastic::Ending;
use salamander_core::experiment::Experiment;
use salamander_core::layout::{RunLayout, TRIALS};
use salamander_core::metrics::{Metric, Metrics};
use salamander_core::progress::{Progress, StepCount};
use salamander_core::report::{EpochReport, Report};
use salamander_files::{Durability, replace};
use salamander_kube::Error as KubeError;
use salamander_kube::client::View;
use salamander_kube::progress::JobProgress;
use salamander_net::Token;
use salamander_train::callback::{Callback, Control};
use salamander_train::checkpoint::{CheckpointStore, Manifest, RemoteCheckpoints};
use salamander_train::model::Models;
use salamander_train::trainer::{Outcome, Timings};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::follow::JobEvents;
use super::{Cluster, JobOptions, Submission};
use crate::event::{Event, Forward};
use crate::experiment::Overrides;
use crate::facts::Facts;
use crate::folder_status::note_plan;
use crate::metrics_log::MetricsLog;
use crate::provenance::Provenance;
use crate::stored;
use crate::{Error, folder};

/// How often a job is looked at, and how often a wish to stop.
const LOOK: Duration = Duration::from_secs(1);
const MOMENT: Duration = Duration::from_millis(50);
/// How long what an earlier job had may take to go.
const LEAVING: Duration = Duration::from_secs(120);
/// Letters of a run's name in that of its job, which has 40 in all.
const NAMED: usize = 28;

/// The jobs that runs, or the trials of a search, train as.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ClusterJobs {
    /// Their namespace; that of the kubeconfig unless told otherwise.
    pub namespace: Option<String>,
    /// What each is made of.
    pub options: JobOptions,
}

/// A run, as its job is made of it.
pub(crate) struct MirroredRun<'a> {
    pub(crate) run: &'a RunLayout,
    pub(crate) experiment: &'a Experiment,
    pub(crate) models: &'a Models,
    pub(crate) stop: &'a AtomicBool,
    pub(crate) events: &'a Forward,
}

impl ClusterJobs {
    /// Trains to where the run pauses or ends, or until it is stopped.
    pub(crate) fn train(&self, mirrored: &MirroredRun<'_>) -> Result<(Outcome, Facts), Error> {
        let started = Instant::now();
        let cluster = Cluster::connect(self.namespace.as_deref())?;
        let name = job_name(mirrored.run)?;
        let options = JobOptions { name: Some(name.clone()), ..self.options.clone() };
        let (file, overrides) = (mirrored.run.experiment(), Overrides::default());
        let submission = options.read(&file, &overrides, cluster.namespace(), mirrored.models)?;
        let image = Some(submission.job.spec.image.clone());
        Provenance::note(mirrored.run, || Ok(Provenance { image, ..Provenance::default() }));
        cluster.attach(&submission, mirrored.stop)?;
        mirrored.events.send(Event::Note(format!(
            "trains as job {name} in namespace {}",
            cluster.namespace()
        )));
        let logs = self.follow_logs(&name, mirrored);
        let followed = mirrored.follow(&cluster, &name);
        // A suspended job is not over, and its logs go on with it.
        if let Ok((Ending::Completed | Ending::Failed(_), _)) = &followed {
            let _ = logs.map(std::thread::JoinHandle::join);
        }
        let (ending, view) = followed?;
        if let Ending::Failed(reason) = ending {
            cluster.delete_if_there(&name)?;
            return Err(Error::Failed(reason));
        }
        mirrored.bring(&name)?;
        let ended = mirrored.outcome(&ending, &view, started)?;
        if ending == Ending::Completed {
            cluster.delete_if_there(&name)?;
        }
        Ok(ended)
    }

    /// Deletes the job of a run, if it has one.
    pub(crate) fn end(&self, run: &RunLayout) -> Result<(), Error> {
        let path = run.cluster_job();
        let Ok(name) = fs::read_to_string(&path) else { return Ok(()) };
        Cluster::connect(self.namespace.as_deref())?.delete_if_there(name.trim())?;
        fs::remove_file(&path).map_err(Error::io(&path))
    }

    /// Deletes the jobs of a run, or of all trials of a search.
    pub fn end_all(&self, folder: &Path) -> Result<(), Error> {
        let layout = RunLayout::new(folder);
        let trials = fs::read_dir(layout.trials()).into_iter().flatten().flatten();
        let trials = trials.map(|entry| RunLayout::new(entry.path()));
        std::iter::once(layout.clone()).chain(trials).try_for_each(|run| self.end(&run))
    }

    /// Keeps what the pods print, on a thread of its own, in files that are named by where the job pauses: those of
    /// the one before stay.
    fn follow_logs(
        &self,
        job: &str,
        mirrored: &MirroredRun<'_>,
    ) -> Option<std::thread::JoinHandle<()>> {
        let (namespace, job, run) = (self.namespace.clone(), job.to_string(), mirrored.run.clone());
        let part = target(&serde_json::json!({"searcher": mirrored.experiment.searcher}));
        let keep = move || {
            let mut files = std::collections::BTreeMap::<String, File>::new();
            let write = |pod: &str, line: &str| {
                let open = || File::create(run.log(&format!("{pod}.{part}")));
                let file = match files.entry(pod.to_string()) {
                    std::collections::btree_map::Entry::Occupied(entry) => Ok(entry.into_mut()),
                    std::collections::btree_map::Entry::Vacant(entry) => {
                        open().map(|file| entry.insert(file))
                    }
                };
                // A log that cannot be written is no reason to end a run.
                let _ = file.and_then(|file| writeln!(file, "{line}"));
            };
            let followed = Cluster::connect(namespace.as_deref())
                .and_then(|cluster| cluster.logs(&job, None, true, write));
            if let Err(error) = followed {
                tracing::warn!(%error, job, "the logs of its pods are not followed any more");
            }
        };
        let _ = fs::create_dir_all(mirrored.run.logs());
        std::thread::Builder::new().name("logs".to_string()).spawn(keep).ok()
    }
}

impl MirroredRun<'_> {
    /// Follows the job until it is over, or suspended.
    fn follow(&self, cluster: &Cluster, name: &str) -> Result<(Ending, View), Error> {
        let mut log = MetricsLog::open(&self.run.metrics())?;
        let mut events = JobEvents::after(last_epoch(&self.run.metrics()));
        let mut asked = false;
        loop {
            match cluster.view(name) {
                Ok(view) => {
                    for event in events.take(&view) {
                        self.keep(&event, &mut log)?;
                        self.events.send(event);
                    }
                    if let Some(ending) = view.ended() {
                        return Ok((ending, view));
                    }
                }
                Err(error) => be_patient(error)?,
            }
            if self.stop.load(Ordering::Relaxed) && !asked {
                asked = match cluster.stop(name) {
                    Ok(()) => true,
                    Err(error) => be_patient(error).map(|()| false)?,
                };
            }
            let looked = Instant::now();
            while looked.elapsed() < LOOK && (asked || !self.stop.load(Ordering::Relaxed)) {
                std::thread::sleep(MOMENT);
            }
        }
    }

    fn keep(&self, event: &Event, log: &mut MetricsLog) -> Result<(), Error> {
        match event {
            Event::Report(Report::Start(start)) => note_plan(self.run, start)?,
            Event::Report(Report::Step(step)) => log.step_end(step, &mut Control::default()),
            Event::Report(Report::Epoch(epoch)) => log.epoch_end(epoch),
            _ => {}
        }
        Ok(())
    }

    /// Brings what the run has in its object store, if it has one: every step, and the last checkpoint.
    fn bring(&self, name: &str) -> Result<(), Error> {
        let Some(url) = &self.experiment.checkpoint_storage.store else { return Ok(()) };
        let remote = RemoteCheckpoints::open(url, name)?;
        let mut note = |note: String| self.events.send(Event::Note(note));
        stored::bring(&remote, self.run, &mut note)
    }

    fn outcome(
        &self,
        ending: &Ending,
        view: &View,
        started: Instant,
    ) -> Result<(Outcome, Facts), Error> {
        let told = view.progress.clone().unwrap_or_default();
        let interrupted = *ending == Ending::Interrupted;
        let checkpoints = self.run.checkpoints();
        let latest = match checkpoints.is_dir() {
            true => CheckpointStore::list(&checkpoints)?.pop(),
            false => None,
        };
        let progress = Progress { interrupted, ..progress(&told, latest.as_ref()) };
        let latest = latest.map(|latest| checkpoints.join(&latest.id));
        let timings = Timings { wall: started.elapsed(), ..Timings::default() };
        let facts = Facts {
            workers: u64::from(told.wanted),
            generations: told.generations,
            worker_restarts: told.restarts,
            server_restarts: told.server_restarts,
            master_restarts: 0,
        };
        let ranks = Vec::new();
        Ok((Outcome { interrupted, progress, timings, ranks, checkpoint: latest }, facts))
    }
}

impl Cluster {
    /// Makes the job, or goes on with the one that is there if it is to come to the same place.
    fn attach(&self, submission: &Submission, stop: &AtomicBool) -> Result<(), Error> {
        let name = &submission.job.name;
        let since = Instant::now();
        loop {
            match self.view(name) {
                Ok(view) => match &view.resource {
                    Some(resource) if is_same(submission, &view) => {
                        return if resource.spec.suspend { self.resume(name) } else { Ok(()) };
                    }
                    Some(_) => self.delete_if_there(name)?,
                    // Its pods are on their way out.
                    None => {}
                },
                Err(Error::Cluster(KubeError::NotFound { .. })) => {
                    if self.submit(submission)? {
                        return Ok(());
                    }
                    self.delete_if_there(name)?;
                    let reason = "the cluster has no operator, which jobs of a folder need: `salamander crd`, \
                                  and the chart in deploy/helm, install it";
                    return Err(Error::Invalid(reason.to_string()));
                }
                Err(error) => be_patient(error)?,
            }
            if stop.load(Ordering::Relaxed) || since.elapsed() > LEAVING {
                return Err(Error::Failed(format!("an earlier job {name} does not go")));
            }
            std::thread::sleep(MOMENT);
        }
    }

    /// Deletes a job that may have gone already.
    fn delete_if_there(&self, job: &str) -> Result<(), Error> {
        match self.delete(job) {
            Err(Error::Cluster(KubeError::NotFound { .. })) => Ok(()),
            deleted => deleted,
        }
    }
}

/// How far a job came, by what it told and by the newest checkpoint that has come from its store.
/// One that was submitted once more after it had come to its pause has nothing to tell.
fn progress(told: &JobProgress, latest: Option<&Manifest>) -> Progress {
    let last = told.milestones.epochs.last().map(EpochReport::from);
    let plan = told.milestones.plan.clone().unwrap_or_default();
    let reported = told.step.max(last.as_ref().map(|last| last.steps));
    let steps = reported.max(latest.map(|latest| latest.steps)).unwrap_or_default();
    let kept = latest.map(|latest| &latest.validation).filter(|values| !values.is_empty());
    let add =
        |all: Metrics, (name, value): (&String, &f64)| all.with(name, Metric::mean(*value, 1.0));
    let kept = || kept.map(|values| values.iter().fold(Metrics::new(), add));
    Progress {
        steps,
        batches: steps.0,
        records: plan.records * steps.0 / plan.steps_per_epoch.max(1),
        epoch: steps.0 / plan.steps_per_epoch.max(1),
        last_training: last.as_ref().map(|last| last.training.values()).unwrap_or_default(),
        validation: last.and_then(|last| last.validation).or_else(kept),
        ..Progress::default()
    }
}

/// Whether a job that is there pauses where the wanted one does.
fn is_same(wanted: &Submission, there: &View) -> bool {
    let inline = there.resource.as_ref().and_then(|job| job.spec.experiment.inline.as_ref());
    let wanted = wanted.job.spec.experiment.inline.as_ref();
    inline.map(target) == wanted.map(target)
}

/// Where an experiment pauses or ends, in a word.
fn target(experiment: &Value) -> String {
    let searcher = &experiment["searcher"];
    let lengths = [&searcher["pause_at"], &searcher["max_length"]];
    let length = lengths.into_iter().find_map(Value::as_object);
    let length = length.and_then(|length| length.iter().next());
    length.map_or("end".to_string(), |(unit, number)| format!("{unit}-{number}"))
}

/// A server that does not answer for a while ends nothing.
fn be_patient(error: Error) -> Result<(), Error> {
    match error {
        Error::Cluster(KubeError::Unreachable { reason, .. }) => {
            tracing::debug!(reason, "following a job");
            Ok(())
        }
        error => Err(error),
    }
}

/// The steps of the last epoch in a metrics file.
fn last_epoch(path: &Path) -> Option<StepCount> {
    let text = fs::read_to_string(path).ok()?;
    let of_epoch = |line: &str| {
        let line: Value = serde_json::from_str(line).ok()?;
        (line["kind"] == "epoch").then(|| line["steps"].as_u64().map(StepCount))?
    };
    text.lines().rev().find_map(of_epoch)
}

/// The name of a run's job: made once, and kept.
fn job_name(run: &RunLayout) -> Result<String, Error> {
    let path = run.cluster_job();
    if let Ok(name) = fs::read_to_string(&path) {
        return Ok(name.trim().to_string());
    }
    let parts = run.folder().iter().rev().map(|part| part.to_string_lossy().into_owned());
    // A trial is called after its search as well.
    let parts: Vec<String> = parts.take(3).collect();
    let name = match parts.as_slice() {
        [trial, trials, search] if trials == TRIALS => {
            format!("{search:.20}-{}", trial.trim_start_matches('0'))
        }
        _ => run.id(),
    };
    let name: String = folder::slug(&name).chars().take(NAMED).collect();
    let first = if name.starts_with(|c: char| c.is_ascii_lowercase()) { "" } else { "r" };
    let name = format!("{first}{}-{:.8}", name.trim_end_matches('-'), Token::random()?.to_hex());
    replace(&path, name.as_bytes(), Durability::Synced).map_err(Error::io(&path))?;
    Ok(name)
}

#[cfg(test)]
mod tests {
    use salamander_kube::milestones::Epoch;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_job_is_called_after_its_run_for_good() {
        let folder = tempfile::tempdir().expect("a folder");
        let name = |path: &str| {
            let run = RunLayout::new(folder.path().join(path));
            fs::create_dir_all(run.folder()).expect("made");
            let name = job_name(&run).expect("named");
            assert_eq!(job_name(&run).expect("kept"), name);
            name
        };
        let trial = name("runs/My_Search of digits, wide-12/trials/00007");
        assert!(trial.starts_with("my-search-of-digits-") && trial.len() <= 40, "{trial}");
        let number = name("runs/12");
        assert!(number.starts_with("r12-") && number != name("runs/other/12"), "{number}");
    }

    #[test]
    fn the_last_epoch_of_a_metrics_file_is_told_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("metrics.jsonl");
        assert_eq!(last_epoch(&path), None);
        let lines = "{\"kind\":\"epoch\",\"steps\":4}\n{\"kind\":\"step\",\"steps\":6}\n";
        fs::write(&path, lines).expect("written");
        assert_eq!(last_epoch(&path), Some(StepCount(4)));
    }

    #[test]
    fn a_job_that_had_nothing_left_to_do_stands_where_its_checkpoint_does() {
        let manifest = json!({
            "format": 1, "id": "step-00000032", "steps": 32, "epoch": 6, "watched": 0.5,
            "validation": {"loss": 0.5}, "files": {},
        });
        let manifest: Manifest = serde_json::from_value(manifest).expect("a manifest");
        let loss = |progress: &Progress| {
            let values = progress.validation.as_ref().map(Metrics::values).unwrap_or_default();
            (progress.steps.0, values.get("loss").copied())
        };
        let mut told = JobProgress::default();
        assert_eq!(loss(&progress(&told, None)), (0, None));
        assert_eq!(loss(&progress(&told, Some(&manifest))), (32, Some(0.5)));
        // What it told itself comes first.
        let validation = Some([("loss".to_string(), Some(0.25))].into());
        told.milestones.epochs.push(Epoch { steps: StepCount(48), validation, ..Epoch::default() });
        assert_eq!(loss(&progress(&told, Some(&manifest))), (48, Some(0.25)));
    }

    #[test]
    fn jobs_are_told_apart_by_where_they_pause() {
        let searcher =
            |pause: Value| json!({"searcher": {"pause_at": pause, "max_length": {"epochs": 9}}});
        assert_eq!(target(&searcher(json!({"epochs": 3}))), "epochs-3");
        assert_eq!(target(&searcher(Value::Null)), "epochs-9");
        assert_eq!(target(&json!({})), "end");
    }
}
