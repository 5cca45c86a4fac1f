//! Searches that are killed many times: the same trials, decisions and weights as those of one that nobody disturbed.

use crate::search::{is_not_changed_by_kills, running};

#[test]
fn thirty_kills_change_nothing_about_halving() {
    let text = running(&[("max_trials: 5", "max_trials: 24"), ("trials: 2\n", "trials: 6\n")]);
    is_not_changed_by_kills(&text, 15, 10..12);
}

#[test]
fn thirty_kills_change_nothing_about_tpe_with_halving() {
    let text = running(&[
        ("name: async_halving", "name: tpe\n  scheduler: async_halving\n  startup_trials: 4"),
        ("max_trials: 5", "max_trials: 24"),
        ("trials: 2\n", "trials: 6\n"),
    ]);
    is_not_changed_by_kills(&text, 15, 20..22);
}
