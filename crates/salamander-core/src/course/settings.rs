//! Settings that a strategy cannot follow: they are refused by name before the first step, and never ignored.

use crate::experiment::{PsMode, Settings, Strategy};

/// The first setting that the strategy of an experiment cannot follow, and why.
pub fn refused(settings: &Settings) -> Option<(&'static str, &'static str)> {
    // Mode sync is another name for strategy hybrid.
    if settings.strategy != Strategy::Ps || settings.ps.mode == PsMode::Sync {
        return None;
    }
    if settings.optimizations.scaling().is_some() {
        return Some((
            "optimizations.mixed_precision",
            "with strategy ps there is no common step to skip: write bf16 without loss_scale, or use \
             strategy hybrid or allreduce",
        ));
    }
    if settings.tracking.histograms > 0 {
        return Some((
            "tracking.histograms",
            "with strategy ps no process has all weights and gradients of a step: use strategy hybrid or allreduce",
        ));
    }
    if settings.data.stream {
        return Some((
            "data.stream",
            "with strategy ps micro-batches are given out by number, so that all records must be there: use \
             strategy hybrid or allreduce",
        ));
    }
    None
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use crate::experiment::{Experiment, schema};

    const STRATEGIES: [&str; 4] = ["local", "allreduce", "hybrid", "ps"];

    /// Every setting with a value that is not its default, and the strategies that refuse it.
    const SETTINGS: [(&str, &str, &[&str]); 45] = [
        ("name", "x", &[]),
        ("description", "x", &[]),
        ("labels", "[x]", &[]),
        ("entrypoint", "a:B", &[]),
        ("data", "{training: [a.csv], validation: [b.csv], shuffle: full}", &[]),
        ("data", "{training: parts, stream: true, shuffle: partition}", &["ps"]),
        ("strategy", "", &[]),
        ("workers", "{min: 1, max: 3}", &[]),
        ("ps", "{servers: 2}", &[]),
        ("device", "cpu", &[]),
        ("threads", "2", &[]),
        ("micro_batches", "2", &[]),
        ("searcher", "{metric: accuracy, smaller_is_better: false}", &[]),
        ("max_length", "{epochs: 2}", &[]),
        ("records_per_epoch", "7", &[]),
        ("scheduling_unit", "7", &[]),
        ("min_validation_period", "{epochs: 2}", &[]),
        ("min_validation_period", "{batches: 2}", &[]),
        ("min_validation_period", "{records: 2}", &[]),
        ("min_checkpoint_period", "{batches: 2}", &[]),
        ("perform_initial_validation", "true", &[]),
        ("checkpoint_policy", "all", &[]),
        ("recovery_period", "5", &[]),
        ("checkpoint_storage", "{save_trial_latest: 3}", &[]),
        ("schedule", "{warmup: 3}", &[]),
        ("clip", "{norm: 1}", &[]),
        ("early_stop", "{patience: 2}", &[]),
        ("start_from", "a.safetensors", &[]),
        ("reproducibility", "{experiment_seed: 3}", &[]),
        ("optimizations", "{aggregation_frequency: 2, mixed_precision: bf16}", &[]),
        ("optimizations", "{mixed_precision: f16}", &["ps"]),
        ("optimizations", "{mixed_precision: bf16, loss_scale: {initial: 1024}}", &["ps"]),
        ("max_restarts", "1", &[]),
        ("on_nan", "skip", &[]),
        ("elastic", "{silence: 2}", &[]),
        ("tracking", "{tensorboard: true, mlflow: {uri: \"http://localhost:5000\"}}", &[]),
        ("tracking", "{histograms: 10}", &["ps"]),
        ("budget", "{hours: 2}", &[]),
        ("retention_policy", "{log_retention_days: 30}", &[]),
        ("resources", "{slots_per_trial: 2}", &[]),
        ("profiling", "{enabled: true}", &[]),
        ("environment", "{image: x}", &[]),
        ("bind_mounts", "[]", &[]),
        ("project", "x", &[]),
        ("workspace", "x", &[]),
    ];

    #[test]
    fn every_setting_works_with_every_strategy_or_is_refused_by_name() {
        for (field, value, refusing) in SETTINGS {
            for strategy in STRATEGIES {
                let own =
                    if value.is_empty() { String::new() } else { format!("{field}: {value}\n") };
                let parsed = Experiment::parse(&format!("strategy: {strategy}\n{own}"), &[]);
                match (refusing.contains(&strategy), parsed) {
                    (false, parsed) => drop(parsed.expect(field)),
                    (true, Ok(_)) => panic!("{field}: {value} is not refused with {strategy}"),
                    (true, Err(error)) => assert!(error.to_string().contains(field), "{error}"),
                }
            }
        }
    }

    #[test]
    fn the_table_has_every_setting() {
        let schema = schema();
        let known = schema["properties"].as_object().expect("an object");
        let listed: BTreeSet<&str> = SETTINGS.iter().map(|(field, ..)| *field).collect();
        let missing: Vec<&String> = known
            .keys()
            .filter(|field| !listed.contains(field.as_str()) && *field != "hyperparameters")
            .collect();
        assert_eq!(missing, Vec::<&String>::new());
    }
}
