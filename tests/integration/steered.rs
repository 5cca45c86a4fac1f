//! Runs that are seen and steered from outside: in one process, and led by hand.

use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

use serde_json::Value;

use crate::interrupted::{start, steps_logged};
use crate::support::Workplace;

/// Goes on for minutes, if nobody stops it.
pub(crate) fn experiment(place: &Workplace, rest: &str) -> String {
    let ids: String = (0..4_000).map(|id| format!("{id}\n")).collect();
    place.write("ids.csv", &format!("id\n{ids}"));
    let text = format!(
        "entrypoint: tally\n\
         data: {{training: ids.csv}}\n\
         hyperparameters: {{global_batch_size: 40, records: 4000, delay_ms: 10}}\n\
         searcher: {{metric: loss, max_length: {{epochs: 500}}}}\n{rest}"
    );
    place.write("long.yaml", &text).display().to_string()
}

fn summary(run: &Path) -> Value {
    let text = std::fs::read_to_string(run.join("summary.json")).expect("a summary");
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn a_run_in_one_process_is_stopped_and_goes_on() {
    let place = Workplace::new();
    let file = experiment(&place, "");
    let (mut child, run) = start(place.command(&["train", &file]), &place, 5, Default::default());
    let refused = place.run(&["scale", "latest", "--workers", "2"]);
    assert!(refused.err().contains("trains in one process"), "{}", refused.err());
    assert!(refused.err().contains("--workers N"), "{}", refused.err());

    let asked = place.ok(&["stop", "latest"]).out();
    assert!(asked.contains("train --resume"), "{asked}");
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
    assert_eq!(summary(&run)["state"], "interrupted");
    let again = place.run(&["stop", "latest"]);
    assert!(again.err().contains("does not run now"), "{}", again.err());

    // The wish of before is not that of now.
    let resumed = place.command(&["train", "--resume", "latest"]);
    let (mut child, _) = start(resumed, &place, steps_logged(&run) + 20, Default::default());
    place.ok(&["stop", "latest"]);
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
}

/// A role of a run that is started by hand, and ends with the test.
struct RoleProcess(Child);

impl RoleProcess {
    fn start(place: &Workplace, args: &[&str]) -> Self {
        let mut command = place.command(args);
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        Self(command.spawn().expect("the program starts"))
    }

    /// Waits until something is so, as long as this process lives.
    fn wait_until(&mut self, what: &str, is_so: impl Fn() -> bool) {
        while !is_so() {
            let ended = self.0.try_wait().expect("a state");
            assert!(ended.is_none(), "{what}: the process ended before ({ended:?})");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for RoleProcess {
    fn drop(&mut self) {
        // It has ended by itself, where nothing failed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_run_that_is_led_by_hand_is_running_and_then_says_how_it_ended() {
    let place = Workplace::new();
    let file = experiment(&place, "strategy: allreduce\nworkers: 1\n");
    let run = PathBuf::from(place.ok(&["train", &file, "--prepare"]).out().trim());
    let shown = run.display().to_string();
    let mut master = RoleProcess::start(&place, &["master", &shown]);
    let address = run.join("master.address");
    master.wait_until("a master", || address.exists());
    let address = std::fs::read_to_string(address).expect("an address");
    let mut worker = RoleProcess::start(&place, &["worker", &shown, "--master", address.trim()]);
    worker.wait_until("training", || steps_logged(&run) > 5);

    let listed = || -> Value { place.ok(&["runs", "list", "--json"]).json() };
    assert_eq!(listed()[0]["state"], "running", "{}", listed());
    let status = place.ok(&["status", &shown]).out();
    assert!(status.contains("state       running"), "{status}");
    let second = place.run(&["master", &shown]);
    assert!(
        second.err().contains("another process is training in this folder"),
        "{}",
        second.err()
    );

    place.ok(&["stop", &shown]);
    assert_eq!(master.0.wait().expect("it ends").code(), Some(75));
    worker.0.wait().expect("it ends");
    let summary = summary(&run);
    assert_eq!((&summary["state"], &summary["workers"]), (&"interrupted".into(), &1.into()));
    assert_eq!(listed()[0]["state"], "interrupted");
    assert_eq!(listed()[0]["error"], Value::Null);
}

/// As on a host whose copy of the run's folder is not the run's.
#[test]
fn a_worker_with_another_experiment_is_refused_and_the_run_goes_on() {
    let place = Workplace::new();
    let file = experiment(&place, "strategy: allreduce\nworkers: {min: 1, max: 2}\n");
    let run = PathBuf::from(place.ok(&["train", &file, "--prepare"]).out().trim());
    let (shown, address) = (run.display().to_string(), run.join("master.address"));
    let mut master = RoleProcess::start(&place, &["master", &shown]);
    master.wait_until("a master", || address.exists());
    let master_address = std::fs::read_to_string(&address).expect("an address");
    let role =
        |folder: &str| ["worker", folder, "--master", master_address.trim()].map(String::from);
    let started = |folder: &str| {
        let args = role(folder);
        RoleProcess::start(&place, &args.each_ref().map(String::as_str))
    };
    let mut worker = started(&shown);
    worker.wait_until("training", || steps_logged(&run) > 5);

    let other = place.path().join("other");
    std::fs::create_dir_all(other.join("tls")).expect("made");
    for name in ["experiment.yaml", "token", "tls/ca.crt", "tls/tls.crt", "tls/tls.key"] {
        std::fs::copy(run.join(name), other.join(name)).expect("copied");
    }
    let text = std::fs::read_to_string(other.join("experiment.yaml")).expect("there");
    let changes = [
        ("on_nan:", "on_nan: skip"),
        ("learning_rate:", "learning_rate: 0.5"),
        ("transport:", "transport: tcp"),
    ];
    for (field, others) in changes {
        let is_field = |line: &&str| line.trim_start().starts_with(field);
        let own = text.lines().find(is_field).expect("it is in force").trim_start();
        std::fs::write(other.join("experiment.yaml"), text.replace(own, others)).expect("written");
        let args = role(&other.display().to_string());
        let refused = place.run(&args.each_ref().map(String::as_str));
        assert_ne!(refused.code(), Some(0), "{}", refused.out());
        let reason = "its experiment is not that of the run's first worker";
        let said = format!("{}{}", refused.out(), refused.err());
        assert!(said.contains(reason), "{others}: {said}");
    }

    let begun = steps_logged(&run);
    worker.wait_until("it goes on", || steps_logged(&run) > begun + 5);
    place.ok(&["stop", &shown]);
    assert_eq!(master.0.wait().expect("it ends").code(), Some(75));
    worker.0.wait().expect("it ends");
    assert!(!address.exists(), "nobody listens there any more");
}
