//! What a search costs beside its trials: each of 200 short ones in a search, and alone.
//!
//! A trial of a search with a scheduler is measured, and its checkpoint written, at every rung that it comes to: its
//! own work, which alone it is asked to do as often. Alone it does so without a pause.

use std::path::Path;

use benches::Record;

use crate::searched::{TimedProgram, digits, train};

const TRIALS: u64 = 200;

pub(crate) fn measure(record: &Record) {
    // Each trial in one go; and with halving, where whoever is among the best goes on from where it paused.
    for (name, searcher) in [
        ("random", "name: random\n  max_length: {batches: 30}"),
        (
            "async_halving",
            "name: async_halving\n  num_rungs: 3\n  divisor: 4\n  max_length: {batches: 120}",
        ),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let rest = format!(
            "hyperparameters: {{global_batch_size: 64, learning_rate: {{loguniform: [0.0003, 0.01]}}}}\n\
             searcher:\n  {searcher}\n  metric: accuracy\n  smaller_is_better: false\n  \
             max_trials: {TRIALS}\n  order: fixed\nreproducibility: {{experiment_seed: 1}}\n"
        );
        let file = folder.path().join("search.yaml");
        std::fs::write(&file, digits("mnist_conv16", &rest)).expect("written");
        let search = train(folder.path(), &file, &[]);
        let (mut seconds, mut processor, mut at_rungs) = (0.0, 0.0, 0);
        for trial in search.end["trials"].as_array().expect("trials") {
            let run = Path::new(trial["dir"].as_str().expect("a folder"));
            let length = trial["length"].as_u64().expect("a length");
            let measured = measurements(run);
            let alone = alone(folder.path(), run, length, measured);
            seconds += alone.seconds;
            processor += alone.processor;
            at_rungs += measured - 1;
        }
        let overhead = search.processor / processor;
        println!(
            "{TRIALS} trials, {name}: {:.1} s of processors ({:.1} s) in a search, {processor:.1} s \
             ({seconds:.1} s) alone with {at_rungs} measurements before their ends: {overhead:.3}",
            search.processor, search.seconds
        );
        let name = format!("{TRIALS} trials in a search, {name}");
        record.figure(&name, ("of their own time", "less"), overhead, Some(1.0));
    }
}

/// A trial in one go, measured and saved as often as its search did, the last time at its end.
fn alone(folder: &Path, run: &Path, length: u64, measured: u64) -> TimedProgram {
    let every = length / measured.max(1);
    let sets = [
        "searcher.pause_at=null".to_string(),
        format!("searcher.max_length={{batches: {length}}}"),
        format!("min_validation_period={{batches: {every}}}"),
        format!("min_checkpoint_period={{batches: {every}}}"),
    ];
    let sets: Vec<&str> = sets.iter().flat_map(|set| ["--set", set.as_str()]).collect();
    let run = train(folder, &run.join("experiment.yaml"), &sets);
    let own = Path::new(run.end["dir"].as_str().expect("a folder"));
    assert_eq!(measurements(own), measured, "of {length} batches");
    run
}

/// How often a run was measured.
fn measurements(run: &Path) -> u64 {
    let text = std::fs::read_to_string(run.join("metrics.jsonl")).expect("metrics");
    text.lines().filter(|line| line.contains("\"validation\":{")).count() as u64
}
