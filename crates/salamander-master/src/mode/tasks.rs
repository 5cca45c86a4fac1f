//! Work in tasks, without membership: evaluation and prediction.

use salamander_core::elastic::{
    Ending, Lease, MembershipEntry, Millis, RunState, TaskQueue, ToMember, WorkerId,
};
use salamander_proto::convert::Finished;
use tracing::debug;

use super::{Effect, ModeEvent, end, journal, scale};
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
        let mut effects = vec![journal(&self.run, MembershipEntry::Opened)];
        for (task, result) in &past.finished {
            self.queue.restore(*task);
            effects.push(Effect::Result { task: *task, result: result.clone() });
        }
        effects
    }

    pub(crate) fn step(&mut self, now: Millis, event: ModeEvent) -> Vec<Effect> {
        let mut effects = Vec::new();
        match event {
            ModeEvent::Tick => {
                for (task, worker) in self.queue.tick(now) {
                    debug!(task, %worker, "a lease is over");
                }
                if self.queue.is_done() {
                    effects.extend(end(&mut self.run, Ending::Completed));
                }
            }
            ModeEvent::Lost(id) => drop(self.queue.release(id)),
            ModeEvent::Gone(id, _) => {
                self.run.server_lost(id);
                self.queue.release(id);
            }
            ModeEvent::ServerUp(seat, server) => self.run.server_up(seat, server),
            ModeEvent::Scale(numbers) => effects.extend(scale(&mut self.run, numbers)),
            ModeEvent::Stop => {
                effects.extend(self.run.stop().map(|entry| journal(&self.run, entry)));
                effects.extend(end(&mut self.run, Ending::Interrupted));
            }
            ModeEvent::End(ending) => effects.extend(end(&mut self.run, ending)),
            ModeEvent::ServerLeaves(id) => effects.push(Effect::Send(id, ToMember::Stop)),
            ModeEvent::Failed(_, reason) => {
                effects.extend(end(&mut self.run, Ending::Failed(reason)));
            }
            ModeEvent::Joined(_)
            | ModeEvent::Beat(..)
            | ModeEvent::Said(..)
            | ModeEvent::Reported(_)
            | ModeEvent::Disconnected(_)
            | ModeEvent::Silent(_)
            | ModeEvent::Server(..)
            | ModeEvent::Folder(_) => {}
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
