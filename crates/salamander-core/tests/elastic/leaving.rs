//! Servers that are asked to leave, as before a node is drained: they tell each master, stay until they are let go, and
//! end without that when their platform waits no longer. Faults strike in the middle of it.

use salamander_core::elastic::{Generation, History, Millis, Term, ToMember, WorkerId};

use crate::event::Event;
use crate::faults::{Blow, Fault};
use crate::master::Fate;
use crate::simulation::{Seeded, say};
use crate::worker::Worker;
use crate::world::World;

/// How long a platform waits.
const GRACES: [Millis; 3] = [300, 3_000, 3_000];

/// A leave that is planned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlannedLeave {
    grace: Millis,
    armed: Option<ArmedLeave>,
}

/// A moment of a server's leave that a fault waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaveMoment {
    /// A master hears of it.
    Asked,
    /// The server copies its rows for the checkpoint.
    Copying,
    /// It is told that it may go.
    LetGo,
    /// A server has read its rows, which may have been those of the one that left.
    Reading,
}

const MOMENTS: [LeaveMoment; 4] =
    [LeaveMoment::Asked, LeaveMoment::Copying, LeaveMoment::LetGo, LeaveMoment::Reading];

/// A fault that waits for its moment, and strikes so many milliseconds later.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArmedLeave {
    moment: LeaveMoment,
    delay: Millis,
    blow: LeaveBlow,
}

#[derive(Clone, Copy, Debug)]
enum LeaveBlow {
    /// The server of that moment dies,
    Kill,
    /// or takes long.
    Pause(Millis),
    /// Any server dies.
    KillAny,
    KillWorker,
    /// Another number of workers is wanted, so that members regroup.
    Scale(usize),
    Master(Fate),
}

/// How far a server is that was asked to leave.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ServerLeave {
    /// The master of this term has let it go.
    let_go: Option<Term>,
}

impl World {
    /// Servers are asked to leave beside everything else that goes wrong.
    pub(crate) fn plan_leaves(&mut self) {
        if !self.is_hybrid() {
            return;
        }
        let leaves = [0, 0, 1, 1, 2][self.between(0, 4) as usize];
        for _ in 0..leaves {
            let last = self.quiet - 1;
            let at = self.between(100, last);
            let grace = GRACES[self.between(0, 2) as usize];
            let armed = self.chance(0.6).then(|| self.draw_armed_leave());
            self.at(at, Event::Fault(Fault::AskToLeave(PlannedLeave { grace, armed })));
        }
    }

    fn draw_armed_leave(&mut self) -> ArmedLeave {
        let moment = MOMENTS[self.between(0, 3) as usize];
        let delay = self.between(0, 100);
        let blow = match self.between(0, 7) {
            0 | 1 => LeaveBlow::Kill,
            2 => LeaveBlow::Pause(self.between(50, 2_500)),
            3 => LeaveBlow::KillAny,
            4 => LeaveBlow::KillWorker,
            5 => LeaveBlow::Scale(self.between(1, 5) as usize),
            6 => LeaveBlow::Master(Fate::Crash),
            _ => LeaveBlow::Master(Fate::Replace(self.between(50, 2_500))),
        };
        ArmedLeave { moment, delay, blow }
    }

    /// A server's platform wants it to end.
    pub(crate) fn ask_to_leave(&mut self, PlannedLeave { grace, armed }: PlannedLeave) {
        let stays = self.servers.iter().filter(|(_, server)| server.leaving.is_none());
        let staying: Vec<WorkerId> = stays.map(|(id, _)| *id).collect();
        if staying.is_empty() {
            return;
        }
        let Some(id) = self.any(&staying) else { return };
        say!(self, "server {id} is asked to leave within {grace} ms");
        self.stats.leaves += 1;
        let server = self.server(id);
        server.leaving = Some(ServerLeave::default());
        // The master of today does not know that, nor does any that comes.
        server.known_to = None;
        self.armed_leaves.extend(armed);
        self.after(grace, Event::Leave(id));
    }

    /// A master has heard of a server, and hears at once if it was asked to leave.
    pub(crate) fn hear_of_leave(&mut self, master: usize, id: WorkerId) {
        if self.server(id).leaving.is_some() {
            self.masters[master].coordinator.server_leaves(id);
            self.leave_moment(LeaveMoment::Asked, id);
        }
    }

    /// A fault may wait for this moment of a server's leave.
    pub(crate) fn leave_moment(&mut self, moment: LeaveMoment, id: WorkerId) {
        let here = |armed: &ArmedLeave| armed.moment == moment;
        let Some(index) = self.armed_leaves.iter().position(here) else { return };
        let leaves = self.servers.get(&id).is_some_and(|server| server.leaving.is_some());
        if !self.is_wild() || moment == LeaveMoment::Copying && !leaves {
            return;
        }
        let ArmedLeave { delay, blow, .. } = self.armed_leaves.swap_remove(index);
        self.stats.leaves_struck += 1;
        let fault = match blow {
            LeaveBlow::Kill => Fault::KillThisServer(id),
            LeaveBlow::Pause(millis) => Fault::PauseThisServer(id, millis),
            LeaveBlow::KillAny => Fault::KillServer,
            LeaveBlow::KillWorker => Fault::Hit(Blow::Kill),
            LeaveBlow::Scale(workers) => Fault::Scale(workers),
            LeaveBlow::Master(fate) => Fault::Master(0, fate),
        };
        self.after(delay, Event::Fault(fault));
    }

    /// From a master to a server: that it may go.
    pub(crate) fn send_to_server(&mut self, master: usize, id: WorkerId, message: &ToMember) {
        let loss = self.mood.loss;
        let is_lost = self.is_wild() && self.chance(loss);
        if *message == ToMember::Stop && !is_lost {
            let term = self.masters[master].coordinator.run().term();
            let delay = self.between(1, 40);
            self.after(delay, Event::LetGo { server: id, term });
        }
        self.leave_moment(LeaveMoment::LetGo, id);
    }

    /// A server hears that it may go. It serves on until it has come to its end.
    pub(crate) fn may_go(&mut self, id: WorkerId, term: Term) {
        let Some(leave) = &mut self.server(id).leaving else { return };
        if leave.let_go.replace(term).is_none() {
            let slow = self.chance(0.5);
            let delay = self.between(1, if slow { 800 } else { 60 });
            self.after(delay, Event::Leave(id));
        }
    }

    /// A server that was asked to leave ends, whether it was let go or its platform waits no longer.
    pub(crate) fn leave(&mut self, id: WorkerId) {
        if self.ended_for_good() {
            return;
        }
        match self.server(id).leaving.and_then(|leave| leave.let_go) {
            Some(term) => {
                self.stats.let_go += 1;
                self.let_go.insert(id, term);
            }
            None => self.stats.not_let_go += 1,
        }
        self.end_server(id);
    }

    /// A master of this term has the rows read from a checkpoint. Where it let go all the servers that are lost, nobody
    /// has died whose rows were not in it: nothing that was done is done again.
    pub(crate) fn check_leavers(&mut self, term: Term, last: Generation) {
        let History { servers, destination, checkpoint, .. } = &self.history;
        let mut lost = servers.iter().filter(|server| !self.servers.contains_key(*server));
        if !destination.is_empty() || !lost.all(|server| self.let_go.get(server) == Some(&term)) {
            return;
        }
        let mark = checkpoint.as_ref().and_then(|mark| self.store.get(&mark.id));
        let kept = mark.map_or(0, |(_, state)| self.truth.steps(*state));
        let holds = |worker: &&Worker| worker.machine.holding().confirmed == Some(last);
        let members = self.workers.values().filter(holds);
        let done = members.map(|worker| self.truth.steps(worker.state)).max().unwrap_or(0);
        if done > kept {
            let what = format!("{done} steps were done and {kept} are in the checkpoint");
            self.blame("a server that was let go costs no step", what);
        }
    }
}
