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
use salamander_train::trainer::KeptData;

use crate::connect::{Scale, scale};
use crate::roles::{Exit, leave_on_signals, say_why};
use crate::{Draft, Error, Overrides, Program, TrainsOn};

/// What a process says on its standard input, a line to its search, when its trial has paused.
pub(super) const PAUSED: &str = "paused";
/// What its search says if the trial may go on, and then in which slot. When the line is closed, the process is to end.
pub(super) const GO_ON: &str = "go on in slot ";

/// How often a wish to leave, or another width, is looked for.
const LOOK: Duration = Duration::from_millis(50);

/// The slot of its search that a trial trains in.
#[derive(Clone, Debug, Default)]
pub(crate) struct TrialSlot {
    /// Its number, from 0: of several devices each slot has its own.
    pub(crate) number: u32,
    /// Whether this process has tried the model on two records already, with the same hyperparameters.
    pub(crate) is_tried: bool,
    /// What the parts of the trial before have opened.
    pub(crate) kept_data: KeptData,
}

pub(crate) fn trial(
    program: &Program,
    run: &RunLayout,
    on: &TrainsOn,
    slot: u32,
) -> Result<Exit, Error> {
    let exit = match train_on(program, run, on, slot) {
        Err(error) if error.refuses_hparams() => (error, Exit::Refused),
        Err(error) if error.is_disk_full() => (error, Exit::DiskFull),
        Err(error) if is_of_the_system(&error) => (error, Exit::SystemFailed),
        Err(error) if diverges(&error) => (error, Exit::Diverged),
        other => return other,
    };
    // What its search quotes.
    say_why(&exit.0);
    Ok(exit.1)
}

/// Trains from pause to pause.
fn train_on(
    program: &Program,
    layout: &RunLayout,
    on: &TrainsOn,
    slot: u32,
) -> Result<Exit, Error> {
    let leave = leave_on_signals()?;
    let line = rustix::io::fcntl_dupfd_cloexec(std::io::stdin(), 0).map(UnixStream::from);
    let mut line =
        line.map(BufReader::new).map_err(|errno| Error::system("no line")(errno.into()))?;
    let (mut slot, mut tried, kept_data) = (slot, None, KeptData::default());
    loop {
        let mut draft = program.resume(
            &layout.folder().to_string_lossy(),
            &Overrides::default(),
            layout.folder(),
            &mut |note: String| tracing::info!("{note}"),
        )?;
        let hparams = Some(draft.experiment().hyperparameters.to_json());
        let (is_tried, kept_data) = (tried == hparams, kept_data.clone());
        draft.slot = TrialSlot { number: slot, is_tried, kept_data };
        tried = hparams;
        let exit = train(draft, layout, on, &leave)?;
        let next = if exit == Exit::Done { may_go_on(&mut line) } else { None };
        let Some(next) = next else { return Ok(exit) };
        slot = next;
        if leave.load(Ordering::Relaxed) {
            return Ok(Exit::Left);
        }
    }
}

/// Tells the search that the trial has paused, and waits for its word: the slot to go on in. Also without a search it
/// is to end.
fn may_go_on(line: &mut BufReader<UnixStream>) -> Option<u32> {
    line.get_mut().write_all(format!("{PAUSED}\n").as_bytes()).ok()?;
    let mut word = String::new();
    line.read_line(&mut word).ok()?;
    word.strip_prefix(GO_ON)?.strip_suffix('\n')?.parse().ok()
}

/// Trains to the next pause.
fn train(
    draft: Draft,
    layout: &RunLayout,
    on: &TrainsOn,
    leave: &Arc<AtomicBool>,
) -> Result<Exit, Error> {
    let elastic = on.is_this_machine() && draft.experiment().strategy == Strategy::Allreduce;
    let mut width = draft.experiment().workers.max;
    let run = draft.on(on.clone()).start()?;
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
