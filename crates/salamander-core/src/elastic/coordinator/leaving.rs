//! Parameter servers that want to leave a synchronous run. Members write a checkpoint and wait after it; then those
//! servers are let go, and nobody goes on before they have ended.

use super::{Coordinator, Phase};
use crate::elastic::{Fence, Generation, Millis, ToMember, WorkerId};

/// A generation whose members wait after a checkpoint.
#[derive(Clone, Copy, Debug)]
pub(super) struct WaitingMembers {
    generation: Generation,
    /// When its first member said so.
    since: Millis,
}

impl Coordinator {
    /// A server wants to leave, and stays until it is told that it may. Each master is told.
    pub fn server_leaves(&mut self, id: WorkerId) {
        if !self.run.servers().any(|(_, server)| server.id == id) {
            // It has no rows that anybody needs.
            return self.send(id, ToMember::Stop);
        }
        self.leaving.add(id);
        self.leaving.ask(|| true);
        // The checkpoint that members wait after has the rows of all servers.
        let waits = self.waiting.is_some_and(|waiting| self.is_current(waiting.generation));
        if waits || self.without == Some(Fence::Leave) {
            return self.let_go();
        }
        let members = self.run.history.order.clone();
        members.into_iter().for_each(|member| self.send(member, ToMember::Save));
    }

    /// A member may not have heard that a checkpoint is wanted.
    pub(super) fn ask_to_save(&mut self, member: WorkerId) {
        if self.leaving.waits() {
            self.send(member, ToMember::Save);
        }
    }

    /// All members of a generation wait after the checkpoint that was told last.
    pub(super) fn members_wait(&mut self, now: Millis, generation: Generation) {
        self.waiting = Some(WaitingMembers { generation, since: now });
        self.let_go();
    }

    fn let_go(&mut self) {
        self.leaving.release().into_iter().for_each(|id| self.send(id, ToMember::Stop));
    }

    /// A server has connected: one that was let go before that has not heard of it.
    pub(super) fn tell_again(&mut self, id: WorkerId) {
        if self.leaving.may_leave(id) {
            self.send(id, ToMember::Stop);
        }
    }

    /// Whether a server that was let go is still there: what members did now would be lost with it.
    pub(super) fn awaits_leavers(&self) -> bool {
        let may_leave = self.run.servers().any(|(_, server)| self.leaving.may_leave(server.id));
        may_leave && self.without != Some(Fence::Left)
    }

    /// Those that are not there any more have left.
    pub(super) fn forget_leavers(&mut self) {
        let run = &self.run;
        self.leaving.retain(|id| run.servers().any(|(_, server)| server.id == id));
    }

    /// Time has passed. Members that wait though nobody wants to leave any more go on, in another generation; whoever
    /// has not told this master yet gets the time for that.
    pub(super) fn look_at_leavers(&mut self, now: Millis) {
        self.forget_leavers();
        let in_vain = self.waiting.is_some_and(|waiting| {
            let is_running = self.phase == Phase::Running(waiting.generation);
            is_running && now >= waiting.since + self.timeouts.silence
        });
        if in_vain && !self.leaving.holds() {
            self.regroup(now);
        }
    }
}
