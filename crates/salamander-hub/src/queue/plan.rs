//! Who runs, who waits and who has to go: a pure function of what is wanted, what is there, and how many slots there
//! are.
//!
//! States follow from wishes and facts each time anew, so that none can stick.

use crate::ids::ExperimentId;
use crate::operation::Wanted;
use crate::store::experiments::ExperimentJob;

/// Ends of a process without a word, or by a full disk, that are tolerated, each followed by a resume.
pub(super) const MAX_FAULTS: i64 = 30;
/// The exit code of a `train` that `salamander stop` or Ctrl-C has ended.
pub(super) const STOPPED: i32 = 130;
/// The exit code of a `train` whose disk is full.
const DISK_FULL: i32 = 74;
/// How the system's words for that end; where nobody knows the exit code, the summary may have them.
const DISK_FULL_WORDS: &str = "(os error 28)";

/// An experiment, as the queue sees it.
#[derive(Clone, Debug)]
pub(super) struct Queued {
    pub(super) id: ExperimentId,
    pub(super) wanted: Wanted,
    /// The smaller number comes first.
    pub(super) priority: i64,
    /// Slots that it needs, and that it can use.
    pub(super) slots: u32,
    pub(super) max_slots: u32,
    /// The slots of its process, while there is one.
    pub(super) running: Option<u32>,
    /// Whether its process was asked to go, to make room.
    pub(super) leaving: bool,
}

impl Queued {
    /// A job with what is wanted of it, and the slots of its process.
    pub(super) fn of(job: &ExperimentJob, wanted: Wanted, running: Option<u32>) -> Self {
        Self {
            id: job.id,
            wanted,
            priority: job.priority,
            slots: job.slots.max(1) as u32,
            max_slots: job.max_slots.max(1) as u32,
            running,
            leaving: false,
        }
    }
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum QueueAction {
    /// Its process is started, or resumed, with so many slots.
    Start(ExperimentId, u32),
    /// Its process is asked to end with a checkpoint, because somebody wants it.
    Interrupt(ExperimentId),
    /// The same, because another one comes first: it goes on later.
    Preempt(ExperimentId),
    /// Its process is ended at once.
    Kill(ExperimentId),
}

/// What follows, for experiments that are not over.
pub(super) fn plan(queued: &[Queued], slots: u32) -> Vec<QueueAction> {
    let mut steps = Vec::new();
    for one in queued.iter().filter(|one| one.running.is_some()) {
        match one.wanted {
            Wanted::Run => {}
            Wanted::Paused | Wanted::Canceled => steps.push(QueueAction::Interrupt(one.id)),
            Wanted::Killed | Wanted::Deleted => steps.push(QueueAction::Kill(one.id)),
        }
    }
    // Those who leave have their slots until they are gone.
    let held = |one: &Queued| one.running.unwrap_or(0);
    let mut free = i64::from(slots) - queued.iter().map(|one| i64::from(held(one))).sum::<i64>();
    let mut waiting: Vec<&Queued> = queued
        .iter()
        .filter(|one| one.wanted == Wanted::Run && one.running.is_none() && one.slots <= slots)
        .collect();
    waiting.sort_by_key(|one| (one.priority, one.id));
    for one in waiting {
        if i64::from(one.slots) <= free {
            let given = i64::from(one.max_slots.max(one.slots)).min(free);
            free -= given;
            steps.push(QueueAction::Start(one.id, given as u32));
            continue;
        }
        preempt_for(one, free, queued, &mut steps);
        // Whoever comes later waits, too: a large one would never find room among small ones.
        break;
    }
    steps
}

/// Asks those to leave that come later, the last ones first, if that makes room.
fn preempt_for(one: &Queued, free: i64, queued: &[Queued], steps: &mut Vec<QueueAction>) {
    let on_their_way: i64 = queued
        .iter()
        .filter(|other| other.leaving || other.wanted != Wanted::Run)
        .filter_map(|other| other.running.map(i64::from))
        .sum();
    let mut missing = i64::from(one.slots) - free - on_their_way;
    let mut later: Vec<&Queued> = queued
        .iter()
        .filter(|other| other.wanted == Wanted::Run && other.running.is_some() && !other.leaving)
        .filter(|other| other.priority > one.priority)
        .collect();
    later.sort_by_key(|other| std::cmp::Reverse((other.priority, other.id)));
    let mut leave = Vec::new();
    for other in later {
        if missing <= 0 {
            break;
        }
        missing -= i64::from(other.running.unwrap_or(0));
        leave.push(QueueAction::Preempt(other.id));
    }
    if missing <= 0 {
        steps.append(&mut leave);
    }
}

/// How a process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct QueueProcessEnd {
    /// What its folder says: `completed`, `failed`, `interrupted`, or nothing where there is none.
    pub(super) fact: Option<(String, Option<String>)>,
    /// Its exit code, where this hub was its parent and it has one.
    pub(super) code: Option<i32>,
    /// What it said last of what went wrong.
    pub(super) error: Option<String>,
    /// Whether it was asked to leave.
    pub(super) asked: bool,
    /// Whether somebody else than this hub has stopped it, with `salamander stop` or Ctrl-C. A SIGTERM of others is
    /// nobody's wish: a machine that goes down sends it to all.
    pub(super) stopped: bool,
}

impl QueueProcessEnd {
    /// Whether only room on a disk was missing.
    pub(super) fn is_disk_full(&self) -> bool {
        let told = self.fact.as_ref().and_then(|(_, reason)| reason.as_deref());
        match self.code {
            Some(code) => code == DISK_FULL,
            None => told.is_some_and(|reason| reason.contains(DISK_FULL_WORDS)),
        }
    }
}

/// Where an experiment stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ExperimentStanding {
    pub(super) state: &'static str,
    pub(super) reason: Option<String>,
    /// How often its process has ended without a word, where that has changed.
    pub(super) faults: Option<i64>,
}

/// Where an experiment with a process stands.
pub(super) fn with_process(wanted: Wanted) -> &'static str {
    match wanted {
        Wanted::Run => "running",
        Wanted::Paused => "pausing",
        Wanted::Canceled => "stopping_canceled",
        Wanted::Killed | Wanted::Deleted => "stopping_killed",
    }
}

/// Where an experiment stands after its process has ended.
pub(super) fn after(wanted: Wanted, ended: &QueueProcessEnd, faults: i64) -> ExperimentStanding {
    let fact = ended.fact.as_ref().map(|(state, _)| state.as_str());
    let said = || ended.fact.as_ref().and_then(|(_, reason)| reason.clone());
    let standing = |state, reason| ExperimentStanding { state, reason, faults: None };
    match (fact, wanted) {
        (Some("completed"), _) => standing("completed", None),
        (_, Wanted::Canceled | Wanted::Killed | Wanted::Deleted) => {
            standing("canceled", Some(format!("it was {}", wanted.as_str())))
        }
        (_, Wanted::Paused) if ended.is_disk_full() => standing("paused", None),
        // Before what its summary says: a disk that is full now will not always be.
        (_, Wanted::Run) if ended.is_disk_full() && faults < MAX_FAULTS => ExperimentStanding {
            state: "queued",
            reason: Some("its disk was full; it is tried again, from its last checkpoint".into()),
            faults: Some(faults + 1),
        },
        (Some("failed"), _) => standing("failed", said()),
        (_, Wanted::Paused) => standing("paused", None),
        (_, Wanted::Run) if ended.stopped => standing(
            "paused",
            Some("it was stopped by hand; `salamander experiment activate` goes on with it".into()),
        ),
        // It refused to begin, or to go on: the same would happen again.
        (_, Wanted::Run)
            if matches!(ended.code, Some(code) if code != 0 && code < 128) && !ended.asked =>
        {
            let silent = || format!("its process ended with code {}", ended.code.unwrap_or(0));
            standing("failed", Some(ended.error.clone().unwrap_or_else(silent)))
        }
        (_, Wanted::Run) if ended.asked => {
            standing("queued", Some("it made room for another".into()))
        }
        (_, Wanted::Run) if faults >= MAX_FAULTS => {
            let reason = format!("its process ended {} times without a word", faults + 1);
            standing("failed", Some(reason))
        }
        (_, Wanted::Run) => ExperimentStanding {
            state: "queued",
            reason: Some("its process was killed; it goes on from its last checkpoint".into()),
            faults: Some(faults + 1),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(id: i64, priority: i64, slots: (u32, u32), running: Option<u32>) -> Queued {
        Queued {
            id: ExperimentId(id),
            wanted: Wanted::Run,
            priority,
            slots: slots.0,
            max_slots: slots.1,
            running,
            leaving: false,
        }
    }

    #[test]
    fn the_first_of_the_queue_start_and_a_large_one_is_not_passed() {
        let queued = [one(1, 42, (1, 1), None), one(2, 42, (3, 3), None), one(3, 42, (1, 1), None)];
        assert_eq!(plan(&queued, 3), [QueueAction::Start(ExperimentId(1), 1)]);
        let queued = [one(1, 42, (1, 8), None), one(2, 1, (1, 1), None)];
        let steps =
            [QueueAction::Start(ExperimentId(2), 1), QueueAction::Start(ExperimentId(1), 3)];
        assert_eq!(plan(&queued, 4), steps, "a search takes what is left");
    }

    #[test]
    fn who_comes_first_makes_others_leave_once_and_only_if_it_helps() {
        let mut queued = vec![
            one(1, 42, (1, 1), Some(1)),
            one(2, 50, (1, 1), Some(1)),
            one(3, 10, (1, 1), None),
        ];
        assert_eq!(plan(&queued, 2), [QueueAction::Preempt(ExperimentId(2))]);
        queued[1].leaving = true;
        assert_eq!(plan(&queued, 2), []);
        let queued =
            [one(1, 5, (2, 2), Some(2)), one(2, 50, (1, 1), Some(1)), one(3, 10, (2, 2), None)];
        assert_eq!(plan(&queued, 3), [], "one slot would not be enough");
        let queued = [one(1, 42, (1, 1), Some(1)), one(2, 42, (1, 1), None)];
        assert_eq!(plan(&queued, 1), [], "equals wait");
    }

    #[test]
    fn wishes_become_signals() {
        let wish = |wanted| Queued { wanted, ..one(1, 42, (1, 1), Some(1)) };
        assert_eq!(plan(&[wish(Wanted::Paused)], 1), [QueueAction::Interrupt(ExperimentId(1))]);
        assert_eq!(plan(&[wish(Wanted::Killed)], 1), [QueueAction::Kill(ExperimentId(1))]);
        let paused = Queued { running: None, ..wish(Wanted::Paused) };
        assert_eq!(plan(&[paused], 1), []);
    }

    #[test]
    fn an_end_is_what_the_folder_says_and_what_was_wanted() {
        let ended = |fact: Option<&str>, code| QueueProcessEnd {
            fact: fact.map(|state| (state.to_string(), Some("why".to_string()))),
            code,
            error: Some("no such model".into()),
            asked: false,
            stopped: false,
        };
        let check = |wanted, ended: &QueueProcessEnd, faults, state, left| {
            let standing = after(wanted, ended, faults);
            assert_eq!((standing.state, standing.faults), (state, left), "{wanted:?} {ended:?}");
            standing.reason
        };
        check(Wanted::Paused, &ended(Some("completed"), Some(0)), 0, "completed", None);
        check(Wanted::Paused, &ended(Some("interrupted"), Some(130)), 0, "paused", None);
        check(Wanted::Killed, &ended(Some("interrupted"), None), 0, "canceled", None);
        let reason = check(Wanted::Run, &ended(Some("failed"), Some(1)), 0, "failed", None);
        assert_eq!(reason.as_deref(), Some("why"));
        let reason = check(Wanted::Run, &ended(None, Some(1)), 0, "failed", None);
        assert_eq!(reason.as_deref(), Some("no such model"));
        check(Wanted::Run, &ended(Some("interrupted"), None), 2, "queued", Some(3));
        check(Wanted::Run, &ended(Some("interrupted"), None), MAX_FAULTS, "failed", None);
        let asked = QueueProcessEnd { asked: true, ..ended(Some("interrupted"), Some(143)) };
        check(Wanted::Run, &asked, 2, "queued", None);
        // A machine that goes down is no wish, `salamander stop` is one.
        check(Wanted::Run, &ended(Some("interrupted"), Some(143)), 2, "queued", Some(3));
        let stopped = QueueProcessEnd { stopped: true, ..ended(Some("interrupted"), Some(130)) };
        let reason = check(Wanted::Run, &stopped, 2, "paused", None);
        assert!(reason.is_some_and(|reason| reason.contains("activate")));
        let stopped = QueueProcessEnd { stopped: true, ..ended(Some("failed"), Some(1)) };
        check(Wanted::Run, &stopped, 2, "failed", None);
    }

    #[test]
    fn a_full_disk_is_no_failure_of_an_experiment() {
        let ended = |state: &str, why: &str, code| QueueProcessEnd {
            fact: Some((state.to_string(), Some(why.to_string()))),
            code,
            error: None,
            asked: false,
            stopped: false,
        };
        let check = |wanted, ended: &QueueProcessEnd, faults, state, left| {
            let standing = after(wanted, ended, faults);
            assert_eq!((standing.state, standing.faults), (state, left), "{wanted:?} {ended:?}");
        };
        // Its summary may say anything, or nothing, since there was no room for it.
        for state in ["failed", "interrupted"] {
            let full = ended(state, "why", Some(DISK_FULL));
            check(Wanted::Run, &full, 2, "queued", Some(3));
            check(Wanted::Paused, &full, 2, "paused", None);
            check(Wanted::Killed, &full, 2, "canceled", None);
            check(Wanted::Run, &full, MAX_FAULTS, "failed", None);
        }
        let words = "runs/a: No space left on device (os error 28)";
        check(Wanted::Run, &ended("failed", words, None), 0, "queued", Some(1));
        check(Wanted::Run, &ended("failed", words, Some(1)), 0, "failed", None);
    }
}
