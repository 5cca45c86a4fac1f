//! The queue with real processes: a small program takes the place of one that trains.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use salamander_hub::api::Access;
use salamander_hub::ingest::Ingester;
use salamander_hub::operation::Wanted;
use salamander_hub::queue::Queue;
use salamander_hub::store::page::ListQuery;
use salamander_hub::{CreateRequest, Error, ExperimentId, Hub, Programs, Speaker};
use serde_json::json;

use crate::folders::{EXPERIMENT, Serving, write_run};
use crate::place::{forget, open};

/// Makes the folder that it is told, or goes on in it; ends when a file named `end` has a word for it: `completed`,
/// `failed`. It leaves when it is asked to, and on a full disk, which a file named `full` stands for.
const PROGRAM: &str = r#"#!/bin/sh
arguments="$*"
while [ $# -gt 0 ]; do
  case "$1" in --id) id="$2" ;; --out) out="$2" ;; esac
  shift
done
run="$out/$id"
[ -e "$out/refuse" ] && { echo "error: no such model"; exit 1; }
mkdir -p "$run"
echo "$arguments" >> "$run/arguments"
[ -e "$run/experiment.yaml" ] || echo "entrypoint: net" > "$run/experiment.yaml"
[ -e "$out/full" ] && { echo '{"state": "failed", "error": "full"}' > "$run/summary.json"; exit 74; }
rm -f "$run/summary.json"
: > "$run/run.lock"
echo "$$" >> "$out/$id.starts"
over() { echo "{\"state\": \"$1\", \"error\": null}" > "$run/summary.json"; exit "$2"; }
trap 'over interrupted 143' TERM
while :; do
  [ -e "$run/end" ] && over "$(cat "$run/end")" 0
  [ -e "$run/stop" ] && over interrupted 130
  sleep 0.02
done
"#;

pub(crate) struct Scenario {
    pub(crate) folder: LeftoverFolder,
    pub(crate) hub: Hub,
    pub(crate) programs: Arc<Programs>,
    pub(crate) queue: Queue,
}

/// The folder of a test, with which all processes go whose program is in it.
pub(crate) struct LeftoverFolder(tempfile::TempDir);

impl LeftoverFolder {
    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for LeftoverFolder {
    fn drop(&mut self) {
        let program = self.path().join("program").display().to_string();
        let is_ours = |pid: &i32| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).split('\0').any(|word| word == program)
        };
        let all = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        for pid in pids.filter(is_ours).filter_map(rustix::process::Pid::from_raw) {
            // It may have ended just now.
            let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
        }
    }
}

impl Scenario {
    pub(crate) fn new(slots: u32) -> Self {
        let folder = LeftoverFolder(tempfile::tempdir().expect("a folder"));
        let program = folder.path().join("program");
        fs::write(&program, PROGRAM).expect("written");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("set");
        let programs = Arc::new(Programs::new(vec![program]));
        let hub = open(&folder.path().join("runs")).expect("opened");
        let queue = Queue::new(hub.clone(), Arc::clone(&programs), slots);
        Self { folder, hub, programs, queue }
    }

    /// As if the hub had been killed: its processes go on, and it is opened anew.
    fn killed(self, slots: u32) -> Self {
        let Self { folder, hub, programs, queue } = self;
        drop((queue, hub));
        let hub = open(&folder.path().join("runs")).expect("opened");
        let queue = Queue::new(hub.clone(), Arc::clone(&programs), slots);
        Self { folder, hub, programs, queue }
    }

    pub(crate) fn create(&self, priority: i64) -> ExperimentId {
        let request = CreateRequest {
            config: EXPERIMENT.to_string(),
            priority: Some(priority),
            ..CreateRequest::default()
        };
        self.hub.create(&Speaker::default(), request, &self.programs).expect("created")
    }

    pub(crate) fn want(&self, id: ExperimentId, wanted: Wanted) {
        self.hub.want(&Speaker::default(), id, wanted).expect("said");
    }

    pub(crate) fn run(&self, id: ExperimentId) -> PathBuf {
        self.hub.runs().join(self.hub.store().experiment(id).expect("there").folder)
    }

    /// Takes turns until an experiment is in a state.
    pub(crate) fn until(&mut self, id: ExperimentId, state: &str) -> Option<String> {
        loop {
            self.queue.turn().expect("a turn");
            let experiment = self.hub.store().experiment(id).expect("there");
            if experiment.state == state {
                return experiment.reason;
            }
            assert!(
                !matches!(experiment.state.as_str(), "failed" | "completed"),
                "{} instead of {state}: {:?}",
                experiment.state,
                experiment.reason
            );
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }

    /// Waits until a process has begun so often.
    pub(crate) fn begun(&self, id: ExperimentId, times: usize) {
        let folder = self.run(id);
        let starts = folder.with_file_name(format!(
            "{}.starts",
            folder.file_name().expect("a name").to_string_lossy()
        ));
        while fs::read_to_string(&starts).unwrap_or_default().lines().count() < times {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }

    pub(crate) fn end(&self, id: ExperimentId, how: &str) {
        fs::write(self.run(id).join("end"), how).expect("written");
    }
}

#[test]
fn experiments_run_in_order_pause_go_on_and_end() {
    let mut s = Scenario::new(1);
    let (first, second) = (s.create(42), s.create(42));
    s.until(first, "running");
    s.begun(first, 1);
    assert_eq!(s.hub.store().experiment(second).expect("there").state, "queued");
    s.want(first, Wanted::Paused);
    s.until(first, "paused");
    s.until(second, "running");
    s.begun(second, 1);
    s.end(second, "completed");
    s.until(second, "completed");
    s.want(first, Wanted::Run);
    s.until(first, "running");
    s.begun(first, 2);
    s.end(first, "failed");
    s.until(first, "failed");
    assert_eq!(s.queue.running(), 0);
}

#[test]
fn a_run_that_waits_says_so_in_lists_and_by_itself() {
    let mut s = Scenario::new(1).reading();
    let id = s.create(42);
    let run = format!("{id}.1").parse().expect("a run");
    let stands = |s: &Scenario| {
        Ingester::new(s.hub.clone()).look_at_all().expect("read");
        let stands = s.hub.store().run(run).expect("there");
        let query = ListQuery { state: Some(stands.state.clone()), ..ListQuery::default() };
        let listed = s.hub.store().runs(&query).expect("read").items;
        assert_eq!(listed, std::slice::from_ref(&stands));
        (stands.state, stands.change)
    };
    s.until(id, "running");
    s.begun(id, 1);
    s.want(id, Wanted::Paused);
    s.until(id, "paused");
    let (state, change) = stands(&s);
    assert_eq!(state, "paused");
    // What the queue says of it changes it, though nothing is new in its folder.
    s.want(id, Wanted::Canceled);
    s.until(id, "canceled");
    let (state, later) = stands(&s);
    assert_eq!(state, "canceled");
    assert!(later > change, "{later} after {change}");
    s.want(id, Wanted::Run);
    s.until(id, "running");
    s.begun(id, 2);
    s.end(id, "completed");
    s.until(id, "completed");
    assert_eq!(stands(&s).0, "completed");
}

#[test]
fn a_killed_hub_finds_its_processes_and_a_killed_process_goes_on() {
    let mut s = Scenario::new(2);
    let (first, second) = (s.create(42), s.create(42));
    s.until(first, "running");
    s.until(second, "running");
    s.begun(first, 1);
    s.begun(second, 1);
    let mut s = s.killed(2);
    s.queue.turn().expect("a turn");
    assert_eq!(s.queue.running(), 2, "both are found again, none is started twice");
    let kept = s.hub.runs().join(".hub/experiments").join(first.to_string()).join("process.json");
    let kept: serde_json::Value =
        serde_json::from_slice(&fs::read(kept).expect("read")).expect("JSON");
    let pid = rustix::process::Pid::from_raw(kept["pid"].as_i64().expect("a number") as i32);
    rustix::process::kill_process(pid.expect("a process"), rustix::process::Signal::KILL)
        .expect("killed");
    s.begun_again(first, 2);
    assert_eq!(s.hub.store().experiment(first).expect("there").restarts, 1);
    // One ends while no hub is there.
    s.end(second, "completed");
    while !s.run(second).join("summary.json").exists() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let mut s = s.killed(2);
    s.until(second, "completed");
    // And all of it is known without a store, too.
    let runs = s.hub.runs().to_path_buf();
    let Scenario { folder, hub, queue, programs } = s;
    drop((hub, queue));
    forget(&runs).expect("removed");
    let hub = open(&runs).expect("opened");
    let queue = Queue::new(hub.clone(), Arc::clone(&programs), 2);
    let mut s = Scenario { folder, hub, programs, queue };
    s.until(first, "running");
    assert_eq!(s.hub.store().experiment(second).expect("there").state, "completed");
    s.want(first, Wanted::Killed);
    s.until(first, "canceled");
    s.want(first, Wanted::Deleted);
    let folder = s.run(first);
    while s.hub.store().experiment(first).is_ok() {
        s.queue.turn().expect("a turn");
    }
    assert!(!folder.exists());
    assert_eq!(s.create(42), ExperimentId(3), "numbers are not given twice");
}

impl Scenario {
    pub(crate) fn begun_again(&mut self, id: ExperimentId, times: usize) {
        let starts = format!("{}.starts", self.run(id).display());
        while fs::read_to_string(&starts).unwrap_or_default().lines().count() < times {
            self.queue.turn().expect("a turn");
        }
    }
}

#[test]
fn who_comes_first_makes_others_wait_without_losing_them() {
    let mut s = Scenario::new(1);
    let late = s.create(50);
    s.until(late, "running");
    s.begun(late, 1);
    let urgent = s.create(1);
    s.until(urgent, "running");
    let waiting = s.hub.store().experiment(late).expect("there");
    assert_eq!((waiting.state.as_str(), waiting.restarts), ("queued", 0));
    s.begun(urgent, 1);
    s.end(urgent, "completed");
    s.until(urgent, "completed");
    s.until(late, "running");
    s.want(late, Wanted::Killed);
    s.until(late, "canceled");
}

#[test]
fn a_program_that_refuses_or_has_changed_is_told() {
    let mut s = Scenario::new(1);
    fs::write(s.hub.runs().join("refuse"), "").expect("written");
    let id = s.create(42);
    assert_eq!(failed(&mut s, id), "no such model");
    let id = s.create(42);
    fs::write(s.folder.path().join("program"), "#!/bin/sh\n").expect("changed");
    assert!(failed(&mut s, id).contains("has changed since"));
    let request = CreateRequest {
        config: EXPERIMENT.to_string(),
        program: Some("/bin/sh".to_string()),
        ..CreateRequest::default()
    };
    let error = s.hub.create(&Speaker::default(), request, &s.programs).expect_err("refused");
    assert!(matches!(error, Error::Forbidden(_)), "{error}");
    let request = CreateRequest { config: "entrypoint: [".to_string(), ..CreateRequest::default() };
    let error = s.hub.create(&Speaker::default(), request, &s.programs).expect_err("refused");
    assert!(error.to_string().starts_with("the experiment: line 2: not YAML"), "{error}");
}

#[test]
fn an_experiment_whose_disk_is_full_goes_on_when_there_is_room() {
    let mut s = Scenario::new(1);
    let full = s.hub.runs().join("full");
    fs::write(&full, "").expect("written");
    let id = s.create(42);
    let experiment = loop {
        s.queue.turn().expect("a turn");
        let experiment = s.hub.store().experiment(id).expect("there");
        if experiment.restarts > 0 {
            break experiment;
        }
    };
    assert_eq!((experiment.state.as_str(), experiment.restarts), ("queued", 1));
    let reason = experiment.reason.expect("a reason");
    assert!(reason.contains("its disk was full"), "{reason}");
    fs::remove_file(full).expect("removed");
    s.until(id, "running");
    s.begun(id, 1);
    s.end(id, "completed");
    s.until(id, "completed");
}

#[test]
fn what_somebody_stops_by_hand_is_paused_until_it_is_activated() {
    let mut s = Scenario::new(1);
    let id = s.create(42);
    let stop = s.run(id).join("stop");
    s.until(id, "running");
    s.begun(id, 1);
    fs::write(&stop, "").expect("asked");
    let reason = s.until(id, "paused").expect("a reason");
    assert!(reason.contains("stopped by hand"), "{reason}");
    // It stays so, and a store that is made again knows it.
    (0..3).for_each(|_| s.queue.turn().expect("a turn"));
    let experiment = s.hub.store().experiment(id).expect("there");
    assert_eq!((experiment.state.as_str(), experiment.restarts), ("paused", 0));
    s.want(id, Wanted::Run);
    s.until(id, "running");
    s.begun(id, 2);
    // A hub that is not its parent does not know how it ended, and finds what was asked of it.
    let mut s = s.killed(1);
    s.queue.turn().expect("a turn");
    fs::write(&stop, "").expect("asked");
    s.until(id, "paused");
    let runs = s.hub.runs().to_path_buf();
    let Scenario { folder, hub, queue, programs } = s;
    drop((hub, queue));
    forget(&runs).expect("removed");
    let hub = open(&runs).expect("opened");
    let queue = Queue::new(hub.clone(), Arc::clone(&programs), 1);
    let mut s = Scenario { folder, hub, programs, queue };
    s.until(id, "paused");
    assert_eq!(s.queue.running(), 0);
}

#[test]
fn what_is_being_deleted_cannot_be_wanted_otherwise() {
    let mut s = Scenario::new(1);
    let id = s.create(42);
    s.until(id, "running");
    s.begun(id, 1);
    s.end(id, "completed");
    s.until(id, "completed");
    // Its folder cannot be moved there.
    let hindrance = s.hub.runs().join(format!(".hub/deleted-{id}"));
    fs::create_dir_all(hindrance.join("x")).expect("made");
    s.want(id, Wanted::Deleted);
    while s.hub.store().experiment(id).expect("there").state != "deleting" {
        s.queue.turn().expect_err("it is in the way");
    }
    for wanted in [Wanted::Run, Wanted::Paused, Wanted::Canceled, Wanted::Killed] {
        let error = s.hub.want(&Speaker::default(), id, wanted).expect_err("refused").to_string();
        assert!(error.contains("is being deleted"), "{wanted:?}: {error}");
    }
    fs::remove_dir_all(hindrance).expect("removed");
    while s.hub.store().experiment(id).is_ok() {
        s.queue.turn().expect("a turn");
    }
}

fn failed(s: &mut Scenario, id: ExperimentId) -> String {
    loop {
        s.queue.turn().expect("a turn");
        let experiment = s.hub.store().experiment(id).expect("there");
        if experiment.state == "failed" {
            return experiment.reason.expect("a reason");
        }
    }
}

#[test]
fn models_have_versions_and_aliases_and_keep_their_checkpoints() {
    let runs = tempfile::tempdir().expect("a folder");
    write_run(runs.path(), "a", 10);
    let serving = Serving::start(runs.path(), Access::Open);
    let client = serving.client();
    let run = "1.1".parse().expect("a run");
    let create =
        |name: &str| client.post::<serde_json::Value>("api/v1/models", &json!({"name": name}));
    create("digits").expect("made");
    assert!(matches!(create("digits"), Err(Error::Conflict(_))));
    assert!(matches!(create("../x"), Err(Error::Invalid(_))));
    assert_eq!(client.register("digits", run, "step-00000010").expect("registered").version, 1);
    assert_eq!(client.register("digits", run, "step-00000010").expect("registered").version, 2);
    assert!(matches!(client.register("digits", run, "../.."), Err(Error::NotFound(_))));
    let alias = json!({"alias": "champion", "version": 1});
    let _: serde_json::Value = client.post("api/v1/models/digits/aliases", &alias).expect("named");
    assert_eq!(client.model_version("digits@champion").expect("there").version, 1);
    assert_eq!(client.model_version("digits").expect("there").version, 2);
    assert_eq!(client.model_version("digits@1").expect("there").folder.as_deref(), Some("a"));
    let error = client.model_version("digits@prince").expect_err("none").to_string();
    assert!(error.contains("there are 1 (champion), 2"), "{error}");
    let error = client.delete_checkpoint(run, "step-00000010").expect_err("needed").to_string();
    assert!(error.contains("is a version of a model"), "{error}");
    let error = client.delete_experiment(ExperimentId(1)).expect_err("needed").to_string();
    assert!(error.contains("delete that first"), "{error}");
    let out = tempfile::tempdir().expect("a folder");
    let place = out.path().join("fetched");
    fs::write(runs.path().join("a/checkpoints/step-00000010/model.safetensors"), "twelve bytes")
        .expect("written");
    client.download(run, "step-00000010", &place).expect("fetched");
    assert_eq!(fs::read(place.join("model.safetensors")).expect("read"), b"twelve bytes");
    // A name is a name, whatever is in it.
    for name in
        ["../experiments/1", "..", "digits/versions/1", "../runs/1.1/checkpoints/step-00000010"]
    {
        let error = client.delete_model(name, None).expect_err(name);
        assert!(matches!(error, Error::NotFound(_) | Error::Invalid(_)), "{name}: {error}");
        assert!(client.alias_model(name, "champion", Some(1)).is_err(), "{name}");
    }
    assert_eq!(client.experiment(ExperimentId(1)).expect("there").state, "completed");
    for version in [1, 2] {
        client.delete_model("digits", Some(version)).expect("deleted");
    }
    assert_eq!(client.register("digits", run, "step-00000010").expect("registered").version, 3);
    let _: serde_json::Value = client.delete("api/v1/models/digits").expect("deleted");
    client.delete_checkpoint(run, "step-00000010").expect("deleted");
    assert!(!Path::new(&runs.path().join("a/checkpoints/step-00000010")).exists());
}

#[test]
fn labels_and_archives_are_kept_without_a_store() {
    let runs = tempfile::tempdir().expect("a folder");
    write_run(runs.path(), "a", 10);
    let id = ExperimentId(1);
    {
        let serving = Serving::start(runs.path(), Access::Open);
        let client = serving.client();
        client.change(id, &json!({"add_labels": ["x", "y"], "description": "d"})).expect("changed");
        client.change(id, &json!({"remove_labels": ["x"]})).expect("changed");
        client.act(id, "archive").expect("archived");
        let error = client.act(id, "pause").expect_err("not the hub's").to_string();
        assert!(error.contains("was not started by this hub"), "{error}");
        assert!(client.change(id, &json!({"add_labels": [""]})).is_err());
        assert!(client.change(id, &json!({"nonsense": 1})).is_err());
    }
    forget(runs.path()).expect("removed");
    let serving = Serving::start(runs.path(), Access::Open);
    let experiment = serving.client().experiment(id).expect("there");
    assert_eq!((experiment.labels, experiment.archived), (vec!["y".to_string()], true));
    assert_eq!(experiment.description, "d");
    assert_eq!(serving.client().experiments(&ListQuery::default()).expect("listed").total, 0);
}
