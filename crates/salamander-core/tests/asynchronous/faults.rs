//! What goes wrong, and when: drawn from the seed before the run begins.

use salamander_core::asynchronous::{Dispatcher, Process};
use salamander_core::elastic::{Generation, Millis, WorkerId};

use crate::event::{Event, Node};
use crate::mood::Theme;
use crate::simulation::Seeded;
use crate::world::{World, say};

#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    KillServer,
    KillAllServers,
    /// Another process takes a server's place though the old one lives, and sleeps for a while.
    Usurp(Millis),
    KillWorker,
    KillAllWorkers,
    PauseServer(Millis),
    PauseWorker(Millis),
    PauseMaster(Millis),
    /// The master dies after so many orders.
    KillMaster(u64),
    /// Another master is started though the old one runs.
    SecondMaster,
    /// A server does not reach the masters.
    CutServer(Millis),
    /// A worker does not reach a server.
    CutWorker(Millis),
    /// The master believes that a server is lost.
    Disconnect,
    Resize(u32),
    Stop,
    /// The master believes that a worker is gone, which goes on.
    Release,
    /// Some parts of checkpoints cannot be read any more.
    Rot(u64),
    /// A server dies in the middle of a move.
    ResizeAndKill(u32, Millis),
}

impl World {
    pub(crate) fn plan_faults(&mut self) {
        for _ in 0..self.mood.faults {
            let last = self.quiet - 1;
            let at = self.between(60, last);
            let fault = self.draw_fault();
            self.at(at, Event::Fault(fault));
        }
    }

    fn draw_fault(&mut self) -> Fault {
        let kind = match self.mood.theme {
            Theme::Anything => self.between(0, 22),
            Theme::Servers => [0, 1, 2, 3, 4, 8, 13, 14, 20, 21][self.between(0, 9) as usize],
            Theme::Masters => [0, 3, 10, 10, 11, 12, 12, 17][self.between(0, 7) as usize],
            Theme::Moves => [0, 3, 10, 12, 15, 16, 16, 17][self.between(0, 7) as usize],
        };
        match kind {
            0 | 1 => Fault::KillServer,
            2 => Fault::KillAllServers,
            3 | 4 => Fault::Usurp(self.between(0, 800)),
            5 | 6 => Fault::KillWorker,
            7 => Fault::KillAllWorkers,
            8 => Fault::PauseServer(self.between(20, 800)),
            9 => Fault::PauseWorker(self.between(20, 1_500)),
            10 => Fault::KillMaster(self.between(0, 8)),
            11 => Fault::PauseMaster(self.between(20, 800)),
            12 => Fault::SecondMaster,
            13 => Fault::CutServer(self.between(20, 800)),
            14 => Fault::CutWorker(self.between(20, 800)),
            15 => Fault::Resize(self.between(1, 3) as u32),
            16 => Fault::ResizeAndKill(self.between(1, 3) as u32, self.between(0, 120)),
            17 => Fault::Disconnect,
            18 | 19 => Fault::Release,
            20 | 21 => Fault::Rot(self.between(1, 6)),
            _ => Fault::Stop,
        }
    }

    pub(crate) fn strike(&mut self, fault: Fault) {
        if !self.is_wild() {
            return;
        }
        say!(self, "fault: {fault:?}");
        match fault {
            Fault::KillServer => self.any_server().into_iter().for_each(|s| self.kill_server(s)),
            Fault::KillAllServers => {
                let all: Vec<Process> = self.servers.keys().copied().collect();
                all.into_iter().for_each(|process| self.kill_server(process));
            }
            Fault::Usurp(millis) => {
                if let Some(process) = self.any_server() {
                    self.stats.usurped += 1;
                    self.pause(Node::Server(process), millis);
                    self.spawn_server(process.server);
                }
            }
            Fault::KillWorker => self.any_worker().into_iter().for_each(|w| self.kill_worker(w)),
            Fault::KillAllWorkers => {
                let all: Vec<WorkerId> = self.workers.keys().copied().collect();
                all.into_iter().for_each(|worker| self.kill_worker(worker));
            }
            Fault::PauseServer(millis) => {
                self.any_server().into_iter().for_each(|s| self.pause(Node::Server(s), millis));
            }
            Fault::PauseWorker(millis) => {
                self.any_worker().into_iter().for_each(|w| self.pause(Node::Worker(w), millis));
            }
            Fault::PauseMaster(millis) => self.pause(Node::Master(self.masters.len() - 1), millis),
            Fault::KillMaster(orders) => {
                let last = self.masters.len() - 1;
                self.masters[last].fuse = Some(orders);
            }
            Fault::SecondMaster => self.start_master(),
            Fault::CutServer(millis) => {
                if let Some(process) = self.any_server() {
                    for master in 0..self.masters.len() {
                        self.cut(Node::Master(master), Node::Server(process), millis);
                    }
                }
            }
            Fault::CutWorker(millis) => {
                if let (Some(worker), Some(process)) = (self.any_worker(), self.any_server()) {
                    self.cut(Node::Worker(worker), Node::Server(process), millis);
                }
            }
            Fault::Disconnect => {
                let process = self.any_server();
                process.into_iter().for_each(|process| self.tell_gone(Node::Server(process)));
            }
            Fault::Release => {
                self.stats.released += 1;
                let worker = self.any_worker();
                worker.into_iter().for_each(|worker| self.tell_gone(Node::Worker(worker)));
            }
            Fault::Rot(parts) => self.rot(parts),
            Fault::Resize(servers) => self.resize(servers),
            Fault::Stop => self.ask_master(Dispatcher::stop),
            Fault::ResizeAndKill(servers, delay) => {
                self.resize(servers);
                self.after(delay, Event::Fault(Fault::KillServer));
            }
        }
    }

    fn resize(&mut self, servers: u32) {
        let mut asked = false;
        self.ask_master(|dispatcher| {
            asked = true;
            dispatcher.resize(servers);
        });
        // Who runs the dispatcher has it on disk before.
        if asked {
            self.job.servers = servers;
        }
        (0..servers).for_each(|server| self.start_server(server));
    }

    fn rot(&mut self, parts: u64) {
        let all: Vec<(Generation, usize)> = self.disk.keys().copied().collect();
        for _ in 0..parts {
            let part = self.any(&all);
            self.stats.rotted += part.map_or(0, |_| 1);
            self.rotten.extend(part);
        }
    }

    fn any_server(&mut self) -> Option<Process> {
        let all: Vec<Process> = self.servers.keys().copied().collect();
        self.any(&all)
    }

    fn any_worker(&mut self) -> Option<WorkerId> {
        let all: Vec<WorkerId> = self.workers.keys().copied().collect();
        self.any(&all)
    }

    fn kill_server(&mut self, process: Process) {
        self.stats.server_kills += 1;
        self.end_server(process);
        self.tell_perhaps(Node::Server(process));
    }

    fn kill_worker(&mut self, worker: WorkerId) {
        if self.workers.remove(&worker).is_some() {
            self.stats.worker_kills += 1;
            self.asleep.remove(&Node::Worker(worker));
            self.tell_perhaps(Node::Worker(worker));
            let delay = self.between(10, 300);
            self.after(delay, Event::StartWorker);
        }
    }

    fn tell_perhaps(&mut self, node: Node) {
        if self.chance(0.5) {
            let delay = self.between(0, 50);
            self.after(delay, Event::Gone(node));
        }
    }

    fn cut(&mut self, one: Node, other: Node, millis: Millis) {
        self.stats.cuts += 1;
        self.cuts.insert((one, other), self.now + millis);
    }

    fn pause(&mut self, node: Node, millis: Millis) {
        if self.is_alive(node) && !self.asleep.contains_key(&node) {
            self.stats.pauses += 1;
            self.asleep.insert(node, Vec::new());
            self.after(millis, Event::Wake(node));
        }
    }

    pub(crate) fn wake(&mut self, node: Node) {
        let deferred = self.asleep.remove(&node).unwrap_or_default();
        deferred.into_iter().for_each(|event| self.happen(event));
    }
}
