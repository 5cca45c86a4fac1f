//! What is read of runs that have ended, and what is refused.

use super::*;
use crate::folder::{RunFolder, RunName};

fn run() -> (tempfile::TempDir, RunFolder) {
    let parent = tempfile::tempdir().expect("a folder");
    let fill = |folder: &Path| {
        fs::write(RunLayout::new(folder).experiment(), "entrypoint: net\n").expect("written");
        Ok(())
    };
    let folder = RunFolder::create(parent.path(), RunName::After("x"), fill).expect("made");
    (parent, folder)
}

/// Why there is no checkpoint, without the folder's name.
fn reason(layout: &RunLayout) -> String {
    let error = no_checkpoint(layout).to_string();
    let start = format!("{} has no checkpoint yet: ", layout.folder().display());
    error.strip_prefix(&start).unwrap_or_else(|| panic!("{start:?} in {error}")).to_string()
}

/// A run that is over and has summed up so.
fn check(summary: &str, expected: &str) {
    let (_parent, folder) = run();
    let layout = folder.layout().clone();
    drop(folder);
    fs::write(layout.summary(), summary).expect("written");
    let reason = reason(&layout);
    assert!(reason.starts_with(expected), "{summary}: {reason}");
}

#[test]
fn a_folder_that_nobody_takes_says_what_it_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let check = |config: &str, expected: &str| {
        fs::write(folder.path().join(FOREIGN_CONFIG), config).expect("written");
        let told = not_taken(folder.path()).to_string();
        assert!(told.contains(expected), "{told}");
    };
    let config =
        r#"{"model_type": "distilbert", "architectures": ["DistilBertForSequenceClassification"]}"#;
    let expected = "with model_type \"distilbert\" and architectures \
                    [\"DistilBertForSequenceClassification\"], but no model";
    check(config, expected);
    check("{}", "with no model_type and no architectures, but no model");
    check("[", "with no model_type");
}

#[test]
fn a_run_that_is_over_says_why_it_has_no_checkpoint() {
    let failed = "{\"state\": \"failed\", \"error\": \"bad data\"}";
    check(failed, "the run failed before its first one: bad data");
    check("{\"state\": \"completed\"}", "its experiment keeps none (checkpoint_policy");
    let interrupted = format!(
        "the run ended before its first one: go on with `{} train --resume ",
        program_name()
    );
    check("{\"state\": \"interrupted\"}", &interrupted);
}

#[test]
fn a_run_that_was_killed_says_how_it_goes_on() {
    let (_parent, folder) = run();
    let layout = folder.layout().clone();
    drop(folder);
    let resume = format!("{} train --resume {}`", program_name(), layout.folder().display());
    assert!(reason(&layout).contains(&resume), "{}", reason(&layout));
}

#[test]
fn a_run_that_goes_on_says_when_there_will_be_one() {
    let (_parent, folder) = run();
    let layout = folder.layout();
    fs::write(layout.metrics(), "{\"kind\":\"step\",\"steps\":9}\n").expect("written");
    let reason = reason(layout);
    assert!(reason.starts_with("the run is going on, 9 steps done: "), "{reason}");
}
