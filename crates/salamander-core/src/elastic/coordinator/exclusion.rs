//! Who is left out of the next generations though it lives: a straggler, one that its neighbours cannot reach, one that
//! cannot reach the parameter servers.

use super::known_worker::Strikes;
use super::{Action, Coordinator};
use crate::elastic::{Generation, Millis, ToMember, WorkerId};

/// A worker that was waited for in vain is left out until its promise comes after all.
pub(super) const UNTIL_IT_PROMISES: Millis = Millis::MAX;

impl Coordinator {
    /// A worker must not be in the next generations, though it lives.
    pub fn exclude(&mut self, now: Millis, id: WorkerId, reason: &'static str) {
        self.leave_out(id, now + self.timeouts.silence, reason);
        self.after_loss(now, id);
    }

    /// A step of a generation was told: all its members reach each other, and the servers.
    pub fn worked(&mut self, generation: Generation) {
        if self.is_current(generation) {
            for id in &self.run.history.order {
                if let Some(worker) = self.workers.get_mut(id) {
                    worker.without_rows = Strikes::default();
                }
            }
        }
    }

    /// A generation cannot go on, as a member says, because of another one if that is known, or because this member
    /// itself cannot reach the servers.
    pub(super) fn accuse(&mut self, now: Millis, by: WorkerId, accused: Option<WorkerId>) {
        let Some(accused) = accused else { return };
        let (silence, has_itself) = (self.timeouts.silence, accused == by);
        if has_itself && !self.go_on_without(by) {
            return;
        }
        // Who has nothing yet puts nobody out who has the state: the run would go back to a checkpoint though it lives.
        let is_to_go = !has_itself && self.may_hold(accused) && !self.may_hold(by);
        let blamed = if is_to_go { by } else { accused };
        let Some(worker) = self.workers.get_mut(&blamed) else { return };
        let strikes = if has_itself { &mut worker.without_rows } else { &mut worker.unreachable };
        if let Some(pause) = strikes.add(silence) {
            let reason = match () {
                () if has_itself => "it cannot reach what the others reach",
                () if is_to_go => "it cannot reach its neighbours",
                () => "its neighbours cannot reach it",
            };
            self.leave_out(blamed, now + pause, reason);
        }
    }

    pub(super) fn leave_out(&mut self, id: WorkerId, until: Millis, reason: &'static str) {
        if let Some(worker) = self.workers.get_mut(&id) {
            worker.excluded = Some(until);
            self.actions.push(Action::Dropped(id, reason));
        }
    }

    /// Too few are left without those that are left out for a while: they are asked at once. Who has not answered comes
    /// back when it is heard.
    pub(super) fn let_back(&mut self, now: Millis, generation: Generation) {
        let is_spare = |until: Millis| until > now && until != UNTIL_IT_PROMISES;
        let mut back = Vec::new();
        for (id, worker) in self.workers.iter_mut().filter(|(_, worker)| worker.connected) {
            if worker.excluded.take_if(|until| is_spare(*until)).is_some() {
                worker.promise = None;
                back.push(*id);
            }
        }
        back.into_iter().for_each(|id| self.send(id, ToMember::Prepare(generation)));
    }

    /// Whether there are enough others to try without this member, one of which may have the state if this one may.
    fn go_on_without(&self, id: WorkerId) -> bool {
        let mut others = self.candidates();
        others.retain(|other| *other != id);
        let keep = !self.may_hold(id) || others.iter().any(|other| self.may_hold(*other));
        keep && others.len() >= self.least()
    }

    /// Whether a member may have the state of the running generation: it has promised it, or has confirmed it. Who has
    /// confirmed a generation of the master before is not known.
    fn may_hold(&self, id: WorkerId) -> bool {
        let Some((generation, members)) = &self.run.history.activated else { return false };
        let Some(promised) = members.get(&id) else { return false };
        promised.is_some() || self.confirmed.contains(&id) || generation.term != self.run.term
    }
}
