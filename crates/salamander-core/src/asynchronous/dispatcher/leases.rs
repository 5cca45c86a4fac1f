//! Names in the hands of workers. A lease that ends in any other way than by its reports puts its names back to the
//! front, where they are by their order: no death burns a retry.

use std::collections::BTreeMap;
use std::ops::Range;

use super::{Dispatcher, Lease, ReportVerdict, Waiting};
use crate::asynchronous::{Fence, Report, Task};
use crate::elastic::{Millis, WorkerId};
use crate::plan::MicroBatch;
use crate::ranges::Ranges;

/// The longest wait that is asked of a worker before it comes again.
const LONGEST_WAIT: Millis = 100;

#[derive(Clone, Debug)]
struct LeasedRange {
    worker: WorkerId,
    epoch: u64,
    numbers: Ranges,
    deadline: Millis,
}

/// Neighbouring names of an epoch, by their numbers.
struct Span {
    epoch: u64,
    numbers: Range<u64>,
}

/// All leases, by their fencing numbers.
#[derive(Clone, Debug)]
pub(super) struct Leases {
    length: Millis,
    fence: u64,
    held: BTreeMap<u64, LeasedRange>,
}

impl Leases {
    pub(super) fn new(length: Millis, fence: u64) -> Self {
        Self { length, fence, held: BTreeMap::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    pub(super) fn count(&self) -> u64 {
        self.held.values().map(|held| held.numbers.len()).sum()
    }

    pub(super) fn clear(&mut self) {
        self.held.clear();
    }

    /// Those of an epoch's numbers that nobody holds.
    pub(super) fn without(&self, epoch: u64, numbers: Ranges) -> Ranges {
        let of_epoch = self.held.values().filter(|held| held.epoch == epoch);
        of_epoch.fold(numbers, |rest, held| rest.without(&held.numbers))
    }

    /// The first number of an epoch that somebody holds.
    fn first(&self, epoch: u64) -> Option<u64> {
        let of_epoch = self.held.values().filter(|held| held.epoch == epoch);
        of_epoch.filter_map(|held| held.numbers.first()).min()
    }

    fn first_epoch(&self) -> Option<u64> {
        self.held.values().map(|held| held.epoch).min()
    }
}

impl Dispatcher {
    /// Work for a worker: at most so many names, neighbours in one epoch.
    pub fn lease(&mut self, now: Millis, worker: WorkerId, most: usize) -> Lease {
        self.tick(now);
        if self.ending.is_some() {
            return Lease::Done;
        }
        if let Some(obstacle) = self.obstacle() {
            return Lease::Wait(self.wait(now), obstacle);
        }
        match self.choose(most.max(1) as u64) {
            Ok(span) => Lease::Leased(self.hand_out(now, worker, span)),
            Err(waiting) => Lease::Wait(self.wait(now), waiting),
        }
    }

    /// A worker has pushed names and tells who acknowledged them. It counts from whichever lease it comes: an ack
    /// of the current process in the current map is the truth.
    pub fn report(&mut self, now: Millis, worker: WorkerId, report: &Report) -> ReportVerdict {
        let verdict = self.judge(report);
        if verdict == ReportVerdict::Done {
            for name in report.names.iter().filter(|name| self.settings.names.contains(**name)) {
                self.done.insert(*name);
                if let Some(ranges) = self.pending.get_mut(&name.epoch) {
                    ranges.remove(self.settings.names.number(*name));
                }
            }
            self.pending.retain(|_, ranges| !ranges.is_empty());
        }
        self.close(now, worker, report);
        self.advance();
        verdict
    }

    /// A worker gives a lease back, with what it has not reported.
    pub fn give_back(&mut self, worker: WorkerId, fence: u64) {
        self.take_back(|held_fence, held| (held.worker, held_fence) == (worker, fence));
        self.advance();
    }

    /// A worker is gone: what it held goes back. Returns how many leases it had.
    pub fn release(&mut self, worker: WorkerId) -> usize {
        let taken = self.take_back(|_, held| held.worker == worker).len();
        self.advance();
        taken
    }

    /// Time has passed: leases that are over go back. Returns who held them.
    pub fn tick(&mut self, now: Millis) -> Vec<WorkerId> {
        let taken = self.take_back(|_, held| held.deadline <= now);
        self.advance();
        taken
    }

    /// The first names that may be given out.
    fn choose(&mut self, most: u64) -> Result<Span, Waiting> {
        let slices = u64::from(self.settings.names.slices());
        let Some((&epoch, ranges)) = self.pending.first_key_value() else {
            let held = !self.leases.is_empty();
            return Err(if held { Waiting::Others } else { Waiting::EpochEnd });
        };
        let Some(first) = ranges.as_slice().first() else { return Err(Waiting::Others) };
        let mut end = first.end.min(first.start.saturating_add(most));
        if let Some(staleness) = self.settings.consistency.staleness() {
            // Reopened names of an earlier epoch come first, whoever holds them.
            if let Some(earlier) = self.leases.first_epoch().filter(|earlier| *earlier < epoch) {
                return Err(Waiting::Step(self.leases.first(earlier).unwrap_or(0) / slices));
            }
            let held = self.leases.first(epoch).unwrap_or(first.start);
            let oldest = held.min(first.start) / slices;
            let limit = (oldest + staleness + 1).saturating_mul(slices);
            if first.start >= limit {
                return Err(Waiting::Step(oldest));
            }
            end = end.min(limit);
        }
        Ok(Span { epoch, numbers: first.start..end })
    }

    fn hand_out(&mut self, now: Millis, worker: WorkerId, span: Span) -> Task {
        let Span { epoch, numbers: range } = span;
        let mut numbers = Ranges::default();
        numbers.add(range.clone());
        let ranges = self.pending.entry(epoch).or_default();
        *ranges = ranges.without(&numbers);
        self.pending.retain(|_, ranges| !ranges.is_empty());
        self.leases.fence += 1;
        let (fence, deadline) = (self.leases.fence, now + self.leases.length);
        self.leases.held.insert(fence, LeasedRange { worker, epoch, numbers, deadline });
        let all = &self.settings.names;
        let names: Vec<MicroBatch> = range.map(|number| all.name(epoch, number)).collect();
        Task { fence, map: self.map, names, deadline }
    }

    /// Whether all servers have the names of a report.
    fn judge(&self, report: &Report) -> ReportVerdict {
        if report.map.number != self.map.number && self.without != Some(Fence::Reports) {
            return ReportVerdict::OtherMap;
        }
        for server in 0..self.map.servers {
            let mut acks = report.acks.iter().filter(|ack| ack.server == server).peekable();
            let current = self.current(server);
            let acked = acks.peek().is_some();
            let ours = current.is_some() && acks.all(|ack| Some(*ack) == current);
            if !acked || !ours && self.without != Some(Fence::Acks) {
                return ReportVerdict::NotAcked(server);
            }
        }
        ReportVerdict::Done
    }

    /// Takes the names of a report out of its lease, and puts back those that are not done.
    fn close(&mut self, now: Millis, worker: WorkerId, report: &Report) {
        let length = self.leases.length;
        let names: &[MicroBatch] = &report.names;
        let mut back = Vec::new();
        for (fence, held) in &mut self.leases.held {
            let other = (*fence, held.worker) != (report.fence, worker);
            if other && self.without != Some(Fence::Lease) {
                continue;
            }
            for name in names.iter().filter(|name| name.epoch == held.epoch) {
                let number = self.settings.names.number(*name);
                if held.numbers.remove(number) {
                    back.push((held.epoch, number));
                }
            }
            held.deadline = held.deadline.max(now + length);
        }
        self.leases.held.retain(|_, held| !held.numbers.is_empty());
        back.into_iter().for_each(|(epoch, number)| self.put_back(epoch, [number]));
    }

    fn take_back(&mut self, over: impl Fn(u64, &LeasedRange) -> bool) -> Vec<WorkerId> {
        let held = std::mem::take(&mut self.leases.held);
        let (over, kept) = held.into_iter().partition(|(fence, held)| over(*fence, held));
        self.leases.held = kept;
        let mut workers = Vec::new();
        for held in BTreeMap::into_values(over) {
            self.put_back(held.epoch, held.numbers.iter());
            workers.push(held.worker);
        }
        workers
    }

    fn wait(&self, now: Millis) -> Millis {
        let next = self.leases.held.values().map(|held| held.deadline).min();
        next.map_or(LONGEST_WAIT, |at| at.saturating_sub(now)).clamp(1, LONGEST_WAIT)
    }
}
