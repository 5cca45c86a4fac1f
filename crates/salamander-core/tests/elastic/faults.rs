//! What goes wrong, and when: drawn from the seed before the run begins.

use salamander_core::elastic::{FromMember, Millis, WorkerId};

use crate::event::{Event, Up, Word};
use crate::leaving::PlannedLeave;
use crate::master::Fate;
use crate::mood::Theme;
use crate::network::Direction;
use crate::simulation::{Seeded, say};
use crate::world::World;

/// A moment in a worker's life that a blow waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// It has given to an exchange.
    Given,
    /// It has committed, others perhaps not yet.
    Committed,
    /// It writes a checkpoint.
    Writing,
    /// It sends its state.
    Sending,
    /// The state that it needs is there,
    Arrived,
    /// in its place,
    Restored,
    /// and has its name.
    Adopted,
    /// It has met the others and is about to pull rows.
    MetRows,
    /// Servers have kept its gradients, which it has not given yet.
    Staged,
    /// It is about to move the rows to other servers.
    Moving,
}

const MOMENTS: [Moment; 10] = [
    Moment::Given,
    Moment::Committed,
    Moment::Writing,
    Moment::Sending,
    Moment::Arrived,
    Moment::Restored,
    Moment::Adopted,
    Moment::MetRows,
    Moment::Staged,
    Moment::Moving,
];

/// What happens to a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blow {
    Kill,
    Pause(Millis),
    /// It does not reach the masters.
    Cut(Millis),
    /// Only one direction is cut.
    HalfCut(Direction, Millis),
}

/// A blow that waits for its moment. The others die so many milliseconds later.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Armed {
    moment: Moment,
    blow: Blow,
    others: Option<Millis>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    Hit(Blow),
    Arm(Armed),
    /// All workers die but this one.
    KillOthers(WorkerId),
    KillAll,
    /// Two workers do not reach each other.
    CutPeers(Millis),
    Disconnect,
    /// After so many actions of the master.
    Master(u64, Fate),
    /// Another master is started though the old one runs; some workers do not reach the new one.
    SecondMaster(Millis),
    Join,
    Leave,
    Scale(usize),
    /// The master leaves a worker out.
    Exclude,
    Stop,
    KillServer,
    PauseServer(Millis),
    /// A worker and a server do not reach each other.
    CutServer(Millis),
    ScaleServers(usize),
    /// Rows move to so many servers, one of which dies as soon as they do.
    ArmMove(usize),
    /// A server dies as soon as it has copied its rows for a checkpoint.
    ArmCopy,
    AskToLeave(PlannedLeave),
    KillThisServer(WorkerId),
    PauseThisServer(WorkerId, Millis),
}

impl World {
    pub(crate) fn plan_faults(&mut self) {
        for _ in 0..self.mood.faults {
            let last = self.quiet - 1;
            let at = self.between(100, last);
            let fault = self.draw_fault();
            self.at(at, Event::Fault(fault));
        }
        self.plan_leaves();
        let quiet = self.quiet;
        self.at(quiet, Event::Quiet);
    }

    fn draw_fault(&mut self) -> Fault {
        if self.is_hybrid() && (self.mood.theme == Theme::Servers || self.chance(0.2)) {
            return self.draw_server_fault();
        }
        let kind = match self.mood.theme {
            Theme::Anything => self.between(0, 20),
            Theme::Workers | Theme::Servers => self.between(0, 9),
            Theme::Masters => [0, 3, 10, 11, 12, 13, 14, 15][self.between(0, 7) as usize],
        };
        match kind {
            0..=2 => Fault::Hit(self.draw_blow()),
            3..=6 => {
                let moment = MOMENTS[self.between(0, MOMENTS.len() as u64 - 1) as usize];
                let blow = self.draw_blow();
                let others = self.chance(0.3).then(|| self.between(0, 2_000));
                Fault::Arm(Armed { moment, blow, others })
            }
            7 => Fault::KillAll,
            8 => Fault::CutPeers(self.between(100, 2_500)),
            9 => Fault::Disconnect,
            10..=12 => Fault::Master(self.between(0, 12), Fate::Crash),
            13 => Fault::Master(self.between(0, 12), Fate::Pause(self.between(50, 2_000))),
            14 => Fault::Master(self.between(0, 12), Fate::Replace(self.between(50, 2_500))),
            15 => Fault::SecondMaster(self.between(100, 2_500)),
            16 => Fault::Join,
            17 => Fault::Leave,
            18 => Fault::Scale(self.between(1, 5) as usize),
            19 => Fault::Exclude,
            _ => Fault::Stop,
        }
    }

    fn draw_server_fault(&mut self) -> Fault {
        match self.between(0, 9) {
            0..=2 => Fault::KillServer,
            3 => Fault::PauseServer(self.between(50, 2_500)),
            4 => Fault::CutServer(self.between(100, 2_500)),
            5 | 6 => Fault::ScaleServers(self.between(1, 3) as usize),
            7 | 8 => Fault::ArmMove(self.between(1, 3) as usize),
            _ => Fault::ArmCopy,
        }
    }

    fn draw_blow(&mut self) -> Blow {
        match self.between(0, 4) {
            0 | 1 => Blow::Kill,
            2 => Blow::Pause(self.between(50, 3_000)),
            3 => Blow::Cut(self.between(50, 2_500)),
            _ => {
                let way = [Direction::Up, Direction::Down][self.between(0, 1) as usize];
                Blow::HalfCut(way, self.between(50, 2_500))
            }
        }
    }

    fn any_worker(&mut self) -> Option<WorkerId> {
        let alive = self.workers.iter().filter(|(_, worker)| !worker.finished());
        let alive: Vec<WorkerId> = alive.map(|(id, _)| *id).collect();
        self.any(&alive)
    }

    pub(crate) fn strike(&mut self, fault: Fault) {
        if !self.is_wild() || self.history.ending.is_some() {
            return;
        }
        say!(self, "fault: {fault:?}");
        let last = self.masters.len() - 1;
        match fault {
            Fault::Hit(blow) => self.any_worker().into_iter().for_each(|id| self.hit(id, blow)),
            Fault::Arm(armed) => self.armed.push(armed),
            Fault::KillOthers(id) => {
                let others = self.workers.keys().copied().filter(|other| *other != id);
                others.collect::<Vec<_>>().into_iter().for_each(|id| self.kill(id));
            }
            Fault::KillAll => {
                let all: Vec<WorkerId> = self.workers.keys().copied().collect();
                all.into_iter().for_each(|id| self.kill(id));
            }
            Fault::CutPeers(millis) => self.cut_peers(millis),
            Fault::Disconnect => {
                let id = self.any_worker();
                let session = id.and_then(|id| self.workers[&id].session);
                if let (Some(id), Some(session)) = (id, session) {
                    self.break_session(session);
                    self.hinder(id);
                }
            }
            Fault::Master(0, fate) => self.befall(last, fate),
            Fault::Master(actions, fate) => self.masters[last].fuse = Some((actions, fate)),
            Fault::SecondMaster(millis) => self.second_master(millis),
            Fault::Join => self.spawn(),
            Fault::Leave => {
                if let Some(id) = self.any_worker() {
                    self.send_up(id, Up::Say(0, Word::Member(FromMember::Leave)));
                    self.kill(id);
                }
            }
            Fault::Scale(workers) => {
                self.ask_master(|coordinator, now| coordinator.scale(now, workers));
                (self.workers.len()..workers).for_each(|_| self.after(100, Event::Spawn));
            }
            Fault::Exclude => {
                if let Some(id) = self.any_worker() {
                    self.hinder(id);
                    self.ask_master(|coordinator, now| coordinator.exclude(now, id, "it is slow"));
                }
            }
            Fault::Stop => self.ask_master(|coordinator, _| coordinator.stop()),
            Fault::KillServer => self.any_server().into_iter().for_each(|id| self.kill_server(id)),
            Fault::PauseServer(millis) => {
                self.any_server().into_iter().for_each(|id| self.pause_server(id, millis));
            }
            Fault::CutServer(millis) => {
                if let (Some(worker), Some(server)) = (self.any_worker(), self.any_server()) {
                    let until = self.now + millis;
                    self.network.from_server.insert((worker, server), until);
                }
            }
            Fault::ScaleServers(servers) | Fault::ArmMove(servers) if self.is_hybrid() => {
                self.armed_moves += u64::from(matches!(fault, Fault::ArmMove(_)));
                self.ask_master(|coordinator, now| coordinator.scale_servers(now, servers));
            }
            Fault::ScaleServers(_) | Fault::ArmMove(_) => {}
            Fault::ArmCopy => self.armed_copies += 1,
            Fault::AskToLeave(planned) => self.ask_to_leave(planned),
            Fault::KillThisServer(id) if self.servers.contains_key(&id) => self.kill_server(id),
            Fault::PauseThisServer(id, millis) if self.servers.contains_key(&id) => {
                self.pause_server(id, millis);
            }
            // It is gone already.
            Fault::KillThisServer(_) | Fault::PauseThisServer(..) => {}
        }
    }

    fn any_server(&mut self) -> Option<WorkerId> {
        let alive: Vec<WorkerId> = self.servers.keys().copied().collect();
        if alive.is_empty() { None } else { self.any(&alive) }
    }

    fn kill_server(&mut self, id: WorkerId) {
        self.stats.servers_killed += 1;
        self.end_server(id);
    }

    fn pause_server(&mut self, id: WorkerId, millis: Millis) {
        self.server(id).paused = true;
        self.after(millis, Event::WakeServer(id));
    }

    /// Rows begin to move to this server: somebody may wait for that.
    pub(crate) fn strike_a_mover(&mut self, id: WorkerId) {
        if self.armed_moves == 0 || !self.is_wild() {
            return;
        }
        self.armed_moves -= 1;
        let other = self.any_server().filter(|_| self.armed_moves.is_multiple_of(2));
        self.stats.movers_killed += 1;
        self.kill_server(other.unwrap_or(id));
    }

    /// A server copies its rows: somebody may wait for that.
    pub(crate) fn strike_a_copier(&mut self, id: WorkerId) {
        if self.armed_copies > 0 && self.is_wild() {
            self.armed_copies -= 1;
            self.kill_server(id);
        }
    }

    pub(crate) fn wake_server(&mut self, id: WorkerId) {
        let Some(server) = self.servers.get_mut(&id).filter(|server| server.paused) else { return };
        server.paused = false;
        let deferred = std::mem::take(&mut server.deferred);
        deferred.into_iter().for_each(|event| self.happen(event));
    }

    fn ask_master(&mut self, ask: impl FnOnce(&mut salamander_core::elastic::Coordinator, Millis)) {
        let (last, now) = (self.masters.len() - 1, self.now);
        let master = &mut self.masters[last];
        if master.alive && master.paused.is_none() {
            ask(&mut master.coordinator, now);
            self.perform(last, None);
        }
    }

    /// A worker has come to a moment that a blow may wait for.
    pub(crate) fn moment(&mut self, moment: Moment, id: WorkerId) {
        if self.armed.is_empty() || !self.is_wild() {
            return;
        }
        let first = self.workers.get(&id).is_some_and(|worker| worker.rank() == Some(0));
        let here = |armed: &Armed| armed.moment == moment;
        let Some(index) = self.armed.iter().position(here) else { return };
        if moment == Moment::Committed && !first {
            return;
        }
        let Armed { blow, others, .. } = self.armed.swap_remove(index);
        self.hit(id, blow);
        if let Some(delay) = others {
            self.after(delay, Event::Fault(Fault::KillOthers(id)));
        }
    }

    fn hit(&mut self, id: WorkerId, blow: Blow) {
        say!(self, "{id}: {blow:?}");
        match blow {
            Blow::Kill => self.kill(id),
            Blow::Pause(millis) => {
                self.disturb(id);
                self.worker(id).paused = true;
                self.after(millis, Event::Wake(id));
            }
            Blow::Cut(millis) => {
                let until = self.now + millis;
                for master in 0..self.masters.len() {
                    self.network.from_master.insert((id, master), until);
                }
                self.worker(id).hindered = until;
            }
            Blow::HalfCut(way, millis) => {
                self.stats.one_way_cuts += 1;
                let until = self.now + millis;
                self.network.half_cut.insert((id, way), (self.now, until));
                self.worker(id).hindered = until;
            }
        }
    }

    fn kill(&mut self, id: WorkerId) {
        if !self.workers.contains_key(&id) {
            return;
        }
        self.stats.kills += 1;
        self.end_worker(id);
        let delay = self.between(50, 700);
        self.after(delay, Event::Spawn);
    }

    /// A process ends, and none takes its place.
    pub(crate) fn end_worker(&mut self, id: WorkerId) {
        self.disturb(id);
        let Some(worker) = self.workers.remove(&id) else { return };
        say!(self, "{id} dies");
        self.stats.kills_in_exchange += u64::from(worker.gave);
        if let Some(session) = worker.session {
            self.break_session(session);
        }
        if self.chance(0.5) {
            let delay = self.between(0, 50);
            self.after(delay, Event::Gone { worker: id });
        }
    }

    pub(crate) fn wake(&mut self, id: WorkerId) {
        let Some(worker) = self.workers.get_mut(&id).filter(|worker| worker.paused) else { return };
        worker.paused = false;
        let deferred = std::mem::take(&mut worker.deferred);
        say!(self, "{id} wakes");
        self.hinder(id);
        // Who was dropped meanwhile may find itself sick.
        if self.is_wild() && !self.history.order.contains(&id) && self.chance(0.5) {
            self.stats.failures += 1;
            self.send_up(id, Up::Say(0, Word::Failed));
            return self.kill(id);
        }
        deferred.into_iter().for_each(|event| self.happen(event));
        self.try_complete_all();
    }

    fn cut_peers(&mut self, millis: Millis) {
        let (Some(one), Some(other)) = (self.any_worker(), self.any_worker()) else { return };
        self.disturb(one);
        let until = self.now + millis;
        self.network.between.insert((one, other), until);
        if self.chance(0.5) {
            self.network.between.insert((other, one), until);
        }
        for id in [one, other] {
            self.worker(id).hindered = until;
        }
    }

    fn second_master(&mut self, millis: Millis) {
        let new = self.masters.len();
        self.start_master();
        for id in self.workers.keys().copied().collect::<Vec<_>>() {
            if self.chance(0.3) {
                self.network.from_master.insert((id, new), self.now + millis);
                self.worker(id).hindered = self.now + millis;
            }
        }
    }

    /// Everything that was kept back is let go, and nothing new goes wrong.
    pub(crate) fn calm(&mut self) {
        say!(self, "from now on nothing goes wrong");
        self.armed.clear();
        self.armed_leaves.clear();
        self.network.from_master.clear();
        self.network.half_cut.clear();
        self.network.between.clear();
        self.network.from_server.clear();
        (self.armed_moves, self.armed_copies) = (0, 0);
        let paused = self.servers.iter().filter(|(_, server)| server.paused).map(|(id, _)| *id);
        paused.collect::<Vec<_>>().into_iter().for_each(|id| self.wake_server(id));
        let asleep = self.workers.iter().filter(|(_, worker)| worker.paused).map(|(id, _)| *id);
        asleep.collect::<Vec<_>>().into_iter().for_each(|id| self.wake(id));
        for index in 0..self.masters.len() {
            self.masters[index].fuse = None;
            self.wake_master(index);
        }
        self.try_complete_all();
    }
}
