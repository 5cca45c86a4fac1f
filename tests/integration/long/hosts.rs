//! Roles started by hand on several hosts, which are network namespaces here, with TLS between them; they are cut off,
//! in one direction or both, have slow links, and come back.

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

    /// What one host sends to another is lost from now on, and nobody is told; the way back is as it was.
    fn lose_one_way(&self, from: usize, to: usize) {
        let nobody = ["lladdr", "02:00:00:00:00:99", "nud", "permanent"];
        self.neighbour("replace", from, to, &nobody).expect("cut");
    }

    fn mend_one_way(&self, from: usize, to: usize) {
        self.neighbour("del", from, to, &[]).expect("mended");
    }

    fn neighbour(&self, how: &str, from: usize, to: usize, rest: &[&str]) -> Option<()> {
        let (space, cable, to) = (self.space(from), format!("e{from}"), self.address(to));
        let neighbour = ["-n", &space, "neigh", how, &to, "dev", &cable];
        self.ip(&[&neighbour[..], rest].concat())
    }

    /// A host's cable lets this much through from now on, in both directions.
    fn slow_down(&self, host: usize, rate: &str) {
        let (space, inner, outer) = (self.space(host), format!("e{host}"), self.cable(host));
        for place in
            [&["-n", &space, "qdisc", "add", "dev", &inner][..], &["qdisc", "add", "dev", &outer]]
        {
            let shape = ["root", "tbf", "rate", rate, "burst", "4kb", "latency", "2s"];
            let tc = Command::new("tc").args(place).args(shape).output().expect("iproute2 has tc");
            assert!(tc.status.success(), "{}", String::from_utf8_lossy(&tc.stderr));
        }
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
        assert!(begun.elapsed() < Duration::from_secs(180), "{what} does not happen");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn log(place: &Workplace, name: &str) -> std::fs::File {
    std::fs::File::create(place.path().join(name)).expect("a log")
}

/// A run that goes on until somebody stops it.
fn endless(place: &Workplace) -> PathBuf {
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
    PathBuf::from(place.ok(&["train", &experiment, "--prepare"]).out().trim())
}

impl Started<'_> {
    /// A master on the first host, and a worker on each.
    fn train(&mut self, run: &Path) {
        let shown = run.display().to_string();
        let master = format!("{}:4455", self.hosts.address(0));
        self.start(0, "master", &["master", &shown, "--listen", &master]);
        for host in 0..self.hosts.count {
            let address = self.hosts.address(host);
            let args = ["worker", &shown, "--master", &master, "--listen", &address];
            self.start(host, &format!("worker-{host}"), &args);
        }
    }

    /// How many take part now.
    fn members(&self, run: &Path) -> usize {
        let shown = run.display().to_string();
        let output = self.hosts.command(0, self.place, &["status", &shown, "--json"]).output();
        let text = output.map(|output| output.stdout).unwrap_or_default();
        let status: Value = serde_json::from_slice(&text).unwrap_or_default();
        let workers = status["workers"].as_array().cloned().unwrap_or_default();
        workers.iter().filter(|worker| worker["member"].is_u64()).count()
    }

    /// So many hosts train.
    fn await_training(&self, run: &Path, hosts: usize) {
        wait_for(&format!("a generation of {hosts} hosts"), || self.members(run) == hosts);
        let before = steps_logged(run);
        wait_for(&format!("training with {hosts} hosts"), || steps_logged(run) > before + 20);
    }

    /// Stops the run; what it has applied, it has applied once. How much that is.
    fn stop(&mut self, run: &Path) -> u64 {
        let shown = run.display().to_string();
        let stop = self.hosts.command(0, self.place, &["stop", &shown]).output();
        let stop = stop.expect("the program starts");
        assert!(stop.status.success(), "{}", String::from_utf8_lossy(&stop.stderr));
        for child in &mut self.children {
            let status = child.wait().expect("ended");
            assert!(matches!(status.code(), Some(0 | 75)), "{status}");
        }
        let ledger: Value = self.place.ok(&["ledger", &shown, "--json"]).json();
        let line = &ledger.as_array().expect("lines")[0];
        let applied = line["applied"].as_u64().expect("a count");
        assert_eq!(line["duplicated"], 0, "{line}");
        assert_eq!(applied + line["missing"].as_u64().expect("a count"), 40_000, "{line}");
        applied
    }
}

#[test]
fn a_host_that_is_cut_off_is_left_out_and_comes_back() {
    let Some(hosts) = Hosts::new("a_host_that_is_cut_off", 3) else { return };
    let place = Workplace::new();
    let run = endless(&place);
    let mut started = Started::none(&hosts, &place);
    started.train(&run);
    started.await_training(&run, 3);
    hosts.plug(2, "down");
    started.await_training(&run, 2);
    hosts.plug(2, "up");
    started.await_training(&run, 3);
    let before = steps_logged(&run);
    let applied = started.stop(&run);
    assert!(applied >= (40 * before as u64 / 2).min(40_000), "{applied} of {before} steps");
    assert!(log_of(&place, "worker-2.err").contains("transport=\"tls\""));
}

/// The master reaches both workers, and one of them hears the other without being heard.
#[test]
fn two_hosts_of_which_one_does_not_hear_the_other_do_not_hold_up_the_run() {
    let Some(hosts) = Hosts::new("two_hosts_of_which_one_does_not_hear", 3) else { return };
    let place = Workplace::new();
    let run = endless(&place);
    let mut started = Started::none(&hosts, &place);
    started.train(&run);
    started.await_training(&run, 3);
    hosts.lose_one_way(1, 2);
    started.await_training(&run, 2);
    hosts.mend_one_way(1, 2);
    started.await_training(&run, 3);
    started.stop(&run);
}

#[test]
fn a_link_of_64_kbit_per_second_slows_a_run_and_changes_no_bit() {
    let Some(hosts) = Hosts::new("a_link_of_64_kbit_per_second", 2) else { return };
    let place = Workplace::new();
    let ids: String = (0..400).map(|id| format!("{id}\n")).collect();
    place.write("ids.csv", &format!("id\n{ids}"));
    let text = "entrypoint: tally\n\
                data: {training: ids.csv, shuffle: full}\n\
                strategy: allreduce\n\
                workers: {min: 2, max: 2}\n\
                micro_batches: 4\n\
                hyperparameters: {global_batch_size: 40, records: 400, blend: true}\n\
                reproducibility: {experiment_seed: 7}\n\
                searcher: {metric: loss, max_length: {epochs: 1}}\n";
    let experiment = place.write("slow.yaml", text).display().to_string();
    let alone = ["--set", "strategy=local", "--set", "workers=1", "--out", "alone"];
    let expected = place.train(&[&[experiment.as_str()][..], &alone].concat());
    let run = PathBuf::from(place.ok(&["train", &experiment, "--prepare"]).out().trim());
    hosts.slow_down(1, "64kbit");
    let mut started = Started::none(&hosts, &place);
    started.train(&run);
    wait_for("the end of the run", || run.join("summary.json").exists());
    for child in &mut started.children {
        assert!(child.wait().expect("ended").success());
    }
    let text = std::fs::read_to_string(run.join("summary.json")).expect("a summary");
    let summary: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(summary["weights_hash"], expected["weights_hash"], "{summary}");
    assert_eq!((&summary["workers"], &summary["generations"]), (&2.into(), &1.into()));
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
