//! A job as any other run: what its master tells now and then becomes the events of a run on this machine.

use salamander_core::progress::StepCount;
use salamander_core::report::{Report, Start, StepReport};
use salamander_kube::client::View;
use salamander_kube::progress::JobProgress;

use crate::Event;

/// What was told of a job so far.
#[derive(Default)]
pub(super) struct JobEvents {
    head: String,
    plan: Option<Start>,
    /// The steps that were told, and those at the end of the last epoch that was.
    steps: StepCount,
    epoch_end: Option<StepCount>,
}

impl JobEvents {
    /// Of a job whose epochs were told up to these steps.
    pub(super) fn after(epoch_end: Option<StepCount>) -> Self {
        Self { epoch_end, ..Self::default() }
    }

    /// What is new in how a job stands.
    pub(super) fn take(&mut self, view: &View) -> Vec<Event> {
        let mut events = Vec::new();
        let head = view.head();
        if head != self.head {
            events.push(Event::Note(head.clone()));
            self.head = head;
        }
        let Some(progress) = &view.progress else { return events };
        if let (None, Some(plan)) = (&self.plan, &progress.milestones.plan) {
            // What was done before anybody looked says nothing about the pace.
            self.steps = progress.step.unwrap_or_default();
            let start = Start { done: self.steps, ..plan.clone() };
            self.plan = Some(start.clone());
            events.push(Event::Report(Report::Start(start)));
        }
        for epoch in &progress.milestones.epochs {
            if self.epoch_end.is_none_or(|end| epoch.steps > end) {
                self.epoch_end = Some(epoch.steps);
                events.push(Event::Report(Report::Epoch(epoch.into())));
            }
        }
        events.extend(self.step(progress).map(|step| Event::Report(Report::Step(step))));
        events
    }

    /// The last step, with the records of all since the one before it.
    fn step(&mut self, progress: &JobProgress) -> Option<StepReport> {
        let (plan, steps) = (self.plan.as_ref()?, progress.step?);
        let moved = steps.since(self.steps);
        self.steps = steps;
        if moved == 0 || plan.steps_per_epoch == 0 {
            return None;
        }
        Some(StepReport {
            epoch: (steps.0 - 1) / plan.steps_per_epoch,
            step: (steps.0 - 1) % plan.steps_per_epoch,
            steps,
            batches: steps.0,
            records: plan.records * moved / plan.steps_per_epoch,
            loss: progress.loss.unwrap_or(f64::NAN),
            ..StepReport::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use salamander_core::status::State;
    use salamander_kube::milestones::Epoch;

    use super::*;

    fn view(progress: &JobProgress) -> View {
        View { resource: None, progress: Some(progress.clone()), pods: Vec::new() }
    }

    /// The steps of each report, by its kind.
    fn told(events: &mut JobEvents, progress: &JobProgress) -> Vec<(&'static str, u64)> {
        let steps = |event| match event {
            Event::Report(Report::Start(start)) => Some(("start", start.done.0)),
            Event::Report(Report::Step(step)) => Some(("step", step.steps.0)),
            Event::Report(Report::Epoch(epoch)) => Some(("epoch", epoch.steps.0)),
            _ => None,
        };
        events.take(&view(progress)).into_iter().filter_map(steps).collect()
    }

    #[test]
    fn a_job_is_told_step_by_step_and_epoch_by_epoch() {
        let plan = Start {
            total: StepCount(40),
            steps_per_epoch: 20,
            epochs: 2,
            records: 100,
            ..Start::default()
        };
        let mut progress = JobProgress {
            state: Some(State::Running),
            step: Some(StepCount(7)),
            ..JobProgress::default()
        };
        progress.milestones.plan = Some(plan);
        let mut events = JobEvents::default();
        assert_eq!(told(&mut events, &progress), [("start", 7)]);
        let epoch = Epoch { complete: true, steps: StepCount(20), ..Epoch::default() };
        progress.milestones.epochs.push(epoch);
        progress.step = Some(StepCount(23));
        assert_eq!(told(&mut events, &progress), [("epoch", 20), ("step", 23)]);
        assert_eq!(told(&mut events, &progress), []);
        // Back to a checkpoint: steps are told when they go on, and epochs not twice.
        progress.step = Some(StepCount(21));
        assert_eq!(told(&mut events, &progress), []);
        progress.step = Some(StepCount(22));
        let next = events.take(&view(&progress));
        let Some(Event::Report(Report::Step(step))) = next.last() else { panic!("{next:?}") };
        assert_eq!((step.epoch, step.step, step.records), (1, 1, 5));
    }
}
