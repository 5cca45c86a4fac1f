//! The experiment file that a job's pods read: as it was written, with what the job fixes laid over it. All
//! pods read the same text, so that they also agree on the seed.

use salamander_core::experiment::Experiment;
use salamander_core::yaml;

use crate::Error;
use crate::job::Job;

/// The experiment of a job: `text` with the job's strategy, workers and parameter servers, and a seed if it names none.
pub fn in_force(text: &str, job: &Job, seed: u32) -> Result<String, Error> {
    let wrong = |error: yaml::Error| Error::Invalid(format!("experiment: {error}"));
    let mut root = yaml::parse(text).map_err(wrong)?;
    let workers = &job.spec.workers;
    root.set(&format!("workers={{min: {}, max: {}}}", workers.min, workers.max)).map_err(wrong)?;
    root.set(&format!("strategy={}", serde_json::json!(job.spec.strategy))).map_err(wrong)?;
    if let Some(servers) = job.spec.servers() {
        root.set(&format!("ps.servers={servers}")).map_err(wrong)?;
    }
    if let Some(store) = job.spec.object_store() {
        root.set(&format!("checkpoint_storage.store={}", store.url)).map_err(wrong)?;
    }
    let named = root.get("reproducibility").and_then(|node| node.get("experiment_seed"));
    if named.is_none() {
        root.set(&format!("reproducibility.experiment_seed={seed}")).map_err(wrong)?;
    }
    let whole = yaml::to_yaml(&root.to_json());
    let experiment = Experiment::parse(&whole, &[]).map_err(|error| {
        // The line of the file that people wrote is of more use than that of the merged one.
        let original = Experiment::parse(text, &[]).err();
        wrong(original.unwrap_or(error))
    })?;
    let paths = experiment.data.training.0.iter().chain(&experiment.data.validation.0);
    for path in paths {
        if !path.starts_with('/') && !path.contains("://") {
            return Err(Error::Invalid(format!(
                "experiment: data: {path:?} is relative; write the path as the pods see it, for example \
                 /data/{path}, or an address such as s3://bucket/{path}"
            )));
        }
    }
    Ok(whole)
}

/// Whether two experiments in force differ in more than the number of parameter servers, which may change while the
/// job runs.
pub fn differ(one: &str, other: &str) -> bool {
    let fixed = |text: &str| {
        let mut value = yaml::parse(text).ok()?.to_json();
        if let Some(ps) = value.get_mut("ps").and_then(|ps| ps.as_object_mut()) {
            ps.remove("servers");
        }
        Some(value)
    };
    one != other && fixed(one) != fixed(other)
}

/// A seed that is the same whenever it is asked for.
pub fn seed_of(uid: &str) -> u32 {
    let bytes = uid.bytes().map(u64::from).collect::<Vec<u64>>();
    (salamander_core::seed::derive(0x5a1a, &bytes) >> 33) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "entrypoint: mnist\ndata:\n  training: /data/train.recordio\n";

    fn job() -> Job {
        let spec = serde_json::json!({
            "image": "i", "experiment": {"inline": {}}, "workers": {"min": 2, "max": 4},
        });
        Job::new("j", "n", serde_json::from_value(spec).expect("a spec")).expect("a job")
    }

    #[test]
    fn the_job_fixes_workers_strategy_and_seed() {
        let text = in_force(TEXT, &job(), 7).expect("right");
        let experiment = Experiment::parse(&text, &[]).expect("right");
        assert_eq!((experiment.workers.min, experiment.workers.max), (2, 4));
        assert_eq!(experiment.strategy, salamander_core::experiment::Strategy::Allreduce);
        assert_eq!(experiment.reproducibility.experiment_seed, Some(7));
        let named = format!("{TEXT}reproducibility: {{experiment_seed: 3}}\n");
        assert!(in_force(&named, &job(), 7).expect("right").contains("experiment_seed: 3"));
        assert_eq!(seed_of("a-b"), seed_of("a-b"));
        assert_ne!(seed_of("a-b"), seed_of("a-c"));
    }

    #[test]
    fn the_object_store_of_the_job_is_that_of_the_experiment() {
        let with = |url: &str| {
            let mut spec = job().spec;
            let store = serde_json::json!({"objectStore": {"url": url, "secretName": "keys"}});
            spec.checkpoints = Some(serde_json::from_value(store).expect("a store"));
            Job::new("j", "n", spec)
        };
        let text = in_force(TEXT, &with("s3://b/p").expect("a job"), 7).expect("right");
        let experiment = Experiment::parse(&text, &[]).expect("right");
        assert_eq!(experiment.checkpoint_storage.store.as_deref(), Some("s3://b/p"));
        for wrong in ["s3://id:hunter2@b/p", "https://h/p", "s3:///p", "b/p"] {
            let error = with(wrong).expect_err("wrong").to_string();
            assert!(error.contains("is like s3://bucket/prefix"), "{wrong}: {error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn the_number_of_servers_is_no_other_experiment() {
        let with = |replicas: i32, text: &str| {
            let spec = serde_json::json!({
                "image": "i", "experiment": {"inline": {}}, "workers": {"max": 4}, "strategy": "ps",
                "ps": {"replicas": replicas}, "storage": {"claimName": "runs"},
            });
            let spec = serde_json::from_value(spec).expect("a spec");
            in_force(text, &Job::new("j", "n", spec).expect("a job"), 7).expect("right")
        };
        let two = with(2, TEXT);
        assert_eq!(Experiment::parse(&two, &[]).expect("right").ps.servers, 2);
        assert!(!differ(&two, &with(3, TEXT)));
        let other = TEXT.replace("mnist", "other");
        assert!(differ(&two, &with(2, &other)));
    }

    #[test]
    fn mistakes_are_shown_where_they_were_made() {
        let error = in_force("entrypoint: mnist\nsercher: {}\n", &job(), 7).expect_err("wrong");
        let text = error.to_string();
        assert!(text.contains("line 2") && text.contains("searcher"), "{text}");
        let relative = TEXT.replace("/data/", "");
        let error = in_force(&relative, &job(), 7).expect_err("wrong").to_string();
        assert!(error.contains("\"train.recordio\" is relative"), "{error}");
    }
}
