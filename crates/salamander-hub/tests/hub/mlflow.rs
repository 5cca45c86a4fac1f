//! MLflow's unmodified client on a hub.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

use salamander_hub::api::Access;
use salamander_hub::ingest::Ingester;
use salamander_hub::store::points::{Window, times_of};
use salamander_hub::store::users::UserRole;
use salamander_hub::{Error, now};
use serde_json::{Value as Json, json};

use crate::folders::{Serving, write_run};

/// Python with a module; says so and returns nothing when it is not there. With SALAMANDER_NO_SKIPS, as in CI, that is
/// a failure.
pub(crate) fn python(module: &str) -> Option<String> {
    let python = std::env::var("SALAMANDER_PYTHON").unwrap_or_else(|_| "python3".to_string());
    let check = Command::new(&python).arg("-c").arg(format!("import {module}")).output();
    if check.is_ok_and(|output| output.status.success()) {
        return Some(python);
    }
    let reason = format!("{python} cannot import {module} (pip install {module})");
    assert!(std::env::var_os("SALAMANDER_NO_SKIPS").is_none(), "{reason}");
    println!("SKIPPED: {reason}");
    None
}

#[test]
fn mlflows_client_logs_searches_registers_and_reads_what_we_trained() {
    let Some(python) = python("mlflow") else { return };
    let runs = tempfile::tempdir().expect("a folder");
    write_run(runs.path(), "my-model-1", 30);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/hub/client_of_mlflow.py");
    let parent = {
        let serving = Serving::start(runs.path(), Access::Open);
        register(&serving);
        let address = format!("http://{}", serving.address);
        let output = Command::new(&python).args([script, &address]).output().expect("python");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let said: serde_json::Value =
            serde_json::from_str(said.lines().last().expect("a line")).expect("JSON");
        said["parent"].as_str().expect("a run").to_string()
    };
    // Another hub on the same runs knows all of it.
    let serving = Serving::start(runs.path(), Access::Open);
    let run = ask(&serving, &format!("GET /api/2.0/mlflow/runs/get?run_id={parent}"));
    assert!(run.starts_with("HTTP/1.1 200") && run.contains("\"accuracy\""), "{run}");
    // Theirs stand beside ours.
    let listed = ask(&serving, "GET /api/v1/runs?limit=100");
    for name in ["parent", "child", "my-model-1"] {
        assert!(listed.contains(&format!("\"{name}\"")), "{name}: {listed}");
    }
    let id = serving.hub.store().runs(&Default::default()).expect("read").items;
    let id = id.iter().find(|run| run.name == "parent").expect("there").id;
    let metrics = serving.hub.store().metrics(id).expect("read");
    let many = metrics.iter().find(|metric| metric.name == "many").expect("there");
    assert_eq!((many.points, many.last), (900, Some(899.0)));
}

/// Makes the checkpoint of the run a version of a model of ours.
fn register(serving: &Serving) {
    let client = serving.client();
    let model = json!({"name": "ours", "description": "trained here"});
    client.post::<Json>("api/v1/models", &model).expect("made");
    let version = json!({"run": "1.1", "checkpoint": "step-00000030", "notes": "the first"});
    client.post::<Json>("api/v1/models/ours/versions", &version).expect("registered");
    let alias = json!({"alias": "champion", "version": 1});
    client.post::<Json>("api/v1/models/ours/aliases", &alias).expect("named");
}

#[test]
fn a_curve_that_many_log_at_once_has_each_step_once() {
    const STEPS: i64 = 30;
    let runs = tempfile::tempdir().expect("a folder");
    let serving = Serving::start(runs.path(), Access::Open);
    let new = json!({"experiment_id": "0", "run_name": "together"});
    let made: Json = serving.client().post("api/2.0/mlflow/runs/create", &new).expect("made");
    let run = made["run"]["info"]["run_id"].as_str().expect("a run");
    std::thread::scope(|threads| {
        for _ in 0..8 {
            threads.spawn(|| {
                let client = serving.client();
                for step in 1..=STEPS {
                    let point = json!({"key": "loss", "value": step, "timestamp": 1, "step": step});
                    let batch = json!({"run_id": run, "metrics": [point]});
                    client.post::<Json>("api/2.0/mlflow/runs/log-batch", &batch).expect("logged");
                }
            });
        }
    });
    let listed = serving.hub.store().runs(&Default::default()).expect("read").items;
    let id = listed.iter().find(|run| run.name == "together").expect("there").id;
    let window = Window { from: i64::MIN, to: i64::MAX, stretches: 1000 };
    let curve = serving.hub.store().curve(id, "loss", &window).expect("read").expect("there");
    assert_eq!(curve.steps, (1..=STEPS).collect::<Vec<_>>());
    let metrics = serving.hub.store().metrics(id).expect("read");
    let loss = metrics.iter().find(|metric| metric.name == "loss").expect("there");
    assert_eq!(loss.points, STEPS as u64);
}

#[test]
fn what_is_logged_without_a_step_is_one_point_with_the_last_value() {
    let runs = tempfile::tempdir().expect("a folder");
    let summary = |serving: &Serving| {
        let store = serving.hub.store();
        let listed = store.runs(&Default::default()).expect("read").items;
        let run = listed.iter().find(|run| run.name == "stepless").expect("there");
        let metrics = store.metrics(run.id).expect("read");
        let m = metrics.iter().find(|metric| metric.name == "m").expect("there").clone();
        (run.steps, m.points, m.last, m.min, m.max)
    };
    let expected = (9, 1, Some(1.0), Some(1.0), Some(1.0));
    {
        let serving = Serving::start(runs.path(), Access::Open);
        let client = serving.client();
        let new = json!({"experiment_id": "0", "run_name": "stepless"});
        let made: Json = client.post("api/2.0/mlflow/runs/create", &new).expect("made");
        let run = made["run"]["info"]["run_id"].as_str().expect("a run");
        let log = |key: &str, value: f64, step: i64| {
            let point =
                json!({"run_id": run, "key": key, "value": value, "timestamp": 5, "step": step});
            client.post::<Json>("api/2.0/mlflow/runs/log-metric", &point).expect("logged");
        };
        log("loss", 0.5, 9);
        for value in [3.0, 2.0, 1.0] {
            log("m", value, 0);
        }
        let found: Json =
            client.get("api/2.0/mlflow/runs/get", &json!({"run_id": run})).expect("read");
        let found = found["run"]["data"]["metrics"].as_array().expect("metrics").clone();
        let m = found.iter().find(|metric| metric["key"] == "m").expect("there");
        assert_eq!(m["value"], 1.0, "what clients read");
        assert_eq!(summary(&serving), expected);
    }
    // The run goes on, so another hub reads its file again, and it adds nothing.
    assert_eq!(summary(&Serving::start(runs.path(), Access::Open)), expected);
    crate::place::forget(runs.path()).expect("removed");
    assert_eq!(summary(&Serving::start(runs.path(), Access::Open)), expected, "made again");
}

#[test]
fn every_point_has_its_time_for_our_curves_and_for_clients() {
    let runs = tempfile::tempdir().expect("a folder");
    let folder = write_run(runs.path(), "my-model-1", 3);
    let line = |step: i64| {
        let time = 1_700_000_000 + 10 * step;
        format!("{{\"kind\":\"step\",\"steps\":{step},\"loss\":0.5,\"time\":{time}.25}}\n")
    };
    let lines: String = (1..=3).map(line).collect();
    std::fs::write(folder.join("metrics.jsonl"), lines).expect("written");
    let times = |serving: &Serving, metric: &str| {
        let store = serving.hub.store();
        let listed = store.runs(&Default::default()).expect("read").items;
        let run = listed.iter().find(|run| run.name == "theirs").expect("there");
        let window = Window { from: i64::MIN, to: i64::MAX, stretches: 1000 };
        let curve = store.curve(run.id, &times_of(metric), &window).expect("read").expect("there");
        (curve.steps, curve.values)
    };
    // A validation counts epochs where the loss counts batches.
    let of_loss = (vec![1, 2, 3], vec![Some(1.5), Some(2.5), Some(3.75)]);
    let of_accuracy = (vec![1], vec![Some(3.75)]);
    {
        let serving = Serving::start(runs.path(), Access::Open);
        let client = serving.client();
        let new = json!({"experiment_id": "0", "run_name": "theirs"});
        let made: Json = client.post("api/2.0/mlflow/runs/create", &new).expect("made");
        let run = made["run"]["info"]["run_id"].as_str().expect("a run");
        for points in [
            json!([{"key": "loss", "value": 3, "timestamp": 1500, "step": 1}]),
            json!([{"key": "loss", "value": 2, "timestamp": 2500, "step": 2},
                   {"key": "loss", "value": 1, "timestamp": 3750, "step": 3},
                   {"key": "accuracy", "value": 0.5, "timestamp": 3750, "step": 1}]),
        ] {
            let batch = json!({"run_id": run, "metrics": points});
            client.post::<Json>("api/2.0/mlflow/runs/log-batch", &batch).expect("logged");
        }
        assert_eq!(times(&serving, "loss"), of_loss);
        assert_eq!(times(&serving, "accuracy"), of_accuracy);
        // The other way round: a client reads when the steps of a run of ours were.
        let ours = format!("5a1a{:014x}{:014x}", 1, 1);
        let asked = json!({"run_id": ours, "metric_key": "loss"});
        let told: Json = client.get("api/2.0/mlflow/metrics/get-history", &asked).expect("read");
        let told = told["metrics"].as_array().expect("points").clone();
        let told: Vec<_> = told.iter().map(|one| one["timestamp"].as_i64()).collect();
        assert_eq!(told, [1, 2, 3].map(|step| Some(1_700_000_000_250 + 10_000 * step)));
    }
    crate::place::forget(runs.path()).expect("removed");
    let serving = Serving::start(runs.path(), Access::Open);
    assert_eq!(times(&serving, "loss"), of_loss, "made again");
    assert_eq!(times(&serving, "accuracy"), of_accuracy, "made again");
}

#[test]
fn a_run_of_a_client_goes_on_though_it_has_no_folder() {
    let runs = tempfile::tempdir().expect("a folder");
    let serving = Serving::start(runs.path(), Access::Open);
    let new = json!({"experiment_id": "0", "run_name": "theirs"});
    serving.client().post::<Json>("api/2.0/mlflow/runs/create", &new).expect("made");
    Ingester::new(serving.hub.clone()).look_at_all().expect("read");
    let listed = serving.hub.store().runs(&Default::default()).expect("read").items;
    let run = listed.iter().find(|run| run.name == "theirs").expect("there");
    assert_eq!((run.state.as_str(), run.reason.as_deref()), ("running", None));
    let experiment = serving.hub.store().experiment(run.experiment).expect("there");
    assert_eq!(experiment.state, "running");
    let config = format!("api/v1/experiments/{}/config", run.experiment);
    let config: Json = serving.client().get(&config, &json!({})).expect("no file is no error");
    assert_eq!(config["config"], Json::Null);
    let missing = serving.client().config(run.experiment);
    assert!(matches!(missing, Err(Error::NotFound(_))), "{missing:?}");
}

#[test]
fn what_is_wrong_is_said_as_clients_expect_it() {
    let runs = tempfile::tempdir().expect("a folder");
    let serving = Serving::start(runs.path(), Access::Open);
    for (request, status, code) in [
        (
            "GET /api/2.0/mlflow/experiments/get-by-name?experiment_name=x",
            404,
            "RESOURCE_DOES_NOT_EXIST",
        ),
        ("GET /api/2.0/mlflow/traces", 404, "ENDPOINT_NOT_FOUND"),
        ("GET /api/3.0/mlflow/traces/get", 404, "ENDPOINT_NOT_FOUND"),
        ("GET /api/2.0/mlflow/runs/get", 400, "INVALID_PARAMETER_VALUE"),
        (
            "GET /api/2.0/mlflow-artifacts/artifacts/%2e%2e/%2e%2e/etc/passwd",
            400,
            "INVALID_PARAMETER_VALUE",
        ),
        (
            "GET /api/2.0/mlflow-artifacts/artifacts/0/..%2f..%2fjournal.jsonl",
            400,
            "INVALID_PARAMETER_VALUE",
        ),
        (
            "GET /api/2.0/mlflow-artifacts/artifacts/salamander/1.1/run.lock",
            404,
            "RESOURCE_DOES_NOT_EXIST",
        ),
        (
            "PUT /api/2.0/mlflow-artifacts/artifacts/salamander/1.1/experiment.yaml",
            404,
            "RESOURCE_DOES_NOT_EXIST",
        ),
    ] {
        let answer = ask(&serving, request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{request}: {answer}");
        assert!(answer.contains(code), "{request}: {answer}");
    }
}

#[test]
fn who_is_not_let_in_is_told_so_as_clients_expect_it() {
    let runs = tempfile::tempdir().expect("a folder");
    let serving = Serving::start(runs.path(), Access::Tokens);
    let store = serving.hub.store();
    store.set_user("viewer", UserRole::Viewer, now()).expect("made");
    let token = store.new_token("viewer", now(), None).expect("made");
    let asked = |request: &str, token: &str| {
        ask_with(&serving, request, &format!("Authorization: Bearer {token}\r\n"))
    };
    let check = |answer: &str, status: u16, code: &str| {
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer}");
        let body = answer.split_once("\r\n\r\n").expect("a body").1;
        let body: Json = serde_json::from_str(body).expect("JSON");
        assert_eq!(body["error_code"], code, "{body}");
        assert!(body["message"].is_string(), "{body}");
    };
    for request in
        ["POST /api/2.0/mlflow/runs/create", "PUT /api/2.0/mlflow-artifacts/artifacts/0/x"]
    {
        check(&asked(request, &token), 403, "PERMISSION_DENIED");
    }
    let stranger = |path: &str| asked(&format!("GET {path}"), "slm_a_b");
    check(&stranger("/ajax-api/2.0/mlflow/runs/get"), 401, "UNAUTHENTICATED");
    // Too many wrong ones, in this minute or in another one.
    let refused = loop {
        let answer = stranger("/api/3.0/mlflow/server-info");
        if !answer.starts_with("HTTP/1.1 401") {
            break answer;
        }
    };
    check(&refused, 429, "REQUEST_LIMIT_EXCEEDED");
    assert!(refused.to_lowercase().contains("retry-after: "), "{refused}");
    // Calls of our own have our words.
    assert!(stranger("/api/v1/runs").contains("{\"error\":"));
}

/// A request as it stands, and its answer.
fn ask(serving: &Serving, request: &str) -> String {
    ask_with(serving, request, "")
}

/// The same with lines of headers.
fn ask_with(serving: &Serving, request: &str, headers: &str) -> String {
    let mut stream = TcpStream::connect(serving.address).expect("connected");
    let head = format!(
        "{request} HTTP/1.1\r\nHost: {}\r\n{headers}Content-Length: 0\r\nConnection: close\r\n\r\n",
        serving.address
    );
    stream.write_all(head.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answered");
    answer
}
