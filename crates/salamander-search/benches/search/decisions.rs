//! Decisions per second in memory: each report is one, whatever follows from it.

use std::collections::VecDeque;
use std::time::Instant;

use salamander_search::{
    Instruction, Search, SearchEvent, SearchFile, Trial, TrialAction, TrialId,
};

use crate::record::Record;

/// Random draws with halving over five rungs.
pub(crate) fn halving(trials: u64, concurrent: u64, order: &str) -> Search {
    let text = format!(
        "searcher: {{name: async_halving, metric: loss, num_rungs: 5, divisor: 4, max_trials: {trials}, \
         max_concurrent_trials: {concurrent}, max_length: {{batches: 256}}, order: {order}}}\n\
         hyperparameters:\n  rate: {{loguniform: [0.0001, 1]}}\n  units: {{randint: [1, 512]}}\n\
         \x20 kind: {{choice: [a, b, c]}}\n"
    );
    SearchFile::parse(&text, &[]).and_then(|file| file.search(1)).expect("a search")
}

/// What a trial measures: better with length, and with its own luck.
pub(crate) fn measured(trial: TrialId, length: u64) -> f64 {
    let luck = salamander_core::seed::Rng::new(trial.0).uniform();
    luck + 1.0 / (1.0 + length as f64)
}

/// The trials that are to be trained next, and until where.
pub(crate) fn started(actions: &[TrialAction]) -> impl Iterator<Item = (TrialId, u64)> {
    actions.iter().filter_map(|action| match action.what {
        Instruction::Create { until }
        | Instruction::Train { until }
        | Instruction::Copy { until, .. } => Some((action.trial, until)),
        Instruction::Pause | Instruction::Stop => None,
    })
}

pub(crate) fn measure(record: &Record) {
    let searches =
        [("arrival", 10_000), ("arrival", 100_000), ("fixed", 10_000), ("fixed", 100_000)];
    for (order, trials) in searches {
        let mut search = halving(trials, 64, order);
        let begun = Instant::now();
        let mut queue: VecDeque<(TrialId, u64)> = started(&search.begin()).collect();
        let mut decisions = 0u64;
        while let Some((trial, length)) = queue.pop_front() {
            if search.trial(trial).is_some_and(|known| known.reports.is_empty()) {
                // Whoever trains it asks what it is.
                std::hint::black_box(search.trial(trial).map(Trial::hparams));
            }
            let metric = measured(trial, length);
            queue.extend(started(&search.arrive(SearchEvent::Report { trial, length, metric })));
            decisions += 1;
        }
        assert!(search.is_over());
        let rate = decisions as f64 / begun.elapsed().as_secs_f64();
        let name = format!("decisions in memory, {trials} trials, order {order}");
        println!("{name:<52} {rate:>12.0} /s");
        record.figure(&name, ("per second", "more"), rate, None);
    }
}
