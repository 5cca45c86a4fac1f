//! The API beside its own description: schemathesis asks for what that allows, and for what it does not.

use std::path::Path;
use std::process::Command;

use salamander_hub::api::Access;
use serde_json::json;

use crate::folders::{Serving, write_run};
use crate::mlflow::python;

/// Requests for each operation, beside those that cover its parameters.
const EXAMPLES: &str = "40";

#[test]
fn the_api_answers_as_its_description_says() {
    let Some(python) = python("schemathesis") else { return };
    let runs = tempfile::tempdir().expect("a folder");
    write_run(runs.path(), "a", 10);
    let serving = Serving::start(runs.path(), Access::Open);
    let client = serving.client();
    client.post::<serde_json::Value>("api/v1/models", &json!({"name": "digits"})).expect("made");
    let run = "1.1".parse().expect("a run");
    client.register("digits", run, "step-00000010").expect("registered");
    let place = tempfile::tempdir().expect("a folder");
    let output = Command::new(Path::new(&python).with_file_name("schemathesis"))
        .arg("run")
        .arg(format!("http://localhost:{}/api/openapi.json", serving.address.port()))
        .args(["--checks", "not_a_server_error,status_code_conformance"])
        .args(["--checks", "content_type_conformance,response_schema_conformance"])
        .args(["--phases", "examples,coverage,fuzzing", "--max-examples", EXAMPLES])
        .arg("--generation-deterministic")
        .args(["--workers", "1", "--no-color", "--warnings", "off"])
        .current_dir(place.path())
        .output()
        .expect("schemathesis starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    println!("{said}");
    assert_eq!(client.run(run).expect("still there").steps, 10);
}
