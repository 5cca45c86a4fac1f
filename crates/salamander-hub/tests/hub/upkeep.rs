//! Checkpoints that go, warm starts, budgets, logs that have stayed long enough, and webhooks, with real processes.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};

use salamander_hub::api::Access;
use salamander_hub::gc::CollectRequest;
use salamander_hub::ingest::Ingester;
use salamander_hub::operation::{Operation, Wanted};
use salamander_hub::queue::Queue;
use salamander_hub::remote::{RemoteLife, RemotePart, RemoteRun};
use salamander_hub::server::Listen;
use salamander_hub::store::logs::LogQuery;
use salamander_hub::{
    CreateRequest, Daemon, DaemonOptions, Error, ExperimentId, Registration, RunId, Speaker,
};
use serde_json::Value as Json;

use crate::folders::{EXPERIMENT, Serving, write_run};
use crate::place::{forget, open};
use crate::queue::Scenario;

/// Checkpoints of a run's folder that are there.
pub(crate) fn there(run: &Path) -> Vec<String> {
    let entries = fs::read_dir(run.join("checkpoints")).expect("read").flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Writes a checkpoint with what it measured, the smaller the better.
pub(crate) fn write_checkpoint(run: &Path, steps: u64, watched: Option<f64>) -> String {
    let name = format!("step-{steps:08}");
    let folder = run.join("checkpoints").join(&name);
    fs::create_dir_all(&folder).expect("made");
    fs::write(folder.join("model.safetensors"), "weights").expect("written");
    let watched = watched.map_or("null".to_string(), |watched| watched.to_string());
    let manifest = format!(
        "{{\"format\":1,\"id\":\"{name}\",\"steps\":{steps},\"epoch\":1,\"watched\":{watched},\"files\":\
         {{\"model.safetensors\":{{\"bytes\":7,\"blake3\":\"x\"}}}}}}"
    );
    fs::write(folder.join("manifest.json"), manifest).expect("written");
    name
}

impl Scenario {
    /// With an ingester, as in a whole hub.
    pub(crate) fn reading(mut self) -> Self {
        let ingester = Arc::new(Mutex::new(Ingester::new(self.hub.clone())));
        self.queue =
            Queue::new(self.hub.clone(), Arc::clone(&self.programs), 1).after_reading(ingester);
        self
    }

    fn create_from(&self, config: &str) -> Result<ExperimentId, Error> {
        let request = CreateRequest { config: config.to_string(), ..CreateRequest::default() };
        self.hub.create(&Speaker::default(), request, &self.programs)
    }
}

#[test]
fn checkpoints_go_when_an_experiment_ends_and_those_that_are_needed_stay() {
    let mut s = Scenario::new(1).reading();
    let first = s.create(42);
    s.until(first, "running");
    s.begun(first, 1);
    let run = s.run(first);
    for (steps, watched) in
        [(1, Some(0.9)), (2, Some(0.1)), (3, Some(0.5)), (4, Some(0.4)), (5, None)]
    {
        write_checkpoint(&run, steps, watched);
    }
    // Registered while it trains: it stays although nothing else would keep it.
    Ingester::new(s.hub.clone()).look_at_all().expect("read");
    let id: RunId = format!("{first}.1").parse().expect("a run");
    let by = Speaker::default();
    let model = "digits".to_string();
    let made = Operation::CreateModel { model, description: String::new() };
    s.hub.say(&by, made).expect("made");
    let asked = Registration { model: "digits", run: id, checkpoint: "step-00000003", notes: "" };
    s.hub.register(&by, asked).expect("registered");
    s.end(first, "completed");
    s.until(first, "completed");
    while there(&run).len() > 3 {
        s.queue.turn().expect("a turn");
    }
    assert_eq!(there(&run), ["step-00000002", "step-00000003", "step-00000005"]);
    assert_eq!(s.hub.store().checkpoint(id, "step-00000001").expect("known").state, "deleted");
    // A source of a warm start stays as long as it may be needed.
    let text =
        format!("{EXPERIMENT}searcher: {{source_checkpoint_uuid: \"{id}/step-00000002\"}}\n");
    let text = text.replacen("searcher: {metric: accuracy, smaller_is_better: false}\n", "", 1);
    let second = s.create_from(&text).expect("created");
    assert_eq!(s.hub.store().source_of(second).expect("kept").expect("one").0, id);
    let all = CollectRequest {
        save_trial_best: Some(0),
        save_trial_latest: Some(0),
        ..CollectRequest::default()
    };
    let dry = CollectRequest { dry_run: true, ..all.clone() };
    let told = s.hub.collect(&by, first, &dry).expect("told");
    assert_eq!(told.removed.len(), 1);
    assert_eq!((told.removed[0].checkpoint.as_str(), told.kept), ("step-00000005", 2));
    assert_eq!(there(&run).len(), 3, "a dry run removes nothing");
    s.hub.collect(&by, first, &all).expect("removed");
    assert_eq!(there(&run), ["step-00000002", "step-00000003"]);
    let error = s.hub.want(&by, first, Wanted::Deleted).expect_err("needed").to_string();
    assert!(error.contains("delete that first"), "{error}");
    s.until(second, "running");
    s.begun(second, 1);
    let console = fs::read_to_string(s.run(second).join("arguments")).expect("its arguments");
    let weights = run.join("checkpoints/step-00000002/model.safetensors");
    let weights = fs::canonicalize(weights).expect("there");
    assert!(console.contains(&format!("start_from=\"{}\"", weights.display())), "{console}");
    assert_eq!(s.hub.lineage(first).expect("known").started, [second]);
    s.end(second, "completed");
    s.until(second, "completed");
    s.hub.collect(&by, first, &all).expect("removed");
    assert_eq!(there(&run), ["step-00000003"]);
}

#[test]
fn what_was_decided_is_removed_by_the_next_hub_and_not_again_after_that() {
    let runs = tempfile::tempdir().expect("a folder");
    let run = write_run(runs.path(), "a", 10);
    write_checkpoint(&run, 20, Some(-0.9));
    write_checkpoint(&run, 30, Some(-0.8));
    let id = ExperimentId(1);
    {
        let serving = Serving::start(runs.path(), Access::Open);
        let told =
            serving.client().collect(id, &CollectRequest { dry_run: true, ..Default::default() });
        assert_eq!(told.expect("told").removed[0].checkpoint, "step-00000010");
    }
    // Killed between the decision and what follows from it.
    let journal = runs.path().join(".hub/journal.jsonl");
    let mut text = fs::read_to_string(&journal).expect("read");
    text += "{\"time\":1,\"user\":\"\",\"do\":\"collect\",\"experiment\":1,\
             \"checkpoints\":[[\"1.1\",\"step-00000010\"]]}\n";
    fs::write(&journal, &text).expect("written");
    let serving = Serving::start(runs.path(), Access::Open);
    let error = serving.client().register("digits", "1.1".parse().expect("a run"), "step-00000010");
    assert!(error.is_err(), "it is on its way out");
    let kept = serving.client().collect(id, &CollectRequest::default()).expect("collected");
    assert_eq!(kept.kept, 2);
    assert_eq!(there(&run), ["step-00000020", "step-00000030"]);
    drop(serving);
    // A checkpoint that got the same name later is not the one that was meant.
    write_checkpoint(&run, 10, Some(-0.95));
    forget(runs.path()).expect("removed");
    let serving = Serving::start(runs.path(), Access::Open);
    serving
        .client()
        .collect(id, &CollectRequest { dry_run: true, ..Default::default() })
        .expect("told");
    assert_eq!(there(&run).len(), 3);
}

#[test]
fn warm_starts_are_refused_by_name() {
    let s = Scenario::new(1);
    let refuse = |source: &str| {
        let config = format!("entrypoint: net\nsearcher: {{{source}}}\n");
        s.create_from(&config).expect_err("refused").to_string()
    };
    assert!(refuse("source_trial_id: 12.3").contains("write a trial in quotes"));
    assert!(refuse("source_trial_id: 7").contains("there is no run 7.1"));
    assert!(
        refuse("source_trial_id: a-folder").contains("searcher.source_trial_id: there is no run")
    );
    assert!(refuse("source_checkpoint_uuid: 0af3").contains("write RUN/NAME"));
    assert!(refuse("source_checkpoint_uuid: \"model:x@y\"").contains("there is no model \"x\""));
}

#[test]
fn a_budget_that_is_used_up_ends_an_experiment_with_a_reason() {
    let mut s = Scenario::new(1);
    let config = format!("{EXPERIMENT}budget: {{slot_hours: 0.00001}}\n");
    let id = s.create_from(&config).expect("created");
    let reason = s.until(id, "canceled").expect("a reason");
    assert!(reason.contains("slot hours is used up"), "{reason}");
    assert!(s.hub.store().usage(id).expect("known").used_slot_ms >= 36);
    let error = s.hub.want(&Speaker::default(), id, Wanted::Run).expect_err("used up").to_string();
    assert!(error.contains("`salamander job update` gives it more"), "{error}");
    s.hub.allow(&Speaker::default(), id, Default::default()).expect("more");
    s.want(id, Wanted::Run);
    s.until(id, "running");
    s.want(id, Wanted::Killed);
    let reason = s.until(id, "canceled").expect("a reason");
    assert_eq!(reason, "it was killed");
    let error =
        s.create_from("entrypoint: net\nbudget: {hours: -1}\n").expect_err("refused").to_string();
    assert!(error.contains("budget.hours: write hours above 0"), "{error}");
}

#[test]
fn logs_go_after_their_days_and_not_before() {
    let mut s = Scenario::new(1).reading();
    let config = format!("{EXPERIMENT}retention_policy: {{log_retention_days: 0}}\n");
    let (gone, kept) = (s.create_from(&config).expect("created"), s.create(42));
    for id in [gone, kept] {
        s.until(id, "running");
        s.begun(id, 1);
        fs::create_dir_all(s.run(id).join("logs")).expect("made");
        fs::write(s.run(id).join("logs/worker-0.log"), "a line\n").expect("written");
        s.end(id, "completed");
        s.until(id, "completed");
    }
    Ingester::new(s.hub.clone()).look_at_all().expect("read");
    let lines = |s: &Scenario, id: ExperimentId| {
        let run: RunId = format!("{id}.1").parse().expect("a run");
        s.hub.store().run_logs(run, &LogQuery::default()).expect("read").lines.len()
    };
    while s.run(gone).join("logs/worker-0.log").exists() || lines(&s, gone) > 0 {
        let queue = Queue::new(s.hub.clone(), Arc::clone(&s.programs), 1);
        s.queue = queue.with_log_retention(Some(30));
        s.queue.turn().expect("a turn");
    }
    assert_eq!(lines(&s, kept), 1);
    assert!(s.run(kept).join("logs/worker-0.log").exists());
}

#[test]
fn lines_that_are_written_after_the_end_are_read() {
    let runs = tempfile::tempdir().expect("a folder");
    let run = write_run(runs.path(), "a", 10);
    let hub = open(runs.path()).expect("opened");
    let mut ingester = Ingester::new(hub.clone());
    ingester.look_at_all().expect("read");
    let lines = || {
        let run = "1.1".parse().expect("a run");
        hub.store().run_logs(run, &LogQuery::default()).expect("read").lines.len()
    };
    assert_eq!(lines(), 2);
    let mut log =
        fs::OpenOptions::new().append(true).open(run.join("logs/worker-0.log")).expect("open");
    writeln!(log, "one more").expect("written");
    ingester.look_at_all().expect("read");
    assert_eq!(lines(), 3);
}

#[test]
fn a_run_whose_folder_goes_away_does_not_run_for_ever() {
    let runs = tempfile::tempdir().expect("a folder");
    let run = write_run(runs.path(), "a", 10);
    let lock = fs::File::open(run.join("run.lock")).expect("opened");
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).expect("held");
    let hub = open(runs.path()).expect("opened");
    Ingester::new(hub.clone()).look_at_all().expect("read");
    let state = || hub.store().experiment(ExperimentId(1)).expect("there");
    assert_eq!(state().state, "running");
    fs::remove_dir_all(&run).expect("removed");
    Ingester::new(hub.clone()).look_at_all().expect("read");
    assert_eq!(state().reason.as_deref(), Some("its folder is gone"));
    assert_eq!(hub.store().run("1.1".parse().expect("a run")).expect("there").state, "interrupted");
}

/// A request as a webhook's server sees it.
struct Heard {
    headers: Vec<(String, String)>,
    body: String,
}

impl Heard {
    fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(own, _)| own.eq_ignore_ascii_case(name));
        &found.expect(name).1
    }
}

/// A server that answers so many requests with 500, and all others with 200.
fn failing_at_first(mut failures: u32) -> (String, Receiver<Heard>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = format!("http://{}/hook", listener.local_addr().expect("an address"));
    let (sender, heard) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut reader = BufReader::new(stream);
            let mut lines = Vec::new();
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).expect("a line");
                if line.trim().is_empty() {
                    break;
                }
                lines.push(line.trim().to_string());
            }
            let split = |line: &String| {
                line.split_once(": ").map(|(name, value)| (name.to_string(), value.to_string()))
            };
            let headers: Vec<(String, String)> = lines.iter().filter_map(split).collect();
            let length =
                headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
            let mut body = vec![0; length.expect("a length").1.parse().expect("a number")];
            reader.read_exact(&mut body).expect("a body");
            let status = if failures > 0 { "500 Oh" } else { "200 OK" };
            failures = failures.saturating_sub(1);
            let answer =
                format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            reader.get_mut().write_all(answer.as_bytes()).expect("answered");
            let body = String::from_utf8(body).expect("text");
            if sender.send(Heard { headers, body }).is_err() {
                return;
            }
        }
    });
    (address, heard)
}

#[test]
fn a_webhook_hears_of_an_end_again_until_it_says_so() {
    let Scenario { folder, hub, programs: _, queue } = Scenario::new(1);
    drop(queue);
    let listen = Listen {
        address: "127.0.0.1:0".parse().expect("an address"),
        tls: None,
        proxy: None,
        login: false,
    };
    let programs = vec![folder.path().join("program")];
    let options = DaemonOptions {
        listen,
        slots: 1,
        log_retention_days: None,
        programs,
        routes: None,
        platform: None,
    };
    let daemon = Daemon::start(hub, options).expect("started");
    let client = salamander_hub::HubClient::new(&format!("http://{}", daemon.address()), None);
    let client = client.expect("an address");
    let (address, heard) = failing_at_first(2);
    let only_failed = ["failed".to_string()];
    let hook = client.add_webhook(&address, &only_failed).expect("added");
    assert!(client.add_webhook("ftp://x", &[]).is_err());
    assert!(client.add_webhook(&address, &["sad".to_string()]).is_err());
    let request = CreateRequest { config: EXPERIMENT.to_string(), ..CreateRequest::default() };
    let (ends, fails) =
        (client.create(&request).expect("in"), client.create(&request).expect("in"));
    for (experiment, how) in [(ends, "completed"), (fails, "failed")] {
        let run = daemon.hub().runs().join(&experiment.folder);
        while !run.join("run.lock").exists() {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        fs::write(run.join("end"), how).expect("written");
    }
    let tries: Vec<Heard> = (0..3).map(|_| heard.recv().expect("a try")).collect();
    for tried in &tries {
        let body: Json = serde_json::from_str(&tried.body).expect("JSON");
        assert_eq!(
            (&body["type"], &body["data"]["experiment"]),
            (&"experiment.failed".into(), &2.into())
        );
        assert_eq!(tried.body, tries[0].body);
        assert_eq!(tried.header("webhook-id"), tries[0].header("webhook-id"));
        assert!(tried.header("webhook-signature").starts_with("v1,"));
        tried.header("webhook-timestamp").parse::<i64>().expect("a time");
    }
    while !client.webhooks().expect("listed").waiting.is_empty() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert!(heard.try_recv().is_err(), "it is not told once more");
    assert!(client.webhooks().expect("listed").secret.starts_with("whsec_"));
    client.remove_webhook(&hook.id).expect("removed");
    assert!(client.webhooks().expect("listed").webhooks.is_empty());
    // What was heard stays heard in a store that is made again.
    let runs = daemon.hub().runs().to_path_buf();
    drop((client, daemon));
    forget(&runs).expect("removed");
    let hub = open(&runs).expect("opened");
    assert!(hub.store().deliveries(i64::MAX).expect("read").is_empty());
}

#[test]
fn files_of_runs_elsewhere_follow_on_each_other_and_stay_in_their_folder() {
    let runs = tempfile::tempdir().expect("a folder");
    write_run(runs.path(), "taken", 10);
    let hub = open(runs.path()).expect("opened");
    let run = |uid: &str| RemoteRun { uid: uid.into(), id: "taken".into(), host: "there".into() };
    assert!(matches!(hub.begin_remote(&run("../../etc")), Err(Error::Invalid(_))));
    let uid = "0123456789abcdef0123456789abcdef";
    let standing = hub.begin_remote(&run(uid)).expect("begun");
    assert_eq!(
        (standing.folder.as_str(), standing.sees),
        ("taken-x", false),
        "nobody's run is touched"
    );
    let part = |path: &str, stamp: &str, offset| RemotePart {
        path: path.to_string(),
        stamp: stamp.to_string(),
        offset,
    };
    for path in [
        "../taken/metrics.jsonl",
        "trials/../../taken/metrics.jsonl",
        "/etc/passwd",
        "logs/../run.lock",
        "logs/.hidden.log",
        "trials/1/metrics.jsonl",
        "checkpoints/step-00000001/manifest.json",
        "remote.json",
        "",
    ] {
        let refused = hub.write_remote(uid, &part(path, "1", 0), b"x");
        assert!(matches!(refused, Err(Error::Invalid(_))), "{path}");
    }
    let strange = "f".repeat(32);
    assert!(matches!(
        hub.write_remote(&strange, &part("plan.json", "1", 0), b"x"),
        Err(Error::NotFound(_))
    ));
    let metrics = "metrics.jsonl";
    assert_eq!(hub.write_remote(uid, &part(metrics, "1-1", 0), b"one\n").expect("kept"), 4);
    assert_eq!(hub.write_remote(uid, &part(metrics, "1-1", 4), b"two\n").expect("kept"), 8);
    for offset in [0, 4, 9] {
        let refused = hub.write_remote(uid, &part(metrics, "1-1", offset), b"again\n");
        assert!(matches!(refused, Err(Error::Conflict(_))), "{offset}");
    }
    assert!(matches!(
        hub.write_remote(uid, &part(metrics, "2-2", 4), b"x"),
        Err(Error::Conflict(_))
    ));
    // A hub that was killed while it wrote says how much it has.
    let path = runs.path().join("taken-x").join(metrics);
    let mut file = fs::OpenOptions::new().append(true).open(&path).expect("open");
    write!(file, "thr").expect("written");
    assert_eq!(hub.begin_remote(&run(uid)).expect("known").files[metrics].length, 11);
    hub.write_remote(uid, &part(metrics, "1-1", 11), b"ee\n").expect("kept");
    assert_eq!(fs::read_to_string(&path).expect("read"), "one\ntwo\nthree\n");
    // Another file of this name takes its place.
    hub.write_remote(uid, &part(metrics, "2-2", 0), b"new\n").expect("kept");
    assert_eq!(fs::read_to_string(&path).expect("read"), "new\n");
    // It is alive as long as somebody says so.
    hub.write_remote(uid, &part("experiment.yaml", "1", 0), EXPERIMENT.as_bytes()).expect("kept");
    let live =
        |live: &[&str]| RemoteLife { live: live.iter().map(|live| live.to_string()).collect() };
    let state = || {
        Ingester::new(hub.clone()).look_at_all().expect("read");
        hub.store().experiment(ExperimentId(2)).expect("there").state
    };
    hub.hear_remote(uid, &live(&[""])).expect("heard");
    assert_eq!(state(), "running");
    hub.hear_remote(uid, &live(&[])).expect("heard");
    assert_eq!(state(), "interrupted");
    hub.write_remote(uid, &part("summary.json", "1", 0), b"{\"state\":\"completed\"}")
        .expect("kept");
    assert_eq!(state(), "completed");
}

#[test]
fn webhooks_hear_of_plain_runs_once() {
    let runs = tempfile::tempdir().expect("a folder");
    let run = write_run(runs.path(), "a", 10);
    write_run(runs.path(), "before", 10);
    let lock = fs::File::open(run.join("run.lock")).expect("opened");
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).expect("held");
    let hub = open(runs.path()).expect("opened");
    // Nobody is asked here: nothing sends.
    hub.add_webhook(&Speaker::default(), "http://localhost:1/hook", &[]).expect("added");
    let mut ingester = Ingester::new(hub.clone());
    ingester.look_at_all().expect("read");
    let waiting = || hub.store().deliveries(i64::MAX).expect("read");
    assert!(waiting().is_empty(), "what ended before anybody looked is no news");
    drop(lock);
    ingester.look_at_all().expect("read");
    Ingester::new(hub.clone()).look_at_all().expect("read");
    let told = waiting();
    assert_eq!(told.len(), 1);
    assert!(told[0].body.contains("\"folder\":\"a\""), "{}", told[0].body);
}

#[test]
fn an_experiment_that_cannot_be_deleted_holds_nobody_up() {
    let mut s = Scenario::new(1);
    let (first, second) = (s.create(42), s.create(42));
    s.until(first, "running");
    s.begun(first, 1);
    s.want(first, Wanted::Killed);
    s.until(first, "canceled");
    // Something is where it would go.
    let there = s.hub.runs().join(".hub/deleted-1/something");
    fs::create_dir_all(&there).expect("made");
    s.want(first, Wanted::Deleted);
    let state = |s: &Scenario, id: ExperimentId| s.hub.store().experiment(id).expect("there");
    while state(&s, second).state != "running" || state(&s, first).state != "deleting" {
        let _ = s.queue.turn();
    }
    assert!(state(&s, first).reason.is_some(), "people see why");
    fs::remove_dir_all(there.parent().expect("a folder")).expect("removed");
    while s.hub.store().experiment(first).is_ok() {
        let _ = s.queue.turn();
    }
    s.want(second, Wanted::Killed);
    s.until(second, "canceled");
}
