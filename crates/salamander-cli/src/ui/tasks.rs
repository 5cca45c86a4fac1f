//! How many tasks are done: a bar on a terminal, elsewhere plain lines.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use super::clock;

/// Plain lines come at most this often.
const EVERY: Duration = Duration::from_secs(2);

/// Shows how far the tasks of a job are.
pub(crate) struct TaskBar {
    bar: Option<ProgressBar>,
    /// What is done.
    word: &'static str,
    total: u64,
    done: u64,
    begun: Instant,
    said: Instant,
}

impl TaskBar {
    pub(crate) fn new(word: &'static str, total: u64) -> Self {
        let template = format!("{word}: {{percent:>3}}%|{{bar:30}}| {{pos}}/{{len}} tasks");
        let style = ProgressStyle::with_template(&template);
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
            ProgressBar::new(total).with_style(style)
        });
        let now = Instant::now();
        Self { bar, word, total, done: 0, begun: now, said: now }
    }

    /// One more is done.
    pub(crate) fn done(&mut self) {
        self.done += 1;
        let Self { word, total, done, .. } = *self;
        match &self.bar {
            Some(bar) => bar.set_position(done),
            None if done < total && self.said.elapsed() < EVERY => {}
            None => {
                self.said = Instant::now();
                let seconds = self.begun.elapsed().as_secs_f64();
                let left = (total.saturating_sub(done)) as f64 * seconds / done as f64;
                eprintln!("{word}: task {done}/{total}, {} left", clock(left));
            }
        }
    }

    /// Something that people may want to know.
    pub(crate) fn note(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(text),
            None => eprintln!("{text}"),
        }
    }

    /// It is over.
    pub(crate) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
