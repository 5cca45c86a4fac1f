//! The metrics file: one JSON object per line, for plots and programs.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use salamander_core::layout::RunLayout;
use salamander_core::progress::StepCount;
use salamander_core::report::Start;
use salamander_files::{Durability, replace};
use salamander_train::callback::{Callback, Control, EpochReport, StepReport};
use serde_json::{Value, json};

use crate::Error;
use crate::folder_status::note_plan;

/// The end of a file in which its last line is looked for.
const END: u64 = 64 << 10;

/// Appends every step and every validation. The file only grows, since others follow it.
pub(crate) struct MetricsLog {
    file: File,
    /// The last line, until something is told: who is killed between writing a line and noting that hears of it again.
    last: Option<Value>,
    /// Whether a crash or a full disk has left a part of a line at the end.
    torn: bool,
}

impl MetricsLog {
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let open = || -> io::Result<Self> {
            let file = OpenOptions::new().create(true).read(true).append(true).open(path)?;
            let (last, torn) = end_of(&file)?;
            Ok(Self { file, last, torn })
        };
        open().map_err(Error::io(path))
    }

    fn write(&mut self, value: &Value) {
        if self.last.take().is_some_and(|last| says_the_same(&last, value)) {
            return;
        }
        // In one piece: a process that is killed leaves all or nothing of it. What is torn is a line of its own.
        let line = format!("{}{value}\n", if self.torn { "\n" } else { "" });
        // A metrics line that cannot be written must not end a training; a full disk ends it with the next checkpoint,
        // where it matters.
        let written = self.file.write_all(line.as_bytes());
        self.torn = written.is_err() && end_of(&self.file).is_ok_and(|(_, torn)| torn);
    }
}

/// Whether two lines are of one report: it may have been told at another time.
fn says_the_same(last: &Value, now: &Value) -> bool {
    let fields = now.as_object().into_iter().flatten();
    let mut others = fields.filter(|(name, _)| !matches!(name.as_str(), "time" | "seconds"));
    others.all(|(name, value)| last.get(name) == Some(value))
}

/// The last whole line of a file, and whether there is something behind it.
fn end_of(file: &File) -> io::Result<(Option<Value>, bool)> {
    let length = file.metadata()?.len();
    let from = length.saturating_sub(END);
    let mut end = vec![0; (length - from) as usize];
    file.read_exact_at(&mut end, from)?;
    let whole = end.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let line = end[..whole].rsplit(|byte| *byte == b'\n').nth(1);
    Ok((line.and_then(|line| serde_json::from_slice(line).ok()), whole < end.len()))
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
    fn a_line_that_was_torn_spoils_none_and_one_that_is_told_again_is_written_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("metrics.jsonl");
        let line = |steps: u64| json!({"kind": "step", "steps": steps, "epoch": 0, "time": steps});
        let mut log = MetricsLog::open(&path).expect("new");
        log.write(&line(1));
        log.write(&line(2));
        let mut log = MetricsLog::open(&path).expect("opened");
        // Told again by others at another time.
        log.write(&json!({"kind": "step", "steps": 2, "epoch": 0, "time": 7}));
        log.write(&line(3));
        let mut log = MetricsLog::open(&path).expect("opened");
        log.write(&json!({"kind": "step", "steps": 3, "epoch": 0, "time": 7, "loss": 0.5}));
        let torn = fs::read_to_string(&path).expect("read") + "{\"kind\":\"st";
        fs::write(&path, &torn).expect("torn");
        let mut log = MetricsLog::open(&path).expect("opened");
        log.write(&line(4));
        log.write(&line(5));
        let text = fs::read_to_string(&path).expect("read");
        assert!(text.starts_with(&torn), "it only grows");
        let steps: Vec<u64> = text
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .map(|line| line["steps"].as_u64().expect("a number"))
            .collect();
        assert_eq!(steps, [1, 2, 3, 3, 4, 5], "another report of a step is none of the same");
        cut_after(&path, StepCount(4)).expect("cut");
        assert_eq!(fs::read_to_string(&path).expect("read").lines().count(), 5);
    }

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
