//! Work that needs no membership: ranges of records, each done exactly once by whoever lives. Used for distributed
//! evaluation and prediction.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use serde::Serialize;

use super::{Millis, WorkerId};
use crate::ranges::Ranges;

/// The longest wait that is asked of a worker before it comes again: a lease may come back early.
const LONGEST_WAIT: Millis = 500;

/// A range of records that a worker holds for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Its place in the queue's cut.
    pub id: u64,
    /// The records.
    pub range: Range<u64>,
    /// Greater than that of every lease before it: only the newest lease of a task can finish it.
    pub fence: u64,
    /// When the lease is over.
    pub deadline: Millis,
}

/// The answer to a worker that wants to work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lease {
    /// This is for it.
    Leased(Task),
    /// Others hold what is left; ask again after so many milliseconds.
    Wait(Millis),
    /// All tasks are done.
    Done,
}

/// How many tasks are where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Count {
    /// In the queue.
    pub left: u64,
    /// Held by a worker.
    pub leased: u64,
    /// Done.
    pub done: u64,
}

#[derive(Clone, Copy, Debug)]
struct LeaseHolder {
    worker: WorkerId,
    fence: u64,
    deadline: Millis,
}

/// All records from 0, cut into tasks. A lease that ends in any other way than by its result puts the task back: no
/// death burns a retry, and no record is left out.
#[derive(Clone, Debug)]
pub struct TaskQueue {
    records: u64,
    size: u64,
    lease: Millis,
    fence: u64,
    tasks: u64,
    /// Also has those that an earlier master has seen done; they are skipped.
    queue: VecDeque<u64>,
    held: BTreeMap<u64, LeaseHolder>,
    done: Ranges,
}

impl TaskQueue {
    /// Cuts `records` into tasks of `size`, each leased for so long. Fences grow from `fence`, which must be
    /// greater for each life of the master.
    pub fn new(records: u64, size: u64, lease: Millis, fence: u64) -> Self {
        let size = size.max(1);
        let tasks = records.div_ceil(size);
        Self {
            records,
            size,
            lease,
            fence,
            tasks,
            queue: (0..tasks).collect(),
            held: BTreeMap::new(),
            done: Ranges::default(),
        }
    }

    /// A task that an earlier master has seen done.
    pub fn restore(&mut self, task: u64) {
        if task < self.tasks && !self.held.contains_key(&task) {
            self.done.insert(task);
        }
    }

    /// Work for a worker.
    pub fn lease(&mut self, now: Millis, worker: WorkerId) -> Lease {
        self.tick(now);
        while let Some(id) = self.queue.pop_front() {
            if self.done.contains(id) {
                continue;
            }
            self.fence += 1;
            let (fence, deadline) = (self.fence, now + self.lease);
            self.held.insert(id, LeaseHolder { worker, fence, deadline });
            let start = id * self.size;
            let range = start..(start + self.size).min(self.records);
            return Lease::Leased(Task { id, range, fence, deadline });
        }
        self.nothing(now)
    }

    /// Whether this result counts: only that of the newest lease does, and once.
    pub fn finish(&mut self, now: Millis, worker: WorkerId, task: u64, fence: u64) -> bool {
        self.tick(now);
        let counts = self.held.get(&task).is_some_and(|h| (h.worker, h.fence) == (worker, fence));
        if counts {
            self.held.remove(&task);
            self.done.insert(task);
        }
        counts
    }

    /// Time has passed: leases that are over go back to the front of the queue. Returns who held them.
    pub fn tick(&mut self, now: Millis) -> Vec<(u64, WorkerId)> {
        self.take_back(|held| held.deadline <= now)
    }

    /// A worker is gone: what it held goes back to the queue.
    pub fn release(&mut self, worker: WorkerId) -> Vec<(u64, WorkerId)> {
        self.take_back(|held| held.worker == worker)
    }

    /// Whether all is done.
    pub fn is_done(&self) -> bool {
        self.done.len() == self.tasks
    }

    /// How many tasks are where.
    pub fn count(&self) -> Count {
        let (leased, done) = (self.held.len() as u64, self.done.len());
        Count { left: self.tasks - leased - done, leased, done }
    }

    fn nothing(&self, now: Millis) -> Lease {
        if self.is_done() {
            return Lease::Done;
        }
        let next = self.held.values().map(|held| held.deadline).min().unwrap_or(now);
        Lease::Wait(next.saturating_sub(now).clamp(1, LONGEST_WAIT))
    }

    fn take_back(&mut self, over: impl Fn(&LeaseHolder) -> bool) -> Vec<(u64, WorkerId)> {
        let back: Vec<(u64, WorkerId)> =
            self.held.extract_if(.., |_, held| over(held)).map(|(id, h)| (id, h.worker)).collect();
        back.iter().rev().for_each(|(id, _)| self.queue.push_front(*id));
        back
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ANN: WorkerId = WorkerId(1);
    const BEN: WorkerId = WorkerId(2);

    fn leased(queue: &mut TaskQueue, now: Millis, worker: WorkerId) -> Task {
        match queue.lease(now, worker) {
            Lease::Leased(task) => task,
            other => panic!("expected a task, not {other:?}"),
        }
    }

    #[test]
    fn records_are_cut_without_a_rest() {
        let mut queue = TaskQueue::new(10, 4, 100, 0);
        let ranges = [(); 3].map(|()| leased(&mut queue, 0, ANN).range);
        assert_eq!(ranges, [0..4, 4..8, 8..10]);
        assert_eq!(queue.lease(0, BEN), Lease::Wait(100));
        assert_eq!(queue.count(), Count { left: 0, leased: 3, done: 0 });
        assert_eq!(TaskQueue::new(0, 4, 100, 0).lease(0, ANN), Lease::Done);
    }

    #[test]
    fn expired_lease_returns_to_queue() {
        let mut queue = TaskQueue::new(4, 4, 100, 0);
        let first = leased(&mut queue, 0, ANN);
        assert_eq!(queue.tick(99), []);
        assert_eq!(queue.tick(100), [(0, ANN)]);
        let second = leased(&mut queue, 100, BEN);
        assert_eq!(second.range, first.range);
        assert!(second.fence > first.fence);
    }

    #[test]
    fn a_late_report_does_not_count() {
        let mut queue = TaskQueue::new(4, 4, 100, 0);
        let first = leased(&mut queue, 0, ANN);
        let second = leased(&mut queue, 100, ANN);
        assert!(!queue.finish(101, ANN, first.id, first.fence));
        assert!(queue.finish(102, ANN, second.id, second.fence));
        assert!(!queue.finish(103, ANN, second.id, second.fence));
        assert_eq!(queue.lease(104, BEN), Lease::Done);
    }

    #[test]
    fn only_the_holder_finishes() {
        let mut queue = TaskQueue::new(4, 4, 100, 0);
        let task = leased(&mut queue, 0, ANN);
        assert!(!queue.finish(1, BEN, task.id, task.fence));
        assert!(!queue.finish(1, ANN, 99, task.fence));
        assert!(queue.finish(1, ANN, task.id, task.fence));
    }

    #[test]
    fn a_dead_workers_tasks_come_first() {
        let mut queue = TaskQueue::new(12, 4, 100, 0);
        leased(&mut queue, 0, ANN);
        leased(&mut queue, 0, ANN);
        assert_eq!(queue.release(ANN), [(0, ANN), (1, ANN)]);
        assert_eq!(leased(&mut queue, 1, BEN).range, 0..4);
    }

    #[test]
    fn a_restarted_master_knows_what_is_done() {
        let mut queue = TaskQueue::new(12, 4, 100, 1 << 32);
        [1, 1, 9].into_iter().for_each(|task| queue.restore(task));
        assert_eq!(queue.count(), Count { left: 2, leased: 0, done: 1 });
        let task = leased(&mut queue, 0, ANN);
        assert!(task.id == 0 && task.fence > 1 << 32);
        assert_eq!(leased(&mut queue, 0, ANN).id, 2);
    }

    #[derive(Clone, Debug)]
    enum QueueStep {
        Lease(u64),
        Finish(usize),
        Die(u64),
        Pass(Millis),
    }

    fn steps() -> impl Strategy<Value = Vec<QueueStep>> {
        let step = prop_oneof![
            4 => (0..4u64).prop_map(QueueStep::Lease),
            3 => any::<usize>().prop_map(QueueStep::Finish),
            1 => (0..4u64).prop_map(QueueStep::Die),
            1 => (0..60u64).prop_map(QueueStep::Pass),
        ];
        prop::collection::vec(step, 0..400)
    }

    proptest! {
        /// Reports come late, twice and from the dead; every record still counts exactly once.
        #[test]
        fn each_record_counts_exactly_once(
            (records, size) in (0..200u64, 1..20u64),
            steps in steps(),
        ) {
            let mut queue = TaskQueue::new(records, size, 50, 0);
            let mut counted = vec![0; records as usize];
            let mut held: Vec<(WorkerId, Task)> = Vec::new();
            let mut now = 0;
            for step in steps {
                match step {
                    QueueStep::Lease(worker) => {
                        if let Lease::Leased(task) = queue.lease(now, WorkerId(worker)) {
                            held.push((WorkerId(worker), task));
                        }
                    }
                    QueueStep::Finish(which) if !held.is_empty() => {
                        let (worker, task) = held[which % held.len()].clone();
                        if queue.finish(now, worker, task.id, task.fence) {
                            task.range.for_each(|record| counted[record as usize] += 1);
                        }
                    }
                    QueueStep::Finish(_) => {}
                    QueueStep::Die(worker) => drop(queue.release(WorkerId(worker))),
                    QueueStep::Pass(time) => now += time,
                }
                let count = queue.count();
                prop_assert_eq!(count.left + count.leased + count.done, records.div_ceil(size));
            }
            now += 50;
            while let Lease::Leased(task) = queue.lease(now, ANN) {
                prop_assert!(queue.finish(now, ANN, task.id, task.fence));
                task.range.for_each(|record| counted[record as usize] += 1);
            }
            prop_assert!(queue.is_done());
            prop_assert!(counted.iter().all(|count| *count == 1));
        }
    }
}
