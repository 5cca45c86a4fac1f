//! Work in tasks, without membership: evaluation and prediction.

use salamander_core::elastic::{
    Ending, Entry, Lease, Millis, RunState, TaskQueue, ToMember, WorkerId,
};
use salamander_proto::convert::Finished;
use tracing::debug;

use super::{Effect, Event, end, journal, scale};
use crate::config::TaskPlan;
use crate::record::{Past, Record};

/// Ranges of records that are leased until each has counted.
pub(crate) struct Tasks {
    pub(crate) run: RunState,
    pub(crate) queue: TaskQueue,
}

impl Tasks {
    pub(crate) fn new(run: RunState, plan: TaskPlan) -> Self {
        // Greater than all fences of the masters before.
        let fence = u64::from(run.term().0) << 32;
        let lease = plan.deadline.as_millis() as Millis;
        Self { run, queue: TaskQueue::new(plan.records, plan.size, lease, fence) }
    }

    /// Takes over what was done before.
    pub(crate) fn begin(&mut self, past: &Past) -> Vec<Effect> {
        let mut effects = vec![journal(&self.run, Entry::Opened)];
        for (task, result) in &past.finished {
            self.queue.restore(*task);
            effects.push(Effect::Result { task: *task, result: result.clone() });
        }
        effects
    }

    pub(crate) fn step(&mut self, now: Millis, event: Event) -> Vec<Effect> {
        let mut effects = Vec::new();
        match event {
            Event::Tick => {
                for (task, worker) in self.queue.tick(now) {
                    debug!(task, %worker, "a lease is over");
                }
                if self.queue.is_done() {
                    effects.extend(end(&mut self.run, Ending::Completed));
                }
            }
            Event::Lost(id) => drop(self.queue.release(id)),
            Event::Gone(id, _) => {
                self.run.server_lost(id);
                self.queue.release(id);
            }
            Event::ServerUp(seat, server) => self.run.server_up(seat, server),
            Event::Scale(numbers) => effects.extend(scale(&mut self.run, numbers)),
            Event::Stop => {
                effects.extend(self.run.stop().map(|entry| journal(&self.run, entry)));
                effects.extend(end(&mut self.run, Ending::Interrupted));
            }
            Event::End(ending) => effects.extend(end(&mut self.run, ending)),
            Event::ServerLeaves(id) => effects.push(Effect::Send(id, ToMember::Stop)),
            Event::Failed(_, reason) => {
                effects.extend(end(&mut self.run, Ending::Failed(reason)));
            }
            Event::Joined(_)
            | Event::Beat(..)
            | Event::Said(..)
            | Event::Reported(_)
            | Event::Disconnected(_)
            | Event::Silent(_)
            | Event::Server(..)
            | Event::Folder(_) => {}
        }
        effects
    }

    /// Work for a worker.
    pub(crate) fn lease(&mut self, now: Millis, worker: WorkerId) -> Lease {
        match self.run.ending() {
            Some(_) => Lease::Done,
            None => self.queue.lease(now, worker),
        }
    }

    /// A worker says what came of a task: whether that counts, and what follows.
    pub(crate) fn finish(&mut self, now: Millis, finished: Finished) -> (bool, Vec<Effect>) {
        let Finished { worker, task, fence, outcome } = finished;
        let result = match outcome {
            Ok(result) => result,
            Err(reason) => {
                let ending = Ending::Failed(format!("task {task}: {reason}"));
                return (false, end(&mut self.run, ending).into_iter().collect());
            }
        };
        if !self.queue.finish(now, worker, task, fence) {
            return (false, Vec::new());
        }
        let record = Record::Finished { task, result: result.clone() };
        (true, vec![Effect::Journal(record), Effect::Result { task, result }])
    }
}
