//! Clients that mean no good: what they send is refused, and others are served as before.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use salamander_hub::api::Access;
use salamander_hub::store::page::ListQuery;
use salamander_hub::store::users::UserRole;
use salamander_hub::{Error, ExperimentId, now};
use serde_json::json;

use crate::folders::{Serving, write_run};

/// Sends bytes as they are, and gives the status and the body of the answer.
fn send(address: SocketAddr, request: &[u8]) -> (u16, String) {
    let mut stream = TcpStream::connect(address).expect("connected");
    let mut writer = stream.try_clone().expect("cloned");
    let request = request.to_vec();
    // A server that refuses early closes while we are writing.
    let writing = std::thread::spawn(move || writer.write_all(&request));
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let _ = writing.join().expect("no panic");
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    (status, answer)
}

fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    send(address, request.as_bytes())
}

/// Opens a stream of events; gives it with its status.
fn stream(address: SocketAddr) -> (u16, BufReader<TcpStream>) {
    let mut stream = TcpStream::connect(address).expect("connected");
    stream.write_all(b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("sent");
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    stream.read_line(&mut line).expect("answered");
    (line.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0), stream)
}

#[test]
fn thousands_of_idle_streams_disturb_nobody() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).expect("raised");
    let runs = tempfile::tempdir().expect("a folder");
    write_run(runs.path(), "a", 10);
    let serving = Serving::start(runs.path(), Access::Open);
    let (mut open, mut refused) = (Vec::new(), 0);
    for _ in 0..2500 {
        match stream(serving.address) {
            (200, stream) => open.push(stream),
            (503, _) => refused += 1,
            (status, _) => panic!("answered {status}"),
        }
    }
    assert_eq!(open.len() + refused, 2500);
    assert!((100..1000).contains(&open.len()), "{} streams", open.len());
    // Who sends nothing at all is no better off.
    let silent: Vec<TcpStream> =
        (0..500).map(|_| TcpStream::connect(serving.address).expect("connected")).collect();
    let client = serving.client();
    assert_eq!(client.runs(&ListQuery::default()).expect("listed").total, 1);
    client.change(ExperimentId(1), &json!({"add_labels": ["x"]})).expect("changed");
    for stream in [0, open.len() - 1] {
        let mut lines = (&mut open[stream]).lines().map(|line| line.expect("a line"));
        assert!(lines.any(|line| line.contains("\"experiments\":[1]")));
    }
    drop((open, silent));
    // Their places are free again, as soon as the server has heard of it.
    loop {
        client.change(ExperimentId(1), &json!({"description": "y"})).expect("changed");
        if stream(serving.address).0 == 200 {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_stream_of_logs_goes_on_where_it_broke_and_odd_names_do_no_harm() {
    let runs = tempfile::tempdir().expect("a folder");
    let logs = write_run(runs.path(), "a", 10).join("logs");
    for name in ["new\nline.log", "a,b.log", "a:1.log"] {
        std::fs::write(logs.join(name), "of nobody\n").expect("written");
    }
    let serving = Serving::start(runs.path(), Access::Open);
    // The first event: its id, and the lines that it has.
    let first = |last: &str| {
        let request =
            format!("GET /api/v1/runs/1.1/logs/follow HTTP/1.1\r\nHost: localhost\r\n{last}\r\n");
        let mut stream = TcpStream::connect(serving.address).expect("connected");
        stream.write_all(request.as_bytes()).expect("sent");
        let (mut id, mut data) = (None, None);
        for line in BufReader::new(stream).lines() {
            let line = line.expect("a line");
            id = id.or(line.strip_prefix("id:").map(|id| id.trim().to_string()));
            data = data.or(line.strip_prefix("data:").map(String::from));
            if let (Some(id), Some(data)) = (&id, &data) {
                return (id.clone(), data.clone());
            }
        }
        panic!("the stream has ended: {id:?} {data:?}");
    };
    let (id, data) = first("");
    assert_eq!(id, "worker-0:2");
    assert!(data.contains("starts") && data.contains("lease expired"), "{data}");
    assert!(!data.contains("of nobody"), "{data}");
    let (id, data) = first("Last-Event-ID: worker-0:1\r\n");
    assert_eq!(id, "worker-0:2");
    assert!(!data.contains("starts") && data.contains("lease expired"), "{data}");
}

#[test]
fn large_bodies_are_refused_before_they_are_read() {
    let runs = tempfile::tempdir().expect("a folder");
    let serving = Serving::start(runs.path(), Access::Open);
    let head = "POST /api/v1/experiments HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
                Content-Type: application/json\r\n";
    let body = format!("{{\"config\": \"{}\"}}", "x".repeat(10 << 20));
    let whole = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
    let refused = |request: &str| {
        // Cut off while it was still sent, or answered before.
        let status = send(serving.address, request.as_bytes()).0;
        assert!(matches!(status, 0 | 413), "{status}");
    };
    refused(&whole);
    let chunked =
        format!("{head}Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    refused(&chunked);
    let long = format!(
        "GET /api/v1/runs?name={} HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "x".repeat(1 << 20)
    );
    let status = send(serving.address, long.as_bytes()).0;
    assert!(matches!(status, 0 | 414 | 431), "{status}");
    assert_eq!(serving.client().experiments(&ListQuery::default()).expect("listed").total, 0);
}

#[test]
fn forged_ids_and_cursors_are_refused() {
    let runs = tempfile::tempdir().expect("a folder");
    write_run(runs.path(), "a", 10);
    let serving = Serving::start(runs.path(), Access::Open);
    for id in [
        "99999999999999999999.1",
        "-1.1",
        "1.-1",
        "1.1%00",
        "1.1'--",
        "1.1%20OR%201=1",
        "9223372036854775807.1",
        "1.9223372036854775807",
        "..",
        "%2e%2e%2f%2e%2e",
        "%F0%9F%A6%8E",
        "1.1/../../1.1",
    ] {
        for rest in ["", "/metrics", "/logs", "/checkpoints/..%2f..%2fexperiment.yaml/files"] {
            let (status, body) = get(serving.address, &format!("/api/v1/runs/{id}{rest}"));
            assert!(matches!(status, 400 | 404), "{id}{rest}: {status}");
            assert!(!body.contains("entrypoint"), "{body}");
        }
    }
    // Nor does a run that nobody has keep a stream open.
    assert_eq!(get(serving.address, "/api/v1/runs/99.1/logs/follow").0, 404);
    for path in [
        "..%2f..%2fexperiment.yaml",
        "%2e%2e/%2e%2e/experiment.yaml",
        "/etc/passwd",
        "%2fetc%2fpasswd",
    ] {
        let path = format!("/api/v1/runs/1.1/checkpoints/step-00000010/files/{path}");
        let (status, body) = get(serving.address, &path);
        assert!(matches!(status, 400 | 404), "{path}: {status}");
        assert!(!body.contains("entrypoint") && !body.contains("root:"), "{body}");
    }
    // Cursors of other lists: refused, or a page, and never the server's fault.
    for cursor in [
        "t27",
        "t27.1",
        "i1.1",
        "rzz.1",
        "n.1",
        "i9223372036854775807.-1",
        "t.",
        "r7ff8000000000000.1",
        "'",
    ] {
        for sort in ["id", "name", "-best", "hparam:learning_rate", "metric:loss"] {
            let path = format!("/api/v1/runs?sort={sort}&cursor={cursor}");
            let status = get(serving.address, &path).0;
            assert!(matches!(status, 200 | 400), "{path}: {status}");
        }
    }
}

#[test]
fn sql_in_names_is_a_name() {
    let runs = tempfile::tempdir().expect("a folder");
    write_run(runs.path(), "a'; DROP TABLE runs; --", 10);
    let serving = Serving::start(runs.path(), Access::Open);
    let client = serving.client();
    let id = ExperimentId(1);
    for label in ["'; DROP TABLE labels; --", "\" OR 1=1", "$1", "?1", "a\\' b", "%"] {
        client.change(id, &json!({"add_labels": [label]})).expect("labelled");
        let query = ListQuery { label: Some(label.into()), ..ListQuery::default() };
        assert_eq!(client.runs(&query).expect("listed").total, 1, "{label}");
    }
    for name in ["' OR '1'='1", "%", "_", "?1", "$1", "a%"] {
        let query = ListQuery { name: Some(name.into()), ..ListQuery::default() };
        assert_eq!(client.runs(&query).expect("listed").total, 0, "{name}");
    }
    for sort in [
        "hparam:a'b",
        "hparam:\"",
        "hparam:\\",
        "hparam:",
        "metric:' OR 1=1 --",
        "hparam:a.b..c",
        "hparam:$",
    ] {
        let query = ListQuery { sort: Some(sort.into()), ..ListQuery::default() };
        assert_eq!(client.runs(&query).expect("listed").total, 1, "{sort}");
    }
    for words in ["lease' OR 1=1", "\"lease\" *", "lease AND", "NOT lease", "a:b", "(((", "lease:*"]
    {
        let query = salamander_hub::store::logs::LogQuery {
            search: Some(words.into()),
            ..Default::default()
        };
        let found = client.search_logs(&query);
        assert!(matches!(&found, Ok(_) | Err(Error::Invalid(_))), "{words}: {found:?}");
    }
    let name = "'; DROP TABLE models; --";
    match client.post::<serde_json::Value>("api/v1/models", &json!({"name": name})) {
        Ok(_) => assert_eq!(serving.hub.store().model(name).expect("there").name, name),
        Err(error) => assert!(matches!(error, Error::Invalid(_)), "{error}"),
    }
    assert_eq!(
        client.runs(&ListQuery::default()).expect("listed").items[0].folder,
        "a'; DROP TABLE runs; --"
    );
}

#[test]
fn tokens_of_others_and_of_yesterday_open_nothing_more() {
    let runs = tempfile::tempdir().expect("a folder");
    write_run(runs.path(), "a", 10);
    let serving = Serving::start(runs.path(), Access::Tokens);
    let store = serving.hub.store();
    let token = |name: &str, role, expires| {
        store.set_user(name, role, now()).expect("made");
        store.new_token(name, now(), expires).expect("made")
    };
    let viewer = serving.client_with(Some(token("viewer", UserRole::Viewer, None)));
    let editor = serving.client_with(Some(token("editor", UserRole::Editor, None)));
    let gone = serving.client_with(Some(token("gone", UserRole::Admin, Some(now() - 1))));
    assert_eq!(viewer.runs(&ListQuery::default()).expect("listed").total, 1);
    let labels = json!({"add_labels": ["x"]});
    let error = viewer.change(ExperimentId(1), &labels).expect_err("only looks");
    assert!(matches!(error, Error::Forbidden(_)), "{error}");
    editor.change(ExperimentId(1), &labels).expect("may");
    let new = json!({"user": "editor", "role": "admin"});
    let error = editor.post::<serde_json::Value>("api/v1/tokens", &new).expect_err("no admin");
    assert!(matches!(error, Error::Forbidden(_)), "{error}");
    let error = gone.runs(&ListQuery::default()).expect_err("expired");
    assert!(matches!(error, Error::Unauthorized(_)), "{error}");
    for path in [
        "/api/v1/events",
        "/metrics",
        "/api/v1/runs/1.1/logs/follow",
        "/api/2.0/mlflow/experiments/search",
    ] {
        assert_eq!(get(serving.address, path).0, 401, "{path}");
    }
}

#[test]
fn streams_of_a_user_who_is_removed_end() {
    let runs = tempfile::tempdir().expect("a folder");
    write_run(runs.path(), "a", 10);
    let serving = Serving::start(runs.path(), Access::Tokens);
    let store = serving.hub.store();
    let token = |name: &str| {
        store.set_user(name, UserRole::Editor, now()).expect("made");
        store.new_token(name, now(), None).expect("made")
    };
    let (gone, stays) = (token("gone"), token("stays"));
    let streams: Vec<_> = ["/api/v1/events", "/api/v1/runs/1.1/logs/follow"]
        .map(|path| {
            let mut stream = TcpStream::connect(serving.address).expect("connected");
            let head = format!(
                "GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {gone}\r\n\
                 Connection: close\r\n\r\n"
            );
            stream.write_all(head.as_bytes()).expect("sent");
            let mut stream = BufReader::new(stream);
            let mut status = String::new();
            stream.read_line(&mut status).expect("answered");
            assert!(status.contains(" 200 "), "{status}");
            // Ends with the stream.
            std::thread::spawn(move || stream.lines().map_while(Result::ok).count())
        })
        .into();
    store.remove_user("gone").expect("removed");
    let client = serving.client_with(Some(stays));
    let log = runs.path().join("a/logs/worker-0.log");
    let mut ingester = salamander_hub::ingest::Ingester::new(serving.hub.clone());
    while !streams.iter().all(std::thread::JoinHandle::is_finished) {
        client.change(ExperimentId(1), &json!({"add_labels": ["x"]})).expect("changed");
        let mut log = std::fs::OpenOptions::new().append(true).open(&log).expect("opened");
        log.write_all(b"a secret\n").expect("written");
        ingester.look_at_all().expect("read");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_viewer_searches_and_logs_nothing() {
    let runs = tempfile::tempdir().expect("a folder");
    write_run(runs.path(), "a", 10);
    let serving = Serving::start(runs.path(), Access::Tokens);
    let store = serving.hub.store();
    store.set_user("viewer", UserRole::Viewer, now()).expect("made");
    let token = store.new_token("viewer", now(), None).expect("made");
    let viewer = serving.client_with(Some(token));
    let post = |path: &str, body: serde_json::Value| {
        viewer.post::<serde_json::Value>(&format!("api/2.0/mlflow/{path}"), &body)
    };
    post("experiments/search", json!({"max_results": 10})).expect("searched");
    post("runs/search", json!({"experiment_ids": ["0"], "max_results": 10})).expect("searched");
    for search in [
        "experiments/search-datasets",
        "logged-models/search",
        "registered-models/get-latest-versions",
    ] {
        let found = post(search, json!({"experiment_ids": ["0"], "name": "nobody"}));
        assert!(!matches!(found, Err(Error::Forbidden(_))), "{search}: {found:?}");
    }
    for (call, body) in [
        ("experiments/create", json!({"name": "mine"})),
        ("runs/create", json!({"experiment_id": "0"})),
        ("runs/log-metric", json!({"run_id": "x", "key": "loss", "value": 1, "timestamp": 1})),
        ("runs/search/", json!({})),
        ("registered-models/create", json!({"name": "mine"})),
    ] {
        let refused = post(call, body);
        assert!(matches!(refused, Err(Error::Forbidden(_))), "{call}: {refused:?}");
    }
}

#[test]
fn admins_see_who_did_what_and_others_do_not() {
    let runs = tempfile::tempdir().expect("a folder");
    write_run(runs.path(), "a", 10);
    let serving = Serving::start(runs.path(), Access::Tokens);
    let store = serving.hub.store();
    let client = |name: &str, role| {
        store.set_user(name, role, now()).expect("made");
        serving.client_with(Some(store.new_token(name, now(), None).expect("made")))
    };
    let editor = client("editor", UserRole::Editor);
    let admin = client("admin", UserRole::Admin);
    editor.change(ExperimentId(1), &json!({"add_labels": ["x"]})).expect("changed");
    let new = json!({"user": "ada", "role": "viewer"});
    admin.post::<serde_json::Value>("api/v1/tokens", &new).expect("made");
    let refused = editor.get::<serde_json::Value>("api/v1/audit", &json!({}));
    assert!(matches!(refused, Err(Error::Forbidden(_))), "{refused:?}");
    let asked = |query: serde_json::Value| {
        admin.get::<serde_json::Value>("api/v1/audit", &query).expect("told")
    };
    let newest = asked(json!({"limit": 1}));
    assert_eq!(newest["items"][0]["user"], "admin");
    assert_eq!(newest["items"][0]["operation"]["do"], "make_token");
    assert_eq!(newest["items"][0]["operation"]["name"], "ada");
    let before = asked(json!({"before": newest["next"]}));
    let label = &before["items"][0];
    assert_eq!((&label["user"], &label["operation"]["do"]), (&json!("editor"), &json!("label")));
    assert_eq!(label["operation"]["add"], json!(["x"]));
    assert!(!before.to_string().contains("slm_"), "no token is kept");
}
