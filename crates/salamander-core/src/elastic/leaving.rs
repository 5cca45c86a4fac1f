//! Parameter servers that were told to end: each stays until a checkpoint that was begun since then counts, and ends
//! without it only when its platform does not wait any longer. Until it has ended nobody trains on: what is done after
//! that checkpoint would have to be done again.

use std::collections::BTreeMap;

use super::WorkerId;

/// How far each of them is.
#[derive(Clone, Debug, Default)]
pub struct LeavingServers(BTreeMap<WorkerId, Leave>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    pub fn add(&mut self, id: WorkerId) {
        self.0.entry(id).or_insert(Leave::Wanted);
    }

    /// It has left.
    pub fn remove(&mut self, id: WorkerId) {
        self.0.remove(&id);
    }

    /// Those that are not there any more have left.
    pub fn retain(&mut self, is_there: impl Fn(WorkerId) -> bool) {
        self.0.retain(|id, _| is_there(*id));
    }

    /// Whether somebody waits for a checkpoint.
    pub fn waits(&self) -> bool {
        self.0.values().any(|leave| *leave != Leave::Allowed)
    }

    /// Whether somebody is about to leave.
    pub fn holds(&self) -> bool {
        !self.0.is_empty()
    }

    /// Whether this one may leave, and has not left as far as is known.
    pub fn may_leave(&self, id: WorkerId) -> bool {
        self.0.get(&id) == Some(&Leave::Allowed)
    }

    /// Asks for a checkpoint for those who want one; `ask` says whether one will be begun from now on.
    pub fn ask(&mut self, ask: impl FnOnce() -> bool) {
        if self.0.values().any(|leave| *leave == Leave::Wanted) && ask() {
            self.0.values_mut().filter(|leave| **leave == Leave::Wanted).for_each(|leave| {
                *leave = Leave::Asked;
            });
        }
    }

    /// A checkpoint counts: those may go that it was asked for, who are named once.
    pub fn release(&mut self) -> Vec<WorkerId> {
        let mut free = Vec::new();
        for (id, leave) in self.0.iter_mut().filter(|(_, leave)| **leave == Leave::Asked) {
            *leave = Leave::Allowed;
            free.push(*id);
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
        assert_eq!(leaving.release(), [first]);
        assert!(leaving.waits() && leaving.holds() && !leaving.may_leave(second));
        leaving.ask(|| true);
        assert_eq!(leaving.release(), [second]);
        assert!(!leaving.waits() && leaving.holds(), "they are told, and not gone");
        assert!(leaving.may_leave(first) && leaving.may_leave(second));
        leaving.remove(first);
        leaving.retain(|id| id != second);
        assert!(!leaving.holds());
    }
}
