//! Decides what is told about a run and when, and what the master is told that people want. No clock but the
//! one it is given by `Instant`s.

use std::time::Duration;

use salamander_core::elastic::Ending;
use tokio::time::Instant;

use super::clerk::Wish;
use crate::milestones::Milestones;
use crate::progress::{Goodput, Progress};

/// What is known of a run, and what of it was told.
pub(super) struct Herald {
    every: Duration,
    /// How many workers people want.
    pub(super) wanted: Option<u32>,
    /// How many parameter servers people want.
    pub(super) wanted_servers: Option<u32>,
    /// Whether people want it to stop.
    pub(super) stop: bool,
    progress: Option<Progress>,
    told: Option<Progress>,
    telling: Option<Progress>,
    last: Option<Instant>,
    asked: Option<Instant>,
    goodput: Goodput,
}

impl Herald {
    pub(super) fn new(every: Duration) -> Self {
        Self {
            every,
            wanted: None,
            wanted_servers: None,
            stop: false,
            progress: None,
            told: None,
            telling: None,
            last: None,
            asked: None,
            goodput: Goodput::default(),
        }
    }

    /// What the master must still be told.
    pub(super) fn wishes(&self, progress: &Progress) -> Vec<Wish> {
        if progress.ended().is_some() {
            return Vec::new();
        }
        let workers = self.wanted.filter(|wanted| *wanted > 0 && *wanted != progress.wanted);
        let servers = self.wanted_servers.filter(|wanted| {
            *wanted > 0 && progress.wanted_servers > 0 && *wanted != progress.wanted_servers
        });
        let stop = (self.stop && progress.state != "stopping").then_some(Wish::Stop);
        let wishes = [workers.map(Wish::Workers), servers.map(Wish::Servers), stop];
        wishes.into_iter().flatten().collect()
    }

    /// The master's own words.
    pub(super) fn take(&mut self, mut progress: Progress) {
        let now = Instant::now();
        let passed = self.asked.map_or(0.0, |asked| (now - asked).as_secs_f64());
        self.asked = Some(now);
        self.goodput.add(passed, progress.state == "running" && progress.step.is_some());
        if let Some(known) = &self.progress {
            // A master that was started again has no report yet.
            progress.step = progress.step.or(known.step);
            progress.epoch = progress.epoch.or(known.epoch);
            progress.loss = progress.loss.or(known.loss);
            progress.milestones = known.milestones.clone();
        }
        progress.goodput = self.goodput.value();
        self.progress = Some(progress);
    }

    /// What the run told on its way.
    pub(super) fn note(&mut self, milestones: Milestones) {
        // A master that was started again has heard of less than the one before; its followers have not.
        if let Some(progress) = &mut self.progress {
            progress.milestones = milestones;
            catch_up(progress);
        }
    }

    /// The run is over.
    pub(super) fn over(&mut self, ending: &Ending) {
        let progress = self.progress.get_or_insert_default();
        let (state, reason) = match ending {
            Ending::Completed => ("completed", None),
            Ending::Interrupted => ("interrupted", None),
            Ending::Failed(reason) => ("failed", Some(reason.clone())),
        };
        (progress.state, progress.reason) = (state.to_string(), reason);
        progress.workers = 0;
        catch_up(progress);
    }

    /// What is to be told now.
    pub(super) fn news(
        &mut self,
        (pending, waiting, last_crash): (u32, Option<String>, Option<String>),
    ) -> Option<Progress> {
        let progress = self.progress.as_mut()?;
        (progress.pending, progress.waiting) = (pending, waiting);
        progress.last_crash = last_crash;
        if self.telling.is_some() || self.told.as_ref() == Some(progress) {
            return None;
        }
        // A change of state is told at once, steps only now and then: each telling is written to the cluster's store.
        let same = self.told.as_ref().is_some_and(|told| told.state == progress.state);
        if same && self.last.is_some_and(|last| last.elapsed() < self.every) {
            return None;
        }
        self.last = Some(Instant::now());
        self.telling = Some(progress.clone());
        self.telling.clone()
    }

    /// The cluster has it, or not.
    pub(super) fn heard(&mut self, heard: bool) {
        let telling = self.telling.take();
        if heard {
            self.told = telling;
        }
    }

    /// Whether the last words were heard.
    pub(super) fn is_heard(&self) -> bool {
        self.told.is_some() && self.told == self.progress
    }
}

/// A run may end between two questions: its last epoch tells how far it came.
fn catch_up(progress: &mut Progress) {
    let last = progress.milestones.epochs.last();
    if progress.ended().is_some()
        && let Some(last) = last.filter(|last| Some(last.steps) > progress.step)
    {
        (progress.step, progress.epoch) = (Some(last.steps), Some(last.epoch));
    }
}

#[cfg(test)]
mod tests {
    use crate::milestones::Epoch;

    use super::*;

    fn progress(state: &str, step: u64) -> Progress {
        Progress { state: state.into(), step: Some(step), wanted: 2, ..Progress::default() }
    }

    #[test]
    fn steps_are_told_now_and_then_and_states_at_once() {
        let mut herald = Herald::new(Duration::from_secs(1_000));
        let facts = || (0, None, None);
        assert_eq!(herald.news(facts()), None);
        herald.take(progress("running", 1));
        assert_eq!(herald.news(facts()).expect("news").step, Some(1));
        assert_eq!(herald.news(facts()), None, "one at a time");
        herald.heard(true);
        herald.take(progress("running", 2));
        assert_eq!(herald.news(facts()), None, "too soon");
        herald.over(&Ending::Failed("bad data".into()));
        let last = herald.news(facts()).expect("news");
        assert_eq!((last.state.as_str(), last.reason.as_deref()), ("failed", Some("bad data")));
        herald.heard(false);
        assert!(!herald.is_heard());
        assert!(herald.news(facts()).is_some(), "told again");
        herald.heard(true);
        assert!(herald.is_heard());
    }

    #[test]
    fn wishes_are_repeated_until_they_show() {
        let mut herald = Herald::new(Duration::ZERO);
        assert_eq!(herald.wishes(&progress("running", 1)), []);
        (herald.wanted, herald.stop) = (Some(3), true);
        assert_eq!(herald.wishes(&progress("running", 1)), [Wish::Workers(3), Wish::Stop]);
        herald.wanted = Some(2);
        herald.wanted_servers = Some(3);
        assert_eq!(herald.wishes(&progress("stopping", 1)), [], "a run without servers gets none");
        let served = Progress { wanted_servers: 2, ..progress("stopping", 1) };
        assert_eq!(herald.wishes(&served), [Wish::Servers(3)]);
        assert_eq!(herald.wishes(&progress("completed", 1)), []);
    }

    #[test]
    fn what_was_done_since_the_last_question_counts_at_the_end() {
        let mut herald = Herald::new(Duration::from_secs(1_000));
        herald.take(progress("running", 17));
        let epoch = Epoch { epoch: 1, steps: 20, ..Epoch::default() };
        herald.note(Milestones { epochs: vec![epoch], ..Milestones::default() });
        assert_eq!(herald.news((0, None, None)).expect("news").step, Some(17));
        herald.heard(true);
        herald.over(&Ending::Completed);
        let last = herald.news((0, None, None)).expect("news");
        assert_eq!((last.step, last.epoch), (Some(20), Some(1)));
    }
}
