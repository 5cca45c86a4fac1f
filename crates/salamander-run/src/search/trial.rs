//! The process of a trial: trains the run of its folder to where the search looks at it, says so, and goes on if it is
//! told to.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use salamander_core::experiment::Strategy;
use salamander_core::layout::RunLayout;
use serde_json::Value as Json;

use crate::connect::{Scale, scale};
use crate::roles::{Exit, leave_on_signals};
use crate::{Error, Overrides, Program, TrainsOn};

/// What a process says on its standard input, a line to its search, when its trial has paused.
pub(super) const PAUSED: &str = "paused";
/// What its search says if the trial may go on. When the line is closed, the process is to end.
pub(super) const GO_ON: &[u8] = b"go on\n";

/// How often a wish to leave, or another width, is looked for.
const LOOK: Duration = Duration::from_millis(50);

pub(crate) fn trial(program: &Program, run: &RunLayout, on: &TrainsOn) -> Result<Exit, Error> {
    let exit = match train_on(program, run, on) {
        Err(error) if error.refuses_hparams() => (error, Exit::Refused),
        Err(error) if is_of_the_system(&error) => (error, Exit::SystemFailed),
        Err(error) if diverges(&error) => (error, Exit::Diverged),
        other => return other,
    };
    // The last line of a process's log is what its search quotes.
    eprintln!("error: {}", exit.0);
    Ok(exit.1)
}

/// Trains from pause to pause.
fn train_on(program: &Program, layout: &RunLayout, on: &TrainsOn) -> Result<Exit, Error> {
    let leave = leave_on_signals()?;
    let line = rustix::io::fcntl_dupfd_cloexec(std::io::stdin(), 0).map(UnixStream::from);
    let mut line =
        line.map(BufReader::new).map_err(|errno| Error::system("no line")(errno.into()))?;
    let mut tried = None;
    loop {
        let exit = train(program, layout, on, &leave, &mut tried)?;
        if exit != Exit::Done || !may_go_on(&mut line) {
            return Ok(exit);
        }
        if leave.load(Ordering::Relaxed) {
            return Ok(Exit::Left);
        }
    }
}

/// Tells the search that the trial has paused, and waits for its word; also without a search it is to end.
fn may_go_on(line: &mut BufReader<UnixStream>) -> bool {
    let mut word = Vec::new();
    let told = line.get_mut().write_all(format!("{PAUSED}\n").as_bytes());
    told.is_ok() && line.read_until(b'\n', &mut word).is_ok() && word == GO_ON
}

/// Trains to the next pause. With hyperparameters that this process has trained with, the model is not tried on two
/// records again.
fn train(
    program: &Program,
    layout: &RunLayout,
    on: &TrainsOn,
    leave: &Arc<AtomicBool>,
    tried: &mut Option<Json>,
) -> Result<Exit, Error> {
    let folder = layout.folder().to_string_lossy().into_owned();
    let note = &mut |note: String| tracing::info!("{note}");
    let mut draft = program.resume(&folder, &Overrides::default(), layout.folder(), note)?;
    let hparams = Some(draft.experiment().hyperparameters.to_json());
    draft.is_tried = *tried == hparams;
    *tried = hparams;
    let draft = draft.on(on.clone());
    let elastic = on.is_this_machine() && draft.experiment().strategy == Strategy::Allreduce;
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

/// Whether training has left the numbers. It has the same bits whenever it is done again, and comes to the same.
fn diverges(error: &Error) -> bool {
    use salamander_train::Error as TrainError;
    matches!(error, Error::Train(TrainError::NotANumber { .. } | TrainError::Overflow(_)))
}
