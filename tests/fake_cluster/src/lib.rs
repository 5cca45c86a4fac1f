//! A cluster in a test: an API server that can fail on demand, nodes whose containers are real processes, and
//! what tests ask of them. The tests of salamander-kube put their own roles into the containers, the integration
//! tests the real program.
//!
//! # Layout
//! - `http`: the API server, and how its answers fail
//! - `store`: its objects, their versions and watches
//! - `access`: who may ask for what
//! - `admission`: what a namespace refuses: quotas and pod security
//! - `controllers`: the Job controller, the garbage collector, the protection of claims
//! - `kubelet`: nodes, whose containers are processes
//! - `operator`: the shipped operator on it

mod access;
mod admission;
mod controllers;
mod http;
mod kubelet;
mod operator;
mod store;

use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, HeaderValue};
use kube::{Client, Config};
use salamander_kube::crd::{TrainingJob, TrainingJobSpec};
use salamander_kube::progress::JobProgress;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;

pub use admission::{NAMESPACES, QUOTAS};
pub use controllers::{BATCH_JOBS, CLAIMS, Controllers};
use http::Fault;
pub use http::{How, Server};
pub use kubelet::{Kubelet, PODS, ROLE};
pub use operator::Operator;
pub use store::{Key, Store};

const PATIENCE: Duration = Duration::from_secs(180);
/// The resource of jobs.
pub const JOBS: &str = "/apis/salamander.dev/v1alpha1/trainingjobs";
/// Where all jobs are.
pub const NAMESPACE: &str = "ml";

/// Waits for a condition, not for a time.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "waited too long: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// What a process shows at an address of its own, head and body: `page(address, "/metrics")`.
pub fn page(address: &str, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes())?;
    let mut page = String::new();
    stream.read_to_string(&mut page)?;
    Ok(page)
}

/// A cluster; everything in it ends with it.
pub struct Cluster {
    /// The API server and its nodes.
    pub server: Arc<Server>,
    /// What the server and the clients of tests run on.
    pub runtime: Runtime,
    _folder: TempDir,
}

impl Cluster {
    /// Its containers are copies of the calling test program, told by [`ROLE`] what to be.
    pub fn start() -> Self {
        Self::with(None)
    }

    /// Its containers are a real program.
    pub fn of_program(program: &OsStr) -> Self {
        Self::with(Some(program.to_os_string()))
    }

    fn with(program: Option<OsString>) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime");
        let listener =
            runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).expect("a port");
        let address: SocketAddr = listener.local_addr().expect("bound");
        let server = Arc::new(Server {
            store: Mutex::new(Store::new()),
            faults: Mutex::default(),
            kubelet: Kubelet::new(folder.path(), &address.to_string(), program),
            controllers: Controllers::default(),
        });
        runtime.spawn(server.clone().serve(listener));
        runtime.spawn(controllers::run(server.clone()));
        Self { server, runtime, _folder: folder }
    }

    /// A client with all rights.
    pub fn client(&self) -> Client {
        self.client_with(HeaderMap::new())
    }

    /// A client with the rights that `deploy/base` gives the operator.
    pub(crate) fn operator_client(&self) -> Client {
        let token = format!("Bearer {}", access::OPERATOR);
        let token = HeaderValue::try_from(token).expect("a header");
        self.client_with([(AUTHORIZATION, token)].into_iter().collect())
    }

    fn client_with(&self, headers: HeaderMap) -> Client {
        let url = format!("http://{}", self.server.kubelet.address());
        let mut config = Config::new(url.parse().expect("an address"));
        config.default_namespace = NAMESPACE.to_string();
        config.headers =
            headers.into_iter().filter_map(|(name, value)| Some((name?, value))).collect();
        let _guard = self.runtime.enter();
        Client::try_from(config).expect("a client")
    }

    /// Lets the next so many requests of a method, with this in their path, fail.
    pub fn fault(&self, method: &'static str, path: &'static str, times: usize, how: How) {
        let fault = Fault { method, path, times, how };
        self.server.faults.lock().expect("not poisoned").push(fault);
    }

    /// An object, if it is there.
    pub fn get(&self, resource: &str, name: &str) -> Option<Value> {
        let key = (resource.to_string(), NAMESPACE.to_string(), name.to_string());
        self.server.store().get(&key).cloned()
    }

    /// All objects of a resource.
    pub fn list(&self, resource: &str) -> Vec<Value> {
        self.server
            .store()
            .list(resource, NAMESPACE)
            .into_iter()
            .map(|(_, object)| object)
            .collect()
    }

    /// Changes an object as `kubectl patch --type merge` does.
    pub fn patch(&self, resource: &str, name: &str, patch: &Value) {
        let key = (resource.to_string(), NAMESPACE.to_string(), name.to_string());
        self.server.store().merge(key, patch, false).expect("patched");
    }

    /// Makes an object as `kubectl create` does.
    pub fn put(&self, resource: &str, name: &str, object: Value) {
        let key = (resource.to_string(), NAMESPACE.to_string(), name.to_string());
        self.server.store().create(key, object).expect("created");
    }

    /// Deletes an object as `kubectl delete` does.
    pub fn delete(&self, resource: &str, name: &str) {
        let key = (resource.to_string(), NAMESPACE.to_string(), name.to_string());
        self.server.end(&key, 30);
    }

    /// The namespace lets no more than so many of a kind (`pods`, `persistentvolumeclaims`) in.
    pub fn set_quota(&self, kind: &str, most: usize) {
        let spec = json!({"hard": {kind: most.to_string()}});
        self.put(QUOTAS, "compute", json!({"metadata": {}, "spec": spec}));
    }

    /// The namespace enforces a pod security level: `baseline` or `restricted`.
    pub fn enforce_pod_security(&self, level: &str) {
        let labels = json!({"pod-security.kubernetes.io/enforce": level});
        let key = (NAMESPACES.to_string(), String::new(), NAMESPACE.to_string());
        let object = json!({"metadata": {"labels": labels}});
        self.server.store().create(key, object).expect("created");
    }

    /// Makes a job.
    pub fn submit(&self, job: &TrainingJob) {
        let name = job.metadata.name.clone().expect("a name");
        let key = (JOBS.to_string(), NAMESPACE.to_string(), name);
        let object = serde_json::to_value(job).expect("written");
        self.server.store().create(key, object).expect("created");
    }

    /// The pods of a role that have not ended, by their index and name.
    pub fn pods(&self, job: &str, role: &str) -> Vec<Pod> {
        let mut pods: Vec<Pod> = Vec::new();
        for object in self.list(PODS) {
            let labels = &object["metadata"]["labels"];
            let phase = object["status"]["phase"].as_str().unwrap_or("Pending").to_string();
            let ours = labels["salamander.dev/job"] == job && labels["salamander.dev/role"] == role;
            if ours && phase != "Failed" && phase != "Succeeded" {
                let name = object["metadata"]["name"].as_str().expect("a name").to_string();
                let index = labels["salamander.dev/index"].as_str().expect("an index");
                let index = index.parse().expect("a number");
                let leaving = object["metadata"]["deletionTimestamp"].is_string();
                pods.push(Pod { name, index, phase, leaving });
            }
        }
        pods.sort_by_key(|pod| pod.index);
        pods
    }

    /// The names of the pods of workers that run.
    pub fn workers(&self, job: &str) -> Vec<String> {
        let pods = self.pods(job, "worker").into_iter();
        pods.filter(|pod| pod.phase == "Running" && !pod.leaving).map(|pod| pod.name).collect()
    }

    /// By which the kubelet knows a pod.
    pub fn pod_key(&self, name: &str) -> Key {
        (PODS.to_string(), NAMESPACE.to_string(), name.to_string())
    }

    /// What the newest master tells.
    pub fn progress(&self, job: &str) -> JobProgress {
        let pods = self.list(PODS);
        // Masters of a Kubernetes job all have the same number.
        let number = |pod: &Value| {
            let text = pod["metadata"]["labels"]["salamander.dev/process"].as_str().unwrap_or("0");
            (text.parse::<u64>().unwrap_or(0), kubelet::uid_number(pod))
        };
        let master = pods
            .iter()
            .filter(|pod| pod["metadata"]["labels"]["salamander.dev/role"] == "master")
            .filter(|pod| pod["metadata"]["labels"]["salamander.dev/job"] == job)
            .max_by_key(|pod| number(pod));
        let text = master
            .and_then(|pod| pod["metadata"]["annotations"]["salamander.dev/progress"].as_str());
        text.and_then(JobProgress::from_annotation).unwrap_or_default()
    }

    /// So many workers are one group.
    pub fn wait_for_members(&self, job: &str, members: u32) {
        wait_until(&format!("{members} members: {:?}", self.progress(job)), || {
            let progress = self.progress(job);
            progress.is_running() && progress.workers == members
        });
    }

    /// A file in the run's folder, by which tests tell the containers of a job what to do.
    pub fn tell_containers(&self, job: &str, file: &str) {
        let folder = self.server.kubelet.folder().join("runs").join(job);
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::write(folder.join(file), "").expect("written");
    }

    /// The phase of a job.
    pub fn phase(&self, job: &str) -> String {
        let object = self.get(JOBS, job).unwrap_or_default();
        object["status"]["phase"].as_str().unwrap_or_default().to_string()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.server.kubelet.shutdown();
        if std::thread::panicking() {
            eprintln!("{}", last_words(&self.server.kubelet.folder().join("logs")));
        }
    }
}

/// The end of what all containers said, in the order of time. Reports keep only the end of what a test printed, and
/// there the reason of its failure must be too.
fn last_words(logs: &Path) -> String {
    let mut said = Vec::new();
    for entry in std::fs::read_dir(logs).into_iter().flatten().flatten() {
        let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
        let pod = entry.file_name().to_string_lossy().into_owned();
        for line in text.lines() {
            let value: Value = serde_json::from_str(line).unwrap_or_default();
            let time = value["timestamp"].as_str().unwrap_or_default().to_string();
            let words = match &value["fields"] {
                Value::Null => line.to_string(),
                fields => fields.to_string(),
            };
            said.push((time, format!("{pod} {}", words.chars().take(200).collect::<String>())));
        }
    }
    said.sort();
    let end = said.len().saturating_sub(30);
    let lines = said[end..].iter().map(|(time, words)| format!("{time} {words}"));
    lines.collect::<Vec<_>>().join("\n")
}

/// A pod that has not ended.
#[derive(Clone, Debug)]
pub struct Pod {
    /// Its name.
    pub name: String,
    /// Its place among those of its role.
    pub index: u32,
    /// Its phase.
    pub phase: String,
    /// Whether it was deleted and has not ended.
    pub leaving: bool,
}

/// A job with so many workers, and with what a test adds.
pub fn job(name: &str, (min, max): (i32, i32), more: Value) -> TrainingJob {
    let mut spec = json!({
        "image": "registry.example/salamander:1",
        "experiment": {"inline": {
            "entrypoint": "mnist_conv16",
            "data": {"training": "/data/train.recordio"},
        }},
        "workers": {"min": min, "max": max},
        "storage": {"hostPath": "/var/salamander"},
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        match (spec[key].as_object_mut(), value.as_object()) {
            (Some(known), Some(value)) => known.extend(value.clone()),
            _ => spec[key] = value.clone(),
        }
    }
    let spec: TrainingJobSpec = serde_json::from_value(spec).expect("a spec");
    let mut job = TrainingJob::new(name, spec);
    job.metadata.namespace = Some(NAMESPACE.to_string());
    job
}

#[cfg(test)]
mod tests;
