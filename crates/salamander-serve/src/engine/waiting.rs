//! What waits for a model, as a pure machine: what is refused, and what is computed together next.

use std::collections::VecDeque;
use std::time::Instant;

/// Requests in the order of their arrival, bounded by their number and their rows.
pub(crate) struct WaitingRequests<T> {
    items: VecDeque<Item<T>>,
    size: BatchSize,
    most: Most,
}

/// What is computed together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BatchSize {
    pub(crate) rows: usize,
    /// Of texts; 0 where rows are all that counts.
    pub(crate) tokens: usize,
}

impl BatchSize {
    fn add(self, other: Self) -> Self {
        let rows = self.rows.saturating_add(other.rows);
        Self { rows, tokens: self.tokens.saturating_add(other.tokens) }
    }

    fn fits(self, most: Self) -> bool {
        self.rows <= most.rows && self.tokens <= most.tokens
    }

    /// Whether there is room for more.
    pub(crate) fn is_below(self, most: Self) -> bool {
        self.rows < most.rows && self.tokens < most.tokens
    }
}

/// Bounds of what waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Most {
    pub(crate) requests: usize,
    pub(crate) rows: usize,
}

struct Item<T> {
    value: T,
    size: BatchSize,
    deadline: Option<Instant>,
}

/// What comes next.
pub(crate) struct Taken<T> {
    /// To be computed together.
    pub(crate) batch: Vec<T>,
    /// Whose deadline has passed.
    pub(crate) late: Vec<T>,
    /// Whom nobody waits for any more.
    pub(crate) cancelled: usize,
}

impl<T> WaitingRequests<T> {
    pub(crate) fn new(most: Most) -> Self {
        Self { items: VecDeque::new(), size: BatchSize::default(), most }
    }

    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Whether nothing more may wait, however small it is.
    pub(crate) fn is_full(&self) -> bool {
        self.items.len() >= self.most.requests || self.size.rows >= self.most.rows
    }

    /// All that waits.
    pub(crate) fn size(&self) -> BatchSize {
        self.size
    }

    /// Adds a request, or gives it back: too many wait. One that is larger than the bound of rows may wait alone.
    pub(crate) fn push(
        &mut self,
        value: T,
        size: BatchSize,
        deadline: Option<Instant>,
    ) -> Result<(), T> {
        let together = self.size.add(size);
        let fits = self.items.is_empty() || together.rows <= self.most.rows;
        if self.items.len() >= self.most.requests || !fits {
            return Err(value);
        }
        self.size = together;
        self.items.push_back(Item { value, size, deadline });
        Ok(())
    }

    /// Takes the first requests that fit into a batch, and at least one.
    pub(crate) fn take(
        &mut self,
        most: BatchSize,
        now: Instant,
        is_cancelled: impl Fn(&T) -> bool,
    ) -> Taken<T> {
        let mut taken = Taken { batch: Vec::new(), late: Vec::new(), cancelled: 0 };
        let mut together = BatchSize::default();
        while let Some(first) = self.items.front() {
            let dropped = is_cancelled(&first.value);
            let late = first.deadline.is_some_and(|deadline| deadline <= now);
            let computed = !dropped && !late;
            if computed && !taken.batch.is_empty() && !together.add(first.size).fits(most) {
                break;
            }
            let Some(item) = self.items.pop_front() else { break };
            self.size.rows -= item.size.rows;
            self.size.tokens -= item.size.tokens;
            match (dropped, late) {
                (true, _) => taken.cancelled += 1,
                (_, true) => taken.late.push(item.value),
                _ => {
                    together = together.add(item.size);
                    taken.batch.push(item.value);
                }
            }
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    const MOST: Most = Most { requests: 4, rows: 10 };

    /// So many rows, whatever tokens they have.
    fn rows(rows: usize) -> BatchSize {
        BatchSize { rows, tokens: usize::MAX }
    }

    fn size(rows: usize) -> BatchSize {
        BatchSize { rows, tokens: rows * 10 }
    }

    fn filled(sizes: &[usize]) -> WaitingRequests<usize> {
        let mut waiting = WaitingRequests::new(MOST);
        for (number, rows) in sizes.iter().enumerate() {
            waiting.push(number, size(*rows), None).expect("fits");
        }
        waiting
    }

    #[test]
    fn what_fits_is_taken_together_in_order() {
        let mut waiting = filled(&[3, 3, 3]);
        let now = Instant::now();
        assert_eq!(waiting.take(rows(6), now, |_| false).batch, [0, 1]);
        assert_eq!((waiting.len(), waiting.size()), (1, size(3)));
        assert_eq!(waiting.take(rows(6), now, |_| false).batch, [2]);
        assert!(waiting.take(rows(6), now, |_| false).batch.is_empty());
    }

    #[test]
    fn long_texts_are_taken_in_smaller_batches() {
        let (mut waiting, now) = (filled(&[3, 3, 3]), Instant::now());
        let most = BatchSize { rows: 64, tokens: 60 };
        assert_eq!(waiting.take(most, now, |_| false).batch, [0, 1]);
        let few = BatchSize { rows: 64, tokens: 5 };
        assert_eq!(waiting.take(few, now, |_| false).batch, [2], "one is taken whatever its size");
    }

    #[test]
    fn one_that_is_larger_than_a_batch_is_taken_alone() {
        let mut waiting = filled(&[100]);
        assert_eq!(waiting.push(1, size(1), None), Err(1));
        assert_eq!(waiting.take(rows(6), Instant::now(), |_| false).batch, [0]);
    }

    #[test]
    fn too_many_requests_or_rows_are_refused() {
        assert_eq!(filled(&[1, 1, 1, 1]).push(9, size(1), None), Err(9));
        assert_eq!(filled(&[5, 5]).push(9, size(1), None), Err(9));
        assert!(filled(&[5, 5]).is_full() && filled(&[1, 1, 1, 1]).is_full());
        assert!(!filled(&[5, 4]).is_full());
    }

    #[test]
    fn late_and_cancelled_ones_take_no_room() {
        let (now, mut waiting) = (Instant::now(), filled(&[3]));
        waiting.push(1, size(3), Some(now)).expect("fits");
        waiting.push(2, size(3), Some(now + Duration::from_secs(1))).expect("fits");
        let taken = waiting.take(rows(6), now, |number| *number == 0);
        assert_eq!((taken.batch, taken.late, taken.cancelled), (vec![2], vec![1], 1));
        assert_eq!((waiting.len(), waiting.size()), (0, size(0)));
    }

    proptest! {
        #[test]
        fn each_request_is_refused_or_taken_once_in_order(
            sizes in prop::collection::vec(1..9usize, 0..40), batch in 1..12usize, every in 1..5usize,
        ) {
            let (mut waiting, now) = (WaitingRequests::new(MOST), Instant::now());
            let (mut seen, mut due) = (Vec::new(), Vec::new());
            for (number, own) in sizes.iter().enumerate() {
                if waiting.push(number, size(*own), None).is_ok() {
                    due.push(number);
                }
                if number % every == 0 {
                    let taken = waiting.take(rows(batch), now, |_| false).batch;
                    let together: usize = taken.iter().map(|number| sizes[*number]).sum();
                    prop_assert!(taken.len() <= 1 || together <= batch);
                    seen.extend(taken);
                }
            }
            while !waiting.is_empty() {
                seen.extend(waiting.take(rows(batch), now, |_| false).batch);
            }
            prop_assert_eq!(seen, due);
            prop_assert_eq!(waiting.size(), size(0));
        }
    }
}
