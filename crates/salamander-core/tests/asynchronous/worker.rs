//! A worker's process around its work: asks, computes, pushes until all have acknowledged, reports.

use salamander_core::asynchronous::{Lease, Work};
use salamander_core::elastic::{Millis, WorkerId};
use salamander_core::plan::MicroBatch;

use crate::event::{Body, Event, Node, Push};
use crate::world::{World, say};

/// How long a worker tries before it gives its lease back.
const TRIES: Millis = 700;

/// A process.
#[derive(Default)]
pub(crate) struct Worker {
    work: Option<Work>,
    /// The newest lease it has had.
    fence: u64,
    since: Millis,
    /// The name at hand is computed.
    ready: bool,
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
            Some(_) if worker.ready => self.push(id),
            Some(_) => {}
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
                    (worker.fence, worker.since) = (task.fence, now);
                    worker.work = Some(Work::new(task).without(without));
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
                if worker.work.as_mut().is_some_and(|work| work.acked(map, name, process)) {
                    worker.since = now;
                    self.compute(id);
                }
            }
            (_, Body::Refuse(name)) => {
                let Some(work) = worker.work.as_ref() else { return };
                if work.name() == Some(name) {
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
        let at_hand = |work: &Work| work.task().fence == fence && work.name() == Some(name);
        if worker.work.as_ref().is_some_and(at_hand) {
            worker.ready = true;
            self.push(id);
        }
    }

    /// The next name, if there is one; the report otherwise.
    fn compute(&mut self, id: WorkerId) {
        let Some(worker) = self.workers.get_mut(&id) else { return };
        worker.ready = false;
        let Some(work) = &worker.work else { return };
        let fence = work.task().fence;
        match work.name() {
            Some(name) => {
                let delay = self.between(1, 25);
                self.after(delay, Event::Computed { worker: id, fence, name });
            }
            None => {
                let report = work.report();
                self.tell_master(Node::Worker(id), Body::Report(report));
            }
        }
    }

    /// Sends the name at hand to all servers; those that have acknowledged it ignore it.
    fn push(&mut self, id: WorkerId) {
        let Some(work) = self.workers.get(&id).and_then(|worker| worker.work.as_ref()) else {
            return;
        };
        let Some(name) = work.name() else { return };
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
        }
    }
}
