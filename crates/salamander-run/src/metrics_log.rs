//! The metrics file: one JSON object per line, for plots and programs.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;

use salamander_core::layout::RunLayout;
use salamander_core::progress::StepCount;
use salamander_core::report::Start;
use salamander_files::{Durability, replace};
use salamander_train::callback::{Callback, Control, EpochReport, StepReport};
use serde_json::{Value, json};

use crate::Error;
use crate::folder_status::note_plan;

/// Appends every step and every validation.
pub(crate) struct MetricsLog {
    file: File,
}

impl MetricsLog {
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let file = OpenOptions::new().create(true).append(true).open(path);
        Ok(Self { file: file.map_err(Error::io(path))? })
    }

    fn write(&mut self, value: &Value) {
        // A metrics line that cannot be written must not end a training; a full disk ends it with
        // the next checkpoint, where it matters.
        let _ = writeln!(self.file, "{value}");
    }
}

/// Keeps how long the run will be, for whoever looks at its folder.
pub(crate) struct PlanFile(pub(crate) RunLayout);

impl Callback for PlanFile {
    fn training_start(&mut self, start: &Start) {
        // Only for people who look: a disk so full that this fails ends the run with its next checkpoint.
        let _ = note_plan(&self.0, start);
    }
}

impl Callback for MetricsLog {
    fn step_end(&mut self, step: &StepReport, _control: &mut Control) {
        self.write(&json!({
            "kind": "step", "steps": step.steps, "epoch": step.epoch, "batches": step.batches,
            "records": step.records, "loss": step.loss, "learning_rate": step.learning_rate,
            "gradient_norm": step.gradient_norm, "skipped": step.skipped,
            "loss_scale": step.loss_scale, "time": now(),
        }));
    }

    fn epoch_end(&mut self, epoch: &EpochReport) {
        self.write(&json!({
            "kind": "epoch", "steps": epoch.steps, "epoch": epoch.epoch,
            "complete": epoch.complete, "training": epoch.training.values(),
            "validation": epoch.validation.as_ref().map(|metrics| metrics.values()),
            "seconds": epoch.seconds, "best": epoch.best, "time": now(),
        }));
    }
}

/// Seconds since 1970, to the millisecond: when a point was measured, for whoever draws it or passes it on later.
fn now() -> f64 {
    jiff::Timestamp::now().as_millisecond() as f64 / 1000.0
}

/// Drops the lines after a step: a resumed run goes through those steps again.
pub(crate) fn cut_after(path: &Path, steps: StepCount) -> Result<(), Error> {
    let Ok(text) = fs::read_to_string(path) else { return Ok(()) };
    let kept: String = text
        .lines()
        .filter(|line| {
            let value: Option<Value> = serde_json::from_str(line).ok();
            value.and_then(|value| value["steps"].as_u64()).is_some_and(|at| at <= steps.0)
        })
        .map(|line| format!("{line}\n"))
        .collect();
    replace(path, kept.as_bytes(), Durability::Synced).map_err(Error::io(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_after_the_checkpoint_go() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("metrics.jsonl");
        fs::write(&path, "{\"steps\":1}\n{\"steps\":2}\n{\"steps\":3}\n{\"st").expect("written");
        cut_after(&path, StepCount(2)).expect("cut");
        let left = fs::read_to_string(&path).expect("read");
        assert_eq!(left, "{\"steps\":1}\n{\"steps\":2}\n");
    }
}
