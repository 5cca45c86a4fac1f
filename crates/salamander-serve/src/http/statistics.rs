//! Statistics of models, as the protocol's extension has them.

use serde_json::{Value as Json, json};

use crate::engine::{Registry, StatisticsNow, Version};

/// Of all models that are in service.
pub(crate) fn all(registry: &Registry) -> Json {
    let one = |status: crate::engine::ModelStatus| Some(one(&status.name, &*status.version?));
    json!({"model_stats": registry.list().into_iter().filter_map(one).collect::<Vec<_>>()})
}

/// Of one.
pub(crate) fn one(model: &str, version: &Version) -> Json {
    let StatisticsNow { succeeded, failed, rows, executions, queued, last, .. } =
        version.statistics.now();
    let none = json!({"count": 0, "ns": 0});
    json!({
        "name": model,
        "version": version.name,
        "last_inference": last,
        "inference_count": rows,
        "execution_count": executions.count,
        "inference_stats": {
            "success": succeeded,
            "fail": failed,
            "queue": queued,
            "compute_input": none,
            "compute_infer": executions,
            "compute_output": none,
            "cache_hit": none,
            "cache_miss": none,
        },
        "batch_stats": [],
    })
}
