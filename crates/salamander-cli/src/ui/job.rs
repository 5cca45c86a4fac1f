//! A job of a cluster as it is seen from outside: what its master tells now and then drives the same bar and table as a
//! run on this machine.

use indicatif::ProgressBar;
use salamander_core::metrics::{Metric, Metrics};
use salamander_kube::client::View;
use salamander_kube::milestones::{Epoch, Plan, Values};
use salamander_kube::progress::Progress;
use salamander_train::callback::{Callback, EpochReport, Start, StepReport};
use serde_json::{Value, json};

use super::{Advance, Bar, EpochTable, Out};

/// Shows a job.
pub(crate) struct JobFollower {
    bar: Bar,
    table: EpochTable,
    handle: Option<ProgressBar>,
    head: String,
    plan: Option<Plan>,
    /// The steps that are shown, and those at the end of the last row of the table.
    steps: u64,
    row: Option<u64>,
    epoch: Option<u64>,
}

impl JobFollower {
    pub(crate) fn new(out: Out) -> Self {
        let bar = Bar::new();
        let handle = bar.handle();
        let table = EpochTable::new(out, bar.handle());
        let (head, plan, steps, row, epoch) = (String::new(), None, 0, None, None);
        Self { bar, table, handle, head, plan, steps, row, epoch }
    }

    /// Shows how the job stands.
    pub(crate) fn take(&mut self, view: &View) {
        let head = view.head();
        if head != self.head {
            match &self.handle {
                Some(bar) => bar.println(&head),
                None => eprintln!("{head}"),
            }
            self.head = head;
        }
        let Some(progress) = &view.progress else { return };
        if let (None, Some(plan)) = (&self.plan, &progress.milestones.plan) {
            let start = start(plan, progress);
            // What was done before anybody looked says nothing about the pace.
            self.steps = start.done;
            self.bar.training_start(&start);
            self.plan = Some(plan.clone());
        }
        self.show_epochs(&progress.milestones.epochs);
        self.show_step(progress);
    }

    fn show_epochs(&mut self, epochs: &[Epoch]) {
        for epoch in epochs {
            if self.row.is_none_or(|row| epoch.steps > row) {
                self.row = Some(epoch.steps);
                let report = report(epoch);
                self.table.epoch_end(&report);
                self.bar.epoch_end(&report);
            }
        }
    }

    fn show_step(&mut self, progress: &Progress) {
        let (Some(plan), Some(steps)) = (&self.plan, progress.step) else { return };
        let moved = steps.saturating_sub(self.steps);
        self.steps = steps;
        if moved == 0 || plan.steps_per_epoch == 0 {
            return;
        }
        let epoch = (steps - 1) / plan.steps_per_epoch;
        if self.epoch != Some(epoch) {
            self.epoch = Some(epoch);
            self.bar.epoch_start(epoch);
        }
        let records = plan.records * moved / plan.steps_per_epoch;
        let step = StepReport {
            epoch,
            step: (steps - 1) % plan.steps_per_epoch,
            steps,
            batches: steps,
            records,
            loss: progress.loss.unwrap_or(f64::NAN),
            learning_rate: 0.0,
            gradient_norm: None,
            skipped: false,
            loss_scale: None,
        };
        self.bar.moved(&step, Advance { steps: moved, records });
    }

    /// The job is over.
    pub(crate) fn finish(&mut self) {
        self.bar.training_end(&salamander_train::progress::Progress::default());
    }
}

/// The object that the command line's contract describes, as far as a job can be seen from outside.
pub(crate) fn job_line(job: &str, folder: &str, state: &str, view: &View) -> Value {
    let progress = view.progress.clone().unwrap_or_default();
    let milestones = &progress.milestones;
    let last = milestones.epochs.last().cloned().unwrap_or_default();
    let plan = milestones.plan.clone().unwrap_or_default();
    let steps = progress.step.unwrap_or(0).max(last.steps);
    let epochs = milestones.epochs.iter().filter(|epoch| epoch.complete).map(|e| e.epoch + 1).max();
    let resource = view.resource.as_ref().and_then(|resource| resource.status.clone());
    let masters = resource.and_then(|status| status.restarts).map_or(0, |all| all.master);
    let records = plan.records * steps / plan.steps_per_epoch.max(1);
    json!({
        "run": job,
        "dir": folder,
        "state": state,
        "error": progress.reason,
        "steps": steps,
        "records": records,
        "epochs": epochs.unwrap_or(0),
        "metrics": {"training": last.training, "validation": last.validation.unwrap_or_default()},
        "checkpoint": progress.checkpoint,
        "workers": progress.wanted,
        "restarts": {
            "worker": progress.restarts,
            "ps": progress.server_restarts,
            "master": masters,
        },
        "ledger": milestones.ledger,
        "job": view.json(),
    })
}

fn start(plan: &Plan, progress: &Progress) -> Start {
    Start {
        done: progress.step.unwrap_or(0),
        total: plan.total,
        total_batches: plan.total_batches,
        steps_per_epoch: plan.steps_per_epoch,
        epochs: plan.epochs,
        records: plan.records,
        parameters: plan.parameters,
        workers: u64::from(progress.workers),
        leads: true,
    }
}

fn report(epoch: &Epoch) -> EpochReport {
    EpochReport {
        epoch: epoch.epoch,
        complete: epoch.complete,
        steps: epoch.steps,
        training: metrics(&epoch.training),
        validation: epoch.validation.as_ref().map(metrics),
        seconds: epoch.seconds,
        best: false,
    }
}

/// Values whose parts nobody needs any more.
fn metrics(values: &Values) -> Metrics {
    let add = |all: Metrics, (name, value): (&String, &Option<f64>)| {
        all.with(name, Metric::mean(value.unwrap_or(f64::NAN), 1.0))
    };
    values.iter().fold(Metrics::new(), add)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(progress: Progress) -> View {
        View { resource: None, progress: Some(progress), pods: Vec::new() }
    }

    #[test]
    fn a_job_is_shown_step_by_step_and_epoch_by_epoch() {
        let plan =
            Plan { total: 40, steps_per_epoch: 20, epochs: 2, records: 100, ..Plan::default() };
        let mut progress =
            Progress { state: "running".into(), step: Some(7), ..Progress::default() };
        progress.milestones.plan = Some(plan);
        let mut follower = JobFollower::new(Out::Stderr);
        follower.take(&view(progress.clone()));
        assert_eq!((follower.steps, follower.epoch, follower.row), (7, None, None));
        let training: Values = [("loss".to_string(), Some(0.5))].into();
        let epoch = Epoch { complete: true, steps: 20, training, ..Epoch::default() };
        progress.milestones.epochs.push(epoch.clone());
        progress.step = Some(23);
        follower.take(&view(progress.clone()));
        follower.take(&view(progress.clone()));
        assert_eq!((follower.steps, follower.epoch, follower.row), (23, Some(1), Some(20)));
        // Back to a checkpoint: the bar waits, and rows are not told twice.
        progress.step = Some(21);
        follower.take(&view(progress.clone()));
        assert_eq!((follower.steps, follower.row), (21, Some(20)));
        follower.finish();
        let line = job_line("j", "/runs/j", "completed", &view(progress));
        assert_eq!(
            (&line["steps"], &line["records"], &line["epochs"]),
            (&json!(21), &json!(105), &json!(1))
        );
        assert_eq!(line["metrics"]["training"]["loss"], 0.5);
        assert_eq!(report(&epoch).training.values()["loss"], 0.5);
    }
}
