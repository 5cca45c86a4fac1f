//! Which of the master's notes people look for with `kubectl describe`.

use kube::runtime::events::EventType;
use salamander_core::note::NoteTopic;

/// A note as an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ToldNote {
    pub(super) type_: EventType,
    pub(super) reason: &'static str,
    /// What it is about: events that are about different things are not made one.
    pub(super) about: String,
    pub(super) text: String,
}

/// The event that a note becomes, if people want to know of it.
pub(super) fn told(topic: &NoteTopic, text: &str) -> Option<ToldNote> {
    use EventType::{Normal, Warning};
    let (type_, reason, about) = match topic {
        NoteTopic::WorkerRefused(id) => (Warning, "WorkerRefused", format!("worker-{id}")),
        NoteTopic::WorkerDropped(id) => (Normal, "WorkerDropped", format!("worker-{id}")),
        NoteTopic::WorkerReplaced(id) => (Warning, "WorkerReplaced", format!("worker-{id}")),
        NoteTopic::ProcessReplaced(slot) => (Warning, "ProcessReplaced", format!("slot-{slot}")),
        NoteTopic::ServerLeaves(seat) => {
            (Normal, "ServerLeaves", format!("parameter-server-{seat}"))
        }
        NoteTopic::WentBack(generation) => {
            (Normal, "WentBackToCheckpoint", format!("generation-{generation}"))
        }
        NoteTopic::CheckpointKept(_) => return None,
    };
    Some(ToldNote { type_, reason, about, text: text.to_string() })
}

#[cfg(test)]
mod tests {
    use salamander_core::elastic::{Generation, Term, WorkerId};

    use super::*;

    #[test]
    fn what_people_want_to_know_is_told_and_the_rest_is_not() {
        let check = |topic: NoteTopic, expected: Option<(&str, &str)>| {
            let told = told(&topic, "why");
            assert!(told.iter().all(|told| told.text == "why"));
            let told = told.as_ref().map(|told| (told.reason, told.about.as_str()));
            assert_eq!(told, expected, "{topic:?}");
        };
        let worker = WorkerId(0xab);
        let about = "worker-00000000000000ab";
        check(NoteTopic::WorkerRefused(worker), Some(("WorkerRefused", about)));
        check(NoteTopic::WorkerDropped(worker), Some(("WorkerDropped", about)));
        check(NoteTopic::WorkerReplaced(worker), Some(("WorkerReplaced", about)));
        check(NoteTopic::ProcessReplaced(3), Some(("ProcessReplaced", "slot-3")));
        check(NoteTopic::ServerLeaves(1), Some(("ServerLeaves", "parameter-server-1")));
        let generation = Generation { term: Term(2), number: 7 };
        let back = Some(("WentBackToCheckpoint", "generation-2.7"));
        check(NoteTopic::WentBack(generation), back);
        check(NoteTopic::CheckpointKept("step-00000040".to_string()), None);
    }
}
