//! The progress bar on a terminal; elsewhere plain lines, a few per minute.

use std::fmt::Write;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressState, ProgressStyle};
use salamander_train::callback::{Callback, Control, EpochReport, Start, StepReport};

use super::clock;

/// Plain lines come at most this often.
const EVERY: Duration = Duration::from_secs(2);

/// A bar for fewer files would only flicker.
pub(crate) const MANY_FILES: u64 = 100;

/// How much was done since a step was shown last.
pub(crate) struct Advance {
    pub(crate) steps: u64,
    pub(crate) records: u64,
}

/// Shows how far training is, how fast it goes and how long it will take.
pub(crate) struct Bar {
    bar: Option<ProgressBar>,
    start: Option<Start>,
    begun: Instant,
    done: u64,
    records: u64,
    said: Option<Instant>,
}

impl Bar {
    pub(crate) fn new() -> Self {
        let bar = std::io::stderr().is_terminal().then(ProgressBar::no_length);
        Self { bar, start: None, begun: Instant::now(), done: 0, records: 0, said: None }
    }

    /// The bar, so that other lines can be printed above it.
    pub(crate) fn handle(&self) -> Option<ProgressBar> {
        self.bar.clone()
    }

    /// Shows a step.
    pub(crate) fn moved(&mut self, step: &StepReport, since: Advance) {
        self.done += since.steps;
        self.records += since.records;
        let Some(start) = self.start.clone() else { return };
        match &self.bar {
            Some(bar) => {
                bar.set_position(step.step + 1);
                let rate = self.records as f64 / self.begun.elapsed().as_secs_f64();
                bar.set_message(format!("loss {:.4}, {rate:.0} records/s", step.loss));
            }
            None => self.line(step, &start),
        }
    }

    fn line(&mut self, step: &StepReport, start: &Start) {
        if self.said.is_some_and(|said| said.elapsed() < EVERY) && step.steps != start.total {
            return;
        }
        self.said = Some(Instant::now());
        let seconds = self.begun.elapsed().as_secs_f64();
        let rate = self.records as f64 / seconds;
        let left =
            start.total.saturating_sub(step.steps) as f64 * seconds / self.done.max(1) as f64;
        eprintln!(
            "epoch {}/{} step {}/{} loss {:.4} {rate:.0} records/s {} left",
            step.epoch + 1,
            start.epochs,
            step.step + 1,
            start.steps_per_epoch,
            step.loss,
            clock(left),
        );
    }
}

impl Callback for Bar {
    fn indexing(&mut self, files: u64, of: u64) {
        if of < MANY_FILES {
            return;
        }
        match &self.bar {
            Some(bar) => show_indexing(bar, files, of),
            None if files < of && self.said.is_some_and(|said| said.elapsed() < EVERY) => {}
            None => {
                self.said = Some(Instant::now());
                eprintln!("indexing {files} of {of} files");
            }
        }
    }

    fn training_start(&mut self, start: &Start) {
        self.begun = Instant::now();
        self.said = None;
        self.start = Some(start.clone());
        if let Some(bar) = &self.bar {
            bar.set_style(style());
            bar.enable_steady_tick(Duration::from_millis(250));
        } else {
            eprintln!("training {} parameters on {} records", start.parameters, start.records);
        }
    }

    fn epoch_start(&mut self, epoch: u64) {
        if let (Some(bar), Some(start)) = (&self.bar, &self.start) {
            let before = epoch * start.steps_per_epoch;
            bar.set_length(start.steps_per_epoch.min(start.total - before));
            bar.reset();
            bar.set_prefix(format!("epoch: {}/{}", epoch + 1, start.epochs));
        }
    }

    fn step_end(&mut self, step: &StepReport, _control: &mut Control) {
        self.moved(step, Advance { steps: 1, records: step.records });
    }

    fn validation_start(&mut self, _batches: u64) {
        if let Some(bar) = &self.bar {
            bar.set_message("validating");
        }
    }

    fn epoch_end(&mut self, _epoch: &EpochReport) {
        self.said = None;
    }

    fn training_end(&mut self, _progress: &salamander_train::progress::Progress) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Shows how many files are indexed.
pub(crate) fn show_indexing(bar: &ProgressBar, files: u64, of: u64) {
    if bar.length() != Some(of) {
        let template = "indexing: {percent:>3}%|{bar:30}| {pos}/{len} files";
        bar.set_style(ProgressStyle::with_template(template).unwrap_or_else(|_| style()));
        bar.set_length(of);
    }
    bar.set_position(files);
}

/// `epoch: 1/2:  22%|█████▏     | 1020/4591 [00:20<01:13, 48.7 steps/s]`
fn style() -> ProgressStyle {
    let template = "{prefix}: {percent:>3}%|{bar:30}| {pos}/{len} [{done}<{left}, {rate}] {msg}";
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("█▉▊▋▌▍▎▏ ")
        .with_key("done", |state: &ProgressState, out: &mut dyn Write| {
            let _ = out.write_str(&clock(state.elapsed().as_secs_f64()));
        })
        .with_key("left", |state: &ProgressState, out: &mut dyn Write| {
            let _ = out.write_str(&clock(state.eta().as_secs_f64()));
        })
        .with_key("rate", |state: &ProgressState, out: &mut dyn Write| {
            let _ = write!(out, "{:.1} steps/s", state.per_sec());
        })
}
