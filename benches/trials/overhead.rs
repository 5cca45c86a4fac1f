//! What a search costs beside its trials: each of 200 short ones in a search, and alone. Of halving the measurements at
//! rungs are the trials' own work, which they do not do alone: they are counted, and what one costs is measured.

use std::path::Path;

use benches::Record;

use crate::searched::{digits, train};

const TRIALS: u64 = 200;

pub(crate) fn measure(record: &Record) {
    // Each trial in one go; and with halving, where whoever goes on is started again from its checkpoint and is
    // measured at each rung, which alone it is not.
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
            let alone = train(folder.path(), &run.join("experiment.yaml"), &[]);
            seconds += alone.seconds;
            processor += alone.processor;
            at_rungs += measurements(run) - 1;
        }
        let first = Path::new(search.end["trials"][0]["dir"].as_str().expect("a folder"));
        let measuring = at_rungs as f64 * one_measurement(folder.path(), first);
        let overhead = (search.processor - measuring) / processor;
        println!(
            "{TRIALS} trials, {name}: {:.1} s of processors ({:.1} s) in a search, {processor:.1} s \
             ({seconds:.1} s) alone: {:.3}; without {at_rungs} measurements at rungs, {measuring:.1} s: {overhead:.3}",
            search.processor,
            search.seconds,
            search.processor / processor
        );
        let name = format!("{TRIALS} trials in a search, {name}");
        record.figure(&name, ("of their own time", "less"), overhead, Some(1.0));
    }
}

/// How often a run was measured.
fn measurements(run: &Path) -> usize {
    let text = std::fs::read_to_string(run.join("metrics.jsonl")).expect("metrics");
    text.lines().filter(|line| line.contains("\"validation\":{")).count()
}

/// Seconds of processors of one measurement, with the checkpoint that comes with it.
fn one_measurement(folder: &Path, run: &Path) -> f64 {
    let timed = |every: &str| {
        let period = format!("min_validation_period={{batches: {every}}}");
        let whole = "searcher.max_length={batches: 120}";
        let sets = ["--set", "searcher.pause_at=null", "--set", whole, "--set", &period];
        let run = train(folder, &run.join("experiment.yaml"), &sets);
        let own = Path::new(run.end["dir"].as_str().expect("a folder")).to_path_buf();
        (run.processor, measurements(&own))
    };
    let ((seldom, few), (often, many)) = (timed("120"), timed("8"));
    (often - seldom) / (many - few).max(1) as f64
}
