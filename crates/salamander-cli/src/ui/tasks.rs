//! How many tasks are done: a bar on a terminal, elsewhere plain lines.

use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};

use super::{LinePause, clock};

/// Shows how far the tasks of a job are.
pub(crate) struct TaskBar {
    /// Hidden where standard error is no terminal.
    bar: ProgressBar,
    /// What is done.
    word: &'static str,
    total: u64,
    begun: Instant,
    pace: LinePause,
}

impl TaskBar {
    pub(crate) fn new(word: &'static str, total: u64) -> Self {
        let template = format!("{word}: {{percent:>3}}%|{{bar:30}}| {{pos}}/{{len}} tasks");
        let style = ProgressStyle::with_template(&template);
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = ProgressBar::new(total).with_style(style);
        Self { bar, word, total, begun: Instant::now(), pace: LinePause::from_now() }
    }

    /// One more is done.
    pub(crate) fn done(&mut self) {
        self.bar.inc(1);
        let (word, total, done) = (self.word, self.total, self.bar.position());
        if self.bar.is_hidden() && self.pace.is_due(done >= total) {
            let seconds = self.begun.elapsed().as_secs_f64();
            let left = clock(total.saturating_sub(done) as f64 * seconds / done as f64);
            errln!("{word}: task {done}/{total}, {left} left");
        }
    }

    /// Something that people may want to know.
    pub(crate) fn note(&self, text: &str) {
        self.bar.suspend(|| errln!("{text}"));
    }

    /// It is over.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
