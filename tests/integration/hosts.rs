//! Roles started by hand on several hosts, which are network namespaces here, with TLS between them; one of them is cut
//! off and comes back.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::interrupted::steps_logged;
use crate::support::{Workplace, may_change_host, skip};
use crate::tables;

/// How many sets of hosts this process has made.
static SETS: AtomicUsize = AtomicUsize::new(0);

/// Hosts on one bridge, gone with this.
struct Hosts {
    name: String,
    count: usize,
}

impl Hosts {
    /// None where this process may not make them, which is said.
    fn new(test: &str, count: usize) -> Option<Self> {
        if !may_change_host(test) {
            return None;
        }
        let hosts = Self::make(count);
        if hosts.is_none() {
            skip(test, "`ip netns` is not there or not allowed");
        }
        hosts
    }

    fn make(count: usize) -> Option<Self> {
        // Names of interfaces are short, and several tests may have hosts.
        let set = SETS.fetch_add(1, Ordering::Relaxed);
        let hosts = Self { name: format!("sal{}n{set}", std::process::id() % 100_000), count };
        hosts.ip(&["link", "add", &hosts.name, "type", "bridge"])?;
        hosts.ip(&["link", "set", &hosts.name, "up"])?;
        for host in 0..count {
            let (space, outer, inner) = (hosts.space(host), hosts.cable(host), format!("e{host}"));
            hosts.ip(&["netns", "add", &space])?;
            hosts.ip(&["link", "add", &outer, "type", "veth", "peer", "name", &inner])?;
            hosts.ip(&["link", "set", &inner, "netns", &space])?;
            hosts.ip(&["link", "set", &outer, "master", &hosts.name, "up"])?;
            let address = format!("{}/24", hosts.address(host));
            hosts.ip(&["-n", &space, "addr", "add", &address, "dev", &inner])?;
            hosts.ip(&["-n", &space, "link", "set", &inner, "up"])?;
            hosts.ip(&["-n", &space, "link", "set", "lo", "up"])?;
        }
        Some(hosts)
    }

    fn ip(&self, args: &[&str]) -> Option<()> {
        let output = Command::new("ip").args(args).output().ok()?;
        output.status.success().then_some(())
    }

    fn space(&self, host: usize) -> String {
        format!("{}h{host}", self.name)
    }

    fn cable(&self, host: usize) -> String {
        format!("{}c{host}", self.name)
    }

    fn address(&self, host: usize) -> String {
        format!("10.213.77.{}", host + 1)
    }

    /// The program on a host.
    fn command(&self, host: usize, place: &Workplace, args: &[&str]) -> Command {
        let program = env!("CARGO_BIN_EXE_salamander-under-test");
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.space(host), program]).args(args);
        command.current_dir(place.path()).stdin(Stdio::null());
        command
    }

    fn plug(&self, host: usize, how: &str) {
        self.ip(&["link", "set", &self.cable(host), how]).expect("the cable is ours");
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for host in 0..self.count {
            self.ip(&["netns", "del", &self.space(host)]);
            self.ip(&["link", "del", &self.cable(host)]);
        }
        self.ip(&["link", "del", &self.name]);
    }
}

/// Processes that end with the test, however it ends.
struct Started<'a> {
    hosts: &'a Hosts,
    place: &'a Workplace,
    children: Vec<Child>,
}

impl<'a> Started<'a> {
    fn none(hosts: &'a Hosts, place: &'a Workplace) -> Self {
        Self { hosts, place, children: Vec::new() }
    }

    /// Starts the program on a host, with its output in files of this name.
    fn start(&mut self, host: usize, name: &str, args: &[&str]) {
        let mut command = self.hosts.command(host, self.place, args);
        command.stdout(log(self.place, name)).stderr(log(self.place, &format!("{name}.err")));
        self.children.push(command.spawn().expect("the program starts"));
    }
}

impl Drop for Started<'_> {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(90), "{what} does not happen");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn log(place: &Workplace, name: &str) -> std::fs::File {
    std::fs::File::create(place.path().join(name)).expect("a log")
}

#[test]
fn a_host_that_is_cut_off_is_left_out_and_comes_back() {
    let Some(hosts) = Hosts::new("a_host_that_is_cut_off", 3) else { return };
    let place = Workplace::new();
    let ids: String = (0..40_000).map(|id| format!("{id}\n")).collect();
    place.write("ids.csv", &format!("id\n{ids}"));
    let text = "entrypoint: tally\n\
                data: {training: ids.csv, shuffle: full}\n\
                strategy: allreduce\n\
                workers: 3\n\
                hyperparameters: {global_batch_size: 40, records: 40000, delay_ms: 10}\n\
                searcher: {metric: loss, max_length: {epochs: 50}}\n\
                elastic: {silence: 1}\n";
    let experiment = place.write("hosts.yaml", text).display().to_string();
    let run = PathBuf::from(place.ok(&["train", &experiment, "--prepare"]).out().trim());
    let shown = run.display().to_string();
    let master = format!("{}:4455", hosts.address(0));
    let mut started = Started::none(&hosts, &place);
    started.start(0, "master", &["master", &shown, "--listen", &master]);
    for host in 0..3 {
        let address = hosts.address(host);
        let args = ["worker", &shown, "--master", &master, "--listen", &address];
        started.start(host, &format!("worker-{host}"), &args);
    }
    let members = || {
        let output = hosts.command(0, &place, &["status", &shown, "--json"]).output();
        let text = output.map(|output| output.stdout).unwrap_or_default();
        let status: Value = serde_json::from_slice(&text).unwrap_or_default();
        let workers = status["workers"].as_array().cloned().unwrap_or_default();
        workers.iter().filter(|worker| worker["member"].is_u64()).count()
    };
    wait_for("training with three hosts", || members() == 3 && steps_logged(&run) > 20);

    hosts.plug(2, "down");
    wait_for("a generation of two hosts", || members() == 2);
    let before = steps_logged(&run);
    wait_for("training with two hosts", || steps_logged(&run) > before + 20);
    hosts.plug(2, "up");
    wait_for("the third host's return", || members() == 3);
    let before = steps_logged(&run);
    wait_for("training with three hosts again", || steps_logged(&run) > before + 20);

    let stop = hosts.command(0, &place, &["stop", &shown]).output().expect("the program starts");
    assert!(stop.status.success(), "{}", String::from_utf8_lossy(&stop.stderr));
    for child in &mut started.children {
        let status = child.wait().expect("ended");
        assert!(matches!(status.code(), Some(0 | 75)), "{status}");
    }
    let ledger: Value = place.ok(&["ledger", &shown, "--json"]).json();
    let line = &ledger.as_array().expect("lines")[0];
    let applied = line["applied"].as_u64().expect("a count");
    assert_eq!(line["duplicated"], 0, "{line}");
    assert_eq!(applied + line["missing"].as_u64().expect("a count"), 40_000, "{line}");
    assert!(applied >= (40 * before as u64 / 2).min(40_000), "{line}");
    assert!(log_of(&place, "worker-2.err").contains("transport=\"tls\""));
}

#[test]
fn rows_travel_between_hosts_and_strangers_are_told_why_they_do_not() {
    let Some(hosts) = Hosts::new("rows_travel_between_hosts", 2) else { return };
    let place = Workplace::new();
    let file = tables::experiment(&place);
    let prepare = || {
        let args = ["train", &file, "--workers", "2", "--ps", "1", "--prepare"];
        PathBuf::from(place.ok(&args).out().trim())
    };
    let (run, other) = (prepare(), prepare());
    let shown = run.display().to_string();
    let master = format!("{}:4455", hosts.address(0));
    let mut started = Started::none(&hosts, &place);
    started.start(0, "master", &["master", &shown, "--listen", &master]);
    wait_for("a master", || log_of(&place, "master").contains("listening"));
    // With the right token and the certificates of another run.
    let (near, far) = (hosts.address(0), hosts.address(1));
    let certificates = other.join("tls").display().to_string();
    for role in ["worker", "ps"] {
        let stranger = [role, &shown, "--master", &master, "--listen", &far];
        let stranger = [&stranger[..], &["--tls", &certificates]].concat();
        let output = hosts.command(1, &place, &stranger).output().expect("the program starts");
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{role}: {told}");
        assert!(told.contains("the job's authority has not signed it"), "{role}: {told}");
    }

    started.start(1, "ps", &["ps", &shown, "--master", &master, "--listen", &far]);
    started.start(0, "worker-0", &["worker", &shown, "--master", &master, "--listen", &near]);
    let args = ["worker", &shown, "--master", &master, "--listen", &far, "--slot", "1"];
    started.start(1, "worker-1", &args);
    let mut ended = vec![None; started.children.len()];
    wait_for("the end of the run", || {
        for (child, status) in started.children.iter_mut().zip(&mut ended) {
            *status = child.try_wait().expect("a process");
        }
        ended.iter().all(Option::is_some)
    });
    for (child, status) in ["master", "ps", "worker-0", "worker-1"].iter().zip(ended) {
        let code = status.and_then(|status| status.code());
        assert_eq!(code, Some(0), "{child}: {}", log_of(&place, &format!("{child}.err")));
    }
    let ledger: Value = place.ok(&["ledger", &shown, "--json"]).json();
    for line in ledger.as_array().expect("lines") {
        assert_eq!(line["duplicated"], 0, "{line}");
    }
    assert!(log_of(&place, "worker-1.err").contains("transport=\"tls\""));
}

#[test]
fn roles_that_others_can_reach_need_certificates() {
    let place = Workplace::new();
    let file = tables::experiment(&place);
    let args = ["train", &file, "--workers", "2", "--ps", "1", "--prepare"];
    let run = PathBuf::from(place.ok(&args).out().trim());
    let shown = run.display().to_string();
    let key = run.join("tls/tls.key");
    let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&key).expect("a file"));
    assert_eq!(mode & 0o777, 0o600);
    let check = |args: &[&str], words: &str| {
        let refused = place.run(args);
        assert_ne!(refused.code(), Some(0), "{}", refused.out());
        let told = refused.err();
        assert!(told.contains(words), "{told:?} does not say {words:?}");
    };
    let nowhere = ["worker", &shown, "--master", "127.0.0.1:1", "--tls", "nowhere"];
    check(&nowhere, "nowhere/ca.crt: No such file");
    std::fs::rename(run.join("tls/ca.crt"), run.join("ca.crt")).expect("moved");
    check(&["master", &shown], "tls/ca.crt: No such file");
    std::fs::remove_dir_all(run.join("tls")).expect("removed");
    let advice = "there are no certificates to encrypt connections with: make some with";
    check(&["master", &shown, "--listen", "0.0.0.0:0"], advice);
    check(&["ps", &shown, "--master", "127.0.0.1:1", "--listen", "10.0.0.1"], advice);
    check(&["worker", &shown, "--master", "127.0.0.1:1", "--listen", "10.0.0.1"], advice);
    let folder = run.join("tls").display().to_string();
    place.ok(&["tls", &folder]);
    assert!(key.exists(), "made again");
    check(&["tls", &folder], "File exists");
}

fn log_of(place: &Workplace, name: &str) -> String {
    std::fs::read_to_string(Path::new(place.path()).join(name)).unwrap_or_default()
}
