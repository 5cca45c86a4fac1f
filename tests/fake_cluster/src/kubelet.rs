//! Nodes for the scenario API server: the pods' containers are real processes of this machine, which can be
//! killed, starved, evicted, or lost together with their node.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::net::TcpListener;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};

use crate::access::kubeconfig;
use crate::http::Server;
use crate::store::Key;

/// The arguments of a copy of this test program that is a container.
pub const ROLE: &str = "SALAMANDER_TEST_ROLE";
/// The resource of pods.
pub const PODS: &str = "/api/v1/pods";

/// All nodes.
pub struct Kubelet {
    folder: PathBuf,
    address: String,
    /// Takes the arguments of pods in the place of the tests' own roles.
    program: Option<OsString>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    running: BTreeMap<Key, u32>,
    /// Pods on nodes that do not answer any more.
    lost: BTreeSet<Key>,
    starved: BTreeSet<Key>,
    ports: BTreeMap<String, u16>,
    capacity: Option<usize>,
    closed: bool,
}

impl Kubelet {
    pub(crate) fn new(folder: &Path, address: &str, program: Option<OsString>) -> Self {
        fs::write(folder.join("kubeconfig"), kubeconfig(address, None)).expect("written");
        for name in ["logs", "accounts"] {
            fs::create_dir_all(folder.join(name)).expect("a folder");
        }
        Self { folder: folder.into(), address: address.into(), program, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("not poisoned")
    }

    /// Where runs, logs and the kubeconfig are.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// So many containers fit on all nodes.
    pub fn set_capacity(&self, server: &Arc<Server>, capacity: usize) {
        self.state().capacity = Some(capacity);
        self.schedule(server);
    }

    /// How many containers run.
    pub fn running(&self) -> usize {
        self.state().running.len()
    }

    /// The process of a pod.
    pub fn pid(&self, key: &Key) -> Option<u32> {
        self.state().running.get(key).copied()
    }

    /// A pod was created.
    pub(crate) fn look(&self, server: &Arc<Server>, key: &Key) {
        if key.0 == PODS {
            self.schedule(server);
        }
    }

    /// Whether a pod runs, as far as its node says.
    pub(crate) fn holds(&self, key: &Key) -> bool {
        let state = self.state();
        state.lost.contains(key) || state.running.contains_key(key)
    }

    /// Sends SIGTERM to a pod that runs; false if nothing has to be waited for.
    pub(crate) fn asks_to_leave(&self, key: &Key) -> bool {
        let state = self.state();
        if state.lost.contains(key) {
            return true;
        }
        let pid = state.running.get(key);
        pid.is_some_and(|pid| signal(*pid, Signal::TERM))
    }

    /// A pod's object is gone: whatever is left of it ends.
    pub(crate) fn forget(&self, key: &Key) {
        let mut state = self.state();
        state.lost.remove(key);
        if let Some(pid) = state.running.remove(key) {
            signal(pid, Signal::KILL);
        }
    }

    /// Kills a container.
    pub fn kill(&self, key: &Key) {
        let pid = self.pid(key).expect("a pod that runs");
        assert!(signal(pid, Signal::KILL));
    }

    /// The kernel ends a container that has no memory left.
    pub fn starve(&self, key: &Key) {
        self.state().starved.insert(key.clone());
        self.kill(key);
    }

    /// A pod gives way to a more important one.
    pub fn preempt(&self, server: &Arc<Server>, key: &Key) {
        let target = json!({"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"});
        server.store().update(key, |pod| condition(pod, target));
        server.end(key, 30);
    }

    /// The node of a pod is unplugged: its process ends, and nobody is there to say so. Later it is evicted.
    pub fn lose_node(&self, server: &Arc<Server>, key: &Key) {
        let pid = {
            let mut state = self.state();
            state.lost.insert(key.clone());
            state.running.remove(key)
        };
        signal(pid.expect("a pod that runs"), Signal::KILL);
        let target = json!({"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"});
        server.store().update(key, |pod| {
            condition(pod, target);
            condition(pod, json!({"type": "Ready", "status": "False"}));
        });
        server.end(key, 30);
    }

    /// Ends everything.
    pub(crate) fn shutdown(&self) {
        let mut state = self.state();
        state.closed = true;
        for pid in state.running.values() {
            signal(*pid, Signal::KILL);
        }
    }

    /// Starts what fits, oldest first.
    fn schedule(&self, server: &Arc<Server>) {
        let mut pods = server.store().list(PODS, "");
        pods.sort_by_key(|(_, pod)| uid_number(pod));
        for (key, pod) in pods {
            let mut state = self.state();
            let fresh = pod["status"]["phase"].is_null() || pod["status"]["phase"] == "Pending";
            if state.closed
                || !fresh
                || state.running.contains_key(&key)
                || state.lost.contains(&key)
            {
                continue;
            }
            if state.capacity.is_some_and(|capacity| state.running.len() >= capacity) {
                drop(state);
                self.wait(server, &key, &pod);
                continue;
            }
            match self.command(server, &key, &pod, &mut state).spawn() {
                Ok(child) => {
                    state.running.insert(key.clone(), child.id());
                    drop(state);
                    self.run(server, key, child);
                }
                Err(error) => panic!("a container cannot be started: {error}"),
            }
        }
    }

    fn wait(&self, server: &Arc<Server>, key: &Key, pod: &Value) {
        if pod["status"]["phase"].is_null() {
            let place = json!({
                "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                "message": "0/2 nodes are available: 2 Insufficient cpu.",
            });
            server.store().update(key, |pod| {
                pod["status"]["phase"] = "Pending".into();
                condition(pod, place);
            });
        }
    }

    fn run(&self, server: &Arc<Server>, key: Key, mut child: Child) {
        let pid = child.id();
        server.store().update(&key, |pod| {
            pod["status"]["phase"] = "Running".into();
            pod["status"]["podIP"] = "127.0.0.1".into();
            condition(pod, json!({"type": "Ready", "status": "True"}));
            container(pod, json!({"running": {}}));
        });
        let server = server.clone();
        std::thread::spawn(move || {
            let status = child.wait().expect("a process that can be waited for");
            server.kubelet.ended(&server, &key, pid, status);
        });
    }

    fn ended(&self, server: &Arc<Server>, key: &Key, pid: u32, status: ExitStatus) {
        let (starved, ours) = {
            let mut state = self.state();
            let ours = state.running.get(key) == Some(&pid);
            if ours {
                state.running.remove(key);
            }
            (state.starved.remove(key), ours)
        };
        // Nobody tells of a pod on a lost node, or of one that was removed by force.
        if ours {
            let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
            let log = fs::read_to_string(self.log(&key.2)).unwrap_or_default();
            let tail = log.len().saturating_sub(2_048);
            let tail = (tail..log.len()).find(|at| log.is_char_boundary(*at)).unwrap_or(log.len());
            let message = if code == 0 { "" } else { &log[tail..] };
            let reason = if starved { "OOMKilled" } else { "Error" };
            let mut leaving = false;
            server.store().update(key, |pod| {
                pod["status"]["phase"] = if code == 0 { "Succeeded" } else { "Failed" }.into();
                condition(pod, json!({"type": "Ready", "status": "False"}));
                let ended = json!({"exitCode": code, "reason": reason, "message": message});
                container(pod, json!({"terminated": ended}));
                leaving = pod["metadata"]["deletionTimestamp"].is_string();
            });
            if leaving {
                server.end(key, 0);
            }
        }
        self.schedule(server);
    }

    pub(crate) fn log(&self, pod: &str) -> PathBuf {
        self.folder.join("logs").join(format!("{pod}.log"))
    }

    /// The container of a pod: its arguments and environment, with the paths and addresses of this machine.
    fn command(&self, server: &Arc<Server>, key: &Key, pod: &Value, state: &mut State) -> Command {
        let job = pod["metadata"]["labels"]["salamander.dev/job"].as_str().unwrap_or_default();
        let port = *state.ports.entry(job.to_string()).or_insert_with(free_port);
        let folder = self.folder.display();
        let runs = self.runs(key, pod);
        let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
        let secret = volumes.filter_map(|volume| volume["secret"]["secretName"].as_str()).next();
        let secret = secret.unwrap_or_default().to_string();
        self.write_files(server, &key.1, &pod["spec"]["volumes"]);
        let local = |text: &str| {
            text.replace("/etc/salamander/config", &format!("{folder}/config/{job}-config"))
                .replace("/etc/salamander/token", &format!("{folder}/secret/{secret}"))
                .replace("/runs/", &format!("{}/", runs.display()))
                .replace("0.0.0.0:4455", &format!("127.0.0.1:{port}"))
                .replace(&format!("{job}-master.{}.svc:4455", key.1), &format!("127.0.0.1:{port}"))
                .replace("$(POD_IP)", "127.0.0.1")
                // Here all pods have one address.
                .replace("0.0.0.0:8081", "127.0.0.1:0")
        };
        let spec = &pod["spec"]["containers"][0];
        let args = spec["args"].as_array().into_iter().flatten();
        let args: Vec<String> = args.filter_map(Value::as_str).map(local).collect();
        let mut command = match &self.program {
            Some(program) => {
                let mut command = Command::new(program);
                command.args(&args);
                if args[0] == "master" {
                    command.args(["--health", "127.0.0.1:0"]);
                }
                command
            }
            None => {
                let mut command = Command::new(std::env::current_exe().expect("this program"));
                command.args(["--exact", "roles::as_a_container", "--nocapture"]);
                command.env(ROLE, args.join("\n"));
                command
            }
        };
        for variable in spec["env"].as_array().into_iter().flatten() {
            let name = variable["name"].as_str().unwrap_or_default();
            let value = match variable["valueFrom"]["fieldRef"]["fieldPath"].as_str() {
                Some("metadata.name") => key.2.clone(),
                Some("metadata.namespace") => key.1.clone(),
                Some(_) => "127.0.0.1".to_string(),
                None => local(variable["value"].as_str().unwrap_or_default()),
            };
            command.env(name, value);
        }
        for source in spec["envFrom"].as_array().into_iter().flatten() {
            let name = source["secretRef"]["name"].as_str().unwrap_or_default();
            let secret = ("/api/v1/secrets".to_string(), key.1.clone(), name.to_string());
            let object = server.store().get(&secret).cloned().expect("what a pod names is there");
            for (name, value) in object["stringData"].as_object().into_iter().flatten() {
                command.env(name, value.as_str().unwrap_or_default());
            }
        }
        let log = fs::File::create(self.log(&key.2)).expect("a log");
        let account = self.folder.join("accounts").join(&key.2);
        let token = format!("{}/{}", key.1, key.2);
        fs::write(&account, kubeconfig(&self.address, Some(&token))).expect("written");
        command.env("KUBECONFIG", account);
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("a log")).stderr(log);
        command.process_group(0);
        command
    }

    /// Where a pod sees the run's folder: an emptyDir is its own, and that of an earlier pod of its
    /// name went with that one.
    fn runs(&self, key: &Key, pod: &Value) -> PathBuf {
        let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
        let mut runs = volumes.filter(|volume| volume["name"] == "runs");
        let own = runs.any(|volume| volume["emptyDir"].is_object());
        let folder = if own { self.folder.join("pods").join(&key.2) } else { self.folder.clone() };
        let (runs, uid) = (folder.join("runs"), uid_number(pod).to_string());
        let mark = folder.join("uid");
        let is_new = || fs::read_to_string(&mark).ok().as_deref() != Some(uid.as_str());
        if own && is_new() {
            let _ = fs::remove_dir_all(&folder);
            fs::create_dir_all(&folder).expect("a folder");
            fs::write(&mark, &uid).expect("written");
        }
        fs::create_dir_all(&runs).expect("a folder");
        runs
    }

    /// Config maps and secrets as files.
    fn write_files(&self, server: &Arc<Server>, namespace: &str, volumes: &Value) {
        for volume in volumes.as_array().into_iter().flatten() {
            let (resource, kind, name) =
                match (&volume["configMap"]["name"], &volume["secret"]["secretName"]) {
                    (Value::String(name), _) => ("/api/v1/configmaps", "config", name),
                    (_, Value::String(name)) => ("/api/v1/secrets", "secret", name),
                    _ => continue,
                };
            let key = (resource.to_string(), namespace.to_string(), name.clone());
            let object = server.store().get(&key).cloned().expect("what a pod mounts is there");
            let folder = self.folder.join(kind).join(name);
            fs::create_dir_all(&folder).expect("a folder");
            for part in ["data", "stringData"] {
                for (file, text) in object[part].as_object().into_iter().flatten() {
                    write_once(&folder.join(file), text.as_str().unwrap_or_default());
                }
            }
        }
    }
}

/// Containers that run already read the file at the same time.
fn write_once(file: &Path, text: &str) {
    if fs::read_to_string(file).is_ok_and(|known| known == text) {
        return;
    }
    let beside = file.with_extension("new");
    fs::write(&beside, text).expect("written");
    fs::rename(beside, file).expect("renamed");
}

fn condition(pod: &mut Value, condition: Value) {
    let mut all = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
    all.retain(|known| known["type"] != condition["type"]);
    all.push(condition);
    pod["status"]["conditions"] = all.into();
}

fn container(pod: &mut Value, state: Value) {
    pod["status"]["containerStatuses"] = json!([{
        "name": "salamander", "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": state,
    }]);
}

fn signal(pid: u32, signal: Signal) -> bool {
    Pid::from_raw(pid as i32).is_some_and(|pid| kill_process_group(pid, signal).is_ok())
}

/// A port that is free and given once. The system gives greater ones to whoever asks for any, so that this one is
/// still free when a master comes to it, and when the next one does.
fn free_port() -> u16 {
    static GIVEN: AtomicU16 = AtomicU16::new(0);
    let first = (std::process::id() % 10_000) as u16;
    let next = || 20_000 + (first + GIVEN.fetch_add(1, Ordering::Relaxed)) % 10_000;
    let mut ports = std::iter::repeat_with(next);
    ports.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).expect("one is free")
}

pub(crate) fn uid_number(pod: &Value) -> u64 {
    let uid = pod["metadata"]["uid"].as_str().unwrap_or_default();
    uid.trim_start_matches("uid-").parse().unwrap_or(0)
}
