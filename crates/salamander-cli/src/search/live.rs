//! The table of a search that goes on: on a terminal it is drawn again and again, elsewhere there are plain lines.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use salamander_run::SearchStanding;
use salamander_search::{SchedulerRule, TrialState};

use crate::out::Out;
use crate::ui::{clock, hparams_line};

/// How often the table is drawn.
const DRAW: Duration = Duration::from_millis(250);
/// Trials that train, at most; of more the oldest are shown.
const MOST_ROWS: usize = 12;

/// Shows how a search stands.
pub(super) struct LiveTable {
    /// Hidden where standard error is no terminal.
    bar: ProgressBar,
    out: Out,
    drawn: Option<Instant>,
}

impl LiveTable {
    pub(super) fn new(out: Out) -> Self {
        let bar = ProgressBar::no_length();
        if let Ok(style) = ProgressStyle::with_template("{msg}") {
            bar.set_style(style);
        }
        Self { bar, out, drawn: None }
    }

    /// Something has happened: a line above the table.
    pub(super) fn line(&mut self, line: &str) {
        self.bar.suspend(|| self.out.line(line));
    }

    pub(super) fn show(&mut self, standing: &SearchStanding<'_>) {
        let is_due = self.drawn.is_none_or(|drawn| drawn.elapsed() >= DRAW);
        if self.bar.is_hidden() || !is_due {
            return;
        }
        self.drawn = Some(Instant::now());
        let columns = usize::from(console_width());
        let lines = lines(standing).into_iter().map(|line| cut(&line, columns));
        self.bar.set_message(lines.collect::<Vec<String>>().join("\n"));
        self.bar.tick();
    }

    pub(super) fn finish(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Columns of the terminal that the table is drawn on.
fn console_width() -> u16 {
    let columns = rustix::termios::tcgetwinsize(std::io::stderr()).map_or(0, |size| size.ws_col);
    // A terminal may not know.
    if columns == 0 { 80 } else { columns }
}

/// A line that wraps would be drawn again and again.
fn cut(line: &str, columns: usize) -> String {
    match line.char_indices().nth(columns) {
        Some((end, _)) => line[..end].to_string(),
        None => line.to_string(),
    }
}

/// The table: how far the search is, its rungs, the best trial, and who trains.
fn lines(standing: &SearchStanding<'_>) -> Vec<String> {
    let SearchStanding { search, training, waiting, seconds } = standing;
    let method = search.method();
    let trials = search.trials();
    let over = trials
        .iter()
        .filter(|trial| !matches!(trial.state, TrialState::Running | TrialState::Paused));
    let progress = search.progress();
    let left = match progress > 0.0 {
        true => clock(seconds * (1.0 - progress) / progress),
        false => "?".to_string(),
    };
    let mut lines = vec![format!(
        "{:>3.0}% [{}<{left}] {} of {} trials over, {} training, {waiting} waiting",
        100.0 * progress,
        clock(*seconds),
        over.count(),
        method.max_trials.max(trials.len() as u64),
        training.len()
    )];
    if matches!(method.rule, SchedulerRule::Halving { .. } | SchedulerRule::Pasha { .. }) {
        let mut rungs: BTreeMap<u64, u64> = BTreeMap::new();
        for (length, _) in trials.iter().flat_map(|trial| &trial.reports) {
            *rungs.entry(*length).or_default() += 1;
        }
        let rungs: Vec<String> =
            rungs.iter().map(|(length, count)| format!("{count} at {length}")).collect();
        if !rungs.is_empty() {
            lines.push(format!("measured: {}", rungs.join(", ")));
        }
    }
    if let Some((best, value)) = search.best() {
        let hparams = hparams_line(&best.hparams());
        lines.push(format!("best: trial {} with {} {value} {hparams}", best.id, method.metric));
    }
    lines.push(format!("{:>5} {:>9} {:>7} {:>11}", "trial", "length", "workers", method.metric));
    for (id, width) in training.iter().take(MOST_ROWS) {
        let Some(trial) = search.trial(*id) else { continue };
        let length = format!("{}>{}", trial.length(), trial.until);
        let metric = trial.metric().map_or("-".to_string(), |metric| format!("{metric:.6}"));
        let hparams = hparams_line(&trial.hparams());
        lines.push(format!("{id:>5} {length:>9} {width:>7} {metric:>11} {hparams}"));
    }
    if training.len() > MOST_ROWS {
        lines.push(format!("and {} more", training.len() - MOST_ROWS));
    }
    lines
}

#[cfg(test)]
mod tests {
    use salamander_search::{SearchEvent, SearchFile, TrialId};

    use super::*;

    #[test]
    fn the_table_tells_trials_rungs_the_best_and_the_time_left() {
        let text = "searcher: {name: async_halving, num_rungs: 2, divisor: 2, max_trials: 4, \
                    max_length: {batches: 8}, max_concurrent_trials: 2, metric: loss}\n\
                    hyperparameters: {x: {choice: [1]}}";
        let file = SearchFile::parse(text, &[]).expect("valid");
        let mut search = file.search(1).expect("a search");
        search.begin();
        let report =
            |trial, metric| SearchEvent::Report { trial: TrialId(trial), length: 4, metric };
        search.arrive(report(1, 0.25));
        search.arrive(report(2, 0.5));
        let training = vec![(TrialId(1), 2), (TrialId(3), 1)];
        let standing = SearchStanding { search: &search, training, waiting: 0, seconds: 60.0 };
        assert_eq!(
            lines(&standing),
            [
                " 42% [01:00<01:24] 1 of 4 trials over, 2 training, 0 waiting",
                "measured: 2 at 4",
                "best: trial 1 with loss 0.25 x=1",
                "trial    length workers        loss",
                "    1       4>8       2    0.250000 x=1",
                "    3       0>4       1           - x=1",
            ]
        );
        assert_eq!(cut("äöü", 2), "äö");
    }
}
