//! The most that all pods of a job together may request, and how many workers fit into it.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{Resources, TrainingJobSpec};
use crate::Error;
use crate::objects::amount;
use crate::quantity::value;

/// What a master asks for if the job says nothing of it.
pub(crate) const MODEST: [(&str, &str); 2] = [("cpu", "100m"), ("memory", "128Mi")];

/// How many workers fit into the job's cap beside master and parameter servers; nothing if it has none.
pub fn most_workers(spec: &TrainingJobSpec) -> Option<i32> {
    let fits = spec.resource_cap.iter().filter_map(|(name, cap)| {
        let worker = requested(&spec.workers.resources, name);
        let left = read(cap)? - beside(spec, name);
        (worker > 0.0).then(|| (left / worker).floor())
    });
    fits.min_by(f64::total_cmp).map(|most| most.clamp(0.0, f64::from(i32::MAX)) as i32)
}

/// Whether the fewest workers fit into the cap, and every amount of it can be read.
pub fn check(spec: &TrainingJobSpec) -> Result<(), Error> {
    for (name, cap) in &spec.resource_cap {
        if read(cap).is_none() {
            let text = format!("spec.resourceCap.{name}: {:?} is no amount", amount(cap));
            return Err(Error::Invalid(text));
        }
    }
    match most_workers(spec).filter(|most| *most < spec.workers.min) {
        Some(most) => Err(Error::Invalid(format!(
            "spec.resourceCap lets {most} workers run, but workers.min is {}",
            spec.workers.min
        ))),
        None => Ok(()),
    }
}

/// What master and parameter servers request of a resource.
fn beside(spec: &TrainingJobSpec, name: &str) -> f64 {
    let own = &spec.master.resources;
    let modest = own.requests.is_empty() && own.limits.is_empty();
    let modest = MODEST.iter().find(|(known, _)| modest && *known == name);
    let master = modest.and_then(|(_, text)| value(text)).unwrap_or_else(|| requested(own, name));
    let servers = f64::from(spec.servers().unwrap_or(0));
    master + servers * spec.ps.as_ref().map_or(0.0, |ps| requested(&ps.resources, name))
}

/// What a pod requests: what it is limited to, if it says nothing else.
fn requested(resources: &Resources, name: &str) -> f64 {
    let found = resources.requests.get(name).or_else(|| resources.limits.get(name));
    found.and_then(read).unwrap_or(0.0)
}

fn read(amount_of: &IntOrString) -> Option<f64> {
    value(&amount(amount_of))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn spec(cap: Value, min: i32) -> TrainingJobSpec {
        let spec = json!({
            "image": "i", "experiment": {"inline": {}}, "resourceCap": cap, "strategy": "hybrid",
            "workers": {"min": min, "max": 8, "resources": {"requests": {"cpu": "500m"},
                "limits": {"nvidia.com/gpu": 1}}},
            "ps": {"replicas": 2, "resources": {"requests": {"cpu": 1}}},
        });
        serde_json::from_value(spec).expect("a spec")
    }

    #[test]
    fn no_more_workers_are_wanted_than_the_cap_lets_run() {
        let check = |cap: Value, expected: i32| {
            assert_eq!(spec(cap.clone(), 1).wanted_workers(), expected, "{cap}");
        };
        check(json!({}), 8);
        check(json!({"nvidia.com/gpu": 3}), 3);
        // Two servers with a core each, and a tenth of one for the master.
        check(json!({"cpu": 4}), 3);
        check(json!({"cpu": 4, "nvidia.com/gpu": 2}), 2);
        check(json!({"memory": "1Gi"}), 8);
        let error = super::check(&spec(json!({"cpu": 3}), 2)).expect_err("too little").to_string();
        assert_eq!(error, "spec.resourceCap lets 1 workers run, but workers.min is 2");
        let error = super::check(&spec(json!({"cpu": "much"}), 1)).expect_err("wrong").to_string();
        assert_eq!(error, "spec.resourceCap.cpu: \"much\" is no amount");
    }
}
