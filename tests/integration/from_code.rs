//! The example without a command line, `model_zoo/examples/from_code.rs`, run as its reader would run it.

use std::process::Command;

use crate::support::{Workplace, digits, digits_experiment};

#[test]
fn a_program_trains_with_three_workers_and_survives_a_kill() {
    let place = Workplace::new();
    let rest = "hyperparameters: {global_batch_size: 48}\n\
                searcher: {metric: loss, max_length: {batches: 400}}\n\
                elastic: {silence: 2}\n";
    let experiment = place.write("mlp.yaml", &digits_experiment("mnist_mlp", rest));
    let mut command = Command::new(env!("CARGO_BIN_EXE_from_code"));
    command.arg(experiment).arg(digits("mnist-valid.recordio")).arg("runs");
    let output = command.current_dir(place.path()).output().expect("it starts");
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    for line in ["trained 400 steps", "workers started again: 1", "predicted 2000 records"] {
        assert!(out.contains(line), "{line:?} in {out}{err}");
    }
}
