//! What a person sees while a model trains.

mod bar;
mod follow;
mod hparams;
#[cfg(feature = "kube")]
mod job;
mod summary;
mod table;
mod tasks;

use std::time::{Duration, Instant};

pub(crate) use bar::{Bar, MANY_FILES, show_indexing};
pub(crate) use follow::RunDisplay;
pub(crate) use hparams::hparams_line;
#[cfg(feature = "kube")]
pub(crate) use job::job_line;
pub(crate) use summary::print_summary;
pub(crate) use table::EpochTable;
pub(crate) use tasks::TaskBar;

/// Plain lines come at most this often.
const EVERY: Duration = Duration::from_secs(2);

/// Keeps plain lines apart.
#[derive(Default)]
struct LinePause {
    said: Option<Instant>,
}

impl LinePause {
    /// The first line waits, too.
    fn from_now() -> Self {
        Self { said: Some(Instant::now()) }
    }

    /// Whether a line is to be printed now; the last one is in any case.
    fn is_due(&mut self, last: bool) -> bool {
        let is_due = last || self.said.is_none_or(|said| said.elapsed() >= EVERY);
        if is_due {
            self.said = Some(Instant::now());
        }
        is_due
    }
}

/// `0:07`, `12:34`, `1:02:03`.
pub(crate) fn clock(seconds: f64) -> String {
    let whole = if seconds.is_finite() { seconds.max(0.0).round() as u64 } else { 0 };
    let (hours, minutes, seconds) = (whole / 3600, whole / 60 % 60, whole % 60);
    match hours {
        0 => format!("{minutes:02}:{seconds:02}"),
        _ => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}
