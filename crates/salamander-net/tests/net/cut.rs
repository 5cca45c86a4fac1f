//! A cable that is cut says nothing: no packet comes any more, and none that says so. Hosts are network namespaces
//! here.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use salamander_net::{Cancel, Endpoint, Error, Keys, Listener, Ring};

use crate::group::{Way, keys, options};

/// Far more than it takes to notice, and far less than the 15 minutes of a system that is left alone.
const NOTICED: Duration = Duration::from_secs(180);

/// Two hosts with a cable between them, gone with this.
struct Hosts(String);

impl Hosts {
    fn new() -> Option<Self> {
        let hosts = Self(format!("snc{}", std::process::id() % 100_000));
        let [left, right] = [hosts.space(0), hosts.space(1)];
        ip(&["netns", "add", &left])?;
        ip(&["netns", "add", &right])?;
        ip(&[
            "-n", &left, "link", "add", "c0", "type", "veth", "peer", "name", "c1", "netns", &right,
        ])?;
        for (host, space) in [&left, &right].into_iter().enumerate() {
            let (cable, address) = (format!("c{host}"), format!("10.213.78.{}/24", host + 1));
            ip(&["-n", space, "addr", "add", &address, "dev", &cable])?;
            ip(&["-n", space, "link", "set", &cable, "up"])?;
            ip(&["-n", space, "link", "set", "lo", "up"])?;
        }
        Some(hosts)
    }

    fn space(&self, host: usize) -> String {
        format!("{}h{host}", self.0)
    }

    /// Moves the calling thread, and those that it starts, to a host.
    fn enter(&self, host: usize) {
        let space = File::open(format!("/run/netns/{}", self.space(host))).expect("a namespace");
        move_into_link_name_space(space.as_fd(), Some(LinkNameSpaceType::Network)).expect("moved");
    }

    /// Packets are lost from now on: each host sends them to a neighbour that is not there. Both ends of the cable stay
    /// up, as with a switch between them, so that no system tells its sockets.
    fn cut(&self) {
        for (host, other) in [(0, "10.213.78.2"), (1, "10.213.78.1")] {
            let (space, cable) = (self.space(host), format!("c{host}"));
            let nobody = ["lladdr", "02:00:00:00:00:99", "nud", "permanent", "dev", &cable];
            let replace = ["-n", &space, "neigh", "replace", other];
            ip(&[&replace[..], &nobody].concat()).expect("cut");
        }
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for host in 0..2 {
            ip(&["netns", "del", &self.space(host)]);
        }
    }
}

fn ip(args: &[&str]) -> Option<()> {
    Command::new("ip").args(args).output().ok()?.status.success().then_some(())
}

/// Gathers once, says so, waits for a word, and gathers until that fails.
struct Member<'a> {
    hosts: &'a Hosts,
    keys: &'a Keys,
    rank: usize,
    here: Sender<Endpoint>,
    all: Receiver<Vec<Endpoint>>,
    gathered: Sender<()>,
    go_on: Receiver<()>,
    failed: Sender<(usize, Error)>,
}

impl Member<'_> {
    fn run(self) {
        self.hosts.enter(self.rank);
        let address = format!("10.213.78.{}:0", self.rank + 1).parse().expect("an address");
        let listener = Listener::bind(address, self.keys.clone()).expect("a listener");
        self.here.send(listener.endpoint()).expect("awaited");
        let members = self.all.recv().expect("both are there");
        let (options, cancel) = (options(Way::Tcp), Cancel::new());
        let ring = Ring::connect(&listener, 1, self.rank, &members, &options, &cancel);
        let mut ring = ring.expect("connected");
        let all = ring.all_gather(&[self.rank as u8]).expect("gathered");
        assert_eq!(all, [[0], [1]]);
        self.gathered.send(()).expect("awaited");
        self.go_on.recv().expect("told");
        let error = loop {
            if let Err(error) = ring.all_gather(&[7]) {
                break error;
            }
        };
        // Nobody waits for the second one when the first has failed the test.
        let _ = self.failed.send((self.rank, error));
    }
}

#[test]
fn a_peer_that_vanishes_without_a_word_is_noticed() {
    if std::env::var_os("SALAMANDER_CHANGE_HOST").is_none() {
        let reason = "it makes networks, which SALAMANDER_CHANGE_HOST=1 allows";
        assert!(std::env::var_os("SALAMANDER_NO_SKIPS").is_none(), "{reason}");
        let _ = writeln!(std::io::stderr(), "SKIPPED a_peer_that_vanishes: {reason}");
        return;
    }
    let hosts = Hosts::new().expect("`ip netns` makes hosts");
    let keys = keys(Way::Tcp);
    let (here, endpoints) = channel();
    let (gathered, have_gathered) = channel();
    let (failed, failures) = channel();
    std::thread::scope(|scope| {
        let mut words = Vec::new();
        for rank in 0..2 {
            let ((tell, all), (go, go_on)) = (channel(), channel());
            let (here, gathered, failed) = (here.clone(), gathered.clone(), failed.clone());
            let (hosts, keys) = (&hosts, &keys);
            let member = Member { hosts, keys, rank, here, all, gathered, go_on, failed };
            scope.spawn(move || member.run());
            words.push((tell, go));
        }
        let mut members: Vec<Endpoint> = (0..2).map(|_| endpoints.recv().expect("one")).collect();
        members.sort_by_key(|member| member.tcp);
        words.iter().for_each(|(tell, _)| tell.send(members.clone()).expect("awaited"));
        (0..2).for_each(|_| have_gathered.recv().expect("connected"));
        hosts.cut();
        words.iter().for_each(|(_, go)| go.send(()).expect("awaited"));
        for _ in 0..2 {
            let (rank, error) = failures.recv_timeout(NOTICED).expect("the cut is noticed");
            assert!(matches!(error, Error::Lost { .. }), "{rank}: {error:?}");
        }
    });
}
