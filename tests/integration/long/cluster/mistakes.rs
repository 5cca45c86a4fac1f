//! What is wrong with a job of the real program: it fails at once, in one sentence, and no pod is tried again.

use std::ffi::OsStr;

use fake_cluster::{Cluster, JOBS, Operator, PODS, job, wait_until};
use serde_json::{Value, json};
use tests::people::people_csv;

use crate::support::{PROGRAM, Workplace};

/// How a job of these fields ends.
fn ended(cluster: &Cluster, name: &str, inline: &Value) -> Value {
    cluster.submit(&job(name, (1, 1), json!({"experiment": {"inline": inline}})));
    wait_until("it is over", || ["Failed", "Complete"].contains(&cluster.phase(name).as_str()));
    cluster.get(JOBS, name).expect("there")["status"].clone()
}

#[test]
fn a_wrong_path_and_a_wrong_model_fail_a_job_at_once_in_a_sentence() {
    let cluster = Cluster::of_program(OsStr::new(PROGRAM));
    let _operator = Operator::start(&cluster);
    for (name, inline, words) in [
        (
            "path",
            json!({"entrypoint": "mnist_conv16", "data": {"training": "/data/none.recordio"}}),
            "/data/none.recordio",
        ),
        (
            "model",
            json!({"entrypoint": "mnist_conv17", "data": {"training": "/data/none.recordio"}}),
            "mnist_conv17",
        ),
    ] {
        let status = ended(&cluster, name, &inline);
        let message = status["message"].as_str().expect("a message");
        assert!(status["phase"] == "Failed" && message.contains(words), "{status}");
        assert!(!message.contains("{\"") && message.lines().count() == 1, "{message}");
        let restarts = &status["restarts"];
        assert!(restarts["worker"] != 1 && restarts["master"] != 1, "{restarts}");
        assert!(cluster.get(PODS, &format!("{name}-master-1")).is_none(), "it was not tried again");
    }
}

#[test]
fn a_job_of_the_same_name_with_other_hyperparameters_is_told_where_they_differ() {
    let cluster = Cluster::of_program(OsStr::new(PROGRAM));
    let _operator = Operator::start(&cluster);
    let place = Workplace::new();
    let data = place.write("people.csv", &people_csv(60)).display().to_string();
    let inline = |rate: f64| {
        json!({
            "entrypoint": "people", "data": {"training": data, "fit": true},
            "hyperparameters": {"global_batch_size": 20, "learning_rate": rate},
            "searcher": {"metric": "loss", "max_length": {"epochs": 1}},
        })
    };
    assert_eq!(ended(&cluster, "j", &inline(0.05))["phase"], "Complete");
    let delete = || {
        cluster.delete(JOBS, "j");
        wait_until("it is gone", || cluster.list(PODS).is_empty());
    };
    delete();
    let other = ended(&cluster, "j", &inline(0.1));
    let message = other["message"].as_str().expect("a message");
    assert_eq!(other["phase"], "Failed", "{other}");
    assert!(
        message.contains("hyperparameters.learning_rate is 0.05 there and 0.1 here"),
        "{message}"
    );
    delete();
    assert_eq!(ended(&cluster, "j", &inline(0.05))["phase"], "Complete", "the same goes on");
}
