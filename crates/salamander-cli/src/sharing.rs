//! Evaluation and prediction by several processes: the option, the bar, and Ctrl-C.

use std::process::ExitCode;

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

impl SharingArgs {
    /// Whether several processes were asked for.
    #[cfg(feature = "flow")]
    pub(crate) fn is_shared(&self) -> bool {
        self.workers.is_some()
    }

    /// Does the work, with a bar where several processes share it; an exit code where it was asked to stop.
    pub(crate) fn with<T>(
        &self,
        word: &'static str,
        work: impl FnOnce(Option<Sharing<'_>>) -> Result<T, Error>,
    ) -> Result<Result<T, ExitCode>> {
        let Some(workers) = self.workers else { return Ok(Ok(work(None)?)) };
        let signals = Signals::install()?;
        let mut bar = None;
        let mut watch = |event| match (event, &mut bar) {
            (TaskEvent::Planned(tasks), bar) => *bar = Some(TaskBar::new(word, tasks)),
            (TaskEvent::Done, Some(bar)) => bar.done(),
            (TaskEvent::Note(text), Some(bar)) => bar.note(&text),
            _ => {}
        };
        let done = work(Some(Sharing { workers, stop: &signals.stop, watch: &mut watch }));
        bar.iter().for_each(TaskBar::finish);
        match done {
            Err(Error::Interrupted) => Ok(Err(ExitCode::from(signals.exit_code()))),
            done => Ok(Ok(done?)),
        }
    }
}
