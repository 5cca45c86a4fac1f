//! The description of the API that programs read: one table, from which the document is made.

use serde_json::{Map, Value, json};

/// A parameter of the query: its name, its type, what it does.
type Parameter = (&'static str, &'static str, &'static str);

/// A route.
struct Route {
    method: &'static str,
    path: &'static str,
    about: &'static str,
    /// In parts, which several routes share.
    query: &'static [&'static [Parameter]],
    /// The schema of its body, if it has one.
    body: Option<&'static str>,
    /// The schema of its answer.
    answer: &'static str,
}

const fn get(path: &'static str, about: &'static str, answer: &'static str) -> Route {
    Route { method: "get", path, about, query: &[], body: None, answer }
}

const fn post(
    path: &'static str,
    about: &'static str,
    body: &'static str,
    answer: &'static str,
) -> Route {
    Route { method: "post", path, about, query: &[], body: Some(body), answer }
}

/// An answer that is not JSON.
const BYTES: &str = "Bytes";

/// Parameters of lists, of lists of runs, and of curves.
const PAGE: &[Parameter] = &[
    ("limit", "integer", "Rows of a page, 50 unless told otherwise, 1000 at most."),
    ("cursor", "string", "The `next` of the page before."),
    ("state", "string", "Only these states, with commas between."),
    ("label", "string", "Only with this label."),
    ("model", "string", "Only of this model."),
    ("name", "string", "Only with this in the name."),
    ("archived", "boolean", "Archived ones as well."),
];
const SORT: &[Parameter] = &[("sort", "string", "A field; `-` in front: the largest first.")];
const OF_RUNS: &[Parameter] = &[
    ("sort", "string", "A field, `metric:NAME` or `hparam:a.b`; `-` in front: the largest first."),
    ("experiment", "integer", "Only trials of this experiment."),
    ("ids", "string", "Only these runs, with commas between."),
    ("metrics", "string", "Metrics whose last values are wanted, with commas between; `*`: all."),
];
const CURVES: &[Parameter] = &[
    ("metrics", "string", "Names, with commas between; `loss` unless told otherwise."),
    ("from", "integer", "The first step."),
    ("to", "integer", "The last step."),
    (
        "points",
        "integer",
        "Stretches of which both extremes are given, 1000 unless told otherwise.",
    ),
];
const SEVERAL_RUNS: &[Parameter] = &[("runs", "string", "Runs, with commas between.")];
const LOGS: &[Parameter] = &[
    ("search", "string", "Words that a line has to have; the last one may be a beginning."),
    ("process", "string", "Only this process, such as `worker-0`."),
    ("level", "string", "Only this level (trace, debug, info, warn, error) and graver ones."),
    ("since", "integer", "Milliseconds since 1970."),
    ("until", "integer", "Milliseconds since 1970."),
    ("after", "string", "The `after` of the answer before."),
    ("tail", "boolean", "The last lines instead of the first."),
    ("limit", "integer", "How many lines, 100 unless told otherwise."),
];

const AUDIT: &[Parameter] = &[
    ("limit", "integer", "Rows of an answer, 100 unless told otherwise, 1000 at most."),
    (
        "before",
        "integer",
        "Only what came before the row of this number: the `next` of the answer before.",
    ),
];

const PART: &[Parameter] = &[
    ("path", "string", "The file, below the run's folder."),
    ("stamp", "string", "Which file of this name it is: another one begins anew."),
    ("offset", "integer", "Where the part begins."),
];

const ROUTES: &[Route] = &[
    Route { query: &[PAGE, SORT], ..get("/api/v1/experiments", "A page of experiments.", "Page") },
    post(
        "/api/v1/experiments",
        "Puts a new experiment into the queue.",
        "NewExperiment",
        "Experiment",
    ),
    get("/api/v1/experiments/{id}", "One experiment.", "Experiment"),
    Route {
        method: "patch",
        body: Some("Changes"),
        ..get("/api/v1/experiments/{id}", "Changes labels, description, priority.", "Experiment")
    },
    Route {
        method: "delete",
        ..get("/api/v1/experiments/{id}", "Removes it with its folder.", "Anything")
    },
    post(
        "/api/v1/experiments/{id}/{action}",
        "`pause`, `activate`, `cancel`, `kill`, `archive` or `unarchive`.",
        "Anything",
        "Experiment",
    ),
    post(
        "/api/v1/experiments/{id}/gc",
        "Removes the checkpoints that its policy does not keep.",
        "Collect",
        "Anything",
    ),
    get(
        "/api/v1/experiments/{id}/lineage",
        "What it is made from and starts from, and what starts from it.",
        "Anything",
    ),
    get("/api/v1/experiments/{id}/config", "Its file, or null.", "Anything"),
    get("/api/v1/experiments/{id}/checkpoints", "Of all trials, the best first.", "List"),
    Route {
        query: &[LOGS],
        ..get("/api/v1/experiments/{id}/logs", "What its command printed.", "Logs")
    },
    Route {
        query: &[PAGE, OF_RUNS],
        ..get("/api/v1/runs", "A page of runs of all experiments.", "Page")
    },
    get("/api/v1/runs/{id}", "One run.", "Run"),
    post("/api/v1/runs/{id}/kill", "Ends a trial at once.", "Anything", "Run"),
    post(
        "/api/v1/runs/{id}/scale",
        "Another number of workers or parameter servers.",
        "Scale",
        "Anything",
    ),
    get("/api/v1/runs/{id}/members", "What its master says; null where none leads it.", "Anything"),
    get("/api/v1/runs/{id}/profile", "What each of its processes took.", "Anything"),
    get("/api/v1/cluster", "Slots, the queue, and this machine.", "Anything"),
    get("/api/v1/pipelines", "Pipelines that were run beside the runs, the newest first.", "List"),
    get("/api/v1/pipelines/{name}", "One of them, with its picture as SVG.", "Anything"),
    get("/api/v1/experiments/{id}/usage", "What it may use, and has used.", "Anything"),
    Route {
        method: "put",
        body: Some("Budget"),
        ..get("/api/v1/experiments/{id}/usage", "Gives it another budget.", "Anything")
    },
    post(
        "/api/v1/remote-runs",
        "Begins to tell of a run of another machine, or goes on; answers what the hub has of it.",
        "RemoteRun",
        "Anything",
    ),
    Route {
        method: "put",
        query: &[PART],
        ..get("/api/v1/remote-runs/{uid}/files", "A part of a file of such a run.", "Anything")
    },
    post(
        "/api/v1/remote-runs/{uid}/alive",
        "Which of its folders somebody trains in.",
        "RemoteLife",
        "Anything",
    ),
    get("/api/v1/webhooks", "Who is told of ends; for admins.", "Anything"),
    post("/api/v1/webhooks", "Adds an address; for admins.", "NewWebhook", "Anything"),
    Route {
        method: "delete",
        ..get("/api/v1/webhooks/{id}", "Removes an address; for admins.", "Anything")
    },
    get("/api/v1/runs/{id}/summary", "What it wrote at its end.", "Anything"),
    get(
        "/api/v1/runs/{id}/report",
        "How good a classifier is, by class; null without one.",
        "Anything",
    ),
    get("/api/v1/runs/{id}/metrics", "Its metrics, without their curves.", "List"),
    get("/api/v1/metric-names", "The metrics that runs have or have had, 10,000 at most.", "List"),
    Route { query: &[CURVES], ..get("/api/v1/runs/{id}/curves", "Its curves.", "Anything") },
    Route {
        query: &[SEVERAL_RUNS, CURVES],
        ..get("/api/v1/curves", "Curves of several runs.", "List")
    },
    Route {
        query: &[SEVERAL_RUNS, CURVES],
        ..get("/api/v1/curves/binary", "The same in bytes.", BYTES)
    },
    get("/api/v1/runs/{id}/validations", "Validations and ends of epochs.", "List"),
    get("/api/v1/runs/{id}/checkpoints", "Its checkpoints, the oldest first.", "List"),
    get("/api/v1/runs/{id}/checkpoints/{name}", "One checkpoint.", "Anything"),
    Route {
        method: "delete",
        ..get("/api/v1/runs/{id}/checkpoints/{name}", "Deletes a checkpoint.", "Anything")
    },
    get("/api/v1/runs/{id}/checkpoints/{name}/files", "Its files.", "List"),
    Route { query: &[LOGS], ..get("/api/v1/runs/{id}/logs", "Lines of its logs.", "Logs") },
    Route { query: &[LOGS], ..get("/api/v1/logs", "Lines of all runs with these words.", "List") },
    get("/api/v1/models", "The registry.", "List"),
    post("/api/v1/models", "Makes a model.", "NewModel", "Anything"),
    get("/api/v1/models/{name}", "One model.", "Anything"),
    Route { method: "delete", ..get("/api/v1/models/{name}", "Deletes a model.", "Anything") },
    Route {
        method: "patch",
        body: Some("NewName"),
        ..get("/api/v1/models/{name}", "Gives a model another name.", "Anything")
    },
    post("/api/v1/models/{name}/versions", "Registers a checkpoint.", "NewVersion", "Anything"),
    Route {
        method: "delete",
        ..get("/api/v1/models/{name}/versions/{version}", "Deletes a version.", "Anything")
    },
    post("/api/v1/models/{name}/aliases", "Names a version.", "Alias", "Anything"),
    post("/api/v1/tokens", "Makes a user's token; for admins.", "NewToken", "Anything"),
    Route {
        query: &[AUDIT],
        ..get("/api/v1/audit", "Who did what, the newest first; for admins.", "Anything")
    },
];

/// The document.
pub(super) fn document() -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for route in ROUTES {
        let place = paths.entry(route.path).or_insert_with(|| json!({}));
        place[route.method] = operation(route);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Salamander hub",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Experiments, runs, curves, logs, checkpoints and models. Server-sent events: \
                /api/v1/events, /api/v1/runs/{id}/logs/follow.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas(),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    })
}

fn operation(route: &Route) -> Value {
    let in_path = route.path.split('{').skip(1).filter_map(|rest| rest.split('}').next());
    let of_path = in_path.map(
        |name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}),
    );
    let of_query = route.query.iter().copied().flatten().map(|(name, kind, about)| {
        json!({"name": name, "in": "query", "description": about, "schema": {"type": kind}})
    });
    let parameters: Vec<Value> = of_path.chain(of_query).collect();
    let schema = |name: &str| json!({"$ref": format!("#/components/schemas/{name}")});
    let content = |name: &str| json!({"application/json": {"schema": schema(name)}});
    let answer = match route.answer {
        BYTES => json!({"application/octet-stream": {}}),
        name => content(name),
    };
    let mut responses = json!({"200": {"description": "Done.", "content": answer}});
    let refusals = [
        ("400", "It makes no sense."),
        ("401", "Log in."),
        ("403", "You may not."),
        ("404", "It is not there."),
        ("409", "Its state does not allow it."),
        ("413", "The body is too large."),
        ("429", "Too many wrong tokens."),
        ("502", "The run's master does not answer."),
        ("503", "The store cannot be written now."),
    ];
    for (status, about) in refusals {
        responses[status] = json!({"description": about});
    }
    let mut operation =
        json!({"summary": route.about, "parameters": parameters, "responses": responses});
    if let Some(body) = route.body {
        operation["requestBody"] = json!({"required": true, "content": content(body)});
    }
    operation
}

fn schemas() -> Value {
    let object = |required: &[&str], properties: Value| {
        let mut schema = json!({"type": "object", "required": required});
        schema["properties"] = properties;
        schema
    };
    let text = || json!({"type": "string"});
    let texts = || json!({"type": "array", "items": {"type": "string"}});
    json!({
        "Anything": {},
        "List": {"type": "array"},
        "Page": object(&["items", "total"], json!({
            "items": {"type": "array"}, "next": {"type": ["string", "null"]}, "total": {"type": "integer"},
        })),
        "Logs": object(&["lines", "after"], json!({"lines": {"type": "array"}, "after": text()})),
        "Experiment": object(&["id", "name", "folder", "state"], json!({
            "id": {"type": "integer"}, "name": text(), "folder": text(), "state": text(),
        })),
        "Run": object(&["id", "experiment", "trial", "state"], json!({
            "id": text(), "experiment": {"type": "integer"}, "trial": {"type": "integer"}, "state": text(),
        })),
        "NewExperiment": object(&["config"], json!({
            "config": text(), "base": text(), "sets": texts(), "name": text(), "description": text(),
            "labels": texts(), "priority": {"type": "integer", "minimum": 1, "maximum": 99},
            "paused": {"type": "boolean"}, "program": text(), "program_hash": text(),
        })),
        "Changes": object(&[], json!({
            "add_labels": texts(), "remove_labels": texts(), "description": text(),
            "priority": {"type": "integer", "minimum": 1, "maximum": 99},
        })),
        "Collect": object(&[], json!({
            "dry_run": {"type": "boolean"},
            "save_experiment_best": {"type": "integer", "minimum": 0},
            "save_trial_best": {"type": "integer", "minimum": 0},
            "save_trial_latest": {"type": "integer", "minimum": 0},
        })),
        "RemoteRun": object(&["uid", "id"], json!({"uid": text(), "id": text(), "host": text()})),
        "RemoteLife": object(&["live"], json!({"live": texts()})),
        "Budget": object(&[], json!({
            "hours": {"type": ["number", "null"], "exclusiveMinimum": 0},
            "slot_hours": {"type": ["number", "null"], "exclusiveMinimum": 0},
        })),
        "Scale": object(&[], json!({
            "workers": {"type": "integer", "minimum": 1}, "servers": {"type": "integer", "minimum": 1},
        })),
        "NewWebhook": object(&["url"], json!({
            "url": text(), "states": {"type": "array", "items": {"enum": ["completed", "failed", "canceled"]}},
        })),
        "NewModel": object(&["name"], json!({"name": text(), "description": text()})),
        "NewName": object(&["name"], json!({"name": text()})),
        "NewVersion": object(&["run", "checkpoint"], json!({
            "run": text(), "checkpoint": text(), "notes": text(),
        })),
        "Alias": object(&["alias"], json!({"alias": text(), "version": {"type": ["integer", "null"]}})),
        "NewToken": object(&["user", "role"], json!({
            "user": text(), "role": {"enum": ["viewer", "editor", "admin"]}, "days": {"type": "integer"},
        })),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_schema_that_is_named_is_there() {
        let document = document();
        for route in ROUTES {
            let names = route.body.iter().chain([&route.answer]).filter(|name| **name != BYTES);
            for name in names {
                assert!(document["components"]["schemas"][name].is_object(), "{name}");
            }
        }
        let create = &document["paths"]["/api/v1/experiments"]["post"];
        assert_eq!(create["requestBody"]["required"], true);
        let run = &document["paths"]["/api/v1/runs/{id}"]["get"]["parameters"][0];
        assert_eq!(run["name"], "id");
    }
}
