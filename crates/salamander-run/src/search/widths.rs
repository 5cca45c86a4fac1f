//! `elastic_trials`: how many workers each trial has, so that no slot is idle.

/// The workers of so many trials, the oldest first: one each, and what is idle evenly, up to the widest size that their
/// steps were cut for.
pub(super) fn widths(slots: u32, widest: u32, training: usize) -> Vec<u32> {
    let trials = training as u32;
    let idle = slots.saturating_sub(trials);
    let width = |index: u32| {
        let extra = idle / trials.max(1) + u32::from(index < idle % trials.max(1));
        (1 + extra).min(widest.max(1))
    };
    (0..trials).map(width).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_slots_go_to_the_oldest_first() {
        assert_eq!(widths(2, 2, 1), [2]);
        assert_eq!(widths(2, 2, 2), [1, 1]);
        assert_eq!(widths(8, 8, 3), [3, 3, 2]);
        assert_eq!(widths(8, 2, 3), [2, 2, 2]);
        assert_eq!(widths(4, 4, 0), [0; 0]);
        assert_eq!(widths(1, 4, 3), [1, 1, 1]);
    }
}
