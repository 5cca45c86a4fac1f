//! The barrier between members on one host.
//!
//! Members that run on different cores spin for a moment, because waking a sleeper costs more than
//! what they usually wait, above all on virtual machines. A member that shares its core with
//! another one sleeps at once: while it spins, the other one cannot come.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use rustix::thread::{futex, sched_getcpu};

use super::segment::Segment;
use crate::Error;
use crate::cancel::SLICE;

/// Looks at the counter before a member sleeps: some 15 microseconds, which is less than waking it
/// takes.
const SPINS: u32 = 800;

/// Waits until all members, whose control segments these are, have come here. `check` runs now and
/// then while it sleeps and may fail; that counts only if somebody is missing even then.
pub(super) fn meet(
    controls: &[Segment],
    rank: usize,
    check: impl FnMut() -> Result<(), Error>,
) -> Result<(), Error> {
    let meeting = &controls[0].control().meeting;
    let count = &meeting.count.0;
    let size = controls.len() as u32;
    let is_crowded = is_crowded(controls, rank);
    // Nobody can end this meeting before this member has come.
    let before = count.load(SeqCst);
    let others = meeting.arrived.fetch_add(1, SeqCst);
    if others + 1 == size {
        meeting.arrived.store(0, SeqCst);
        count.store(before.wrapping_add(1), SeqCst);
        if meeting.sleepers.load(SeqCst) > 0 {
            futex::wake(count, futex::Flags::empty(), i32::MAX as u32)?;
        }
        return Ok(());
    }
    if others >= size {
        return Err(Error::Mismatch(format!("{others} of {size} members meet")));
    }
    for _ in 0..if is_crowded { 0 } else { SPINS } {
        if count.load(SeqCst) != before {
            return Ok(());
        }
        std::hint::spin_loop();
    }
    meeting.sleepers.fetch_add(1, SeqCst);
    let outcome = sleep(count, before, check);
    meeting.sleepers.fetch_sub(1, SeqCst);
    outcome
}

/// Tells the others on which core this member runs; whether another one was last seen there.
fn is_crowded(controls: &[Segment], rank: usize) -> bool {
    // Zero is for members that were not seen yet.
    let core = sched_getcpu() as u32 + 1;
    let mine = &controls[rank].control().core.0;
    if mine.load(Relaxed) != core {
        // Not written otherwise, so that the others keep it in their caches.
        mine.store(core, Relaxed);
    }
    let is_here = |control: &Segment| control.control().core.0.load(Relaxed) == core;
    controls.iter().enumerate().any(|(other, control)| other != rank && is_here(control))
}

fn sleep(
    count: &AtomicU32,
    before: u32,
    mut check: impl FnMut() -> Result<(), Error>,
) -> Result<(), Error> {
    let timeout = futex::Timespec { tv_sec: 0, tv_nsec: SLICE.subsec_nanos().into() };
    while count.load(SeqCst) == before {
        // It also ends when the number has changed or a signal came, which is seen above.
        let woken = futex::wait(count, futex::Flags::empty(), before, Some(&timeout));
        if woken == Err(rustix::io::Errno::TIMEDOUT)
            && let Err(error) = check()
            && count.load(SeqCst) == before
        {
            return Err(error);
        }
    }
    Ok(())
}
