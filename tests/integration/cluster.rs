//! The real program on a cluster: its own commands submit, follow, scale and stop jobs, its roles are the containers of
//! their pods, and whatever pod is killed, every record counts exactly once. The cluster is the one of
//! salamander-kube's tests.

#[path = "../../crates/salamander-kube/tests/kube/jobs.rs"]
#[allow(dead_code, unused_imports, reason = "the tests of salamander-kube use all of it")]
mod jobs;
#[path = "../../crates/salamander-kube/tests/kube/support/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the tests of salamander-kube use all of it")]
mod support;

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use tests::chaos::{self, Fire};

use self::jobs::Operator;
use self::support::{Cluster, JOBS, NAMESPACE, PODS, wait_until};
use crate::elastic::fire;
use crate::interrupted::steps_logged;
use crate::support::Workplace;

const PROGRAM: &str = env!("CARGO_BIN_EXE_salamander-under-test");

/// A cluster with an operator, and a place with an experiment for it.
struct Stage {
    place: Workplace,
    cluster: Cluster,
    _operator: Operator,
}

impl Stage {
    fn new(fire: &Fire) -> Self {
        let cluster = Cluster::of_program(OsStr::new(PROGRAM));
        let operator = Operator::start(&cluster);
        let place = Workplace::new();
        chaos::prepare(place.path(), fire);
        place.write("spec.yaml", "storage: {hostPath: /var/salamander}\n");
        Self { place, cluster, _operator: operator }
    }

    /// A command of the program, which finds the cluster as kubectl does.
    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.place.command(args);
        command.args(["--platform", "kube", "--namespace", NAMESPACE]);
        command.env("KUBECONFIG", self.cluster.server.kubelet.folder().join("kubeconfig"));
        command
    }

    /// Submits the job and follows it.
    fn train(&self, more: &[&str]) -> Child {
        let ids = self.place.path().join("ids.csv").display().to_string();
        let (training, format) = (format!("data.training={ids}"), "--json");
        let args = ["train", "tally.yaml", "--image", "i", "--job", "tally", "--spec", "spec.yaml"];
        let mut command = self.command(&[&args, more, &["--set", &training, format]].concat());
        let file = |name: &str| File::create(self.place.path().join(name)).expect("a file");
        command.stdout(file("out.txt")).stderr(file("err.txt")).stdin(Stdio::null());
        command.spawn().expect("the program starts")
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.place.path().join(name)).unwrap_or_default()
    }

    fn run(&self) -> PathBuf {
        self.cluster.server.kubelet.folder().join("runs/tally")
    }

    /// Kills a pod of a role once training went on for some steps.
    fn kill(&self, role: &str, index: u32) {
        let before = steps_logged(&self.run());
        wait_until("it trains on", || {
            // A run that goes back to a checkpoint has logged less than before.
            let now = steps_logged(&self.run());
            now > before + 8 || (now > 8 && now < before)
        });
        let running = || {
            let pods = self.cluster.pods("tally", role).into_iter();
            let mut pods = pods.filter(|pod| pod.index == index && pod.phase == "Running");
            pods.find_map(|pod| {
                let key = self.cluster.pod_key(&pod.name);
                self.cluster.server.kubelet.pid(&key).map(|_| key)
            })
        };
        wait_until("its pod runs", || running().is_some());
        self.cluster.server.kubelet.kill(&running().expect("it runs"));
    }
}

/// The newest checkpoint of a run.
fn newest(run: &Path) -> PathBuf {
    let entries = std::fs::read_dir(run.join("checkpoints")).expect("checkpoints").flatten();
    let folders = entries.map(|entry| entry.path()).filter(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        path.is_dir() && !name.starts_with('.')
    });
    let written =
        |path: &PathBuf| path.metadata().and_then(|data| data.modified()).expect("a time");
    folders.max_by_key(written).expect("a checkpoint")
}

/// Trains through the death of a worker, of a parameter server if there are any, and of the master.
fn trains_through_kills(fire: &Fire) {
    let stage = Stage::new(fire);
    let mut child = stage.train(&[]);
    stage.kill("worker", 1);
    if fire.servers > 0 {
        stage.kill("ps", 0);
    }
    stage.kill("master", 0);
    let status = child.wait().expect("ended");
    let (out, err) = (stage.read("out.txt"), stage.read("err.txt"));
    assert!(status.success(), "{out}{err}");
    let line = out.lines().last().unwrap_or_default();
    let mut summary: Value =
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {out}{err}"));
    assert_eq!(summary["state"], "completed", "{summary}");
    let restarts = &summary["restarts"];
    assert_eq!((&restarts["worker"], &restarts["master"]), (&json!(1), &json!(1)), "{restarts}");
    assert_eq!(restarts["ps"], u32::from(fire.servers > 0), "{restarts}");
    // The files of the run are the proof, not what was told.
    let run = stage.run().display().to_string();
    let ledger = stage.place.ok(&["ledger", &run, "--json"]).json();
    summary["ledger"] = ledger.get("ledger").cloned().unwrap_or(ledger);
    assert_eq!(summary["ledger"].as_array().map(Vec::len), Some(fire.epochs as usize));
    summary["checkpoint"] = newest(&stage.run()).display().to_string().into();
    chaos::count(&summary, fire).expect("every record exactly once per epoch");
    stage.cluster.delete(JOBS, "tally");
    wait_until("nothing is left", || stage.cluster.list(PODS).is_empty());
}

#[test]
fn a_ring_of_pods_counts_every_record_once() {
    trains_through_kills(&Fire { epochs: 4, ..fire(1, 3, 3) });
}

#[test]
fn a_manifest_has_parameter_servers_and_says_what_they_need() {
    let place = Workplace::new();
    let servers = Fire { servers: 2, ..fire(1, 2, 1) };
    chaos::prepare(place.path(), &servers);
    let base = ["manifest", "tally.yaml", "--image", "i", "--job", "tally", "--set"];
    let data = ["data.training=/data/ids.csv"];
    let error = place.run(&[base.as_slice(), &data].concat()).err();
    assert!(error.contains("storage that all pods share"), "{error}");
    let storage = ["--storage-size", "1Gi", "--ps", "3"];
    let text = place.ok(&[base.as_slice(), &data, &storage].concat()).out();
    assert!(text.contains("salamander.dev/wanted-ps: \"3\""), "{text}");
    assert!(text.contains("servers: 3") && text.contains("kind: NetworkPolicy"), "{text}");
}
