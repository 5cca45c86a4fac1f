//! The process of a trial: trains the run of its folder to where the search looks at it.

use std::fs;
use std::io::ErrorKind;
use std::sync::atomic::Ordering;
use std::time::Duration;

use salamander_core::experiment::Strategy;
use salamander_core::layout::RunLayout;

use crate::connect::{Scale, scale};
use crate::roles::{Exit, leave_on_signals};
use crate::{Error, Overrides, Program};

/// How often a wish to leave, or another width, is looked for.
const LOOK: Duration = Duration::from_millis(50);

pub(crate) fn trial(program: &Program, run: &RunLayout) -> Result<Exit, Error> {
    let exit = match train(program, run) {
        Err(error) if error.refuses_hparams() => (error, Exit::Refused),
        Err(error) if is_of_the_system(&error) => (error, Exit::SystemFailed),
        other => return other,
    };
    // The last line of a process's log is what its search quotes.
    eprintln!("error: {}", exit.0);
    Ok(exit.1)
}

fn train(program: &Program, layout: &RunLayout) -> Result<Exit, Error> {
    let leave = leave_on_signals()?;
    let folder = layout.folder().to_string_lossy().into_owned();
    let note = &mut |note: String| tracing::info!("{note}");
    let draft = program.resume(&folder, &Overrides::default(), layout.folder(), note)?;
    let elastic = draft.experiment().strategy == Strategy::Allreduce;
    let mut width = draft.experiment().workers.max;
    let run = draft.start()?;
    while !run.is_over() {
        let _ = run.next_event(LOOK);
        if leave.load(Ordering::Relaxed) {
            run.stop();
        } else if let Some(wanted) = elastic.then(|| wanted_width(layout)).flatten()
            && wanted != width
        {
            // A master that does not answer yet is asked again.
            let workers = Some(wanted);
            if scale(layout, Scale { workers, servers: None }).is_ok() {
                width = wanted;
            }
        }
    }
    match run.wait()?.outcome.interrupted {
        true => Ok(Exit::Left),
        false => Ok(Exit::Done),
    }
}

/// How many workers the search wants this trial to have.
fn wanted_width(run: &RunLayout) -> Option<u32> {
    fs::read_to_string(run.width()).ok()?.trim().parse().ok()
}

/// Whether the machine failed, and not the run: it could go on later from where it is.
fn is_of_the_system(error: &Error) -> bool {
    let kind = match error {
        Error::Io { cause, .. } | Error::System { cause, .. } => cause.kind(),
        Error::Train(salamander_train::Error::Io { source, .. }) => source.kind(),
        _ => return false,
    };
    !matches!(kind, ErrorKind::NotFound | ErrorKind::PermissionDenied | ErrorKind::InvalidData)
}
