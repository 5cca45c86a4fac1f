//! Decides which progress of a run is written to the cluster and when, and what the master is still to be asked
//! for. It has no connection of its own.

use std::time::Duration;

use salamander_core::elastic::Ending;
use salamander_core::status::State;
use tokio::time::Instant;

use super::master_poller::AdminRequest;
use crate::contract::CONTRACT;
use crate::milestones::Milestones;
use crate::progress::{Goodput, JobProgress};

/// What is known of a run, and what of it was written.
#[derive(Default)]
pub(super) struct StatusReporter {
    every: Duration,
    /// How many workers people want.
    pub(super) wanted: Option<u32>,
    /// How many parameter servers people want.
    pub(super) wanted_servers: Option<u32>,
    /// Whether people want it to stop.
    pub(super) stop: bool,
    progress: Option<JobProgress>,
    /// What the run told on its way, also before the master has answered for the first time.
    told: Milestones,
    written: Option<JobProgress>,
    writing: Option<JobProgress>,
    last: Option<Instant>,
    asked: Option<Instant>,
    goodput: Goodput,
}

/// What the pods of a job add to its progress.
#[derive(Debug, Default)]
pub(super) struct PodFacts {
    /// Pods that do not run yet.
    pub(super) pending: u32,
    /// What one of them waits for.
    pub(super) waiting: Option<String>,
    /// How the last pod that crashed did so.
    pub(super) last_crash: Option<String>,
}

impl StatusReporter {
    pub(super) fn new(every: Duration) -> Self {
        Self { every, ..Self::default() }
    }

    /// Goes on counting where the master before has left off.
    pub(super) fn take_over(&mut self, before: Option<JobProgress>) {
        self.goodput = before.and_then(|before| before.counted).unwrap_or_default();
    }

    /// What the master must still be asked for.
    pub(super) fn requests(&self, progress: &JobProgress) -> Vec<AdminRequest> {
        if progress.ended().is_some() {
            return Vec::new();
        }
        let workers = self.wanted.filter(|wanted| *wanted > 0 && *wanted != progress.wanted);
        let servers = self.wanted_servers.filter(|wanted| {
            *wanted > 0 && progress.wanted_servers > 0 && *wanted != progress.wanted_servers
        });
        let stop =
            (self.stop && progress.state != Some(State::Stopping)).then_some(AdminRequest::Stop);
        let requests =
            [workers.map(AdminRequest::Workers), servers.map(AdminRequest::Servers), stop];
        requests.into_iter().flatten().collect()
    }

    /// What the master answered to the last poll.
    pub(super) fn take(&mut self, mut progress: JobProgress) {
        let now = Instant::now();
        let passed = self.asked.map_or(0.0, |asked| (now - asked).as_secs_f64());
        self.asked = Some(now);
        let running = progress.is_running() && progress.step.is_some();
        self.goodput.add(passed, running, progress.step.unwrap_or_default());
        if let Some(known) = &self.progress {
            // A master that was started again has no report yet.
            progress.step = progress.step.or(known.step);
            progress.epoch = progress.epoch.or(known.epoch);
            progress.loss = progress.loss.or(known.loss);
        }
        progress.milestones = self.told.clone();
        progress.goodput = self.goodput.value();
        // A run that waits changes nothing else: what it has counted is not worth a write each time.
        let waits = |known: &&JobProgress| !running && known.goodput == progress.goodput;
        let counted = || progress.goodput.map(|_| self.goodput);
        let same = self.progress.as_ref().filter(waits);
        progress.counted = same.map_or_else(counted, |known| known.counted);
        self.progress = Some(progress);
    }

    /// What the run told on its way.
    pub(super) fn note(&mut self, milestones: Milestones) {
        // A master that was started again has heard of less than the one before; its followers have not.
        self.told = milestones;
        if let Some(progress) = &mut self.progress {
            progress.milestones = self.told.clone();
            catch_up(progress);
        }
    }

    /// The run is over. `kept` is its last checkpoint, where the progress does not know it.
    pub(super) fn over(&mut self, ending: &Ending, kept: Option<String>) {
        // A short run may be over before the master was asked for the first time.
        let unasked = || JobProgress {
            contract: Some(CONTRACT),
            milestones: self.told.clone(),
            ..JobProgress::default()
        };
        let progress = self.progress.get_or_insert_with(unasked);
        progress.state = Some(State::from(ending));
        progress.reason = match ending {
            Ending::Failed(reason) => Some(reason.clone()),
            Ending::Completed | Ending::Interrupted => None,
        };
        progress.workers = 0;
        if kept.is_some() {
            progress.checkpoint = kept;
        }
        catch_up(progress);
    }

    /// What is to be written now.
    pub(super) fn due(&mut self, pods: PodFacts) -> Option<JobProgress> {
        let progress = self.progress.as_mut()?;
        (progress.pending, progress.waiting) = (pods.pending, pods.waiting);
        progress.last_crash = pods.last_crash;
        if self.writing.is_some() || self.written.as_ref() == Some(progress) {
            return None;
        }
        // A change of state is written at once, steps only now and then: the cluster's store keeps every version.
        let same = self.written.as_ref().is_some_and(|written| written.state == progress.state);
        if same && self.last.is_some_and(|last| last.elapsed() < self.every) {
            return None;
        }
        self.last = Some(Instant::now());
        self.writing = Some(progress.clone());
        self.writing.clone()
    }

    /// The cluster has it, or not.
    pub(super) fn written(&mut self, written: bool) {
        let writing = self.writing.take();
        if written {
            self.written = writing;
        }
    }

    /// Whether the cluster has everything.
    pub(super) fn is_written(&self) -> bool {
        self.written.is_some() && self.written == self.progress
    }
}

/// A run may end between two questions: its last epoch tells how far it came.
fn catch_up(progress: &mut JobProgress) {
    let last = progress.milestones.epochs.last();
    if progress.ended().is_some()
        && let Some(last) = last.filter(|last| Some(last.steps) > progress.step)
    {
        (progress.step, progress.epoch) = (Some(last.steps), Some(last.epoch));
    }
}

#[cfg(test)]
mod tests {
    use salamander_core::progress::StepCount;

    use crate::milestones::Epoch;

    use super::*;

    fn progress(state: State, step: u64) -> JobProgress {
        let step = Some(StepCount(step));
        JobProgress { state: Some(state), step, wanted: 2, ..JobProgress::default() }
    }

    #[test]
    fn steps_are_written_now_and_then_and_states_at_once() {
        let mut reporter = StatusReporter::new(Duration::from_secs(1_000));
        let facts = PodFacts::default;
        assert_eq!(reporter.due(facts()), None);
        reporter.take(progress(State::Running, 1));
        assert_eq!(reporter.due(facts()).expect("due").step, Some(StepCount(1)));
        assert_eq!(reporter.due(facts()), None, "one at a time");
        reporter.written(true);
        reporter.take(progress(State::Running, 2));
        assert_eq!(reporter.due(facts()), None, "too soon");
        reporter.over(&Ending::Failed("bad data".into()), None);
        let last = reporter.due(facts()).expect("due");
        let said = (last.state, last.reason.as_deref());
        assert_eq!(said, (Some(State::Failed), Some("bad data")));
        reporter.written(false);
        assert!(!reporter.is_written());
        assert!(reporter.due(facts()).is_some(), "written again");
        reporter.written(true);
        assert!(reporter.is_written());
    }

    #[test]
    fn requests_are_repeated_until_they_show() {
        let mut reporter = StatusReporter::new(Duration::ZERO);
        assert_eq!(reporter.requests(&progress(State::Running, 1)), []);
        (reporter.wanted, reporter.stop) = (Some(3), true);
        assert_eq!(
            reporter.requests(&progress(State::Running, 1)),
            [AdminRequest::Workers(3), AdminRequest::Stop]
        );
        reporter.wanted = Some(2);
        reporter.wanted_servers = Some(3);
        assert_eq!(
            reporter.requests(&progress(State::Stopping, 1)),
            [],
            "a run without servers gets none"
        );
        let served = JobProgress { wanted_servers: 2, ..progress(State::Stopping, 1) };
        assert_eq!(reporter.requests(&served), [AdminRequest::Servers(3)]);
        assert_eq!(reporter.requests(&progress(State::Completed, 1)), []);
    }

    #[test]
    fn goodput_is_counted_over_masters() {
        let mut counted = Goodput::default();
        counted.add(80.0, true, StepCount(90));
        counted.add(20.0, false, StepCount(90));
        let before = JobProgress { counted: Some(counted), ..progress(State::Running, 90) };
        let mut reporter = StatusReporter::new(Duration::ZERO);
        reporter.take_over(Some(before));
        reporter.take(progress(State::Running, 50));
        let told = reporter.due(PodFacts::default()).expect("due");
        assert_eq!((told.goodput, told.counted), (Some(0.8), Some(counted)));
        let text = serde_json::to_string(&told).expect("written");
        assert_eq!(JobProgress::from_annotation(&text), Some(told), "another may go on with it");
        let mut first = StatusReporter::new(Duration::ZERO);
        first.take_over(None);
        first.take(progress(State::Running, 1));
        assert_eq!(first.due(PodFacts::default()).expect("due").goodput, None);
    }

    #[test]
    fn a_run_that_ends_before_the_first_question_tells_what_it_did() {
        let mut reporter = StatusReporter::new(Duration::from_secs(1_000));
        let epoch = crate::milestones::Epoch { steps: StepCount(16), ..Default::default() };
        reporter.note(Milestones { epochs: vec![epoch], ..Milestones::default() });
        reporter.over(&Ending::Completed, None);
        let told = reporter.due(PodFacts::default()).expect("its end");
        assert_eq!(
            (told.contract, told.step, told.milestones.epochs.len()),
            (Some(CONTRACT), Some(StepCount(16)), 1)
        );
    }

    #[test]
    fn what_was_done_since_the_last_question_counts_at_the_end() {
        let mut reporter = StatusReporter::new(Duration::from_secs(1_000));
        reporter.take(progress(State::Running, 17));
        let epoch = Epoch { epoch: 1, steps: StepCount(20), ..Epoch::default() };
        reporter.note(Milestones { epochs: vec![epoch], ..Milestones::default() });
        assert_eq!(reporter.due(PodFacts::default()).expect("due").step, Some(StepCount(17)));
        reporter.written(true);
        reporter.over(&Ending::Completed, None);
        let last = reporter.due(PodFacts::default()).expect("due");
        assert_eq!((last.step, last.epoch), (Some(StepCount(20)), Some(1)));
    }

    #[test]
    fn a_checkpoint_that_was_kept_after_the_last_question_is_shown_at_the_end() {
        let mut reporter = StatusReporter::new(Duration::from_secs(1_000));
        let checkpoint = Some("step-17".to_string());
        reporter.take(JobProgress { checkpoint, ..progress(State::Running, 17) });
        reporter.over(&Ending::Completed, Some("step-20".to_string()));
        let last = reporter.due(PodFacts::default()).expect("due");
        assert_eq!(last.checkpoint.as_deref(), Some("step-20"));
        reporter.written(true);
        reporter.over(&Ending::Completed, None);
        assert!(reporter.due(PodFacts::default()).is_none() && reporter.is_written(), "it stays");
    }
}
