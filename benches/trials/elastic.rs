//! `elastic_trials`: the time of a halving whose last trial has a slot left over, with and without its use.

use benches::Record;

use crate::searched::{digits, train};

/// Pairs of searches, of which the middle ratio counts: other programs come and go.
const PAIRS: usize = 3;

pub(crate) fn measure(record: &Record) {
    let folder = tempfile::tempdir().expect("a folder");
    let rest = "micro_batches: 2\n\
        hyperparameters: {global_batch_size: 64, learning_rate: {loguniform: [0.0003, 0.01]}}\n\
        searcher:\n  name: async_halving\n  form: promotion\n  num_rungs: 2\n  divisor: 4\n  \
        max_length: {batches: 1600}\n  metric: loss\n  max_trials: 4\n  order: fixed\n\
        reproducibility: {experiment_seed: 3}\n";
    let file = folder.path().join("search.yaml");
    std::fs::write(&file, digits("mnist_conv16", rest)).expect("written");
    let seconds = |elastic: bool| {
        let set = format!("searcher.elastic_trials={elastic}");
        train(folder.path(), &file, &["--slots", "2", "--set", &set]).seconds
    };
    let mut ratios: Vec<f64> = Vec::new();
    for _ in 0..PAIRS {
        let (fixed, elastic) = (seconds(false), seconds(true));
        println!("4 trials on 2 slots: {fixed:.1} s, with elastic trials {elastic:.1} s");
        ratios.push(elastic / fixed);
    }
    ratios.sort_by(f64::total_cmp);
    let ratio = ratios[PAIRS / 2];
    println!("elastic trials take {ratio:.3} of the time");
    record.figure("elastic trials on 2 slots", ("of the time without", "less"), ratio, Some(1.0));
}
