//! Several versions of a model at once, and models that come and go while the server runs: the protocol's addresses of
//! versions, its repository, and the management calls of TorchServe.

use std::sync::Arc;

use crate::support::{self, Answer, Gate, Running, Times, ask, get, post};
use salamander_serve::{
    AddressUse, Batching, Loaded, Opener, Refusal, Registry, Server, ServerOptions, Source,
    SourceToServe,
};
use serde_json::{Value as Json, json};

fn version(factor: f32, name: &str) -> Arc<Times> {
    let times = Times::new(factor);
    times.version.lock().unwrap().0 = name.to_string();
    times
}

/// Opens `times:FACTOR`.
struct TimesOpener;

impl Opener for TimesOpener {
    fn open(&self, name: Option<&str>, url: &str) -> Result<SourceToServe, String> {
        let factor = url.strip_prefix("times:").and_then(|factor| factor.parse().ok());
        let factor: f32 = factor.ok_or_else(|| format!("there is no {url}"))?;
        let name = name.unwrap_or("times").to_string();
        Ok(SourceToServe { name, label: None, source: version(factor, &format!("v{factor}")) })
    }
}

/// Versions 1 and 2 of a model, which multiply by so much.
fn two_versions() -> Registry {
    let registry = Registry::new([], Batching::default()).with_opener(Arc::new(TimesOpener));
    for number in ["1", "2"] {
        let source = version(number.parse().unwrap(), "some checkpoint");
        let (name, label) = ("times".to_string(), Some(number.to_string()));
        registry.add(SourceToServe { name, label, source });
    }
    assert_eq!(registry.load("times"), Ok("2".to_string()), "the last one is the default");
    registry
}

fn call(server: &Running, method: &str, path: &str) -> Answer {
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
    );
    ask(server.address, &head, b"")
}

fn product(server: &Running, path: &str) -> Result<Json, u16> {
    let answer = post(server.address, path, "", br#"{"x": 10}"#);
    match answer.status {
        200 => Ok(answer.json()["outputs"][0]["data"][0].clone()),
        status => Err(status),
    }
}

#[test]
fn each_version_has_its_address() {
    let server = Running::start(two_versions(), ServerOptions::default());
    assert_eq!(product(&server, "/v2/models/times/infer"), Ok(json!(20.0)));
    assert_eq!(product(&server, "/v2/models/times/versions/1/infer"), Ok(json!(10.0)));
    assert_eq!(product(&server, "/v2/models/times/versions/2/infer"), Ok(json!(20.0)));
    assert_eq!(product(&server, "/v2/models/times/versions/3/infer"), Err(404));
    let about = get(server.address, "/v2/models/times").json();
    assert_eq!(about["versions"], json!(["2", "1"]), "the default one first");
    assert_eq!(get(server.address, "/v2/models/times/versions/1/ready").status, 200);
    let index = post(server.address, "/v2/repository/index", "", b"{}").json();
    let named = |entry: &Json| format!("{} {}", entry["version"], entry["state"]);
    let index: Vec<String> = index.as_array().unwrap().iter().map(named).collect();
    assert_eq!(index, ["\"2\" \"READY\"", "\"1\" \"READY\""]);
    let predicted = post(server.address, "/predictions/times/1", "", br#"{"x": 10}"#).json();
    assert_eq!(predicted["y"], json!([10.0]));
    assert_eq!(post(server.address, "/v2/repository/models/times/unload", "", b"").status, 200);
    assert_eq!(product(&server, "/v2/models/times/versions/1/infer"), Err(503));
    let ready = post(server.address, "/v2/repository/index", "", br#"{"ready": true}"#);
    assert_eq!(ready.json(), json!([]));
    assert_eq!(post(server.address, "/v2/repository/models/times/load", "", b"").status, 200);
    assert_eq!(product(&server, "/v2/models/times/versions/1/infer"), Ok(json!(10.0)));
}

/// Loads when its gate lets it.
struct Gated(Arc<Times>, Arc<Gate>);

impl Source for Gated {
    fn newest(&self) -> Result<String, String> {
        self.0.newest()
    }

    fn load(&self, version: &str) -> Result<Loaded, String> {
        self.1.pass();
        self.0.load(version)
    }
}

#[test]
fn what_is_unloaded_while_it_is_loaded_stays_out_of_service() {
    let gate = Arc::new(Gate::default());
    let source: Arc<dyn Source> = Arc::new(Gated(Times::new(2.0), Arc::clone(&gate)));
    let registry = Registry::new([("m".to_string(), source)], Batching::default());
    let unloaded = |refused: Result<String, Refusal>| {
        let reason = "unloaded while it was being loaded";
        let is_it = matches!(&refused, Err(Refusal::Unavailable(told)) if told.contains(reason));
        assert!(is_it, "{refused:?}");
    };
    type Load = fn(&Registry) -> Result<String, Refusal>;
    let ways: [Load; 2] = [
        |registry: &Registry| registry.load("m"),
        |registry: &Registry| registry.refresh("m").remove(0),
    ];
    for load in ways {
        gate.close();
        let loading = std::thread::spawn({
            let registry = registry.clone();
            move || load(&registry)
        });
        gate.wait_until_held();
        registry.unload("m").unwrap();
        gate.open();
        unloaded(loading.join().unwrap());
        assert!(!registry.is_ready());
        assert_eq!(registry.load("m"), Ok("1".to_string()), "who asks later has it");
        assert!(registry.is_ready());
        // Another version, which is loaded anew.
        registry.unregister("m", None).unwrap();
        let source = Arc::new(Gated(Times::new(2.0), Arc::clone(&gate)));
        registry.add(SourceToServe { name: "m".to_string(), label: None, source });
    }
}

#[test]
fn what_would_be_loaded_with_a_configuration_is_refused() {
    let server = Running::start(two_versions(), ServerOptions::default());
    let load = "/v2/repository/models/times/load";
    let check = |body: &str, expected: u16, told: &str| {
        let answer = post(server.address, load, "", body.as_bytes());
        let body = String::from_utf8_lossy(&answer.body).into_owned();
        assert!(answer.status == expected && body.contains(told), "{} {body}", answer.status);
    };
    check("{}", 200, "");
    check("", 200, "");
    check(r#"{"parameters": {"other": 1}}"#, 200, "");
    check(r#"{"parameters": {"config": "{}"}}"#, 400, "no parameter \\\"config\\\"");
    check(r#"{"parameters": {"file:1/model.onnx": "AA=="}}"#, 400, "file:1/model.onnx");
}

#[test]
fn versions_of_one_name_are_refused() {
    let registry = Registry::new([], Batching::default());
    for _ in 0..2 {
        let (name, source) = ("times".to_string(), version(2.0, "same"));
        registry.add(SourceToServe { name, label: None, source });
    }
    let refused = registry.load("times");
    assert!(
        matches!(&refused, Err(Refusal::Conflict(reason)) if reason.contains("twice")),
        "{refused:?}"
    );
}

#[test]
fn management_calls_of_torchserve_are_answered() {
    let server = Running::start(two_versions(), ServerOptions::default());
    let check = |method: &str, path: &str, status: u16, expected: &str| {
        let answer = call(&server, method, path);
        let told = String::from_utf8_lossy(&answer.body).into_owned();
        assert_eq!(answer.status, status, "{method} {path}: {told}");
        assert!(told.contains(expected), "{method} {path}: {told}");
    };
    check("GET", "/models", 200, r#"{"models":[{"modelName":"times","modelUrl":"times"}]}"#);
    check("GET", "/models/times", 200, r#""modelVersion":"2""#);
    check("GET", "/models/times/1", 200, r#""default":false"#);
    let all = get(server.address, "/models/times/all").json();
    assert_eq!(all.as_array().unwrap().len(), 2);
    check("POST", "/models?url=times%3A5&model_name=five", 200, "Version: v5 registered");
    check("POST", "/models?url=times:7&model_name=times&synchronous=true", 200, "v7 registered");
    check("POST", "/models?url=times:7&model_name=times", 409, "has a version \\\"v7\\\" already");
    check("POST", "/models?url=nowhere", 400, "there is no nowhere");
    check("POST", "/models", 400, "POST /models?url=RUN");
    check("GET", "/models?limit=1", 200, r#""nextPageToken":"1""#);
    check("GET", "/models?limit=1&next_page_token=1", 200, r#""modelName":"times""#);
    check("GET", "/models?limit=one", 400, "limit is no whole number");
    assert_eq!(product(&server, "/v2/models/five/infer"), Ok(json!(50.0)));
    assert_eq!(product(&server, "/v2/models/times/infer"), Ok(json!(20.0)), "the default stays");
    check("PUT", "/models/times?min_worker=3", 202, "has no workers to scale");
    check("PUT", "/models/times/1?min_worker=3&synchronous=true", 200, "serve --threads");
    check("PUT", "/models/times?min_worker=x", 400, "min_worker is no whole number");
    check("PUT", "/models/nobody?min_worker=3", 404, "ModelNotFoundException");
    check("PUT", "/models/times/v7/set-default", 200, "v7 is now the default");
    assert_eq!(product(&server, "/v2/models/times/infer"), Ok(json!(70.0)));
    check("DELETE", "/models/times/v7", 409, "set another one first");
    check("DELETE", "/models/times/1", 200, "unregistered");
    check("DELETE", "/models/times/1", 404, "has no version");
    assert_eq!(product(&server, "/v2/models/times/infer"), Ok(json!(70.0)));
    check("DELETE", "/models/five", 200, "unregistered");
    check("DELETE", "/models/five", 404, "there is no model");
    check("PATCH", "/models/times", 405, "this address takes GET, HEAD, PUT, DELETE");
    assert_eq!(call(&server, "DELETE", "/v2").header("allow"), Some("GET, HEAD"));
    check("GET", "/ping", 200, "Healthy");
}

#[test]
fn without_an_opener_nothing_can_be_registered() {
    let registry = support::registry(&[("m", &Times::new(2.0))], Batching::default());
    let server = Running::start(registry, ServerOptions::default());
    assert_eq!(call(&server, "POST", "/models?url=x").status, 501);
}

/// As TorchServe has it: models are changed at an address of their own.
#[test]
fn the_management_address_is_the_only_one_that_changes_models() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let mut server = Server::new(two_versions(), ServerOptions::default());
    let any = "127.0.0.1:0".parse().unwrap();
    let inference = runtime.block_on(server.listen(any, AddressUse::Inference)).unwrap();
    let management = runtime.block_on(server.listen(any, AddressUse::All)).unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = runtime.spawn(server.run(async {
        let _ = stopped.await;
    }));
    let infer = |address| post(address, "/v2/models/times/infer", "", br#"{"x": 10}"#).status;
    let unload = |address| post(address, "/v2/repository/models/times/unload", "", b"").status;
    assert_eq!((infer(inference), unload(inference)), (200, 403));
    assert_eq!((infer(management), unload(management)), (200, 200));
    assert_eq!(infer(inference), 503);
    drop(stop);
    runtime.block_on(running).unwrap();
}

/// The calls of TorchServe's README, by curl as it is.
#[test]
fn curl_does_what_torchserves_readme_says() {
    let server = Running::start(two_versions(), ServerOptions::default());
    let folder = std::env::temp_dir().join(format!("salamander-curl-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("record.json"), r#"{"x": 10}"#).unwrap();
    let curl = |args: &[&str], path: &str| {
        let mut command = std::process::Command::new("curl");
        command.current_dir(&folder).args(["--silent", "--show-error", "--max-time", "60"]);
        let ended = command.args(args).arg(format!("http://{}{path}", server.address)).output();
        let ended = ended.expect("curl is there");
        assert!(ended.status.success(), "{path}: {}", String::from_utf8_lossy(&ended.stderr));
        String::from_utf8(ended.stdout).unwrap()
    };
    let check = |args: &[&str], path: &str, expected: &str| {
        let told = curl(args, path);
        assert!(told.contains(expected), "{path}: {told}");
    };
    check(&[], "/ping", "Healthy");
    check(&["-T", "record.json"], "/predictions/times", r#""y":[20.0]"#);
    check(&["-F", "data=10"], "/predictions/times", r#""y":[20.0]"#);
    check(&["-F", "x=10"], "/predictions/times/1", r#""y":[10.0]"#);
    check(&["-d", "data=10"], "/predictions/times", r#""y":[20.0]"#);
    check(&["--data-urlencode", "x=10"], "/predictions/times/1", r#""y":[10.0]"#);
    let body = r#"{"instances": [{"data": 10}]}"#;
    check(&["-d", body], "/predictions/times", r#"{"predictions":[{"y":[20.0]"#);
    let new = "/models?url=times:5&model_name=five&initial_workers=1&synchronous=true";
    check(&["-X", "POST"], new, "registered with 1 initial workers");
    check(&[], "/models", r#""modelName":"five""#);
    check(&["-X", "PUT"], "/models/five?min_worker=2", "five");
    check(&[], "/models/five", r#""status":"READY""#);
    check(&["-X", "PUT"], "/models/times/1/set-default", "default");
    check(&["-X", "DELETE"], "/models/five", "unregistered");
    check(&[], "/metrics", "salamander_serve_decode_seconds_bucket");
    check(&["-X", "OPTIONS"], "/", "openapi");
    // Over HTTP/2 without encryption, and compressed.
    check(&["--http2-prior-knowledge", "--compressed"], "/v2", "salamander");
    std::fs::remove_dir_all(&folder).unwrap();
}
