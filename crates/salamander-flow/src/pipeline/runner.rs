//! The loop: asks the planner, starts what is due, waits for one to end, asks again.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Scope;
use std::time::Duration;

use salamander_files::{Durability, replace};
use serde::Serialize;
use serde_json::{Value as Json, json};

use super::Error;
use super::execute::{StepFailure, execute};
use super::planner::{Decision, Due, PipelineProgress, Status, StepOutcome, look};
use super::spec::Pipeline;
use super::store::{ArtifactManifest, ArtifactStore};
use super::svg;

/// Steps at a time, unless the file or the command line says it.
const PARALLEL: usize = 2;
/// How often the wish to stop is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// How a pipeline is run.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// Steps at a time.
    pub parallel: Option<usize>,
    /// Only this step; what it needs must be there.
    pub only: Option<&'a str>,
    /// Becomes true when steps are to be ended.
    pub stop: &'a AtomicBool,
}

/// What happens on the way, for who watches.
#[derive(Clone, Debug, PartialEq)]
pub enum PipelineEvent {
    /// A step begins, for a reason.
    Begins(String, String),
    /// A step has run, in so many seconds.
    Done(String, f64),
    /// A step need not run.
    Unchanged(String),
    /// A step is left out, for a reason.
    Skipped(String, String),
    /// A step failed.
    Failed(String, String),
    /// Something else about a step.
    Note(String, String),
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PipelineState {
    /// Every step is done or was left out by its condition.
    Completed,
    /// At least one has failed.
    Failed,
    /// It was asked to stop.
    Interrupted,
}

/// What became of a step.
#[derive(Clone, Debug, Serialize)]
pub struct StepReport {
    /// The step, or one of a fan-out.
    pub name: String,
    /// Whether it ran to its end in this run.
    pub ran: bool,
    /// Why it ran, or why not.
    pub why: String,
    /// `done`, `unchanged`, `skipped`, `failed`, `blocked` or `stopped`.
    pub state: &'static str,
    /// How long it took, if it ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// How often it was tried, if it ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
    /// What it has left: paths and values by name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outputs: Option<Json>,
}

/// The end of a run.
#[derive(Clone, Debug, Serialize)]
pub struct PipelineSummary {
    /// How it ended.
    pub state: PipelineState,
    /// What became of each step.
    pub steps: Vec<StepReport>,
}

/// Runs a pipeline in a folder that was claimed.
pub fn run(
    pipeline: &Pipeline,
    store: &ArtifactStore,
    options: Options<'_>,
    tell: &mut dyn FnMut(PipelineEvent),
) -> Result<PipelineSummary, Error> {
    if let Some(only) = options.only {
        let name = only.split('[').next().unwrap_or(only);
        if pipeline.step(name).is_none() {
            let (name, file) = (name.to_string(), pipeline.file.clone());
            return Err(Error::NoStep { hint: pipeline.hint(&name), name, file });
        }
    }
    let (sender, receiver) = channel();
    let parallel = options.parallel.or(pipeline.parallel).unwrap_or(PARALLEL).max(1);
    let mut run = PipelineRun {
        pipeline,
        store,
        options,
        parallel,
        progress: PipelineProgress {
            only: options.only.map(str::to_string),
            ..PipelineProgress::default()
        },
        told: BTreeMap::new(),
        tell,
    };
    std::thread::scope(|scope| run.drive(scope, &sender, &receiver))?;
    let summary = run.summary();
    store.save_digests();
    if let Some(only) = options.only.filter(|_| summary.steps.is_empty() && !run.stops()) {
        return Err(Error::Step { name: only.to_string(), reason: run.reason_to_wait(only) });
    }
    let text = serde_json::to_vec_pretty(&summary).unwrap_or_default();
    let path = store.layout().summary();
    replace(&path, &text, Durability::Unsynced).map_err(Error::io(&path))?;
    Ok(summary)
}

/// What a thread has to say about a step.
enum StepMessage {
    Note(String),
    Ended(Box<Result<ArtifactManifest, StepFailure>>),
}

struct PipelineRun<'a> {
    pipeline: &'a Pipeline,
    store: &'a ArtifactStore,
    options: Options<'a>,
    parallel: usize,
    progress: PipelineProgress,
    /// What became of instances, with the reasons that they had.
    told: BTreeMap<String, StepReport>,
    tell: &'a mut dyn FnMut(PipelineEvent),
}

impl<'a> PipelineRun<'a> {
    fn drive<'scope>(
        &mut self,
        scope: &'scope Scope<'scope, '_>,
        sender: &Sender<(Box<Due>, StepMessage)>,
        receiver: &Receiver<(Box<Due>, StepMessage)>,
    ) -> Result<(), Error>
    where
        'a: 'scope,
    {
        let (mut running, mut changed) = (0, true);
        loop {
            while self.advance(scope, sender, &mut running)? {}
            if std::mem::take(&mut changed) {
                self.draw();
            }
            if running == 0 {
                return Ok(());
            }
            // Steps see the wish to stop themselves.
            match receiver.recv_timeout(LOOK) {
                Ok((due, StepMessage::Note(text))) => {
                    (self.tell)(PipelineEvent::Note(due.instance.clone(), text));
                }
                Ok((due, StepMessage::Ended(ended))) => {
                    running -= 1;
                    changed = true;
                    self.ended(&due, *ended)?;
                }
                Err(_) => {}
            }
        }
    }

    /// Does what can be done at once; true if more may follow from it.
    fn advance<'scope>(
        &mut self,
        scope: &'scope Scope<'scope, '_>,
        sender: &Sender<(Box<Due>, StepMessage)>,
        running: &mut usize,
    ) -> Result<bool, Error>
    where
        'a: 'scope,
    {
        let mut changed = false;
        for status in look(self.pipeline, self.store, &self.progress) {
            let Status { step, instance, decision, why } = status;
            let meant = self.progress.is_meant(&step, &instance);
            match decision {
                Decision::Unchanged(manifest, components) => {
                    let path = self.store.layout().steps();
                    self.store.note(&instance, &components).map_err(Error::io(&path))?;
                    if meant {
                        (self.tell)(PipelineEvent::Unchanged(instance.clone()));
                        self.report(&instance, "unchanged", why, Some(&manifest));
                    }
                    self.progress.outcomes.insert(instance, StepOutcome::Done(manifest));
                    changed = true;
                }
                Decision::Refused => {
                    if meant {
                        (self.tell)(PipelineEvent::Failed(instance.clone(), why.clone()));
                        self.report(&instance, "failed", why, None);
                    }
                    self.progress.outcomes.insert(instance, StepOutcome::Failed);
                    changed = true;
                }
                Decision::Skip if meant && !self.told.contains_key(&instance) => {
                    (self.tell)(PipelineEvent::Skipped(instance.clone(), why.clone()));
                    self.report(&instance, "skipped", why, None);
                }
                Decision::Blocked if meant => self.report(&instance, "blocked", why, None),
                Decision::Run(due) if meant && *running < self.parallel && !self.stops() => {
                    (self.tell)(PipelineEvent::Begins(instance.clone(), why.clone()));
                    self.report(&instance, "stopped", why, None);
                    self.progress.outcomes.insert(instance, StepOutcome::Running(due.key.clone()));
                    *running += 1;
                    self.start(scope, due, sender.clone());
                }
                _ => {}
            }
        }
        Ok(changed)
    }

    /// Draws how things are, for who looks at the folder; a picture that cannot be kept changes nothing.
    fn draw(&self) {
        let picture = svg::draw(self.pipeline, &look(self.pipeline, self.store, &self.progress));
        let _ = replace(&self.store.layout().graph(), picture.as_bytes(), Durability::Unsynced);
    }

    fn start<'scope>(
        &self,
        scope: &'scope Scope<'scope, '_>,
        due: Box<Due>,
        sender: Sender<(Box<Due>, StepMessage)>,
    ) where
        'a: 'scope,
    {
        let (pipeline, store, stop) = (self.pipeline, self.store, self.options.stop);
        scope.spawn(move || {
            let note = |text| {
                // The loop outlives its threads.
                let _ = sender.send((due.clone(), StepMessage::Note(text)));
            };
            let ended = execute(pipeline, store, &due, stop, &note);
            let _ = sender.send((due.clone(), StepMessage::Ended(Box::new(ended))));
        });
    }

    fn ended(
        &mut self,
        due: &Due,
        ended: Result<ArtifactManifest, StepFailure>,
    ) -> Result<(), Error> {
        self.store.forget_addresses();
        let instance = due.instance.clone();
        let why = self.told.get(&instance).map(|told| told.why.clone()).unwrap_or_default();
        let outcome = match ended {
            Ok(manifest) => {
                let path = self.store.layout().steps();
                self.store.note(&instance, &due.components).map_err(Error::io(&path))?;
                (self.tell)(PipelineEvent::Done(instance.clone(), manifest.seconds));
                self.report(&instance, "done", why, Some(&manifest));
                StepOutcome::Done(Box::new(manifest))
            }
            Err(StepFailure::Failed { why, attempts }) => {
                (self.tell)(PipelineEvent::Failed(instance.clone(), why.clone()));
                self.report(&instance, "failed", why, None);
                if let Some(told) = self.told.get_mut(&instance) {
                    told.attempts = Some(attempts);
                }
                StepOutcome::Failed
            }
            Err(StepFailure::Stopped) => {
                self.report(&instance, "stopped", why, None);
                StepOutcome::Failed
            }
        };
        self.progress.outcomes.insert(instance, outcome);
        Ok(())
    }

    /// Why a single step did not run.
    fn reason_to_wait(&self, only: &str) -> String {
        let statuses = look(self.pipeline, self.store, &self.progress);
        let status = statuses.into_iter().find(|s| s.step == only || s.instance == only);
        match status {
            Some(status) => format!("it comes {}, which has not run as things are now", status.why),
            None => "there is no such item in its list now".to_string(),
        }
    }

    fn stops(&self) -> bool {
        self.options.stop.load(Ordering::Relaxed)
    }

    fn report(
        &mut self,
        name: &str,
        state: &'static str,
        why: String,
        left: Option<&ArtifactManifest>,
    ) {
        let ran = state == "done";
        let outputs = left.map(|manifest| {
            let mut all = serde_json::Map::new();
            for (name, output) in &manifest.outputs {
                all.insert(name.clone(), json!(manifest.folder.join(&output.path)));
            }
            all.extend(manifest.values.iter().map(|(name, value)| (name.clone(), value.clone())));
            Json::Object(all)
        });
        let report = StepReport {
            name: name.to_string(),
            ran,
            why,
            state,
            seconds: left.filter(|_| ran).map(|manifest| manifest.seconds),
            attempts: left.filter(|_| ran).map(|manifest| manifest.attempts),
            outputs,
        };
        self.told.insert(name.to_string(), report);
    }

    /// Reports in the order of the steps.
    fn summary(&self) -> PipelineSummary {
        let order = |report: &StepReport| {
            let (step, number) = report.name.split_once('[').unwrap_or((&report.name, "0]"));
            let at = self.pipeline.steps.iter().position(|other| other.name == step);
            (at, number.trim_end_matches(']').parse::<usize>().unwrap_or(0))
        };
        let mut steps: Vec<StepReport> = self.told.values().cloned().collect();
        steps.sort_by_key(order);
        let failed = steps.iter().any(|step| step.state == "failed");
        let state = match (failed, self.stops()) {
            (true, _) => PipelineState::Failed,
            (false, true) => PipelineState::Interrupted,
            (false, false) => PipelineState::Completed,
        };
        PipelineSummary { state, steps }
    }
}
