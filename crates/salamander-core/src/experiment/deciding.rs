//! The part of an experiment that decides about what is learned: all processes of a run must have it in common.

use serde_json::Value;

use super::Experiment;

/// Settings that say nothing about what a step comes to, or that processes of one run may have differently: for people,
/// for the host, for whoever leads. Everything else decides, what is added later too.
const FREE: [&str; 33] = [
    "name",
    "description",
    "labels",
    // Files are compared by what is in them.
    "data.training",
    "data.validation",
    "data.threads",
    "data.cache_megabytes",
    "data.fit",
    // Slices decide, and are compared by their number.
    "workers",
    "micro_batches",
    "ps.servers",
    "device",
    "threads",
    "records_per_epoch",
    "recovery_period",
    "checkpoint_storage",
    // Only who begins a run reads it.
    "start_from",
    "max_restarts",
    // Not its transport: members with different ones wait for each other in different places.
    "elastic.silence",
    "elastic.hang",
    "budget",
    "retention_policy",
    "resources",
    "profiling",
    "environment",
    "bind_mounts",
    "project",
    "workspace",
    "searcher.name",
    "searcher.max_trials",
    "searcher.max_concurrent_trials",
    "searcher.source_trial_id",
    "searcher.source_checkpoint_uuid",
];

impl Experiment {
    /// What decides, with the model's hyperparameters as it read them.
    pub fn deciding(&self, hyperparameters: &Value) -> Value {
        let mut root = serde_json::to_value(&self.settings).unwrap_or_default();
        for path in FREE {
            remove(&mut root, path);
        }
        serde_json::json!({
            "settings": root,
            "hyperparameters": hyperparameters,
            "global_batch_size": self.global_batch,
        })
    }
}

/// Takes out what is at a path of names, if it is there.
fn remove(root: &mut Value, path: &str) {
    let (folder, name) = path.rsplit_once('.').unwrap_or(("", path));
    let mut node = root;
    for part in folder.split('.').filter(|part| !part.is_empty()) {
        match node.get_mut(part) {
            Some(inner) => node = inner,
            None => return,
        }
    }
    if let Some(map) = node.as_object_mut() {
        map.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::schema;

    fn deciding(text: &str) -> Value {
        let experiment = Experiment::parse(text, &[]).expect(text);
        experiment.deciding(&serde_json::json!({"learning_rate": 0.1}))
    }

    #[test]
    fn what_changes_the_model_decides_and_what_helps_a_host_does_not() {
        let plain = deciding("");
        let free = [
            "name: x",
            "data: {training: [a.csv], threads: 3, cache_megabytes: 1}",
            "workers: 4",
            "threads: 2",
            "device: cpu",
            "elastic: {silence: 2, hang: 30}",
            "start_from: a.safetensors",
            "checkpoint_storage: {save_trial_latest: 3}",
        ];
        free.iter().for_each(|text| assert_eq!(deciding(text), plain, "{text}"));
        let deciders = [
            "clip: {norm: 1}",
            "elastic: {transport: tcp}",
            "schedule: {warmup: 3}",
            "data: {shuffle: none}",
            "data: {csv: {separator: tab}}",
            "on_nan: skip",
            "early_stop: {patience: 2}",
            "searcher: {metric: accuracy}",
            "min_validation_period: {batches: 7}",
            "optimizations: {mixed_precision: bf16}",
            "hyperparameters: {global_batch_size: 32}",
        ];
        deciders.iter().for_each(|text| assert_ne!(deciding(text), plain, "{text}"));
        let other = Experiment::parse("", &[]).expect("nothing is a default");
        assert_ne!(other.deciding(&serde_json::json!({"learning_rate": 0.2})), plain);
    }

    /// A name that no setting has frees nothing, and would hide a mistake.
    #[test]
    fn what_is_free_is_a_setting() {
        let schema = schema();
        let definitions = &schema["$defs"];
        for path in FREE {
            let mut node = &schema;
            for part in path.split('.') {
                let field = &node["properties"][part];
                assert!(!field.is_null(), "{path}");
                let name = field["$ref"].as_str().and_then(|at| at.rsplit('/').next());
                node = name.map_or(field, |name| &definitions[name]);
            }
        }
    }
}
