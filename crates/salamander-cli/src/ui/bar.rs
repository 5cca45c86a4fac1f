//! The progress bar on a terminal; elsewhere plain lines, a few per minute.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use salamander_core::progress::StepCount;
use salamander_core::words::count;
use salamander_run::{Start, StepReport};

use super::{LinePause, clock};

/// A bar for fewer files would only flicker.
pub(crate) const MANY_FILES: u64 = 100;

/// Columns of the bar itself.
const WIDTH: usize = 8;

/// Shows how far training is, how fast it goes and how long it will take.
pub(crate) struct Bar {
    /// Hidden where standard error is no terminal.
    bar: ProgressBar,
    start: Option<Start>,
    begun: Instant,
    /// Steps done when a step was shown last.
    steps: StepCount,
    done: u64,
    records: u64,
    pace: LinePause,
}

impl Bar {
    pub(crate) fn new() -> Self {
        let (bar, begun) = (ProgressBar::no_length(), Instant::now());
        Self {
            bar,
            start: None,
            begun,
            steps: StepCount(0),
            done: 0,
            records: 0,
            pace: LinePause::default(),
        }
    }

    /// Prints something above the bar.
    pub(crate) fn above(&self, print: impl FnOnce()) {
        self.bar.suspend(print);
    }

    /// Shows a note. On a terminal, where the table stands above the bar, what happens all the time is shown in the bar
    /// only, and all else is set off from the table's columns.
    pub(crate) fn note(&self, text: &str) {
        match self.bar.is_hidden() {
            true => errln!("{text}"),
            false if is_routine(text) => self.bar.set_message(text.to_string()),
            false => self.above(|| errln!("        - {text}")),
        }
    }

    pub(crate) fn indexing(&mut self, files: u64, of: u64) {
        if of < MANY_FILES {
            return;
        }
        if !self.bar.is_hidden() {
            show_indexing(&self.bar, files, of);
        } else if self.pace.is_due(files == of) {
            errln!("indexing {files} of {of} files");
        }
    }

    pub(crate) fn training_start(&mut self, start: &Start) {
        (self.begun, self.pace, self.steps) = (Instant::now(), LinePause::default(), start.done);
        (self.done, self.records) = (0, 0);
        let before = self.start.replace(start.clone());
        if self.bar.is_hidden() {
            let parameters = count(start.parameters, "parameter");
            errln!("training {parameters} on {}", count(start.records, "record"));
        } else {
            // Of data that is still being written nobody knows how long it takes.
            self.bar.set_style(if is_known(start) { style() } else { open_ended() });
            if before.is_some_and(|before| !is_known(&before)) {
                self.bar.set_length(start.steps_per_epoch);
            }
            self.bar.enable_steady_tick(Duration::from_millis(250));
        }
    }

    pub(crate) fn epoch_start(&mut self, epoch: u64) {
        let Some(start) = &self.start else { return };
        let before = epoch * start.steps_per_epoch;
        self.bar.set_length(start.steps_per_epoch.min(start.total.since(StepCount(before))));
        self.bar.reset();
        self.bar.set_prefix(format!("epoch {}/{}", epoch + 1, start.epochs));
    }

    /// Shows a step, which may stand for several: a job of a cluster is looked at now and then only.
    pub(crate) fn step_end(&mut self, step: &StepReport) {
        self.done += step.steps.since(self.steps);
        self.steps = step.steps;
        self.records += step.records;
        let Some(start) = &self.start else { return };
        let seconds = self.begun.elapsed().as_secs_f64();
        let rate = self.records as f64 / seconds;
        let left = start.total.since(step.steps) as f64;
        let left = left * seconds / self.done.max(1) as f64;
        let left = is_known(start).then(|| clock(left));
        if !self.bar.is_hidden() {
            self.bar.set_position(step.step + 1);
            self.bar.set_message(message(seconds, left.as_deref(), step.loss, rate));
        } else if self.pace.is_due(step.steps == start.total) {
            let (epoch, number, loss) = (step.epoch + 1, step.step + 1, step.loss);
            let Start { epochs, steps_per_epoch, .. } = start;
            let of = left.as_ref().map_or(String::new(), |_| format!("/{steps_per_epoch}"));
            let left = left.map_or(String::new(), |left| format!(" {left} left"));
            errln!(
                "epoch {epoch}/{epochs} step {number}{of} loss {loss:.4} {rate:.0} records/s{left}"
            );
        }
    }

    pub(crate) fn validating(&self) {
        self.bar.set_message("validating");
    }

    pub(crate) fn epoch_end(&mut self) {
        self.pace = LinePause::default();
    }

    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
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

/// `epoch 1/2  22%|█▊      | 1020/4591 [00:20<01:13] loss 0.3012 980 rec/s`, which fits into 80 columns also when runs
/// are long, and is cut at the terminal's edge: a line that wraps is drawn again and again.
fn style() -> ProgressStyle {
    let template =
        format!("{{prefix}} {{percent:>3}}%|{{bar:{WIDTH}}}| {{pos}}/{{len}} {{wide_msg}}");
    ProgressStyle::with_template(&template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("█▉▊▋▌▍▎▏ ")
}

/// Where no end is known.
fn open_ended() -> ProgressStyle {
    ProgressStyle::with_template("{prefix} step {pos} {wide_msg}").unwrap_or_else(|_| style())
}

/// What stands behind the bar, the most wanted first: the time so far and what is left of the whole run.
fn message(seconds: f64, left: Option<&str>, loss: f64, rate: f64) -> String {
    let left = left.map_or(String::new(), |left| format!("<{left}"));
    format!("[{}{left}] loss {loss:.4} {rate:.0} rec/s", clock(seconds))
}

/// Whether it is known how long training takes.
fn is_known(start: &Start) -> bool {
    start.total > StepCount(0)
}

/// Whether a note tells what happens all the time.
fn is_routine(note: &str) -> bool {
    note.starts_with("checkpoint ") && note.contains(" kept")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_shows_the_time_left_of_the_whole_run() {
        let left = clock(3_700.0);
        let shown = message(20.0, Some(&left), 0.30119, 980.2);
        assert_eq!(shown, "[00:20<1:01:40] loss 0.3012 980 rec/s");
        assert_eq!(message(20.0, None, 0.30119, 980.2), "[00:20] loss 0.3012 980 rec/s");
    }

    #[test]
    fn the_bar_of_a_long_run_fits_into_80_columns() {
        let before = format!("epoch 10/100 100%|{}| 4591/4591 ", " ".repeat(WIDTH));
        let line = before + &message(4_833.0, Some(&clock(7_991.0)), 0.30119, 98_000.0);
        assert!(line.len() <= 80, "{line}");
    }

    #[test]
    fn only_kept_checkpoints_are_routine() {
        assert!(is_routine("checkpoint step-20 kept, version 20"));
        assert!(!is_routine("generation 1.2 began: 3 members, from checkpoint step-20"));
    }
}
