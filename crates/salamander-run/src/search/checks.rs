//! What a search needs besides what one run needs, and what its trials need that are jobs of a
//! cluster.

use salamander_core::experiment::{Experiment, SchedulerName, SearcherName, Strategy};
use salamander_search::{SchedulerRule, SearchFile};

/// What a search needs besides what one run needs.
pub(super) fn check_settings(file: &SearchFile) -> Result<(), String> {
    let experiment = file.experiment();
    if experiment.data.validation.0.is_empty() {
        let reason = "data.validation: a search compares trials by what they measure there";
        return Err(reason.to_string());
    }
    let searcher = &experiment.searcher;
    let elastic = searcher.elastic_trials;
    let copies =
        searcher.name == SearcherName::Pbt || searcher.scheduler == Some(SchedulerName::Pbt);
    if elastic && copies {
        let reason = "searcher.elastic_trials: trials of a population meet after each interval, \
                      and are not widened: leave it out";
        return Err(reason.to_string());
    }
    match experiment.strategy {
        Strategy::Hybrid | Strategy::Ps if elastic => Err("searcher.elastic_trials: workers of \
             strategy hybrid or ps are not widened: write `strategy: allreduce`, or leave it out"
            .to_string()),
        _ => Ok(()),
    }
}

/// What trials need that are jobs of a cluster. A job that pauses is deleted, and the next one goes
/// on from the object store: `keeps_folder` says that it would find the folder of the one before.
pub(super) fn check_elsewhere(
    experiment: &Experiment,
    rule: &SchedulerRule,
    keeps_folder: bool,
) -> Result<(), String> {
    let pauses = *rule != SchedulerRule::None;
    let reason = if experiment.checkpoint_storage.store.is_none() {
        "checkpoint_storage.store: a trial of a cluster goes on from an object store, as another \
         job: write one, such as s3://bucket/prefix, or --store"
    } else if experiment.searcher.elastic_trials {
        "searcher.elastic_trials: the cluster widens its jobs by itself: leave it out"
    } else if matches!(rule, SchedulerRule::Population(_)) {
        "searcher: trials that are jobs of a cluster are not copied: write another searcher or \
         scheduler than pbt, or search on one machine"
    } else if pauses && experiment.strategy == Strategy::Ps {
        "strategy: a run of strategy ps has no common step to pause at: write a searcher without a \
         scheduler, or strategy hybrid or allreduce"
    } else if pauses && keeps_folder {
        "a job of a trial that pauses is followed by another one, which must not find its folder: \
         leave the claim (--storage-claim, or storage in --spec) out, or give a size"
    } else {
        return Ok(());
    };
    Err(reason.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elsewhere(text: &str, keeps_folder: bool) -> Result<(), String> {
        let space = "hyperparameters: {lr: {type: double, minval: 0.1, maxval: 0.2}}\n";
        let data = "data: {training: a.csv, validation: a.csv}\n";
        let file = SearchFile::parse(&format!("{space}{data}{text}"), &[]).expect("a search");
        let method = file.method(1).expect("it makes sense");
        check_elsewhere(file.experiment(), &method.rule, keeps_folder)
    }

    #[test]
    fn trials_of_a_cluster_pause_at_rungs_and_are_neither_copied_nor_widened() {
        const STORE: &str = "checkpoint_storage: {store: s3://b/p}\n";
        let searcher = |more: &str| {
            format!(
                "searcher: {{metric: loss, max_length: {{batches: 64}}, max_trials: 8{more}}}\n"
            )
        };
        let fine = |text: &str, keeps_folder: bool| {
            assert_eq!(elsewhere(text, keeps_folder), Ok(()), "{text}");
        };
        let refused = |text: &str, keeps_folder: bool, what: &str| {
            let reason = elsewhere(text, keeps_folder).expect_err(text);
            assert!(reason.contains(what), "{text}: {reason}");
        };
        let halving = searcher(", name: async_halving, num_rungs: 3, divisor: 2");
        let random = searcher(", name: random");
        refused(&random, false, "checkpoint_storage.store");
        fine(&format!("{STORE}{random}"), true);
        fine(&format!("{STORE}{halving}"), false);
        let waits = halving.replace("divisor: 2", "divisor: 2, form: promotion");
        fine(&format!("{STORE}{waits}"), false);
        fine(
            &format!("{STORE}{}", searcher(", name: tpe, scheduler: median, interval: 16")),
            false,
        );
        refused(&format!("{STORE}{halving}"), true, "--storage-claim");
        refused(&format!("{STORE}strategy: ps\n{halving}"), false, "no common step");
        fine(&format!("{STORE}strategy: ps\n{random}"), true);
        let copies = searcher(", name: pbt, interval: 16");
        refused(&format!("{STORE}{copies}"), false, "not copied");
        let widened = searcher(", name: random, elastic_trials: true");
        refused(&format!("{STORE}{widened}"), false, "elastic_trials");
    }
}
