//! Statistics of models, as the protocol's extension has them.

use serde_json::{Value as Json, json};

use crate::engine::{Registry, ServedVersion, StatisticsNow, SumNow};

/// Of all models that are in service.
pub(crate) fn all(registry: &Registry) -> Json {
    let one = |status: crate::engine::ModelStatus| Some(one(&status.name, &*status.version?));
    json!({"model_stats": registry.list().into_iter().filter_map(one).collect::<Vec<_>>()})
}

/// Of one.
pub(crate) fn one(model: &str, version: &ServedVersion) -> Json {
    let now = version.statistics.now();
    let StatisticsNow { succeeded, failed, rows, executions, batches, queued, .. } = now;
    // Written with the answer: not timed apart.
    let written = SumNow { ns: 0, ..succeeded };
    let none = SumNow::default();
    let batch = |(size, computed): (usize, SumNow)| {
        json!({
            "batch_size": size,
            "compute_input": none,
            "compute_infer": computed,
            "compute_output": none,
        })
    };
    json!({
        "name": model,
        "version": version.name,
        "last_inference": now.last,
        "inference_count": rows,
        "execution_count": executions.count,
        "inference_stats": {
            "success": succeeded,
            "fail": failed,
            "queue": queued,
            "compute_input": now.decoded,
            "compute_infer": now.computed,
            "compute_output": written,
            "cache_hit": none,
            "cache_miss": none,
        },
        "batch_stats": batches.into_iter().map(batch).collect::<Vec<_>>(),
    })
}
