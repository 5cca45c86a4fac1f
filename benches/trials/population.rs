//! Population based training beside random draws with as many steps, where a learning rate must fall: small batches
//! want a high one to get anywhere and a low one to settle.

use benches::Record;

use crate::searched::{TimedProgram, digits, train};

const SEEDS: u32 = 10;

pub(crate) fn measure(record: &Record) {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut won, mut ratios) = (0, Vec::new());
    for seed in 0..SEEDS {
        let search = |searcher: &str| {
            let rest = format!(
                "hyperparameters: {{global_batch_size: 2, hidden: 64, momentum: 0.9, \
                 learning_rate: {{loguniform: [0.0003, 0.1]}}}}\n\
                 searcher:\n  name: {searcher}\n  metric: loss\n  max_length: {{batches: 4000}}\n  \
                 max_trials: 8\n  order: fixed\nreproducibility: {{experiment_seed: {seed}}}\n"
            );
            let file = folder.path().join("search.yaml");
            std::fs::write(&file, digits("mnist_mlp", &rest)).expect("written");
            at_the_end(&train(folder.path(), &file, &["--slots", "2"]))
        };
        let (random, population) = (search("random"), search("pbt\n  interval: 400"));
        println!("seed {seed}: loss {random:.4} by random draws, {population:.4} by a population");
        won += u32::from(population < random);
        ratios.push(population / random);
    }
    ratios.sort_by(f64::total_cmp);
    let ratio = ratios[ratios.len() / 2];
    println!("a population is ahead with {won} of {SEEDS} seeds; loss {ratio:.3} of random's");
    record.figure("population", ("of random's loss", "less"), ratio, Some(1.0));
}

/// The best loss of a trial that has had all its steps.
fn at_the_end(search: &TimedProgram) -> f64 {
    let trials = search.end["trials"].as_array().expect("trials").iter();
    trials.filter_map(|trial| trial["metric"].as_f64()).fold(f64::INFINITY, f64::min)
}
