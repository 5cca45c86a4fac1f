//! Parameter servers that were told to end: each stays until a checkpoint that was begun since then counts, and ends
//! without it only when its platform does not wait any longer.

use std::collections::BTreeMap;

use salamander_core::elastic::{ToMember, WorkerId};

use super::Effect;

/// Those that wait, and whether a checkpoint was asked for since they do.
#[derive(Default)]
pub(super) struct LeavingServers(BTreeMap<WorkerId, bool>);

impl LeavingServers {
    /// One more wants to leave.
    pub(super) fn add(&mut self, id: WorkerId) {
        self.0.entry(id).or_insert(false);
    }

    /// It has left.
    pub(super) fn remove(&mut self, id: WorkerId) {
        self.0.remove(&id);
    }

    /// Whether nobody wants to leave.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Asks for a checkpoint for those who want one; `ask` says whether one will be begun from now on.
    pub(super) fn ask(&mut self, ask: impl FnOnce() -> bool) {
        if self.0.values().any(|asked| !asked) && ask() {
            self.0.values_mut().for_each(|asked| *asked = true);
        }
    }

    /// A checkpoint counts: those may go that it was asked for.
    pub(super) fn release(&mut self) -> Vec<Effect> {
        let free: Vec<WorkerId> =
            self.0.iter().filter(|(_, asked)| **asked).map(|(id, _)| *id).collect();
        free.iter().for_each(|id| self.remove(*id));
        free.into_iter().map(|id| Effect::Send(id, ToMember::Stop)).collect()
    }
}
