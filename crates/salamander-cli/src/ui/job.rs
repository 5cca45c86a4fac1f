//! The end of a job of a cluster, as far as it can be seen from outside.

use salamander_run::State;
use salamander_run::cluster::{EndedJob, folder};
use serde_json::{Value, json};

/// The object that the command line's contract describes.
pub(crate) fn job_line(job: &str, ended: &EndedJob) -> Value {
    let view = &ended.view;
    let progress = view.progress.clone().unwrap_or_default();
    let milestones = &progress.milestones;
    let last = milestones.epochs.last().cloned().unwrap_or_default();
    let plan = milestones.plan.clone().unwrap_or_default();
    let steps = progress.step.unwrap_or_default().max(last.steps);
    let epochs = milestones.epochs.iter().filter(|epoch| epoch.complete).map(|e| e.epoch + 1).max();
    let resource = view.resource.as_ref().and_then(|resource| resource.status.clone());
    let masters = resource.and_then(|status| status.restarts).map_or(0, |all| all.master);
    let records = plan.records * steps.0 / plan.steps_per_epoch.max(1);
    json!({
        "run": job,
        "dir": folder(job),
        "state": State::from(&ended.ending),
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

#[cfg(test)]
mod tests {
    use salamander_core::elastic::Ending;
    use salamander_core::progress::StepCount;
    use salamander_core::report::Start;
    use salamander_kube::client::View;
    use salamander_kube::milestones::Epoch;
    use salamander_kube::progress::JobProgress;

    use super::*;

    #[test]
    fn the_records_of_a_job_follow_from_its_steps() {
        let mut progress = JobProgress { step: Some(StepCount(21)), ..JobProgress::default() };
        let plan = Start { steps_per_epoch: 20, records: 100, ..Start::default() };
        progress.milestones.plan = Some(plan);
        let training = [("loss".to_string(), Some(0.5))].into();
        let epoch = Epoch { complete: true, steps: StepCount(20), training, ..Epoch::default() };
        progress.milestones.epochs.push(epoch);
        let view = View { resource: None, progress: Some(progress), pods: Vec::new() };
        let line = job_line("j", &EndedJob { ending: Ending::Completed, view });
        assert_eq!(
            (&line["steps"], &line["records"], &line["epochs"], &line["state"]),
            (&json!(21), &json!(105), &json!(1), &json!("completed"))
        );
        assert_eq!(
            (&line["dir"], &line["metrics"]["training"]["loss"]),
            (&json!("/runs/j"), &json!(0.5))
        );
    }
}
