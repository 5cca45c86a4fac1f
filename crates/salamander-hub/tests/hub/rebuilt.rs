//! A store that is lost and made again, compared with the lost one in all that a hub shows.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};
use salamander_hub::api::Access;
use salamander_hub::ingest::Ingester;
use salamander_hub::operation::Wanted;
use salamander_hub::queue::Queue;
use salamander_hub::store::page::ListQuery;
use salamander_hub::{CreateRequest, ExperimentId, HubClient, RunId, Speaker};
use serde_json::{Value as Json, json};

use crate::folders::{EXPERIMENT, Serving, write_metrics, write_run};
use crate::place::{forget, open};
use crate::queue::Scenario;
use crate::upkeep::{there, write_checkpoint};

/// Everything that the API tells, by its path, without the numbers of commits and rows.
fn shown(client: &HubClient) -> Vec<(String, Json)> {
    let mut all = Vec::new();
    let mut ask = |path: String| {
        let found = client.get::<Json>(&path, &json!({}));
        let mut found = found.unwrap_or_else(|error| panic!("{path}: {error}"));
        let is_audit = path.contains("audit");
        strip(&mut found, if is_audit { "id" } else { "change" });
        all.push((path, found.clone()));
        found
    };
    ask("api/v1/models".to_string());
    ask("api/v1/webhooks".to_string());
    ask("api/v1/audit?limit=1000".to_string());
    let everything = "archived=true&sort=id&limit=1000&metrics=*";
    let experiments = ask(format!("api/v1/experiments?{everything}"));
    for experiment in experiments["items"].as_array().expect("a list") {
        let place = format!("api/v1/experiments/{}", experiment["id"]);
        for part in ["", "/config", "/lineage", "/usage", "/checkpoints", "/logs?limit=10000"] {
            ask(format!("{place}{part}"));
        }
    }
    let runs = ask(format!("api/v1/runs?{everything}"));
    for run in runs["items"].as_array().expect("a list") {
        let place = format!("api/v1/runs/{}", run["id"].as_str().expect("a run"));
        for part in ["", "/summary", "/validations", "/checkpoints", "/logs?limit=10000"] {
            ask(format!("{place}{part}"));
        }
        let metrics = ask(format!("{place}/metrics"));
        let names = metrics.as_array().expect("a list").iter();
        let names: Vec<&str> = names.filter_map(|metric| metric["name"].as_str()).collect();
        if !names.is_empty() {
            ask(format!("{place}/curves?points=20000&metrics={}", names.join(",")));
        }
    }
    all
}

fn strip(value: &mut Json, field: &str) {
    match value {
        Json::Object(fields) => {
            fields.remove(field);
            fields.values_mut().for_each(|value| strip(value, field));
        }
        Json::Array(items) => items.iter_mut().for_each(|value| strip(value, field)),
        _ => {}
    }
}

/// A single run of the hub whose process is killed once, and which leaves checkpoints, curves and logs.
fn train(s: &mut Scenario) -> ExperimentId {
    let id = s.create(7);
    s.until(id, "running");
    s.begun(id, 1);
    let kept = s.hub.runs().join(".hub/experiments").join(id.to_string()).join("process.json");
    let kept: Json = serde_json::from_slice(&fs::read(kept).expect("read")).expect("JSON");
    let pid = Pid::from_raw(kept["pid"].as_i64().expect("a number") as i32);
    kill_process(pid.expect("a process"), Signal::KILL).expect("killed");
    s.begun_again(id, 2);
    let run = s.run(id);
    write_metrics(&run, 3000);
    fs::create_dir_all(run.join("logs")).expect("made");
    let lines: String = (0..2000).map(|n| format!("line {n} that somebody reads\n")).collect();
    fs::write(run.join("logs/worker-0.log"), lines).expect("written");
    for (steps, watched) in
        [(1, Some(0.9)), (2, Some(0.1)), (3, Some(0.5)), (4, Some(0.4)), (5, None)]
    {
        write_checkpoint(&run, steps, watched);
    }
    s.end(id, "completed");
    s.until(id, "completed");
    while there(&run).len() > 2 {
        s.queue.turn().expect("a turn");
    }
    id
}

/// What people say to a hub.
fn say(client: &HubClient, trained: ExperimentId, run: RunId) {
    client.delete_checkpoint(run, "step-00000005").expect("deleted");
    for name in ["digits", "letters"] {
        let _: Json = client.post("api/v1/models", &json!({"name": name})).expect("made");
    }
    for _ in 0..3 {
        client.register("digits", run, "step-00000002").expect("registered");
    }
    let alias = json!({"alias": "champion", "version": 2});
    let _: Json = client.post("api/v1/models/digits/aliases", &alias).expect("named");
    let _: Json = client.delete("api/v1/models/digits/versions/3").expect("deleted");
    client.move_model("digits", "numbers").expect("moved");
    let words = json!({"add_labels": ["x", "y"], "description": "d", "priority": 9});
    client.change(trained, &words).expect("changed");
    client.change(trained, &json!({"remove_labels": ["x"]})).expect("changed");
    client.act(trained, "archive").expect("archived");
    let budget = salamander_core::experiment::Budget { hours: Some(3.0), slot_hours: None };
    client.allow(trained, &budget).expect("allowed");
    client.add_webhook("http://127.0.0.1:9/hook", &["failed".to_string()]).expect("added");
    let second = client.add_webhook("http://127.0.0.1:9/other", &[]).expect("added");
    client.remove_webhook(&second.id).expect("removed");
}

#[test]
fn a_store_that_is_made_again_has_all_that_the_lost_one_had() {
    let mut s = Scenario::new(1).reading();
    let trained = train(&mut s);
    let run: RunId = format!("{trained}.1").parse().expect("a run");
    let source = format!("searcher.source_checkpoint_uuid=\"{run}/step-00000002\"");
    let waiting = CreateRequest {
        config: EXPERIMENT.to_string(),
        sets: vec![source],
        labels: vec!["later".to_string()],
        paused: true,
        ..CreateRequest::default()
    };
    s.hub.create(&Speaker("ada".to_string()), waiting, &s.programs).expect("created");
    let killed = s.create(42);
    s.until(killed, "running");
    s.begun(killed, 1);
    s.want(killed, Wanted::Killed);
    s.until(killed, "canceled");
    for (name, steps) in [("plain", 2000), ("deleted", 20)] {
        write_run(s.hub.runs(), name, steps);
    }
    Ingester::new(s.hub.clone()).look_at_all().expect("read");
    let deleted = s.hub.store().experiment_of("deleted").expect("read").expect("known");
    s.want(deleted, Wanted::Deleted);
    while s.hub.store().experiment(deleted).is_ok() {
        s.queue.turn().expect("a turn");
    }
    let runs = s.hub.runs().to_path_buf();
    let Scenario { folder, hub, queue, programs } = s;
    drop((hub, queue));
    let before = {
        let serving = Serving::start(&runs, Access::Open);
        say(&serving.client(), trained, run);
        shown(&serving.client())
    };
    let told = |path: &str| before.iter().find(|(known, _)| known == path).map(|(_, told)| told);
    let experiment = told(&format!("api/v1/experiments/{trained}")).expect("told");
    assert_eq!((&experiment["restarts"], &experiment["labels"]), (&json!(1), &json!(["y"])));
    let checkpoints = told(&format!("api/v1/runs/{run}/checkpoints")).expect("told");
    let states: Vec<&Json> =
        checkpoints.as_array().expect("a list").iter().map(|one| &one["state"]).collect();
    assert_eq!(states, ["deleted", "completed", "deleted", "deleted", "deleted"]);
    forget(&runs).expect("removed");
    let hub = open(&runs).expect("opened");
    Ingester::new(hub.clone()).look_at_all().expect("read");
    Queue::new(hub.clone(), programs, 0).turn().expect("a turn");
    assert_eq!(hub.store().experiments(&ListQuery::default()).expect("read").total, 3);
    drop(hub);
    let after = shown(&Serving::start(&runs, Access::Open).client());
    for (before, after) in before.iter().zip(&after) {
        assert_eq!(before, after);
    }
    assert_eq!(before.len(), after.len());
    drop(folder);
}
