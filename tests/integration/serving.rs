//! Trained models as endpoints: by a name of a hub, several versions at once, registered while the server runs, killed
//! under load; and the batch client, killed at random moments.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Workplace, points_csv};

/// How long something may take that has to happen.
const LIMIT: Duration = Duration::from_secs(180);

/// A server that ends with the test.
pub(crate) struct Serving {
    child: Child,
    address: String,
}

impl Serving {
    pub(crate) fn start(place: &Workplace, args: &[&str], address: &str) -> Self {
        let mut all = vec!["serve", "--http", address];
        all.extend(args);
        let mut command = place.command(&all);
        let mut child = command.stderr(Stdio::inherit()).spawn().expect("starts");
        let lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        let listening = lines.map_while(Result::ok).find_map(|line| {
            let url = line.strip_prefix("listening on ")?;
            url.split_once("://").map(|(_, address)| address.to_string())
        });
        Self { child, address: listening.expect("it listens") }
    }

    pub(crate) fn call(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        call(&self.address, method, path, body).expect("answered")
    }

    /// What the model of this address says to a point.
    fn scores(&self, path: &str) -> Value {
        let (status, answer) = self.call("POST", path, r#"{"x": 0.5, "y": 0.1}"#);
        assert_eq!(status, 200, "{answer}");
        let outputs = answer["outputs"].as_array().expect("outputs").iter();
        outputs.clone().find(|output| output["name"] == "scores").expect("scores")["data"].clone()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn call(address: &str, method: &str, path: &str, body: &str) -> std::io::Result<(u16, Value)> {
    let mut stream = TcpStream::connect(address)?;
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let cut = || std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(cut)?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(cut)?;
    Ok((status, serde_json::from_str(body).map_err(|_| cut())?))
}

/// Both write the fewest digits, one of an f32 and one of a double: what they stand for is compared.
fn bits(scores: &Value) -> Vec<u32> {
    let numbers = scores.as_array().expect("a list").iter();
    numbers.map(|number| (number.as_f64().expect("a number") as f32).to_bits()).collect()
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < LIMIT, "not within time: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn place(records: u64) -> Workplace {
    let place = Workplace::new();
    place.write("points.csv", &points_csv(40));
    place.write("many.csv", &points_csv(records));
    place.write(
        "points.yaml",
        "entrypoint: points\ndata: {training: points.csv, validation: points.csv}\n\
         hyperparameters: {global_batch_size: 8, learning_rate: 0.05}\n\
         searcher: {metric: loss, max_length: {batches: 20}}\n\
         min_checkpoint_period: {batches: 10}\nreproducibility: {experiment_seed: 7}\n",
    );
    place
}

fn trained(place: &Workplace, seed: u32) -> String {
    let seed = format!("reproducibility.experiment_seed={seed}");
    let summary = place.train(&["points.yaml", "--set", &seed]);
    summary["dir"].as_str().expect("a folder").to_string()
}

#[test]
fn a_model_of_a_hub_is_served_by_its_alias_and_followed() {
    let place = place(1);
    for seed in ["1", "2"] {
        let seed = format!("reproducibility.experiment_seed={seed}");
        place.ok(&["experiment", "create", "points.yaml", "--json", "--set", &seed]);
    }
    place.ok(&["model", "create", "sides"]);
    place.ok(&["model", "register", "sides", "1.1"]);
    place.ok(&["model", "register", "sides", "2.1"]);
    place.ok(&["model", "alias", "sides", "champion", "1"]);
    let serving = Serving::start(&place, &["model:sides@champion", "--watch"], "127.0.0.1:0");
    let version = || serving.call("GET", "/v2/models/sides", "").1["versions"][0].clone();
    assert_eq!(version(), "1", "the number in the registry");
    let before = serving.scores("/v2/models/sides/infer");
    place.ok(&["model", "alias", "sides", "champion", "2"]);
    until("the alias is followed", || version() == "2");
    assert_ne!(serving.scores("/v2/models/sides/infer"), before);
    let wrong = place.run(&["serve", "model:sides@prince"]);
    assert!(wrong.err().contains("champion"), "{}", wrong.err());
}

#[test]
fn versions_are_served_beside_each_other_and_registered_later() {
    let place = place(1);
    let [first, second, third] = [1, 2, 3].map(|seed| trained(&place, seed));
    let (one, two) = (format!("sides/1={first}"), format!("sides/2={second}"));
    let serving = Serving::start(&place, &[&one, &two, "--grpc", "127.0.0.1:0"], "127.0.0.1:0");
    let [one, two] =
        ["1", "2"].map(|v| serving.scores(&format!("/v2/models/sides/versions/{v}/infer")));
    assert_ne!(one, two);
    assert_eq!(serving.scores("/v2/models/sides/infer"), two, "the last one answers");
    let id = Path::new(&third).file_name().expect("an id").to_string_lossy().into_owned();
    let register =
        |url: &str| serving.call("POST", &format!("/models?url={url}&model_name=late"), "");
    assert_eq!(register(&id).0, 200);
    assert_ne!(serving.scores("/v2/models/late/infer"), two);
    // Only what is in the folder of runs.
    for outside in ["/etc", "../runs", "..%2F..", "nothing", "."] {
        let (status, told) = register(outside);
        assert_eq!(status, 400, "{outside}: {told}");
    }
    assert_eq!(serving.call("DELETE", "/models/late", "").0, 200);
    assert_eq!(serving.call("GET", "/v2/models/late", "").0, 404);
    let twice = place.run(&["serve", &format!("a={first}"), &format!("a={second}")]);
    assert!(twice.err().contains("twice"), "{}", twice.err());
}

/// Rows that are read from the checkpoint say what those in memory say, and so do ids that nobody has seen.
#[test]
fn a_recommender_is_served_from_the_rows_of_its_checkpoint() {
    let place = Workplace::new();
    let file = crate::tables::experiment(&place);
    let summary = place.train(&[&file]);
    let run = summary["dir"].as_str().expect("a folder");
    let known = std::fs::read_to_string(place.path().join("ratings.csv")).expect("written");
    let (head, lines) = known.split_once('\n').expect("a head");
    let strange = lines.lines().take(40).enumerate().map(|(at, line)| match at % 2 {
        0 => format!("{line}\n"),
        _ => format!("9{at}77{line}\n"),
    });
    place.write("strange.csv", &format!("{head}\n{}", strange.collect::<String>()));
    let serving =
        Serving::start(&place, &[&format!("likes={run}"), "--table-memory", "1"], "127.0.0.1:0");
    let url = format!("http://{}", serving.address);
    for data in ["ratings.csv", "strange.csv"] {
        place.ok(&["predict", run, "--data", data, "--out", "expected.jsonl"]);
        place.ok(&["infer", &url, "--model", "likes", "--data", data, "--out", "found.jsonl"]);
        let scores = |name: &str| -> Vec<Vec<u32>> {
            let text = std::fs::read_to_string(place.path().join(name)).expect("written");
            let line = |line| bits(&serde_json::from_str::<Value>(line).expect("JSON")["scores"]);
            text.lines().map(line).collect()
        };
        assert!(scores("found.jsonl") == scores("expected.jsonl"), "{data}");
    }
    let mut stream = TcpStream::connect(&serving.address).expect("connects");
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        .expect("sent");
    let mut page = String::new();
    stream.read_to_string(&mut page).expect("answered");
    let line = page.lines().find(|line| line.starts_with("salamander_serve_unknown_ids_total"));
    let count = line.and_then(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
    assert!(count.is_some_and(|count| count >= 20), "{page}");
}

/// Only what was in flight is lost: who asks again is answered, and nobody gets another's answer.
#[test]
fn a_server_that_is_killed_and_started_again_under_load_loses_only_what_was_in_flight() {
    let place = place(1);
    let run = trained(&place, 1);
    let model = format!("sides={run}");
    let mut serving = Serving::start(&place, &[&model], "127.0.0.1:0");
    let address = serving.address.clone();
    let point = |number: u64| (number % 97) as f64 / 97.0;
    let ask = |number: u64| {
        let body = json!({"id": number.to_string(), "inputs": [
            {"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [point(number)]},
            {"name": "y", "shape": [1, 1], "datatype": "FP32", "data": [0.25]}]});
        call(&address, "POST", "/v2/models/sides/infer", &body.to_string())
    };
    let expected: Vec<Value> =
        (0..97).map(|number| ask(number).expect("answered").1["outputs"].clone()).collect();
    let (stop, answered, lost) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for client in 0..4u64 {
            let (stop, answered, lost, ask, expected) = (&stop, &answered, &lost, &ask, &expected);
            scope.spawn(move || {
                let mut number = client;
                while !stop.load(Ordering::Relaxed) {
                    match ask(number) {
                        Ok((200, answer)) => {
                            assert_eq!(answer["id"], number.to_string());
                            assert_eq!(answer["outputs"], expected[(number % 97) as usize]);
                            answered.fetch_add(1, Ordering::Relaxed);
                            number += 4;
                        }
                        Ok((status, answer)) => panic!("{status}: {answer}"),
                        Err(_) => {
                            lost.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                }
            });
        }
        for _ in 0..3 {
            let before = answered.load(Ordering::Relaxed);
            until("answers", || answered.load(Ordering::Relaxed) > before + 50);
            serving.child.kill().expect("killed");
            serving.child.wait().expect("ended");
            serving = Serving::start(&place, &[&model], &address);
        }
        let before = answered.load(Ordering::Relaxed);
        until("answers after the last start", || answered.load(Ordering::Relaxed) > before + 50);
        stop.store(true, Ordering::Relaxed);
    });
    println!("{} answered, {} asked in vain", answered.into_inner(), lost.into_inner());
}

/// The batch client is killed so often at random moments; its output is what `predict` writes: complete, each record
/// once, in order.
pub(crate) fn kill_batch_client(kills: u32, records: u64) {
    let place = place(records);
    let run = trained(&place, 1);
    place.ok(&["predict", &run, "--data", "many.csv", "--out", "expected.jsonl"]);
    let serving = Serving::start(&place, &[&format!("sides={run}")], "127.0.0.1:0");
    let url = format!("http://{}", serving.address);
    let args = [
        "infer",
        &url,
        "--model",
        "sides",
        "--data",
        "many.csv",
        "--out",
        "out.jsonl",
        "--batch",
        "16",
    ];
    let partial: PathBuf = place.path().join("out.jsonl.partial");
    let length = || std::fs::metadata(&partial).map_or(0, |about| about.len());
    // The same moments on every machine, by bytes written: some in the middle of a line.
    let (mut state, whole) = (41u64, records * 100);
    for kill in 0..kills {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let goal = length() + (state >> 33) % (whole / u64::from(kills) / 2).max(1);
        let mut child = place
            .command(&args)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("starts");
        until("it goes on, or ends", || {
            length() >= goal || child.try_wait().expect("known").is_some()
        });
        let _ = child.kill();
        let ended = child.wait().expect("ended");
        assert!(!ended.success() || place.path().join("out.jsonl").exists(), "kill {kill}");
    }
    place.ok(&args);
    let read = |name: &str| std::fs::read_to_string(place.path().join(name)).expect("written");
    let (found, expected) = (read("out.jsonl"), read("expected.jsonl"));
    assert_eq!(found.lines().count() as u64, records);
    for (number, (found, expected)) in found.lines().zip(expected.lines()).enumerate() {
        let [found, expected]: [Value; 2] =
            [found, expected].map(|line| serde_json::from_str(line).expect("JSON"));
        assert_eq!(found["record"], number);
        assert_eq!(bits(&found["scores"]), bits(&expected["scores"]), "record {number}");
    }
    assert!(!partial.exists());
}

/// Waits until a file has so many whole lines; returns them.
fn lines_of(path: &Path, count: usize) -> Vec<Value> {
    let text = || std::fs::read_to_string(path).unwrap_or_default();
    until("lines", || text().matches('\n').count() >= count);
    let text = text();
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// Over an encrypted connection and with a token; the client is killed in between, and goes on.
#[test]
fn a_growing_file_is_followed_over_https() {
    let place = place(1);
    let model = format!("sides={}", trained(&place, 1));
    place.ok(&["tls", "certificates"]);
    place.write("token", "open-sesame\n");
    let secret = ["--tls", "certificates", "--token-file", "token"];
    let serving = Serving::start(&place, &[&[model.as_str()], &secret[..]].concat(), "127.0.0.1:0");
    let url = format!("https://{}", serving.address);
    let args = ["infer", &url, "--model", "sides", "--data", "events.jsonl", "--follow"];
    let args = [&args[..], &["--out", "answers.jsonl", "--token-file", "token"]].concat();
    let distrusts = place.run(&[&args[..], &["--server-name", "salamander.job"]].concat());
    assert!(distrusts.err().contains("events.jsonl"), "{}", distrusts.err());
    let line = |at: usize| format!("{{\"x\": {}, \"y\": 0.25}}\n", at as f64 / 10.0);
    let lines = |from: usize, to: usize| (from..to).map(line).collect::<String>();
    place.write("events.jsonl", &(lines(0, 5) + "{\"x\": 0.5"));
    let distrusts = place.run(&[&args[..], &["--server-name", "salamander.job"]].concat());
    assert!(distrusts.err().contains("certificate"), "{}", distrusts.err());
    let trust = ["--ca", "certificates/ca.crt", "--server-name", "salamander.job"];
    let args = [&args[..], &trust].concat();
    let start = || place.command(&args).stdout(Stdio::null()).spawn().expect("starts");
    let (answers, mut child) = (place.path().join("answers.jsonl"), start());
    lines_of(&answers, 5);
    child.kill().expect("killed");
    child.wait().expect("ended");
    // What a kill may leave: the beginning of a line.
    let mut torn = std::fs::OpenOptions::new().append(true).open(&answers).expect("opened");
    torn.write_all(b"{\"record\": 5").expect("torn");
    place.write("events.jsonl", &lines(0, 8));
    let mut child = start();
    let found = lines_of(&answers, 8);
    let events = place.path().join("events.jsonl");
    let mut growing = std::fs::OpenOptions::new().append(true).open(events).expect("opened");
    growing.write_all(lines(8, 12).as_bytes()).expect("written");
    let more = lines_of(&answers, 12);
    child.kill().expect("killed");
    child.wait().expect("ended");
    assert_eq!(more[..8], found[..]);
    for (record, answer) in more.iter().enumerate() {
        assert_eq!(answer["record"], record);
    }
    place.ok(&[
        "predict",
        &model["sides=".len()..],
        "--data",
        "events.jsonl",
        "--out",
        "all.jsonl",
    ]);
    for (found, expected) in more.iter().zip(lines_of(&place.path().join("all.jsonl"), 12)) {
        assert_eq!(bits(&found["scores"]), bits(&expected["scores"]));
    }
}

#[test]
fn a_batch_client_that_is_killed_goes_on_where_it_was() {
    kill_batch_client(3, 1_500);
}
