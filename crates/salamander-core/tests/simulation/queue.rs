//! The queue in which events wait for their time.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use salamander_core::elastic::Millis;

/// Events in the order of their time, and of equal times in the order in which they were put in.
pub(crate) struct Queue<E> {
    heap: BinaryHeap<Timed<E>>,
    count: u64,
}

impl<E> Default for Queue<E> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), count: 0 }
    }
}

impl<E> Queue<E> {
    pub(crate) fn put(&mut self, time: Millis, event: E) {
        self.count += 1;
        self.heap.push(Timed(Reverse((time, self.count)), event));
    }

    pub(crate) fn next(&mut self) -> Option<(Millis, E)> {
        self.heap.pop().map(|Timed(Reverse((time, _)), event)| (time, event))
    }
}

struct Timed<E>(Reverse<(Millis, u64)>, E);

impl<E> PartialEq for Timed<E> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<E> Eq for Timed<E> {}

impl<E> PartialOrd for Timed<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Timed<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.cmp(&other.0)
    }
}
