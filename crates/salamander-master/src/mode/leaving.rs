//! Parameter servers that were told to end: each stays until a checkpoint that was begun since then counts, and ends
//! without it only when its platform does not wait any longer. Until it has ended nobody trains on: what is done after
//! that checkpoint would have to be done again.

use std::collections::BTreeMap;

use salamander_core::elastic::{ToMember, WorkerId};

use super::Effect;

/// How far each of them is.
#[derive(Default)]
pub(super) struct LeavingServers(BTreeMap<WorkerId, Leave>);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Leave {
    /// It wants to.
    Wanted,
    /// A checkpoint was asked for since then.
    Asked,
    /// It may.
    Allowed,
}

impl LeavingServers {
    /// One more wants to leave.
    pub(super) fn add(&mut self, id: WorkerId) {
        self.0.entry(id).or_insert(Leave::Wanted);
    }

    /// It has left.
    pub(super) fn remove(&mut self, id: WorkerId) {
        self.0.remove(&id);
    }

    /// Whether somebody waits for a checkpoint.
    pub(super) fn waits(&self) -> bool {
        self.0.values().any(|leave| *leave != Leave::Allowed)
    }

    /// Whether somebody is about to leave.
    pub(super) fn holds(&self) -> bool {
        !self.0.is_empty()
    }

    /// Asks for a checkpoint for those who want one; `ask` says whether one will be begun from now on.
    pub(super) fn ask(&mut self, ask: impl FnOnce() -> bool) {
        if self.0.values().any(|leave| *leave == Leave::Wanted) && ask() {
            self.0.values_mut().filter(|leave| **leave == Leave::Wanted).for_each(|leave| {
                *leave = Leave::Asked;
            });
        }
    }

    /// A checkpoint counts: those may go that it was asked for.
    pub(super) fn release(&mut self) -> Vec<Effect> {
        let mut free = Vec::new();
        for (id, leave) in self.0.iter_mut().filter(|(_, leave)| **leave == Leave::Asked) {
            *leave = Leave::Allowed;
            free.push(Effect::Send(*id, ToMember::Stop));
        }
        free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_leaves_is_waited_for_until_it_is_gone() {
        let mut leaving = LeavingServers::default();
        let (first, second) = (WorkerId(1), WorkerId(2));
        leaving.add(first);
        leaving.ask(|| false);
        assert!(leaving.release().is_empty(), "a checkpoint of before has not all of its rows");
        leaving.ask(|| true);
        leaving.add(second);
        assert_eq!(leaving.release().len(), 1);
        assert!(leaving.waits() && leaving.holds());
        leaving.ask(|| true);
        assert_eq!(leaving.release().len(), 1);
        assert!(!leaving.waits() && leaving.holds(), "they are told, and not gone");
        leaving.remove(first);
        leaving.remove(second);
        assert!(!leaving.holds());
    }
}
