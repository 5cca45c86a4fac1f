//! A real MLflow server that is away, loses answers and comes back: it ends up with each point once.

use std::fs;
use std::time::Duration;

use salamander_core::experiment::Mlflow;
use salamander_core::layout::RunLayout;
use salamander_track::mlflow::state::SenderState;
use salamander_track::{Patience, Sinks, Tracker};
use serde_json::{Value, json};

use crate::folder;
use crate::mlflow_server::MlflowServer;
use crate::proxy::{Proxy, Way};

const PATIENT: Patience =
    Patience { silent: Duration::from_secs(120), longest: Duration::from_secs(600) };

fn sinks(uri: &str) -> Sinks {
    let (uri, experiment) = (uri.to_string(), Some("a team's".to_string()));
    let mlflow = Mlflow { uri, experiment, checkpoint: true };
    Sinks { mlflow: Some(mlflow), ..Sinks::default() }
}

fn state(run: &RunLayout) -> SenderState {
    let bytes = fs::read(run.mlflow()).expect("there");
    serde_json::from_slice(&bytes).expect("a state")
}

/// Waits until what the run has told fulfils a condition.
fn until(run: &RunLayout, holds: impl Fn(&SenderState) -> bool) {
    while !(run.mlflow().is_file() && holds(&state(run))) {
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Everything that the server knows of the experiment's runs.
const LOOK: &str = r#"
experiment = client.get_experiment_by_name("a team's")
out = []
for run in client.search_runs([experiment.experiment_id], order_by=["attributes.run_name ASC"]):
    names = list(run.data.metrics)
    out.append({
        "id": run.info.run_id, "name": run.info.run_name, "status": run.info.status,
        "params": run.data.params, "tags": run.data.tags, "ended": run.info.end_time,
        "artifacts": [a.path for a in client.list_artifacts(run.info.run_id)],
        "checkpoint": [a.path for a in client.list_artifacts(run.info.run_id, "checkpoints/step-00001000")],
        "metrics": {n: sorted([m.step, m.timestamp, repr(m.value)]
                              for m in client.get_metric_history(run.info.run_id, n)) for n in names},
    })
"#;

#[test]
fn a_server_that_loses_answers_and_a_run_that_is_killed_leave_each_point_once() {
    let Some(server) = MlflowServer::start() else { return };
    let proxy = Proxy::start(server.address, Way::Cut);
    let (_parent, run) = folder::run();
    let tracker = Tracker::start(&run, &sinks(&proxy.uri()));
    folder::append(&run, 1..=900, 0);
    folder::append_text(&run, &folder::epoch(900));
    // Away, then there for some of what is said.
    until(&run, |state| state.told.steps == 0);
    proxy.set(Way::Lossy);
    until(&run, |state| state.told.steps == 900 && state.sending.is_empty());
    assert!(proxy.lost() > 2, "answers were lost");
    // Killed after its server was told of steps that no checkpoint has.
    drop(tracker);
    folder::cut(&run, 700);
    folder::append(&run, 701..=800, 1);
    let tracker = Tracker::start(&run, &sinks(&proxy.uri()));
    folder::append(&run, 801..=1000, 1);
    folder::append_text(&run, &folder::epoch(1000));
    folder::checkpoint(&run, "step-00001000");
    folder::end(&run);
    assert_eq!(tracker.finish(PATIENT), Vec::<String>::new());
    let found = server.ask(LOOK);
    assert_eq!(found.as_array().map(Vec::len), Some(1), "{found}");
    check_run(&found[0]);
    // A run that was told of completely is told of again without any effect.
    assert_eq!(Tracker::start(&run, &sinks(&proxy.uri())).finish(PATIENT), Vec::<String>::new());
    assert_eq!(server.ask(LOOK), found);
    search_has_a_parent(&server);
    many_metrics_of_an_epoch_are_told_whole(&server);
}

fn check_run(run: &Value) {
    assert_eq!((&run["name"], &run["status"]), (&json!("digits-1"), &json!("FINISHED")));
    assert_eq!(run["params"]["optimizer.name"], "sgd");
    assert_eq!(run["params"]["seed"], "3");
    assert_eq!(run["tags"]["salamander.run"], "digits-1");
    assert_eq!(run["tags"]["label.first"], "first");
    let expected =
        json!(["checkpoints", "confusion.png", "experiment.yaml", "report.json", "summary.json"]);
    assert_eq!(run["artifacts"], expected);
    let within = ["manifest.json", "model.safetensors"]
        .map(|name| format!("checkpoints/step-00001000/{name}"));
    assert_eq!(run["checkpoint"], json!(within));
    let loss = run["metrics"]["loss"].as_array().expect("points");
    let steps: Vec<u64> = loss.iter().filter_map(|point| point[0].as_u64()).collect();
    assert_eq!(steps, (1..=1000).collect::<Vec<u64>>());
    // What was trained again keeps the time at which it was told first.
    assert_eq!(loss[749][1], 1_700_000_750_000u64);
    assert_eq!(loss[949][1], 1_700_010_950_000u64);
    let value = |at: usize| loss[at][2].as_str().and_then(|text| text.parse::<f64>().ok());
    assert_eq!((value(2), value(949)), (Some(folder::loss(3, 0)), Some(folder::loss(950, 1))));
    assert_eq!(run["metrics"]["validation/accuracy"].as_array().map(Vec::len), Some(2));
    assert_eq!(run["metrics"]["validation/loss"][0][2], "nan");
}

/// The trial of a search waits for the run of the search, and stands below it.
fn search_has_a_parent(server: &MlflowServer) {
    let parent = tempfile::tempdir().expect("a folder");
    let search = RunLayout::new(parent.path().join("tuning-1"));
    let trial = RunLayout::new(search.trials().join("00001"));
    fs::create_dir_all(trial.folder()).expect("made");
    let kept = json!({"file": "searcher: {name: random, max_trials: 2}\n", "seed": 1, "base": "/"});
    fs::write(search.search(), kept.to_string()).expect("written");
    fs::write(trial.experiment(), folder::EXPERIMENT).expect("written");
    folder::append(&trial, 1..=3, 0);
    folder::end(&trial);
    let uri = format!("http://{}", server.address);
    let none = Patience { silent: Duration::ZERO, longest: Duration::ZERO };
    let notes = Tracker::start(&trial, &sinks(&uri)).finish(none);
    assert!(
        notes[0].contains("salamander track") && notes[0].contains("nothing is lost"),
        "{notes:?}"
    );
    let (of_trial, of_search) =
        (Tracker::start(&trial, &sinks(&uri)), Tracker::start(&search, &sinks(&uri)));
    let best = json!({"state": "completed", "best": {"metric": 0.25, "id": 1}});
    fs::write(search.summary(), best.to_string()).expect("written");
    assert_eq!(of_search.finish(PATIENT), Vec::<String>::new());
    assert_eq!(of_trial.finish(PATIENT), Vec::<String>::new());
    let found = server.ask(LOOK);
    let of = |name: &str| {
        let mut runs = found.as_array().into_iter().flatten();
        runs.find(|run| run["name"] == name).cloned().expect("a run")
    };
    let (search, trial) = (of("tuning-1"), of("tuning-1/00001"));
    assert_eq!(trial["tags"]["mlflow.parentRunId"], search["id"]);
    assert_eq!(search["metrics"]["best"].as_array().map(Vec::len), Some(1));
    assert_eq!(trial["metrics"]["loss"].as_array().map(Vec::len), Some(3));
}

/// Of an epoch that has more metrics than a call may bring.
fn many_metrics_of_an_epoch_are_told_whole(server: &MlflowServer) {
    const METRICS: usize = 1500;
    let (_parent, run) = folder::run();
    let mut line = json!({"kind": "epoch", "steps": 1, "epoch": 0, "complete": true, "time": 1.0});
    for metric in 0..METRICS {
        line["validation"][format!("m{metric}")] = json!(metric);
    }
    folder::append_text(&run, &format!("{line}\n"));
    folder::end(&run);
    let mlflow = Mlflow {
        uri: format!("http://{}", server.address),
        experiment: Some("many".to_string()),
        checkpoint: false,
    };
    let sinks = Sinks { mlflow: Some(mlflow), ..Sinks::default() };
    assert_eq!(Tracker::start(&run, &sinks).finish(PATIENT), Vec::<String>::new());
    let found = server.ask(
        "experiment = client.get_experiment_by_name('many')\n\
         out = client.search_runs([experiment.experiment_id])[0].data.metrics",
    );
    let told = |metric: &usize| found[format!("validation/m{metric}")] == json!(*metric as f64);
    assert_eq!((0..METRICS).filter(told).count(), METRICS);
}

#[test]
fn a_dead_server_is_told_of_and_nothing_is_lost() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let uri = format!("http://{}", closed.local_addr().expect("an address"));
    drop(closed);
    let (_parent, run) = folder::run();
    folder::append(&run, 1..=5, 0);
    let patience = Patience { silent: Duration::from_millis(50), longest: Duration::from_secs(60) };
    let notes = Tracker::start(&run, &sinks(&uri)).finish(patience);
    assert_eq!(notes.len(), 1);
    assert!(notes[0].contains(&uri) && notes[0].contains("salamander track"), "{notes:?}");
    assert_eq!(state(&run).told.steps, 0);
}
