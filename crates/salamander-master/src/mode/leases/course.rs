//! The course of training, in the master's process: what workers measured goes in; what is told outside, and what comes
//! next, comes out.
//!
//! It is kept in a file beside the journal. Micro-batches whose reports a killed master took with it are missing in the
//! training metrics of their epoch; everything else is read back from the servers' files.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use salamander_core::asynchronous::ServerCheckpoint;
use salamander_core::callback::Callbacks;
use salamander_core::course::{Collected, Course, KeptRows, LeasePlan, MakeFolder, Next, Wishes};
use salamander_core::elastic::Millis;
use salamander_core::metrics::Metrics;
use salamander_core::plan::MicroBatch;
use salamander_core::progress::{Progress, StepCount};
use salamander_core::report::{
    Brief, EndReport, EpochReport, EvaluationPart, Measured, Report, Timings,
};
use salamander_files::Durability;
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::config::Keeping;

/// How often the file is written.
const OFTEN: Millis = 100;

/// A course that is led here.
pub(super) struct HostedCourse {
    course: Course,
    collected: Collected,
    callbacks: Callbacks,
    parameters: u64,
    make_folder: MakeFolder,
    /// Where training stands in the last checkpoint.
    last: Arc<Mutex<Option<Progress>>>,
    file: PathBuf,
    written: Option<Millis>,
    changed: bool,
    /// The epoch whose begin was told.
    begun: Option<u64>,
}

/// What goes to disk.
#[derive(Serialize, Deserialize)]
struct CourseFile<P, C> {
    progress: P,
    collected: C,
}

/// Reports with the steps that were done by then, in growing order.
pub(super) type Reports = Vec<(StepCount, Report)>;

impl HostedCourse {
    /// Takes up the course of a run, which may be new.
    pub(super) fn open(plan: LeasePlan) -> Self {
        let LeasePlan { mut course, mut callbacks, parameters, file, make_folder, .. } = plan;
        let page = std::fs::read(&file).ok();
        let page = page.and_then(|text| serde_json::from_slice::<CourseFile<_, _>>(&text).ok());
        let collected = match page {
            Some(CourseFile { progress, collected }) => {
                course.restore(progress);
                collected
            }
            None => Collected::new(course.plan()),
        };
        course.resume();
        callbacks.restore(course.progress());
        Self {
            course,
            collected,
            callbacks,
            parameters,
            make_folder,
            last: Arc::default(),
            file,
            written: None,
            changed: false,
            begun: None,
        }
    }

    /// Training begins, or goes on.
    pub(super) fn begin(&mut self, workers: u64) -> Reports {
        let start = self.course.start(self.parameters, workers, true);
        self.callbacks.tell(|callback| callback.training_start(&start));
        vec![(start.done, Report::Start(start))]
    }

    /// What comes next.
    pub(super) fn next(&mut self) -> Next {
        let next = self.course.next();
        if let Next::Step(place) = next
            && place.step == 0
            && self.begun != Some(place.epoch)
        {
            self.begun = Some(place.epoch);
            self.callbacks.tell(|callback| callback.epoch_start(place.epoch));
        }
        next
    }

    /// Where it stands.
    pub(super) fn state(&self) -> &Course {
        &self.course
    }

    /// Whether nothing may be computed before the checkpoint that comes next counts: it is of a complete epoch, or of
    /// what was just validated.
    pub(super) fn waits_for_checkpoint(&self) -> bool {
        self.course.ends_epoch() || self.course.watched_to_save().is_some()
    }

    /// What workers are told with each lease.
    pub(super) fn brief(&self) -> Brief {
        Brief { plateau: self.course.progress().plateau }
    }

    /// A micro-batch is done. The same one may be told again.
    pub(super) fn measured(
        &mut self,
        now: Millis,
        name: MicroBatch,
        measured: &Measured,
    ) -> Reports {
        self.changed = true;
        let Some(done) = self.course.measured(&mut self.collected, name, measured) else {
            return Reports::new();
        };
        let report = done.report.clone();
        let stop = self.callbacks.ask(|callback, control| callback.step_end(&report, control));
        let now = Duration::from_millis(now);
        let wishes = Wishes { stop, save: self.course.recovery_due(now), ..Wishes::default() };
        let told = self.course.step_done(done, wishes, now);
        let mut reports = vec![(report.steps, Report::Step(report))];
        reports.extend(self.epoch(told));
        reports
    }

    /// All micro-batches of an epoch are done.
    pub(super) fn epoch_done(&mut self, now: Millis, epoch: u64) -> Reports {
        let now = Duration::from_millis(now);
        let told = self.course.epoch_done(&mut self.collected, epoch, now);
        self.epoch(told).into_iter().collect()
    }

    /// A validation of so many batches begins.
    pub(super) fn validation_begins(&mut self, batches: u64) {
        self.callbacks.tell(|callback| callback.validation_start(batches));
    }

    /// So many batches of it are done.
    pub(super) fn validated_batches(&mut self, batches: u64) {
        (0..batches).for_each(|_| self.callbacks.tell(|callback| callback.validation_batch()));
    }

    /// All parts of a validation are there. An error ends the run.
    pub(super) fn validated(
        &mut self,
        now: Millis,
        parts: impl Iterator<Item = EvaluationPart>,
    ) -> Result<Reports, String> {
        let mut all = EvaluationPart::default();
        parts.for_each(|part| all.merge(&part));
        let found = all.finish().metrics;
        let stop = self.callbacks.ask(|callback, control| callback.validation_end(&found, control));
        let told = self.course.validated(found, stop, Duration::from_millis(now));
        let told = told.map_err(|error| error.to_string())?;
        let reports = self.epoch(told).into_iter().collect();
        self.write(Durability::Synced);
        Ok(reports)
    }

    fn epoch(&mut self, told: Option<EpochReport>) -> Option<(StepCount, Report)> {
        let report = told?;
        self.callbacks.tell(|callback| callback.epoch_end(&report));
        self.write(Durability::Synced);
        Some((report.steps, Report::Epoch(report)))
    }

    /// The checkpoint that was due is made, or being made while training goes on.
    pub(super) fn saved(&mut self) {
        self.course.saved();
        self.changed = true;
    }

    /// A checkpoint counts, whose rows are in these files: what makes a folder of it. `is_due` says whether it is the
    /// one that was asked for last.
    pub(super) fn keep(
        &mut self,
        checkpoint: ServerCheckpoint,
        files: Vec<PathBuf>,
        is_due: bool,
    ) -> Keeping {
        self.callbacks.save(self.course.progress_mut());
        let progress = self.course.progress().clone();
        let watched = self.course.watched_to_save().filter(|_| is_due);
        let recovery = is_due && self.course.is_recovery();
        let (make, last) = (Arc::clone(&self.make_folder), Arc::clone(&self.last));
        Box::new(move || {
            let kept = KeptRows { checkpoint, files, progress, watched, recovery };
            let (name, progress) = make(kept)?;
            *last.lock().unwrap_or_else(PoisonError::into_inner) = Some(progress);
            Ok(name)
        })
    }

    /// The folder of a checkpoint is made.
    pub(super) fn kept(&mut self, path: &Path) {
        self.callbacks.tell(|callback| callback.checkpoint_saved(path));
    }

    /// The run ends: what the summary is made of. It is the state of the last checkpoint.
    pub(super) fn end(&mut self, now: Millis, interrupted: bool) -> (StepCount, Report) {
        let own = self.course.progress();
        let kept = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut progress = kept.unwrap_or_else(|| own.clone());
        progress.interrupted = interrupted;
        progress.stopped = own.stopped;
        (progress.training, progress.validation) = (own.training.clone(), own.validation.clone());
        progress.last_training = match own.training == Metrics::new() {
            true => own.last_training.clone(),
            false => own.training.values(),
        };
        let steps = own.steps;
        self.write(Durability::Synced);
        self.callbacks.tell(|callback| callback.training_end(&progress));
        let timings = Timings { wall: Duration::from_millis(now), ..self.collected.timings };
        (steps, Report::End(Box::new(EndReport { progress, ranks: vec![timings] })))
    }

    /// Writes the file when something has changed and some time has passed.
    pub(super) fn tick(&mut self, now: Millis) {
        if self.changed && self.written.is_none_or(|written| now > written + OFTEN) {
            self.written = Some(now);
            // Without waiting for the disk: it is for a master that is killed, not for a machine that is.
            self.write(Durability::Unsynced);
        }
    }

    fn write(&mut self, durability: Durability) {
        self.callbacks.save(self.course.progress_mut());
        let page = CourseFile { progress: self.course.progress(), collected: &self.collected };
        let text = serde_json::to_vec(&page).unwrap_or_default();
        if let Err(error) = salamander_files::replace(&self.file, &text, durability) {
            warn!(%error, file = %self.file.display(), "the course could not be written");
        }
        self.changed = false;
    }
}

#[cfg(test)]
mod tests {
    use salamander_core::asynchronous::{Consistency, Map, MapVersion, Numbering, Settings};
    use salamander_core::callback::{Callback, Control};
    use salamander_core::course::DataSizes;
    use salamander_core::elastic::{Generation, Term};
    use salamander_core::experiment::Experiment;
    use salamander_core::layout::CHECKPOINTS;
    use salamander_core::ledger::Tally;
    use salamander_core::report::{Start, StepReport};
    use salamander_core::schedule::Schedule;
    use serde_json::Value;

    use super::*;

    /// Writes down what it is told, and ends training after so many steps.
    struct Witness {
        told: Arc<Mutex<Vec<String>>>,
        steps: u64,
        limit: u64,
    }

    impl Witness {
        fn note(&self, what: &str) {
            self.told.lock().expect("not poisoned").push(what.to_string());
        }
    }

    impl Callback for Witness {
        fn training_start(&mut self, start: &Start) {
            self.note(&format!("start {}", start.done));
        }
        fn epoch_start(&mut self, epoch: u64) {
            self.note(&format!("epoch {epoch}"));
        }
        fn step_end(&mut self, step: &StepReport, control: &mut Control) {
            self.steps += 1;
            self.note(&format!("step {}", step.steps));
            if self.steps == self.limit {
                control.stop();
            }
        }
        fn validation_end(&mut self, _metrics: &Metrics, _control: &mut Control) {
            self.note("validated");
        }
        fn epoch_end(&mut self, epoch: &EpochReport) {
            self.note(&format!("ended {}", epoch.epoch));
        }
        fn training_end(&mut self, progress: &Progress) {
            self.note(&format!("end {}", progress.steps));
        }
        fn state(&self) -> Option<(&'static str, Value)> {
            Some(("witness", self.steps.into()))
        }
        fn restore(&mut self, state: &Value) {
            self.steps = state.as_u64().unwrap_or(0);
        }
    }

    /// Ten records in batches of four: three steps of an epoch.
    fn plan(folder: &Path, more: &str, limit: u64, told: &Arc<Mutex<Vec<String>>>) -> LeasePlan {
        let text = format!(
            "strategy: ps\nworkers: 1\nmax_length: {{epochs: 2}}\n\
             hyperparameters: {{global_batch_size: 4}}\n{more}"
        );
        let experiment = Experiment::parse(&text, &[]).expect("an experiment");
        let sizes = DataSizes { training: 10, validation: 5 };
        let course = Course::new(&experiment, Schedule::default(), sizes).expect("a course");
        let names = Numbering::of(course.plan());
        let consistency = Consistency::Async;
        let witness = Witness { told: Arc::clone(told), steps: 0, limit };
        LeasePlan {
            settings: Settings { names, epochs: 2, consistency, servers: 1, lease: 1_000 },
            hang: 1_000,
            course,
            file: folder.join("course.json"),
            callbacks: Callbacks::new(vec![Box::new(witness)]),
            parameters: 7,
            validation_batches: 2,
            initial: folder.join("initial.rows"),
            checkpoints: folder.join(CHECKPOINTS),
            make_folder: Arc::new(|kept| Ok((format!("{:?}", kept.watched), kept.progress))),
        }
    }

    fn step(course: &mut HostedCourse, epoch: u64, step: u64) -> usize {
        let tally = Tally { applied: 4, ..Tally::default() };
        let measured = Measured { tally, loss: 4.0, ..Measured::default() };
        course.measured(0, MicroBatch { epoch, step, k: 0 }, &measured).len()
    }

    fn part() -> EvaluationPart {
        EvaluationPart { loss: 3.0, records: 5, ..EvaluationPart::default() }
    }

    fn checkpoint() -> ServerCheckpoint {
        let id = Generation { term: Term(1), number: 1 };
        let map = Map { number: MapVersion(id), servers: 1 };
        ServerCheckpoint { id, map, epochs: 1 }
    }

    #[test]
    fn callbacks_are_told_here_and_a_master_that_is_killed_goes_on() {
        let folder = tempfile::tempdir().expect("a folder");
        let told = Arc::default();
        let open = |told| HostedCourse::open(plan(folder.path(), "", 5, told));
        let mut course = open(&told);
        assert_eq!(course.begin(1).len(), 1);
        assert!(matches!(course.next(), Next::Step(_)));
        assert_eq!([2, 0, 0, 1].map(|at| step(&mut course, 0, at)), [1, 1, 0, 1]);
        assert_eq!((course.next(), course.state().ends_epoch()), (Next::Validate, true));
        assert_eq!(course.validated(9, std::iter::once(part())).expect("a loss").len(), 1);
        assert!(course.next() == Next::Save && course.waits_for_checkpoint());
        let keeping = course.keep(checkpoint(), Vec::new(), true);
        assert_eq!(keeping().expect("a folder"), "Some(0.6)");
        course.saved();
        course.tick(1_000);

        let mut course = open(&told);
        course.begin(1);
        assert!(matches!(course.next(), Next::Step(place) if place.epoch == 1));
        assert_eq!([0, 1].map(|at| step(&mut course, 1, at)), [1, 1]);
        assert_eq!(course.next(), Next::Validate, "the callback ends training at its fifth step");
        course.validated(9, std::iter::once(part())).expect("a loss");
        assert!(course.next() == Next::Save && course.state().progress().stopped);
        let (steps, report) = course.end(9, false);
        assert!(matches!(report, Report::End(end) if end.progress.steps == steps));
        let expected = "start 0, epoch 0, step 1, step 2, step 3, validated, ended 0, \
                        start 3, epoch 1, step 4, step 5, validated, ended 1, end 5";
        assert_eq!(told.lock().expect("not poisoned").join(", "), expected);
    }

    #[test]
    fn validations_before_and_within_epochs_are_asked_for() {
        let folder = tempfile::tempdir().expect("a folder");
        let more = "perform_initial_validation: true\nmin_validation_period: {batches: 2}\n\
                    checkpoint_policy: none";
        let mut course = HostedCourse::open(plan(folder.path(), more, 99, &Arc::default()));
        assert_eq!((course.next(), course.state().ends_epoch()), (Next::Validate, false));
        assert!(course.validated(0, std::iter::once(part())).expect("a loss").is_empty());
        assert_eq!([0, 1].map(|at| step(&mut course, 0, at)), [1, 1]);
        assert_eq!((course.next(), course.state().ends_epoch()), (Next::Validate, false));
        assert_eq!(course.validated(0, std::iter::once(part())).expect("a loss").len(), 1);
        assert!(matches!(course.next(), Next::Step(place) if place.step == 2));
    }
}
