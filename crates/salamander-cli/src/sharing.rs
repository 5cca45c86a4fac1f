//! Evaluation and prediction by several processes: the option, the bar, and Ctrl-C.

use std::process::ExitCode;
use std::sync::OnceLock;

use anyhow::Result;
use salamander_run::{Error, Sharing, TaskEvent};

use crate::signals::Signals;
use crate::ui::TaskBar;

#[derive(clap::Args)]
pub(crate) struct SharingArgs {
    /// Share the work among so many processes; the result is the same [default: this one alone]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    workers: Option<u32>,
}

/// For the exit code of a process that was asked to stop.
static SIGNALS: OnceLock<Signals> = OnceLock::new();

impl SharingArgs {
    /// Does the work, with a bar where several processes share it.
    pub(crate) fn with<T>(
        &self,
        word: &'static str,
        work: impl FnOnce(Option<Sharing<'_>>) -> T,
    ) -> Result<T> {
        let Some(workers) = self.workers else { return Ok(work(None)) };
        let signals = Signals::install()?;
        let signals = SIGNALS.get_or_init(|| signals);
        let mut bar = None;
        let mut watch = |event| match (event, &mut bar) {
            (TaskEvent::Planned(tasks), bar) => *bar = Some(TaskBar::new(word, tasks)),
            (TaskEvent::Done, Some(bar)) => bar.done(),
            (TaskEvent::Note(text), Some(bar)) => bar.note(&text),
            _ => {}
        };
        let done = work(Some(Sharing { workers, stop: &signals.stop, watch: &mut watch }));
        bar.iter().for_each(TaskBar::finish);
        Ok(done)
    }
}

/// The end of what did not come to its end.
pub(crate) fn stopped(error: Error) -> Result<ExitCode> {
    match (error, SIGNALS.get()) {
        (Error::Interrupted, Some(signals)) => Ok(ExitCode::from(signals.exit_code())),
        (error, _) => Err(error.into()),
    }
}
