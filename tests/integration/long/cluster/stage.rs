//! A cluster, an operator and one job of the real program on it, with what tests do to its pods.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fake_cluster::{Cluster, JOBS, NAMESPACE, Operator, PODS, page, wait_until};
use serde_json::{Value, json};
use tests::chaos::{self, Fire};

use crate::interrupted::steps_logged;
use crate::support::{Ended, PROGRAM, Workplace};

/// A folder that all pods see.
pub(super) const SHARED: &str = "storage: {hostPath: /var/salamander}\n";
/// A job that does not come this far by then hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// A cluster with an operator, and a place with an experiment for it.
pub(super) struct Stage {
    pub(super) place: Workplace,
    pub(super) cluster: Cluster,
    fire: Fire,
    follower: Option<Child>,
    applied: Instant,
    /// Steps when they were last looked at, and how often there were fewer: a checkpoint was gone back to.
    seen: usize,
    pub(super) went_back: usize,
    _operator: Operator,
}

impl Stage {
    pub(super) fn new(fire: &Fire, spec: &str) -> Self {
        let cluster = Cluster::of_program(OsStr::new(PROGRAM));
        let operator = Operator::start(&cluster);
        let place = Workplace::new();
        chaos::prepare(place.path(), fire);
        place.write("spec.yaml", spec);
        place.write("slow", "");
        let (fire, applied) = (fire.clone(), Instant::now());
        let (seen, went_back) = (0, 0);
        let follower = None;
        Self { place, cluster, fire, follower, applied, seen, went_back, _operator: operator }
    }

    /// A command of the program, which finds the cluster as kubectl does.
    pub(super) fn command(&self, args: &[&str]) -> Command {
        let mut command = self.place.command(args);
        command.args(["--platform", "kube", "--namespace", NAMESPACE]);
        command.env("KUBECONFIG", self.cluster.server.kubelet.folder().join("kubeconfig"));
        command
    }

    /// What the program says as the plugin of kubectl, which is what it is called.
    pub(super) fn plugin(&self, args: &[&str]) -> Ended {
        let mut command = self.place.command(args);
        command.arg0("kubectl-salamander").args(["--namespace", NAMESPACE]);
        command.env("KUBECONFIG", self.cluster.server.kubelet.folder().join("kubeconfig"));
        Ended(command.output().expect("the program starts"))
    }

    /// The command that submits the job and follows it.
    pub(super) fn submit(&self, more: &[&str]) -> Command {
        let file = |name: &str| self.place.path().join(name).display().to_string();
        let mut sets = vec![format!("data.training={}", file("ids.csv"))];
        if self.fire.asynchronous {
            sets.push(format!("data.validation={}", file("ids.csv")));
        }
        sets.push(format!("hyperparameters.slow_file={}", file("slow")));
        let args = ["train", "tally.yaml", "--image", "i", "--job", "tally", "--spec", "spec.yaml"];
        let sets: Vec<&str> = sets.iter().flat_map(|set| ["--set", set]).collect();
        self.command(&[&args, more, &sets, &["--json"]].concat())
    }

    /// Submits the job, follows it, and waits for its first step.
    pub(super) fn train(&mut self, more: &[&str]) {
        let mut command = self.submit(more);
        let file = |name: &str| File::create(self.place.path().join(name)).expect("a file");
        command.stdout(file("out.txt")).stderr(file("err.txt")).stdin(Stdio::null());
        self.applied = Instant::now();
        self.follower = Some(command.spawn().expect("the program starts"));
        self.wait("the first step", |stage| stage.steps() > 0);
        eprintln!("measured: apply to first step {:.2} s", self.applied.elapsed().as_secs_f64());
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.place.path().join(name)).unwrap_or_default()
    }

    /// The run's folder, on the volume of the job or of its newest master.
    pub(super) fn run(&self) -> PathBuf {
        let folder = self.cluster.server.kubelet.folder();
        let shared = folder.join("runs/tally");
        let masters = self.cluster.pods("tally", "master");
        let own = masters.last().map(|pod| folder.join("pods").join(&pod.name).join("runs/tally"));
        own.filter(|own| own.exists()).unwrap_or(shared)
    }

    fn steps(&self) -> usize {
        steps_logged(&self.run())
    }

    /// Waits for a condition, as long as the job is followed.
    pub(super) fn wait(&mut self, what: &str, mut condition: impl FnMut(&Self) -> bool) {
        let start = Instant::now();
        while !condition(self) {
            let ended = self.follower.as_mut().and_then(|child| child.try_wait().expect("a child"));
            let told = || format!("{}{}", self.read("out.txt"), self.read("err.txt"));
            assert!(ended.is_none(), "the job ended before {what}: {}", told());
            assert!(start.elapsed() < PATIENCE, "waited too long for {what}: {}", told());
            let steps = self.steps();
            self.went_back += usize::from(steps < self.seen);
            self.seen = steps;
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Training goes on; a run that goes back to a checkpoint has logged less than before.
    pub(super) fn trains_on(&mut self) {
        let before = self.steps();
        self.wait("more steps", |stage| {
            let now = stage.steps();
            now > before || (now > 0 && now < before)
        });
    }

    /// The pod of a role that runs in a place, if there is one.
    fn pod(&self, role: &str, index: u32) -> Option<String> {
        let mut pods = self.cluster.pods("tally", role).into_iter();
        let pod = pods.find(|pod| {
            (pod.index == index || role == "master") && pod.phase == "Running" && !pod.leaving
        })?;
        let runs = self.cluster.server.kubelet.pid(&self.cluster.pod_key(&pod.name)).is_some();
        runs.then_some(pod.name)
    }

    /// How often all workers began to train together, by the logs of masters. Without waiting there is no such moment.
    fn generations(&self) -> usize {
        self.generations_of(self.fire.workers as usize)
    }

    /// How often so many workers began to train together.
    fn generations_of(&self, members: usize) -> usize {
        let began = format!("began: {members} member");
        let logs = std::fs::read_dir(self.cluster.server.kubelet.folder().join("logs"));
        let logs = logs.into_iter().flatten().flatten().map(|entry| entry.path());
        let masters = logs.filter(|path| path.to_string_lossy().contains("-master-"));
        let text = masters.map(|path| std::fs::read_to_string(path).unwrap_or_default());
        text.map(|text| text.matches(&began).count()).sum()
    }

    /// Whether all pods run.
    fn is_complete(&self) -> bool {
        let (workers, servers) = (self.fire.workers, self.fire.servers);
        let members = |role: &str| {
            let pods = self.cluster.pods("tally", role);
            pods.iter().filter(|pod| pod.phase == "Running" && !pod.leaving).count()
        };
        members("worker") == workers as usize && members("ps") == servers as usize
    }

    /// Does something to a pod.
    pub(super) fn strike(&mut self, role: &str, index: u32, how: fn(&Self, &str)) -> String {
        self.wait("a pod to hit", |stage| stage.pod(role, index).is_some());
        let victim = self.pod(role, index).expect("it runs");
        how(self, &victim);
        victim
    }

    /// Does something to a pod while the job trains, and waits until another one trains in its place.
    pub(super) fn hit(&mut self, role: &str, index: u32, how: fn(&Self, &str)) {
        self.trains_on();
        let before = self.generations();
        let (victim, begun) = (self.strike(role, index, how), Instant::now());
        let regroups = role != "master" && !self.fire.asynchronous;
        self.wait("another pod", |stage| {
            stage.is_complete() && stage.pod(role, index).is_some_and(|pod| pod != victim)
        });
        self.wait("it takes part", |stage| !regroups || stage.generations() > before);
        let joined = begun.elapsed().as_secs_f64();
        self.trains_on();
        let seconds = begun.elapsed().as_secs_f64();
        eprintln!(
            "measured: end of {victim}: another after {joined:.2} s, its steps after {seconds:.2} s"
        );
    }

    /// What the pod of a place shows of itself, at the address that its log names.
    pub(super) fn metrics(&self, role: &str, index: u32) -> String {
        let pod = self.pod(role, index).expect("it runs");
        let log = self.cluster.server.kubelet.folder().join("logs").join(format!("{pod}.log"));
        let log = std::fs::read_to_string(log).unwrap_or_default();
        let line = log.lines().find(|line| line.contains("shows metrics")).expect("it says where");
        let line: Value = serde_json::from_str(line).expect("JSON");
        let address = line["fields"]["address"].as_str().expect("an address");
        page(address, "/metrics").expect("answered")
    }

    pub(super) fn kill(&self, pod: &str) {
        self.cluster.server.kubelet.kill(&self.cluster.pod_key(pod));
    }

    pub(super) fn delete(&self, pod: &str) {
        self.cluster.delete(PODS, pod);
    }

    pub(super) fn starve(&self, pod: &str) {
        self.cluster.server.kubelet.starve(&self.cluster.pod_key(pod));
    }

    pub(super) fn evict(&self, pod: &str) {
        let server = &self.cluster.server;
        server.kubelet.preempt(server, &self.cluster.pod_key(pod));
    }

    fn ok(&self, args: &[&str]) {
        let output = self.command(args).output().expect("the program starts");
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{args:?}: {err}");
    }

    /// Asks for another number of pods, and waits until as many of a role train.
    pub(super) fn scale(&mut self, wanted: &[&str], role: &str, number: usize) {
        let regroups = role == "worker" && !self.fire.asynchronous;
        let before = self.generations_of(number);
        self.ok(&[&["scale", "tally"], wanted].concat());
        self.wait(&format!("{number} of {role}"), |stage| {
            let pods = stage.cluster.pods("tally", role);
            pods.iter().filter(|pod| pod.phase == "Running" && !pod.leaving).count() == number
                && pods.len() == number
        });
        // A pod that runs may hold nothing yet: whoever trained alone until then must not be killed as one of several.
        self.wait("they train together", |stage| {
            !regroups || stage.generations_of(number) > before
        });
        self.trains_on();
    }

    /// Gives all pods back, and goes on from where it stopped.
    pub(super) fn suspend_and_resume(&mut self) {
        self.cluster.patch(JOBS, "tally", &json!({"spec": {"suspend": true}}));
        self.wait_for_phase("Suspended");
        let kubelet = &self.cluster.server.kubelet;
        wait_until("pods are given back", || kubelet.running() == 0);
        self.cluster.patch(JOBS, "tally", &json!({"spec": {"suspend": false}}));
        self.wait_for_phase("Running");
        self.trains_on();
    }

    /// Whoever follows a job is told of its suspension, and leaves.
    fn wait_for_phase(&mut self, phase: &str) {
        self.follower.take().into_iter().for_each(|mut child| {
            let _ = child.wait();
        });
        wait_until(phase, || self.cluster.phase("tally") == phase);
    }

    /// Lets the job end; how often its pods were started again.
    pub(super) fn end(&mut self) -> Value {
        self.summary()["restarts"].clone()
    }

    fn summary(&mut self) -> Value {
        std::fs::remove_file(self.place.path().join("slow")).expect("it was slow");
        let summary: Value = match self.follower.take() {
            Some(mut child) => {
                let status = child.wait().expect("ended");
                let (out, err) = (self.read("out.txt"), self.read("err.txt"));
                assert!(status.success(), "{out}{err}");
                let line = out.lines().last().unwrap_or_default();
                serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {out}{err}"))
            }
            None => {
                wait_until("it ends", || self.cluster.phase("tally") == "Complete");
                let status = self.cluster.get(JOBS, "tally").expect("there")["status"].clone();
                json!({"state": "completed", "restarts": status["restarts"]})
            }
        };
        assert_eq!(summary["state"], "completed", "{summary}");
        summary
    }

    /// Lets the job end, and counts every record.
    pub(super) fn finish(&mut self) -> Value {
        let mut summary = self.summary();
        // The files of the run are the proof, not what was told.
        let run = self.run();
        let ledger = self.place.ok(&["ledger", &run.display().to_string(), "--json"]).json();
        summary["ledger"] = ledger.get("ledger").cloned().unwrap_or(ledger);
        assert_eq!(summary["ledger"].as_array().map(Vec::len), Some(self.fire.epochs as usize));
        let newest = newest(&run);
        let name = newest.file_name().expect("a name").to_string_lossy().into_owned();
        let shown = || self.cluster.get(JOBS, "tally").expect("there")["status"].clone();
        wait_until("the status has the newest checkpoint", || shown()["checkpoint"] == *name);
        summary["checkpoint"] = newest.display().to_string().into();
        summary["weights_hash"] = weights_hash(&newest);
        chaos::prove(Path::new(PROGRAM), self.place.path(), &self.fire, &summary)
            .expect("every record exactly once per epoch, and the bits of an undisturbed run");
        if !self.fire.asynchronous {
            // The job is told to be complete before the last of its pods has ended.
            wait_until("nothing is left behind", || chaos::left_behind(&run).is_empty());
        }
        summary
    }

    /// The follower ends by itself, and says this.
    pub(super) fn is_told(&mut self, text: &str) {
        let status = self.follower.take().expect("followed").wait().expect("ended");
        let err = self.read("err.txt");
        assert!(!status.success() && err.contains(text), "{err}");
    }

    /// Deletes the job, and sees nothing of it any more.
    pub(super) fn leaves_nothing(&self) {
        self.cluster.delete(JOBS, "tally");
        wait_until("nothing is left", || {
            let resources = [PODS, "/api/v1/secrets", "/api/v1/configmaps", "/api/v1/services"];
            resources.iter().all(|resource| self.cluster.list(resource).is_empty())
        });
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if let Some(mut child) = self.follower.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// What a checkpoint says of its bits.
pub(super) fn weights_hash(checkpoint: &Path) -> Value {
    let text = std::fs::read_to_string(checkpoint.join("manifest.json")).expect("a manifest");
    let manifest: Value = serde_json::from_str(&text).expect("JSON");
    manifest["weights_hash"].clone()
}

/// The newest checkpoint of a run.
pub(super) fn newest(run: &Path) -> PathBuf {
    let entries = std::fs::read_dir(run.join("checkpoints")).expect("checkpoints").flatten();
    let folders = entries.map(|entry| entry.path()).filter(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        path.is_dir() && !name.starts_with('.')
    });
    let written =
        |path: &PathBuf| path.metadata().and_then(|data| data.modified()).expect("a time");
    folders.max_by_key(written).expect("a checkpoint")
}
