//! A collector of OpenTelemetry that is away for a while: it has each span once, and trials stand below their search.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use salamander_core::layout::RunLayout;
use salamander_track::traces::Collector;
use salamander_track::{Patience, Sinks, Tracker};
use serde_json::{Value, json};

use crate::folder;

const PATIENT: Patience =
    Patience { silent: Duration::from_secs(120), longest: Duration::from_secs(600) };

/// What posts spans are answered with, and the spans that were taken.
#[derive(Default)]
struct Heard {
    /// Requests that are still turned away.
    away: usize,
    spans: Vec<Value>,
}

/// Listens for as long as the process lives.
struct FakeCollector {
    address: SocketAddr,
    heard: Arc<Mutex<Heard>>,
}

impl FakeCollector {
    fn start(away: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let heard = Arc::new(Mutex::new(Heard { away, ..Heard::default() }));
        let own = Arc::clone(&heard);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                answer(stream, &own);
            }
        });
        Self { address, heard }
    }

    fn sinks(&self) -> Sinks {
        let endpoint = format!("http://{}/v1/traces", self.address);
        Sinks { traces: Some(Collector::at(&endpoint)), ..Sinks::default() }
    }

    fn spans(&self) -> Vec<Value> {
        self.heard.lock().expect("no panic").spans.clone()
    }
}

/// Takes one request, and closes the connection.
fn answer(stream: TcpStream, heard: &Mutex<Heard>) {
    let mut reader = BufReader::new(&stream);
    let (mut length, mut line) = (0, String::new());
    while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().expect("a length");
        }
        line.clear();
    }
    let mut body = vec![0; length];
    if reader.read_exact(&mut body).is_err() {
        return;
    }
    let mut heard = heard.lock().expect("no panic");
    let status = if heard.away > 0 { "503 Service Unavailable" } else { "200 OK" };
    if heard.away > 0 {
        heard.away -= 1;
    } else {
        let body: Value = serde_json::from_slice(&body).expect("JSON");
        let resource = &body["resourceSpans"][0];
        let service = &resource["resource"]["attributes"][0];
        assert_eq!(service["value"]["stringValue"], "salamander");
        let spans = resource["scopeSpans"][0]["spans"].as_array().expect("spans");
        for span in spans {
            // What is sent again after an answer that nobody waited for is the same.
            match heard.spans.iter().find(|known| known["spanId"] == span["spanId"]) {
                Some(known) => assert_eq!(known, span),
                None => heard.spans.push(span.clone()),
            }
        }
    }
    let said = format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{{}}");
    let _ = (&stream).write_all(said.as_bytes());
}

fn named<'a>(spans: &'a [Value], name: &str) -> &'a Value {
    let found: Vec<&Value> = spans.iter().filter(|span| span["name"] == name).collect();
    assert_eq!(found.len(), 1, "{name}: {spans:#?}");
    found[0]
}

#[test]
fn a_run_and_its_epochs_are_spans_that_are_there_once() {
    let collector = FakeCollector::start(2);
    let (_parent, run) = folder::run();
    folder::append(&run, 1..=10, 0);
    folder::append_text(&run, &folder::epoch(10));
    let tracker = Tracker::start(&run, &collector.sinks());
    while collector.spans().is_empty() {
        std::thread::sleep(Duration::from_millis(20));
    }
    // Killed, and gone on with from a checkpoint before the end of the second epoch.
    drop(tracker);
    folder::append(&run, 11..=20, 0);
    folder::append_text(&run, &folder::epoch(20));
    folder::end(&run);
    let tracker = Tracker::start(&run, &collector.sinks());
    assert_eq!(tracker.finish(PATIENT), Vec::<String>::new());
    let spans = collector.spans();
    assert_eq!(spans.len(), 3, "{spans:#?}");
    let whole = named(&spans, "train digits <b>");
    assert_eq!(whole["status"]["code"], 1);
    assert!(whole["parentSpanId"].is_null());
    let attributes = whole["attributes"].as_array().expect("attributes");
    let has = |key: &str, value: Value| {
        assert!(attributes.contains(&json!({"key": key, "value": value})), "{key}: {whole:#}");
    };
    has("salamander.state", json!({"stringValue": "completed"}));
    has("hyperparameters.learning_rate", json!({"doubleValue": 0.5}));
    has("hyperparameters.optimizer.name", json!({"stringValue": "sgd"}));
    let (first, second) = (named(&spans, "epoch 1"), named(&spans, "epoch 2"));
    for epoch in [first, second] {
        assert_eq!(
            (&epoch["traceId"], &epoch["parentSpanId"]),
            (&whole["traceId"], &whole["spanId"])
        );
    }
    assert_ne!(first["spanId"], second["spanId"]);
    assert_eq!(first["endTimeUnixNano"], "1700000010000000000");
    assert_eq!(second["startTimeUnixNano"], first["endTimeUnixNano"]);
    assert_eq!(whole["traceId"].as_str().map(str::len), Some(32));
    assert_eq!(whole["spanId"].as_str().map(str::len), Some(16));
    // Told of again, there is nothing to be told.
    assert_eq!(Tracker::start(&run, &collector.sinks()).finish(PATIENT), Vec::<String>::new());
    assert_eq!(collector.spans().len(), 3);
}

#[test]
fn trials_stand_below_their_search() {
    let collector = FakeCollector::start(0);
    let parent = tempfile::tempdir().expect("a folder");
    let search = RunLayout::new(parent.path().join("tuning-1"));
    let trial = RunLayout::new(search.trials().join("00001"));
    fs::create_dir_all(trial.folder()).expect("made");
    let kept = json!({"file": "searcher: {name: random, max_trials: 2}\n", "seed": 1, "base": "/"});
    fs::write(search.search(), kept.to_string()).expect("written");
    fs::write(trial.experiment(), folder::EXPERIMENT).expect("written");
    folder::append(&trial, 1..=3, 0);
    folder::end(&trial);
    let best = json!({"state": "completed", "best": {"metric": 0.25, "id": 1}});
    fs::write(search.summary(), best.to_string()).expect("written");
    // The trial waits for the search's trace.
    let of_trial = Tracker::start(&trial, &collector.sinks());
    let of_search = Tracker::start(&search, &collector.sinks());
    assert_eq!(of_search.finish(PATIENT), Vec::<String>::new());
    assert_eq!(of_trial.finish(PATIENT), Vec::<String>::new());
    let spans = collector.spans();
    let (whole, one) = (named(&spans, "search salamander"), named(&spans, "train digits <b>"));
    assert_eq!((&one["traceId"], &one["parentSpanId"]), (&whole["traceId"], &whole["spanId"]));
}

#[test]
fn a_collector_that_is_away_is_told_of_and_nothing_is_lost() {
    let closed = TcpListener::bind("127.0.0.1:0").expect("a port");
    let endpoint = format!("http://{}/v1/traces", closed.local_addr().expect("an address"));
    drop(closed);
    let (_parent, run) = folder::run();
    folder::append_text(&run, &folder::epoch(5));
    let sinks = Sinks { traces: Some(Collector::at(&endpoint)), ..Sinks::default() };
    let patience = Patience { silent: Duration::from_millis(50), longest: Duration::from_secs(60) };
    let notes = Tracker::start(&run, &sinks).finish(patience);
    assert_eq!(notes.len(), 1);
    assert!(notes[0].contains(&endpoint) && notes[0].contains("salamander track"), "{notes:?}");
}
