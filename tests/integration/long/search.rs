//! Searches that are killed many times: the same trials, decisions and weights as those of one that nobody disturbed.
//! Small trials and many kills; and real digits, whose trials are killed in the midst of a step or a checkpoint.

use std::time::Duration;

use crate::search::killed::{
    SearchKills, is_not_changed_by_kills, killed_and_resumed, trials_are_what_they_are_alone,
};
use crate::search::running;
use crate::support::{Workplace, digits_experiment};

/// Trials of a search on digits, and how often it is killed: with 24 and 30 it was tried by hand (docs/verified.md).
const DIGITS_TRIALS: u64 = 12;
const DIGITS_KILLS: u64 = 8;

#[test]
fn thirty_kills_change_nothing_about_halving() {
    let text = running(&[("max_trials: 5", "max_trials: 24"), ("trials: 2\n", "trials: 6\n")]);
    let kills = [SearchKills::quick(15, 10), SearchKills::quick(15, 11)];
    is_not_changed_by_kills(&Workplace::new(), &text, &kills);
}

#[test]
fn thirty_kills_change_nothing_about_tpe_with_halving() {
    let text = running(&[
        ("name: async_halving", "name: tpe\n  scheduler: async_halving\n  startup_trials: 4"),
        ("max_trials: 5", "max_trials: 24"),
        ("trials: 2\n", "trials: 6\n"),
    ]);
    let kills = [SearchKills::quick(15, 20), SearchKills::quick(15, 21)];
    is_not_changed_by_kills(&Workplace::new(), &text, &kills);
}

#[test]
fn digits_kills_change_nothing_about_halving() {
    let file = digits_search("async_halving", "fixed");
    is_not_changed_by_kills(&Workplace::new(), &file, &[digits_kills(30)]);
}

#[test]
fn digits_kills_change_nothing_about_tpe_with_halving() {
    let file = digits_search("tpe", "fixed");
    is_not_changed_by_kills(&Workplace::new(), &file, &[digits_kills(31)]);
}

#[test]
fn digits_in_order_of_arrival_trials_are_what_they_are_alone() {
    for (searcher, seed) in [("async_halving", 32), ("tpe", 33)] {
        let place = Workplace::new();
        let file = place.write("x.yaml", &digits_search(searcher, "arrival"));
        let end = killed_and_resumed(&place, &file.display().to_string(), digits_kills(seed));
        assert_eq!(end["state"], "completed");
        trials_are_what_they_are_alone(&place, &end);
    }
}

fn digits_kills(seed: u64) -> SearchKills {
    SearchKills { count: DIGITS_KILLS, seed, longest: Duration::from_millis(1500) }
}

/// A search on the zoo's digits. Checkpoints are more frequent than rungs, so that kills find trials between them.
fn digits_search(searcher: &str, order: &str) -> String {
    let rest = format!(
        "hyperparameters:\n  global_batch_size: 64\n  learning_rate: {{loguniform: [0.001, 0.1]}}\n\
         searcher:\n  name: {searcher}\n  {}metric: accuracy\n  smaller_is_better: false\n  \
         max_length: {{batches: 48}}\n  num_rungs: 3\n  divisor: 2\n  max_trials: {DIGITS_TRIALS}\n  \
         max_concurrent_trials: 4\n  order: {order}\nmin_checkpoint_period: {{batches: 5}}\n",
        match searcher {
            "tpe" => "scheduler: async_halving\n  startup_trials: 4\n  ",
            _ => "",
        }
    );
    digits_experiment("mnist_mlp", &rest)
}
