//! Runs that go on with other settings: what does not fit, or comes too late, changes nothing, and what the command
//! line asks for is what there is.

use std::fs;
use std::path::Path;
use std::process::Child;
use std::time::Duration;

use serde_json::Value;

use crate::interrupted::{start, steps_logged};
use crate::steered::experiment;
use crate::support::{Workplace, points_csv};

fn in_force(run: &str) -> String {
    fs::read_to_string(Path::new(run).join("experiment.yaml")).expect("an experiment")
}

/// Goes on with a run, with something set.
fn resumed(place: &Workplace, run: &str, sets: &[&str]) -> Value {
    let sets = sets.iter().flat_map(|set| ["--set", set]);
    place.train(&["--resume", run].into_iter().chain(sets).collect::<Vec<_>>())
}

#[test]
fn settings_that_do_not_fit_or_come_too_late_change_nothing() {
    let place = Workplace::new();
    place.write("points.csv", &points_csv(40));
    let text = "entrypoint: points\ndata: {training: points.csv}\n\
                hyperparameters: {global_batch_size: 8}\nmicro_batches: 2\n\
                searcher: {metric: loss, max_length: {batches: 6}}\n\
                reproducibility: {experiment_seed: 3}\n";
    let file = place.write("x.yaml", text).display().to_string();
    for (id, workers) in [("alone", "1"), ("together", "2")] {
        let arguments: &[&str] = match workers {
            "1" => &[&file, "--id", id],
            _ => &[&file, "--id", id, "--workers", workers],
        };
        let first = place.train(arguments);
        let run = first["dir"].as_str().expect("a folder");
        let before = in_force(run);

        for mut how in [vec!["train", "--resume", run], vec!["train", &file, "--id", id]] {
            how.extend(["--set", "hyperparameters.hidden=8"]);
            let refused = place.run(&how);
            assert_eq!(refused.code(), Some(1), "{how:?}: {}", refused.out());
            let said = refused.err();
            assert!(said.contains("has shape [4], the model's is [8]"), "{said}");
            assert!(said.contains("resume it with what it was trained with"), "{said}");
            assert_eq!(in_force(run), before, "{workers} workers");
            let status: Value = place.ok(&["status", run, "--json"]).json();
            assert_eq!(status["state"], "completed", "{status}");
        }

        // There is nothing left to train with it.
        let late = resumed(&place, run, &["hyperparameters.learning_rate=0.5"]);
        assert_eq!((&late["state"], &late["steps"]), (&"completed".into(), &6.into()), "{late}");
        assert!(in_force(run).contains("learning_rate: 0.1"), "{}", in_force(run));
        let again = place.train(&[&format!("{run}/experiment.yaml"), "--out", "again"]);
        assert_eq!(again["weights_hash"], first["weights_hash"], "{workers} workers");

        let sets = ["hyperparameters.learning_rate=0.5", "searcher.max_length={batches: 12}"];
        let longer = resumed(&place, run, &sets);
        assert_eq!((&longer["state"], &longer["steps"]), (&"completed".into(), &12.into()));
        assert!(in_force(run).contains("learning_rate: 0.5"), "{}", in_force(run));
    }
}

/// How many workers a run's master wants, once it answers.
fn wanted(place: &Workplace, run: &str, training: &mut Child) -> Value {
    loop {
        let status: Value = place.ok(&["status", run, "--json"]).json();
        if !status["wanted"].is_null() {
            return status["wanted"].clone();
        }
        let ended = training.try_wait().expect("a state");
        assert!(ended.is_none(), "the run has ended ({ended:?}): {status}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_resume_with_workers_has_these_whatever_the_run_was_scaled_to() {
    let place = Workplace::new();
    let rest = "strategy: allreduce\nmicro_batches: 4\nworkers: {min: 1, max: 2}\n";
    let file = experiment(&place, rest);
    let (mut child, run) = start(place.command(&["train", &file]), &place, 5, Duration::ZERO);
    let shown = run.display().to_string();
    place.ok(&["scale", &shown, "--workers", "3"]);
    assert_eq!(wanted(&place, &shown, &mut child), 3);
    place.ok(&["stop", &shown]);
    assert_eq!(child.wait().expect("it ends").code(), Some(130));

    // Without a number it stays what it was scaled to.
    let asked =
        [(&[][..], 3), (&["--workers", "1"], 1), (&[], 1), (&["--set", "workers.max=2"], 2)];
    for (more, expected) in asked {
        let resumed = place.command(&[&["train", "--resume", &shown], more].concat());
        let steps = steps_logged(&run) + 5;
        let (mut child, _) = start(resumed, &place, steps, Duration::ZERO);
        assert_eq!(wanted(&place, &shown, &mut child), expected, "{more:?}");
        place.ok(&["stop", &shown]);
        assert_eq!(child.wait().expect("it ends").code(), Some(130), "{more:?}");
    }
}
