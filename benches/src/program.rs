//! The program `salamander` inside of a bench, so that whole runs can be timed without building it apart.

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use salamander::Models;

/// Is the program if this process was started as one: the roles of a run start each other by the path of the bench.
pub fn as_program() -> Option<ExitCode> {
    as_program_of(model_zoo::models())
}

/// The same with other models than the zoo's.
pub fn as_program_of(models: Models) -> Option<ExitCode> {
    let role = std::env::args().nth(1).unwrap_or_default();
    let is_ours =
        matches!(role.as_str(), "train" | "master" | "worker" | "ps" | "trial" | "hub" | "flow");
    is_ours.then(|| {
        model_zoo::memory::keep();
        #[cfg(feature = "flow")]
        return salamander::main_with_flows(models, model_zoo::flow::flows());
        #[cfg(not(feature = "flow"))]
        salamander::main(models)
    })
}

/// Steps per second of `train`, by the difference of two lengths: a run's start does not count.
pub fn steps_per_second(experiment: &Path, steps: [u64; 2], flags: &[&str]) -> f64 {
    let seconds = steps.map(|steps| {
        let started = Instant::now();
        let status = Command::new(std::env::current_exe().expect("this program"))
            .arg("train")
            .arg(experiment)
            .arg("--set")
            .arg(format!("searcher.max_length={{batches: {steps}}}"))
            .args(flags)
            .current_dir(experiment.parent().expect("a folder"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        assert!(status.expect("the program starts").success(), "the run failed");
        started.elapsed().as_secs_f64()
    });
    (steps[1] - steps[0]) as f64 / (seconds[1] - seconds[0])
}
