//! Which of the master's notes people look for with `kubectl describe`, and what else is read from them.

use kube::runtime::events::EventType;

/// A note as an event.
#[derive(Debug)]
pub(super) struct ToldNote {
    pub(super) type_: EventType,
    pub(super) reason: &'static str,
    /// What it is about: events that are about different things are not made one.
    pub(super) about: String,
}

/// A kind of note: whom it is about and what becomes of him, what it says besides, and the event's reason.
struct Kind {
    who: &'static str,
    how: &'static str,
    besides: &'static str,
    reason: &'static str,
    warning: bool,
}

const fn kind(who: &'static str, how: &'static str, reason: &'static str, warning: bool) -> Kind {
    Kind { who, how, besides: "", reason, warning }
}

const KINDS: [Kind; 6] = [
    kind("worker ", " refused: ", "WorkerRefused", true),
    kind("worker ", " dropped: ", "WorkerDropped", false),
    kind("worker ", " replaced: ", "WorkerReplaced", true),
    kind("slot ", ": its process does not answer", "ProcessReplaced", true),
    kind("parameter server ", " wants to leave", "ServerLeaves", false),
    Kind {
        who: "generation ",
        how: " began: ",
        besides: ", from checkpoint ",
        reason: "WentBackToCheckpoint",
        warning: false,
    },
];

/// The event that a note becomes, if people want to know of it.
pub(super) fn is_told(note: &str) -> Option<ToldNote> {
    KINDS.iter().find_map(|kind| {
        let (about, rest) = note.split_once(kind.how)?;
        let name = about.strip_prefix(kind.who)?;
        let is_of_kind = !name.contains(' ') && rest.contains(kind.besides);
        let type_ = if kind.warning { EventType::Warning } else { EventType::Normal };
        let about = about.replace(' ', "-");
        is_of_kind.then_some(ToldNote { type_, reason: kind.reason, about })
    })
}

/// The checkpoint that counts from now on, if the note says so.
pub(super) fn kept(note: &str) -> Option<&str> {
    let (id, _) = note.strip_prefix("checkpoint ")?.split_once(" kept")?;
    (!id.contains(' ')).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_want_to_know_is_told_and_the_rest_is_not() {
        let check = |note: &str, expected: Option<(&str, &str)>| {
            let told = is_told(note);
            let told = told.as_ref().map(|told| (told.reason, told.about.as_str()));
            assert_eq!(told, expected, "{note}");
        };
        let reason = "its data differs from the others'";
        check(&format!("worker 00ab refused: {reason}"), Some(("WorkerRefused", "worker-00ab")));
        let killed = "worker 00ab dropped: its process was killed";
        check(killed, Some(("WorkerDropped", "worker-00ab")));
        let silent = "worker 00ab replaced: it was silent for too long";
        check(silent, Some(("WorkerReplaced", "worker-00ab")));
        let slot = "slot 3: its process does not answer, replaced";
        check(slot, Some(("ProcessReplaced", "slot-3")));
        let leaves = "parameter server 1 wants to leave: a checkpoint is taken first";
        check(leaves, Some(("ServerLeaves", "parameter-server-1")));
        let back = "generation 2.7 began: 3 members, from checkpoint step-00000040, after 12 ms";
        check(back, Some(("WentBackToCheckpoint", "generation-2.7")));
        check("generation 1.1 began: 3 members, from a new model, after 12 ms", None);
        check("generation 1.2 began: 3 members, from version 7 of worker 00ab, after 12 ms", None);
        check("worker 00ab joined: slot 0, process 7", None);
        check("worker 00ab: slot 0, process 7 crashed: it was replaced: by another", None);
        check("checkpoint step-00000040 kept, version 40", None);
        check("3 workers wanted", None);
    }

    #[test]
    fn the_checkpoint_that_was_kept_is_read_from_its_note() {
        assert_eq!(kept("checkpoint step-00000040 kept, version 40"), Some("step-00000040"));
        assert_eq!(kept("checkpoint step-00000040 kept"), Some("step-00000040"));
        assert_eq!(kept("worker 00ab dropped: checkpoint x kept"), None);
        assert_eq!(kept("3 workers wanted"), None);
    }
}
