//! Roles started by hand on several hosts, which are network namespaces here; one of them is cut off and comes back.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::interrupted::steps_logged;
use crate::support::{Workplace, skip};

/// Hosts on one bridge, gone with this.
struct Hosts {
    name: String,
    count: usize,
}

impl Hosts {
    /// None where this process may not make them.
    fn new(count: usize) -> Option<Self> {
        let hosts = Self { name: format!("sal{}", std::process::id() % 100_000), count };
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
struct Started(Vec<Child>);

impl Drop for Started {
    fn drop(&mut self) {
        for child in &mut self.0 {
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
    let Some(hosts) = Hosts::new(3) else {
        skip("a_host_that_is_cut_off", "`ip netns` is not there or not allowed");
        return;
    };
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
    let mut started = Started(Vec::new());
    let mut start = |host: usize, name: &str, args: &[&str]| {
        let mut command = hosts.command(host, &place, args);
        command.stdout(log(&place, name)).stderr(log(&place, &format!("{name}.err")));
        started.0.push(command.spawn().expect("the program starts"));
    };
    start(0, "master", &["master", &shown, "--listen", &master]);
    for host in 0..3 {
        let address = hosts.address(host);
        let args = ["worker", &shown, "--master", &master, "--listen", &address];
        start(host, &format!("worker-{host}"), &args);
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
    for child in &mut started.0 {
        let status = child.wait().expect("ended");
        assert!(matches!(status.code(), Some(0 | 75)), "{status}");
    }
    let ledger: Value = place.ok(&["ledger", &shown, "--json"]).json();
    let line = &ledger.as_array().expect("lines")[0];
    let applied = line["applied"].as_u64().expect("a count");
    assert_eq!(line["duplicated"], 0, "{line}");
    assert_eq!(applied + line["missing"].as_u64().expect("a count"), 40_000, "{line}");
    assert!(applied >= 40 * before as u64 / 2, "{line}");
    assert!(log_of(&place, "worker-2.err").contains("transport=\"tcp\""));
}

fn log_of(place: &Workplace, name: &str) -> String {
    std::fs::read_to_string(Path::new(place.path()).join(name)).unwrap_or_default()
}
