//! REST as clients see it, over sockets.

use std::io::Write as _;
use std::sync::Arc;

use crate::open_metrics;
use crate::support::{self, Running, Times, get, post, registry};
use salamander_serve::{Batching, ServerOptions, ServingToken};
use serde_json::json;

fn running() -> (Arc<Times>, Running) {
    let model = Times::new(2.0);
    let registry = registry(&[("double", &model)], Batching::default());
    (model, Running::start(registry, ServerOptions::default()))
}

#[test]
fn a_server_tells_what_it_is_and_has() {
    let (_model, server) = running();
    let check = |path: &str, expected: serde_json::Value| {
        let answer = get(server.address, path);
        assert_eq!((answer.status, answer.json()), (200, expected), "{path}");
        assert_eq!(answer.header("content-type"), Some("application/json"));
    };
    check("/", json!({"status": "alive"}));
    check("/ping", json!({"status": "Healthy"}));
    check("/v2/health/live", json!({"live": true}));
    check("/v2/health/ready", json!({"ready": true}));
    check("/v2/models/double/ready", json!({"name": "double", "ready": true}));
    check("/v1/models/double", json!({"name": "double", "ready": true}));
    let metadata = json!({
        "name": "double", "versions": ["1"], "platform": "times",
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 1]}],
        "outputs": [
            {"name": "y", "datatype": "FP32", "shape": [-1, 1]},
            {"name": "together", "datatype": "INT64", "shape": [-1]},
        ],
    });
    check("/v2/models/double", metadata.clone());
    check("/v2/models/double/versions/1", metadata);
    let config = get(server.address, "/v2/models/double/config").json();
    assert_eq!(
        (&config["max_batch_size"], &config["input"][0]["data_type"]),
        (&json!(64), &json!("TYPE_FP32"))
    );
    assert_eq!(get(server.address, "/v2").json()["extensions"][0], "binary_tensor_data");
    let wrong = get(server.address, "/v2/models/triple");
    assert_eq!(
        (wrong.status, wrong.json()),
        (404, json!({"error": "there is no model \"triple\" (there are: double)"}))
    );
    assert_eq!(get(server.address, "/v2/models/double/versions/9").status, 404);
}

#[test]
fn tensors_records_and_older_shapes_have_the_same_answer() {
    let (_model, server) = running();
    let post = |path: &str, body: serde_json::Value| {
        let answer = post(server.address, path, "", body.to_string().as_bytes());
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    };
    let tensor = json!({"id": "a", "outputs": [{"name": "y"}], "inputs": [
        {"name": "x", "shape": [2, 1], "datatype": "FP32", "data": [[1.5], [3]]}]});
    let expected = json!({"model_name": "double", "model_version": "1", "id": "a", "outputs": [
        {"name": "y", "datatype": "FP32", "shape": [2, 1], "data": [3.0, 6.0]}]});
    assert_eq!(post("/v2/models/double/infer", tensor.clone()), expected);
    assert_eq!(post("/v2/models/double/versions/1/infer", tensor), expected);
    let record = post("/v2/models/double/infer", json!({"x": 1.5}));
    assert_eq!(record["outputs"][0]["data"], json!([3.0]));
    let records = post("/v2/models/double/infer", json!([{"x": 1.5}, {"x": 2}]));
    assert_eq!(records["outputs"][0]["data"], json!([3.0, 4.0]));
    let predictions = post("/v1/models/double:predict", json!({"instances": [{"x": 4}]}));
    assert_eq!(predictions, json!({"predictions": [{"y": [8.0], "together": 1}]}));
    assert_eq!(post("/predictions/double", json!({"x": 4})), json!({"y": [8.0], "together": 1}));
    assert_eq!(post("/predictions/double/1", json!([{"x": 4}]))[0]["y"], json!([8.0]));
}

#[test]
fn bytes_behind_the_json_are_tensors_packed_or_not() {
    let (_model, server) = running();
    let json = json!({"parameters": {"binary_data_output": true}, "inputs": [
        {"name": "x", "shape": [3, 1], "datatype": "FP32", "parameters": {"binary_data_size": 12}}]});
    let json = json.to_string();
    let raw: Vec<u8> = [1f32, 2.0, 3.0].iter().flat_map(|x| x.to_le_bytes()).collect();
    let body = [json.as_bytes(), &raw].concat();
    let length = format!("inference-header-content-length: {}\r\n", json.len());
    let packed = {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(&body).unwrap();
        packed.finish().unwrap()
    };
    for (headers, body) in
        [(length.clone(), body), (format!("{length}content-encoding: gzip\r\n"), packed)]
    {
        let answer = post(server.address, "/v2/models/double/infer", &headers, &body);
        assert_eq!(answer.status, 200, "{answer:?}");
        let length = answer.header("inference-header-content-length").unwrap().parse::<usize>();
        let (json, raw) = answer.body.split_at(length.unwrap());
        let json: serde_json::Value = serde_json::from_slice(json).unwrap();
        assert_eq!(json["outputs"][0]["parameters"]["binary_data_size"], 12);
        let floats: Vec<f32> =
            raw[..12].chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
        assert_eq!(floats, [2.0, 4.0, 6.0]);
    }
}

#[test]
fn mistakes_are_told_and_hurt_nobody() {
    let (_model, server) = running();
    let check = |path: &str, body: &str, status: u16, expected: &str| {
        let answer = post(server.address, path, "", body.as_bytes());
        let error = answer.json()["error"].as_str().unwrap_or_default().to_string();
        assert_eq!(answer.status, status, "{error}");
        assert!(error.contains(expected), "{error}");
    };
    let infer = "/v2/models/double/infer";
    check(infer, "{", 400, "no request: EOF while parsing");
    check(infer, "7", 400, "no request");
    check(infer, r#"{"y": 1}"#, 400, "column \"x\": missing (the record has: y)");
    check(infer, r#"[{"x": 1}, {"x": "a"}]"#, 400, "record 1: column \"x\"");
    check(infer, "[]", 400, "the request has no records");
    check(infer, r#"{"x": 13}"#, 400, "13 brings bad luck");
    let absurd = r#"{"inputs": [{"name": "x", "shape": [9999999999, 9999999999], "datatype": "FP32", "data": [1]}]}"#;
    check(infer, absurd, 400, "does not fit 1 values");
    let unknown = r#"{"inputs": [], "outputs": [{"name": "z"}]}"#;
    check(infer, unknown, 400, "there is no output \"z\" (there are: y, together)");
    check("/v2/models/nobody/infer", r#"{"x": 1}"#, 404, "there is no model");
    check("/elsewhere", "", 404, "there is nothing at /elsewhere");
    assert_eq!(post(server.address, infer, "", br#"{"x": 1}"#).status, 200);
}

#[test]
fn large_bodies_are_refused_by_their_length() {
    let model = Times::new(2.0);
    let registry = registry(&[("double", &model)], Batching::default());
    let options = ServerOptions { body: 100, ..ServerOptions::default() };
    let server = Running::start(registry, options);
    let head = "POST /v2/models/double/infer HTTP/1.1\r\nhost: x\r\nconnection: close\r\n";
    let said = format!("{head}content-length: 4294967296\r\n\r\n");
    assert_eq!(support::ask(server.address, &said, b"").status, 413);
    let chunked = format!("{head}transfer-encoding: chunked\r\n\r\n");
    let body = format!("c8\r\n{}\r\n0\r\n\r\n", "1".repeat(200));
    assert_eq!(support::ask(server.address, &chunked, body.as_bytes()).status, 413);
    let bomb = {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        packed.write_all(&[b'1'; 10_000]).unwrap();
        packed.finish().unwrap()
    };
    let gzip = "content-encoding: gzip\r\n";
    assert_eq!(post(server.address, "/v2/models/double/infer", gzip, &bomb).status, 413);
}

#[test]
fn models_are_unloaded_and_loaded() {
    let (model, server) = running();
    let order = |what: &str| {
        post(server.address, &format!("/v2/repository/models/double/{what}"), "", b"{}")
    };
    assert_eq!(order("unload").status, 200);
    assert_eq!(get(server.address, "/v2/health/ready").status, 503);
    let answer = post(server.address, "/v2/models/double/infer", "", br#"{"x": 1}"#);
    assert_eq!(
        (answer.status, answer.json()["error"].as_str()),
        (503, Some("model \"double\" is not ready: unloaded"))
    );
    model.version.lock().unwrap().0 = "2".to_string();
    assert_eq!(order("load").status, 200);
    let index = post(server.address, "/v2/repository/index", "", b"{}").json();
    assert_eq!(index, json!([{"name": "double", "version": "2", "state": "READY", "reason": ""}]));
    // One that cannot be loaded leaves the old one in service, and says why.
    *model.version.lock().unwrap() = ("3".to_string(), Some("its checksum is wrong".to_string()));
    let failed = order("load");
    assert_eq!(
        (failed.status, failed.json()["error"].as_str()),
        (400, Some("model \"double\": 3: its checksum is wrong"))
    );
    let index = post(server.address, "/v2/repository/index", "", b"{}").json();
    assert_eq!(
        (&index[0]["version"], &index[0]["reason"]),
        (&json!("2"), &json!("3: its checksum is wrong"))
    );
    assert_eq!(post(server.address, "/v2/models/double/infer", "", br#"{"x": 1}"#).status, 200);
}

#[test]
fn a_server_is_ready_without_models_that_somebody_unloaded() {
    let (one, two) = (Times::new(2.0), Times::new(3.0));
    let registry = registry(&[("one", &one), ("two", &two)], Batching::default());
    let server = Running::start(registry.clone(), ServerOptions::default());
    let ready = || get(server.address, "/v2/health/ready").status;
    assert_eq!(ready(), 200);
    registry.unload("one").unwrap();
    assert_eq!(ready(), 200, "the other one is asked");
    registry.unload("two").unwrap();
    assert_eq!(ready(), 503, "nobody can be asked");
    registry.load("one").unwrap();
    assert_eq!(ready(), 200);
}

#[test]
fn statistics_and_metrics_count() {
    let (_model, server) = running();
    for _ in 0..3 {
        assert_eq!(post(server.address, "/predictions/double", "", br#"{"x": 1}"#).status, 200);
    }
    let stats = get(server.address, "/v2/models/stats").json();
    let stats = &stats["model_stats"][0];
    assert_eq!((&stats["inference_count"], &stats["execution_count"]), (&json!(3), &json!(3)));
    assert_eq!(stats["inference_stats"]["success"]["count"], 3);
    let page = String::from_utf8(get(server.address, "/metrics").body).unwrap();
    let line = "salamander_serve_requests_total{model=\"double\",outcome=\"answered\"} 3";
    assert!(page.contains(line), "{page}");
    assert!(open_metrics::check(&page, "salamander_serve_") > 20, "{page}");
}

#[test]
fn a_newer_version_is_found_once_and_a_broken_one_is_left() {
    let model = Times::new(2.0);
    let registry = registry(&[("double", &model)], Batching::default());
    assert_eq!(registry.refresh("double"), [], "it is in service");
    *model.version.lock().unwrap() = ("2".to_string(), Some("torn".to_string()));
    assert!(registry.refresh("double").iter().any(Result::is_err));
    assert_eq!(registry.refresh("double"), [], "it was broken, and still is");
    *model.version.lock().unwrap() = ("3".to_string(), None);
    assert_eq!(registry.refresh("double"), [Ok("3".to_string())]);
    registry.unload("double").unwrap();
    assert_eq!(registry.refresh("double"), [], "somebody wanted it gone");
}

#[test]
fn a_token_is_asked_for_but_not_of_probes() {
    let model = Times::new(2.0);
    let registry = registry(&[("double", &model)], Batching::default());
    let token = Some(ServingToken::new("open-sesame").unwrap());
    let server = Running::start(registry, ServerOptions { token, ..ServerOptions::default() });
    let ask = |headers: &str| post(server.address, "/predictions/double", headers, br#"{"x": 1}"#);
    assert_eq!(ask("").status, 401);
    assert_eq!(ask("authorization: Bearer open-sesamf\r\n").status, 401);
    assert_eq!(ask("authorization: Bearer open-sesame\r\n").status, 200);
    assert_eq!(get(server.address, "/v2/models/double").status, 401);
    assert_eq!(get(server.address, "/v2/health/ready").status, 200);
}

#[test]
fn requests_in_flight_are_answered_before_the_end() {
    let (model, mut server) = running();
    model.gate.close();
    let address = server.address;
    let asked =
        std::thread::spawn(move || post(address, "/predictions/double", "", br#"{"x": 1}"#));
    model.gate.wait_until_held();
    let ended = server.stop();
    // Nobody new is taken while it drains.
    while std::net::TcpStream::connect(address).is_ok() {
        std::thread::yield_now();
    }
    model.gate.open();
    assert_eq!(asked.join().expect("answered").status, 200);
    ended.join().expect("ends");
}

#[test]
fn connections_can_be_encrypted() {
    let authority = rcgen::generate_simple_self_signed(vec!["localhost".to_string()]).unwrap();
    let (certificate, key) = (authority.cert.pem(), authority.signing_key.serialize_pem());
    let tls = salamander_serve::server::tls(certificate.as_bytes(), key.as_bytes()).unwrap();
    let model = Times::new(2.0);
    let registry = registry(&[("double", &model)], Batching::default());
    let options = ServerOptions { tls: Some(tls), ..ServerOptions::default() };
    let server = Running::start(registry, options);
    let mut roots = rustls::RootCertStore::empty();
    roots.add(authority.cert.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut session =
        rustls::ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap();
    let mut socket = std::net::TcpStream::connect(server.address).unwrap();
    let mut stream = rustls::Stream::new(&mut session, &mut socket);
    let head = "GET /v2/health/live HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let answer = support::read_answer(&mut std::io::BufReader::new(stream));
    assert_eq!((answer.status, answer.json()), (200, json!({"live": true})));
}

/// perf_analyzer refuses statistics whose counts differ.
#[test]
fn statistics_count_answered_requests_alike() {
    let (_model, server) = running();
    for body in [r#"{"x": 1}"#, r#"[{"x": 1}, {"x": 2}]"#, r#"{"y": 1}"#, r#"{"x": 13}"#] {
        post(server.address, "/v2/models/double/infer", "", body.as_bytes());
    }
    let stats = get(server.address, "/v2/models/double/stats").json();
    let stats = &stats["model_stats"][0];
    for part in ["success", "queue", "compute_input", "compute_infer", "compute_output"] {
        assert_eq!(stats["inference_stats"][part]["count"], 2, "{part}: {stats}");
    }
    assert_eq!((&stats["inference_count"], &stats["execution_count"]), (&json!(3), &json!(3)));
    let sizes: Vec<_> = stats["batch_stats"].as_array().unwrap().iter().collect();
    assert_eq!(sizes.len(), 2, "{stats}");
    assert_eq!(sizes[1]["batch_size"], 2);
}
