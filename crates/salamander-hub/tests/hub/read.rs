//! What a hub knows of folders, over HTTP.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;

use rcgen::{CertificateParams, KeyPair};
use salamander_hub::api::Access;
use salamander_hub::ingest::Ingester;
use salamander_hub::remote::RemoteRun;
use salamander_hub::server::Listen;
use salamander_hub::store::logs::LogQuery;
use salamander_hub::store::page::ListQuery;
use salamander_hub::store::users::UserRole;
use salamander_hub::{Daemon, DaemonOptions, Error, RunId, now};

use crate::folders::{Serving, write_metrics, write_run};
use crate::open_metrics;
use crate::place::{forget, open};

fn id(text: &str) -> RunId {
    text.parse().expect("a run")
}

#[test]
fn a_folder_becomes_an_experiment_with_a_run_curves_logs_and_checkpoints() {
    let runs = tempfile::tempdir().expect("a folder");
    write_run(runs.path(), "my-model-1", 3000);
    let serving = Serving::start(runs.path(), Access::Open);
    let client = serving.client();
    let experiments = client.experiments(&ListQuery::default()).expect("listed");
    assert_eq!(experiments.total, 1);
    let experiment = &experiments.items[0];
    assert_eq!((experiment.name.as_str(), experiment.state.as_str()), ("my model", "completed"));
    assert_eq!((experiment.best, experiment.best_run), (Some(0.75), Some(id("1.1"))));
    assert_eq!(experiment.progress, Some(1.0));
    let run = client.run(id("1.1")).expect("there");
    assert_eq!((run.steps, run.total_steps, run.steps_per_epoch), (3000, Some(3000), Some(10)));
    assert_eq!((run.best, run.best_steps), (Some(0.75), Some(3000)));
    assert_eq!(run.hparams["learning_rate"], 0.1);
    assert_eq!(run.metrics["validation/accuracy"], Some(0.75));
    let reduced = client.curves(id("1.1"), &["loss", "nothing"], 10).expect("read");
    assert_eq!(reduced.curves.len(), 1);
    let curve = &reduced.curves[0];
    assert!(curve.reduced && curve.points == 3000 && curve.steps.len() <= 20, "{curve:?}");
    assert_eq!((curve.values[0], curve.steps[0]), (Some(1.0), 1));
    let raw = client.curves(id("1.1"), &["loss"], 5000).expect("read");
    assert_eq!((raw.curves[0].steps.len(), raw.curves[0].reduced), (3000, false));
    let validations = client.validations(id("1.1")).expect("read");
    assert_eq!(validations.len(), 1);
    let checkpoints = client.checkpoints(id("1.1")).expect("read");
    assert_eq!((checkpoints[0].name.as_str(), checkpoints[0].bytes), ("step-00003000", 12));
    let search = LogQuery { search: Some("lease".into()), ..LogQuery::default() };
    assert_eq!(client.logs(id("1.1"), &search).expect("read").lines.len(), 1);
    assert_eq!(client.search_logs(&search).expect("read")[0].process, "worker-0");
    assert!(client.config(experiment.id).expect("read").contains("entrypoint: net"));
}

#[test]
fn a_resumed_run_has_its_new_curve_and_nothing_of_the_old() {
    let runs = tempfile::tempdir().expect("a folder");
    let folder = write_run(runs.path(), "a", 50);
    let hub = open(runs.path()).expect("opened");
    let mut ingester = Ingester::new(hub.clone());
    ingester.look_at_all().expect("read");
    write_metrics(&folder, 20);
    ingester.look_at_all().expect("read");
    let run = hub.store().run(id("1.1")).expect("there");
    assert_eq!((run.steps, run.best_steps), (20, Some(20)));
    let loss = hub.store().metrics(id("1.1")).expect("read");
    let loss = loss.iter().find(|metric| metric.name == "loss").expect("there");
    assert_eq!((loss.points, loss.min), (20, Some(0.05)));
    assert_eq!(hub.store().validations(id("1.1")).expect("read").len(), 1);
    // Looked at again, nothing is doubled.
    ingester.look_at_all().expect("read");
    drop(ingester);
    Ingester::new(hub.clone()).look_at_all().expect("read");
    let again = hub.store().metrics(id("1.1")).expect("read");
    assert_eq!(again.iter().find(|metric| metric.name == "loss").expect("there").points, 20);
}

#[test]
fn a_store_that_is_made_again_is_the_same() {
    let runs = tempfile::tempdir().expect("a folder");
    for (name, steps) in [("b", 30), ("a", 2000), ("c", 5)] {
        write_run(runs.path(), name, steps);
    }
    let look = || {
        let hub = open(runs.path()).expect("opened");
        Ingester::new(hub.clone()).look_at_all().expect("read");
        let all = ListQuery {
            metrics: Some("*".into()),
            sort: Some("id".into()),
            ..ListQuery::default()
        };
        let strip = |mut value: serde_json::Value| {
            for item in value["items"].as_array_mut().expect("items") {
                item["change"] = 0.into();
            }
            value
        };
        let runs =
            strip(serde_json::to_value(hub.store().runs(&all).expect("read")).expect("json"));
        let experiments = hub.store().experiments(&ListQuery::default()).expect("read");
        (runs, strip(serde_json::to_value(experiments).expect("json")))
    };
    let before = look();
    forget(runs.path()).expect("removed");
    assert_eq!(look(), before);
    assert_eq!(look(), before, "and so is one that is only opened again");
}

#[test]
fn lists_are_sorted_filtered_and_gone_on_with() {
    let runs = tempfile::tempdir().expect("a folder");
    for n in 1..=7 {
        write_run(runs.path(), &format!("run-{n}"), n * 10);
    }
    fs::remove_file(runs.path().join("run-7/summary.json")).expect("removed");
    let serving = Serving::start(runs.path(), Access::Open);
    let client = serving.client();
    for sort in
        ["id", "-id", "steps", "-steps", "metric:loss", "-hparam:learning_rate", "name", "-started"]
    {
        let (mut seen, mut cursor) = (Vec::new(), None);
        loop {
            let query = ListQuery {
                sort: Some(sort.into()),
                limit: Some(2),
                cursor,
                ..ListQuery::default()
            };
            let page = client.runs(&query).expect("listed");
            assert_eq!(page.total, 7);
            seen.extend(page.items.iter().map(|run| run.id));
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(seen.len(), 7, "{sort}");
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), 7, "{sort}: none twice");
    }
    let query = ListQuery { state: Some("interrupted,failed".into()), ..ListQuery::default() };
    assert_eq!(client.runs(&query).expect("listed").items[0].folder, "run-7");
    let query = ListQuery { name: Some("RUN-3".into()), ..ListQuery::default() };
    assert_eq!(client.runs(&query).expect("listed").total, 1);
    let query = ListQuery { sort: Some("id; DROP TABLE runs".into()), ..ListQuery::default() };
    let error = client.runs(&query).expect_err("refused").to_string();
    assert!(error.contains("to sort by"), "{error}");
}

#[test]
fn strangers_and_nonsense_are_refused() {
    let runs = tempfile::tempdir().expect("a folder");
    write_run(runs.path(), "a", 10);
    let serving = Serving::start(runs.path(), Access::Open);
    let ask =
        |request: &str| send(&serving, request).lines().next().unwrap_or_default().to_string();
    let get = |path: &str, host: &str| {
        ask(&format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"))
    };
    assert!(get("/healthz", "localhost").contains("200"));
    assert!(get("/api/v1/runs", "localhost:1").contains("200"));
    assert!(get("/api/v1/runs", "evil.example").contains("403"), "another name for this address");
    for path in ["/api/v1/runs/../../etc/passwd", "/api/v1/runs/%2e%2e%2fx", "/api/v1/runs/1.1;x"] {
        let answer = get(path, "localhost");
        assert!(answer.contains("400") || answer.contains("404"), "{path}: {answer}");
    }
    assert!(get("/api/v1/runs?limit=many", "localhost").contains("400"));
    assert!(get("/api/v1/runs?cursor=zzz", "localhost").contains("400"));
    assert!(get("/api/v1/runs/9.1", "localhost").contains("404"));
    assert!(get("/nowhere", "localhost").contains("404"));
    let tag = tag_of_runs(&serving);
    assert!(ask(&runs_unless(&tag)).contains("304"));
    assert!(ask(&runs_unless("\"1\"")).contains("200"));
}

#[test]
fn what_one_hub_has_answered_is_nothing_to_another() {
    let runs = tempfile::tempdir().expect("a folder");
    write_run(runs.path(), "a", 10);
    let first = Serving::start(runs.path(), Access::Open);
    let tag = tag_of_runs(&first);
    assert!(send(&first, &runs_unless(&tag)).starts_with("HTTP/1.1 304"));
    drop(first);
    // On the same address, and perhaps with as many changes.
    let second = Serving::start(runs.path(), Access::Open);
    assert!(send(&second, &runs_unless(&tag)).starts_with("HTTP/1.1 200"));
    assert_ne!(tag_of_runs(&second), tag);
}

#[test]
fn figures_are_open_metrics() {
    let runs = tempfile::tempdir().expect("a folder");
    write_run(runs.path(), "a", 10);
    let serving = Serving::start(runs.path(), Access::Open);
    let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let answer = send(&serving, request);
    let (head, page) = answer.split_once("\r\n\r\n").expect("a body");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert!(head.to_lowercase().contains("application/openmetrics-text"), "{head}");
    assert!(open_metrics::check(page, "salamander_hub_") > 4, "{page}");
    for name in ["salamander_hub_runs{state=\"completed\"} 1", "salamander_hub_changes_total "] {
        assert!(page.lines().any(|line| line.starts_with(name)), "{name}: {page}");
    }
}

#[test]
fn a_large_summary_of_a_run_elsewhere_arrives_whole() {
    let runs = tempfile::tempdir().expect("a folder");
    let serving = Serving::start(runs.path(), Access::Open);
    let uid = "0123456789abcdef0123456789abcdef";
    let run = RemoteRun { uid: uid.into(), id: "search".into(), host: "there".into() };
    let standing = serving.hub.begin_remote(&run).expect("begun");
    // Sends a summary of so many bytes, and gives the status and how much is there then.
    let put = |bytes: usize, stamp: &str| {
        let mut summary = b"{\"state\":\"completed\",\"trials\":\"".to_vec();
        summary.resize(bytes - 2, b'x');
        summary.extend(b"\"}");
        let head = format!(
            "PUT /api/v1/remote-runs/{uid}/files?path=summary.json&stamp={stamp}&offset=0 HTTP/1.1\r\n\
             Host: localhost\r\nConnection: close\r\nContent-Length: {bytes}\r\n\r\n"
        );
        let mut stream = TcpStream::connect(serving.address).expect("connected");
        // A hub that refuses it closes while it is sent.
        let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&summary));
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        let path = runs.path().join(&standing.folder).join("summary.json");
        let kept = fs::read(path).is_ok_and(|kept| kept == summary);
        let status = answer.split(' ').nth(1).and_then(|status| status.parse::<u16>().ok());
        (status.unwrap_or(0), kept)
    };
    assert_eq!(put(3 << 20, "1"), (200, true));
    assert_eq!(put(16 << 20, "2"), (200, true));
    let (status, kept) = put(18 << 20, "3");
    assert!(matches!(status, 0 | 413) && !kept, "{status}");
}

/// A request as it stands, and its answer.
fn send(serving: &Serving, request: &str) -> String {
    let mut stream = TcpStream::connect(serving.address).expect("connected");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer
}

/// Asks for all runs, unless they are those of this tag.
fn runs_unless(tag: &str) -> String {
    format!(
        "GET /api/v1/runs HTTP/1.1\r\nHost: localhost\r\nIf-None-Match: {tag}\r\nConnection: close\r\n\r\n"
    )
}

/// The tag of the list of runs.
fn tag_of_runs(serving: &Serving) -> String {
    let answer = send(serving, &runs_unless("\"nothing\""));
    let mut headers = answer.lines().filter_map(|line| line.split_once(": "));
    let tag = headers.find(|(name, _)| name.eq_ignore_ascii_case("etag"));
    tag.expect("a tag").1.trim().to_string()
}

#[test]
fn with_a_login_only_tokens_open() {
    let runs = tempfile::tempdir().expect("a folder");
    let serving = Serving::start(runs.path(), Access::Tokens);
    let store = serving.hub.store();
    store.set_user("ada", UserRole::Viewer, now()).expect("made");
    let token = store.new_token("ada", now(), None).expect("made");
    let expired = store.new_token("ada", now(), Some(now() - 1)).expect("made");
    let list = |token: Option<String>| {
        serving.client_with(token).runs(&ListQuery::default()).map(|page| page.total)
    };
    assert_eq!(list(Some(token)).expect("let in"), 0);
    for wrong in [None, Some(expired), Some("slm_0_0".to_string())] {
        let error = list(wrong.clone()).expect_err("refused");
        assert!(matches!(error, Error::Unauthorized(_)), "{wrong:?}: {error}");
    }
}

#[test]
fn a_second_hub_is_refused() {
    let runs = tempfile::tempdir().expect("a folder");
    let _first = open(runs.path()).expect("opened");
    let error = open(runs.path()).err().expect("refused").to_string();
    assert!(error.contains("a hub for these runs is there already"), "{error}");
}

#[test]
fn commands_of_the_same_folder_find_a_hub_with_its_scheme() {
    let place = tempfile::tempdir().expect("a folder");
    let key = KeyPair::generate().expect("a key");
    let certificate = CertificateParams::new(vec!["localhost".to_string()]).expect("valid");
    let certificate = certificate.self_signed(&key).expect("signed");
    let (chain, private) = (place.path().join("tls.crt"), place.path().join("tls.key"));
    fs::write(&chain, certificate.pem()).expect("written");
    fs::write(&private, key.serialize_pem()).expect("written");
    for (tls, scheme) in [(Some((chain, private)), "https"), (None, "http")] {
        let address = "127.0.0.1:0".parse().expect("an address");
        let options = DaemonOptions {
            listen: Listen { address, tls, proxy: None, login: false },
            slots: 0,
            log_retention_days: None,
            programs: Vec::new(),
            routes: None,
            platform: None,
        };
        let runs = place.path().join("runs");
        let daemon = Daemon::start(open(&runs).expect("opened"), options).expect("started");
        let noted = fs::read_to_string(runs.join(".hub/address")).expect("noted");
        assert_eq!(noted, format!("{scheme}://{}", daemon.address()));
        // So does whoever would be a second one.
        let refused = open(&runs).err().expect("refused").to_string();
        assert!(refused.contains(&format!("is there already at {noted} (process ")), "{refused}");
    }
}

#[test]
fn pipelines_beside_the_runs_are_shown_by_their_pictures() {
    let place = tempfile::tempdir().expect("a folder");
    let at = |name: &str| place.path().join(name);
    for folder in ["runs", "pipelines/digits", "pipelines/never-drawn"] {
        fs::create_dir_all(at(folder)).expect("made");
    }
    fs::write(at("pipelines/digits/graph.svg"), "<svg/>").expect("written");
    fs::write(at("graph.svg"), "<svg/>").expect("written");
    let serving = Serving::start(&at("runs"), Access::Open);
    let client = serving.client();
    let get = |path: &str| client.get::<serde_json::Value>(&format!("api/v1/pipelines{path}"), &());
    let all = get("").expect("listed");
    assert_eq!(all.as_array().map(Vec::len), Some(1));
    assert_eq!((&all[0]["name"], &all[0]["state"]), (&"digits".into(), &serde_json::Value::Null));
    fs::write(at("pipelines/digits/summary.json"), r#"{"state": "completed"}"#).expect("written");
    let digits = get("/digits").expect("there");
    assert_eq!((&digits["state"], &digits["graph"]), (&"completed".into(), &"<svg/>".into()));
    for name in ["/never-drawn", "/%2E%2E", "/..%2F..", "/digits%2F.."] {
        assert!(get(name).is_err(), "{name}");
    }
}
