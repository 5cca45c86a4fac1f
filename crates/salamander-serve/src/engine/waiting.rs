//! What waits for a model, as a pure machine: what is refused, and what is computed together next.

use std::collections::VecDeque;
use std::time::Instant;

/// Requests in the order of their arrival, bounded by their number and their rows.
pub(crate) struct Waiting<T> {
    items: VecDeque<Item<T>>,
    rows: usize,
    most: Most,
}

/// Bounds of what waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Most {
    pub(crate) requests: usize,
    pub(crate) rows: usize,
}

struct Item<T> {
    value: T,
    rows: usize,
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

impl<T> Waiting<T> {
    pub(crate) fn new(most: Most) -> Self {
        Self { items: VecDeque::new(), rows: 0, most }
    }

    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Rows that wait.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Adds a request, or gives it back: too many wait. One that is larger than the bound of rows may wait alone.
    pub(crate) fn push(
        &mut self,
        value: T,
        rows: usize,
        deadline: Option<Instant>,
    ) -> Result<(), T> {
        let fits = self.items.is_empty() || self.rows.saturating_add(rows) <= self.most.rows;
        if self.items.len() >= self.most.requests || !fits {
            return Err(value);
        }
        self.rows += rows;
        self.items.push_back(Item { value, rows, deadline });
        Ok(())
    }

    /// Takes the first requests whose rows fit into a batch, and at least one.
    pub(crate) fn take(
        &mut self,
        rows: usize,
        now: Instant,
        is_cancelled: impl Fn(&T) -> bool,
    ) -> Taken<T> {
        let mut taken = Taken { batch: Vec::new(), late: Vec::new(), cancelled: 0 };
        let mut together = 0;
        while let Some(first) = self.items.front() {
            let dropped = is_cancelled(&first.value);
            let late = first.deadline.is_some_and(|deadline| deadline <= now);
            let computed = !dropped && !late;
            if computed && !taken.batch.is_empty() && together + first.rows > rows {
                break;
            }
            let Some(item) = self.items.pop_front() else { break };
            self.rows -= item.rows;
            match (dropped, late) {
                (true, _) => taken.cancelled += 1,
                (_, true) => taken.late.push(item.value),
                _ => {
                    together += item.rows;
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

    fn filled(rows: &[usize]) -> Waiting<usize> {
        let mut waiting = Waiting::new(MOST);
        for (number, rows) in rows.iter().enumerate() {
            waiting.push(number, *rows, None).expect("fits");
        }
        waiting
    }

    #[test]
    fn what_fits_is_taken_together_in_order() {
        let mut waiting = filled(&[3, 3, 3]);
        let now = Instant::now();
        assert_eq!(waiting.take(6, now, |_| false).batch, [0, 1]);
        assert_eq!((waiting.len(), waiting.rows()), (1, 3));
        assert_eq!(waiting.take(6, now, |_| false).batch, [2]);
        assert!(waiting.take(6, now, |_| false).batch.is_empty());
    }

    #[test]
    fn one_that_is_larger_than_a_batch_is_taken_alone() {
        let mut waiting = filled(&[100]);
        assert_eq!(waiting.push(1, 1, None), Err(1));
        assert_eq!(waiting.take(6, Instant::now(), |_| false).batch, [0]);
    }

    #[test]
    fn too_many_requests_or_rows_are_refused() {
        assert_eq!(filled(&[1, 1, 1, 1]).push(9, 1, None), Err(9));
        assert_eq!(filled(&[5, 5]).push(9, 1, None), Err(9));
    }

    #[test]
    fn late_and_cancelled_ones_take_no_room() {
        let (now, mut waiting) = (Instant::now(), filled(&[3]));
        waiting.push(1, 3, Some(now)).expect("fits");
        waiting.push(2, 3, Some(now + Duration::from_secs(1))).expect("fits");
        let taken = waiting.take(6, now, |number| *number == 0);
        assert_eq!((taken.batch, taken.late, taken.cancelled), (vec![2], vec![1], 1));
        assert_eq!((waiting.len(), waiting.rows()), (0, 0));
    }

    proptest! {
        #[test]
        fn each_request_is_refused_or_taken_once_in_order(
            sizes in prop::collection::vec(1..9usize, 0..40), batch in 1..12usize, every in 1..5usize,
        ) {
            let (mut waiting, now) = (Waiting::new(MOST), Instant::now());
            let (mut seen, mut due) = (Vec::new(), Vec::new());
            for (number, rows) in sizes.iter().enumerate() {
                if waiting.push(number, *rows, None).is_ok() {
                    due.push(number);
                }
                if number % every == 0 {
                    let taken = waiting.take(batch, now, |_| false).batch;
                    let together: usize = taken.iter().map(|number| sizes[*number]).sum();
                    prop_assert!(taken.len() <= 1 || together <= batch);
                    seen.extend(taken);
                }
            }
            while !waiting.is_empty() {
                seen.extend(waiting.take(batch, now, |_| false).batch);
            }
            prop_assert_eq!(seen, due);
            prop_assert_eq!(waiting.rows(), 0);
        }
    }
}
