//! A worker's process around its work: asks, computes, pushes until all have acknowledged, reports.

use std::collections::VecDeque;

use salamander_core::asynchronous::{Lease, MapVersion, Process, Work};
use salamander_core::elastic::{Millis, WorkerId};
use salamander_core::plan::MicroBatch;

use crate::event::{Body, Event, Node, Push};
use crate::world::{World, say};

/// How long a worker tries before it gives its lease back.
const TRIES: Millis = 700;

/// Names that are pushed at the same time: the next one is computed while servers apply the last.
const AHEAD: usize = 2;

/// A process.
#[derive(Default)]
pub(crate) struct Worker {
    work: Option<Work>,
    /// The newest lease it has had.
    fence: u64,
    since: Millis,
    /// Names of the task that were computed.
    computed: usize,
    /// Whether the next one is being computed.
    computing: bool,
    /// What was pushed and not acknowledged by all, with the acks that came before their turn.
    pushed: VecDeque<Pushed>,
}

struct Pushed {
    name: MicroBatch,
    acks: Vec<(MapVersion, Process)>,
}

impl World {
    pub(crate) fn start_worker(&mut self) {
        self.born += 1;
        let id = WorkerId(self.born);
        self.workers.insert(id, Worker::default());
        self.nudge(id);
    }

    /// A worker looks what is to be done, or done again.
    pub(crate) fn nudge(&mut self, id: WorkerId) {
        let again = self.between(15, 60);
        self.after(again, Event::Nudge(id));
        let Some(worker) = self.workers.get(&id) else { return };
        let tired = self.now > worker.since + TRIES;
        match &worker.work {
            None => {
                let most = self.between(1, 4) as usize;
                self.tell_master(Node::Worker(id), Body::LeaseAsk(most));
            }
            Some(work) if tired => {
                let (report, fence) = (work.report(), work.task().fence);
                self.tell_master(Node::Worker(id), Body::Report(report));
                self.tell_master(Node::Worker(id), Body::GiveBack(fence));
                self.drop_work(id);
            }
            Some(work) if work.is_done() => {
                let report = work.report();
                self.tell_master(Node::Worker(id), Body::Report(report));
            }
            Some(_) => {
                let names: Vec<MicroBatch> = worker.pushed.iter().map(|push| push.name).collect();
                names.into_iter().for_each(|name| self.push(id, name));
            }
        }
    }

    pub(crate) fn worker_hears(&mut self, id: WorkerId, from: Node, body: Body) {
        let now = self.now;
        let Some(worker) = self.workers.get_mut(&id) else { return };
        match (from, body) {
            (_, Body::Answer(Lease::Leased(task))) => {
                // An older number is of a lease that was had, or of a master that was replaced.
                if worker.work.is_none() && task.fence > worker.fence {
                    say!(self, "{id} begins {task:?}");
                    let without = self.without_fence();
                    let worker = self.workers.get_mut(&id).expect("it hears");
                    let (fence, work) = (task.fence, Some(Work::new(task).without(without)));
                    *worker = Worker { work, fence, since: now, ..Worker::default() };
                    self.compute(id);
                }
            }
            (_, Body::Answer(_)) => {}
            (_, Body::Heard(fence)) => {
                let done = |work: &Work| work.task().fence == fence && work.is_done();
                if worker.work.as_ref().is_some_and(done) {
                    self.drop_work(id);
                }
            }
            (Node::Server(process), Body::Ack(map, name)) => {
                let is_next = worker.work.as_ref().and_then(Work::name) == Some(name);
                if let Some(push) = worker.pushed.iter_mut().find(|push| push.name == name) {
                    push.acks.push((map, process));
                    self.stats.ahead += u64::from(!is_next);
                    self.collect(id);
                } else if worker.work.as_mut().is_some_and(|work| work.acked(map, name, process)) {
                    // Late acks of an earlier lease, before the name was computed again.
                    worker.since = now;
                    self.compute(id);
                }
            }
            (_, Body::Refuse(name)) => {
                let Some(work) = worker.work.as_ref() else { return };
                if worker.pushed.iter().any(|push| push.name == name) {
                    let (report, fence) = (work.report(), work.task().fence);
                    self.tell_master(Node::Worker(id), Body::Report(report));
                    self.tell_master(Node::Worker(id), Body::GiveBack(fence));
                    self.drop_work(id);
                }
            }
            (from, body) => panic!("{from:?} does not say {body:?} to a worker"),
        }
    }

    pub(crate) fn computed(&mut self, id: WorkerId, fence: u64, name: MicroBatch) {
        let Some(worker) = self.workers.get_mut(&id) else { return };
        if worker.fence != fence || worker.work.is_none() || !worker.computing {
            return;
        }
        (worker.computing, worker.computed) = (false, worker.computed + 1);
        if worker.work.as_ref().is_some_and(|work| !work.report().names.contains(&name)) {
            worker.pushed.push_back(Pushed { name, acks: Vec::new() });
            self.push(id, name);
        }
        self.compute(id);
    }

    /// Enters acks in the order of the names.
    fn collect(&mut self, id: WorkerId) {
        let now = self.now;
        let Some(worker) = self.workers.get_mut(&id) else { return };
        let Some(work) = &mut worker.work else { return };
        while let Some(push) = worker.pushed.front_mut() {
            let name = push.name;
            let mut acks = push.acks.drain(..);
            if !acks.any(|(map, process)| work.acked(map, name, process)) {
                break;
            }
            drop(acks);
            worker.since = now;
            worker.pushed.pop_front();
        }
        self.compute(id);
    }

    /// The next name, if there is one and not too many are pushed; the report when all are acknowledged.
    fn compute(&mut self, id: WorkerId) {
        let Some(worker) = self.workers.get_mut(&id) else { return };
        let Some(work) = &worker.work else { return };
        if work.is_done() {
            let report = work.report();
            return self.tell_master(Node::Worker(id), Body::Report(report));
        }
        let next = work.task().names.get(worker.computed).copied();
        if let Some(name) = next.filter(|_| !worker.computing && worker.pushed.len() < AHEAD) {
            worker.computing = true;
            let (fence, delay) = (worker.fence, self.between(1, 25));
            self.after(delay, Event::Computed { worker: id, fence, name });
        }
    }

    /// Sends a name to all servers; those that have acknowledged it ignore it.
    fn push(&mut self, id: WorkerId, name: MicroBatch) {
        let Some(work) = self.workers.get(&id).and_then(|worker| worker.work.as_ref()) else {
            return;
        };
        let map = work.task().map;
        for server in 0..map.servers {
            let shares = self.job.owned(map, server).fold(0, |bits, part| bits | 1 << part);
            let push = Push { name, map: map.number, shares };
            if let Some(process) = self.find_server(server) {
                self.send(Node::Worker(id), Node::Server(process), Body::Push(push));
            }
        }
    }

    fn drop_work(&mut self, id: WorkerId) {
        if let Some(worker) = self.workers.get_mut(&id) {
            worker.work = None;
            worker.pushed.clear();
        }
    }
}
