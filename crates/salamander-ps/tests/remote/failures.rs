//! Servers that go away and come back, and clients that wait for them, or not.

use std::time::Duration;

use salamander_core::plan::MicroBatch;
use salamander_net::{Cancel, Token};
use salamander_ps::client::{Client, Error, Options, Scope, Seen};
use salamander_ps::wire::Code;
use salamander_ps::{Mode, Page, Push, Rows, TableSpec};

use crate::cluster::{Cluster, Over};

fn push<'a>(step: u64, rows: &'a [Rows<'a>]) -> Push<'a> {
    let name = MicroBatch { epoch: 0, step, k: 0 };
    Push { name, tally: Page::default(), factor: 1.0, scale: 1.0, seen: None, rows }
}

#[test]
fn server_that_comes_back_is_found_and_has_another_life() {
    for over in [Over::Unix, Over::Tcp, Over::Tls] {
        let allowed = salamander_ps::server::Options::default();
        let mut cluster = Cluster::with(2, Mode::Immediate, over, allowed);
        let mut client = cluster.client(Options::default());
        let table = client.declare(TableSpec::new("item", 4)).expect("declared");
        let ids: Vec<u64> = (0..100).collect();
        let values = vec![1.0; 400];
        let rows = [Rows { table, ids: &ids, values: &values }];
        let before = client.push(&push(0, &rows), None).expect("pushed");
        let seen = client.changed(table, &Seen::default()).expect("changed").seen;
        let first = client.pull(&[(table, &ids)]).expect("pulled");

        cluster.kill(1);
        cluster.start(1, "127.0.0.1:0");
        // It has forgotten everything, also the table, which the client declares again.
        let second = client.pull(&[(table, &ids)]).expect("pulled");
        assert_ne!(first, second);
        let after = client.push(&push(0, &rows), None).expect("pushed");
        assert_eq!(before[0], after[0]);
        assert_ne!(before[1].incarnation, after[1].incarnation);
        assert_eq!(after[1].incarnation, cluster.incarnation(1));
        // The same push completed the server that had lost it, and only that one.
        assert_eq!(client.pull(&[(table, &ids)]).expect("pulled"), first);
        // What is new on the new server comes, although its counter is lower.
        let news = client.changed(table, &seen).expect("changed");
        assert!(!news.ids.is_empty() && news.ids.len() < ids.len());
    }
}

#[test]
fn client_waits_for_a_server_and_finds_it_at_its_new_place() {
    let mut cluster = Cluster::new(2, Mode::Immediate);
    let mut client = cluster.client(Options::default());
    let table = client.declare(TableSpec::new("item", 4)).expect("declared");
    cluster.kill(0);
    std::thread::scope(|scope| {
        let (asked, waiting) = std::sync::mpsc::channel();
        let puller = scope.spawn(move || {
            asked.send(()).expect("somebody listens");
            client.pull(&[(table, &[1, 2, 3, 4, 5, 6, 7, 8])])
        });
        waiting.recv().expect("the client is about to ask");
        cluster.start(0, "127.0.0.1:0");
        assert_eq!(puller.join().expect("no panic").expect("pulled")[0].len(), 32);
    });
}

#[test]
fn server_on_its_old_port_is_found_without_being_told() {
    let mut cluster = Cluster::new(1, Mode::Immediate);
    let mut client = cluster.client(Options::default());
    let table = client.declare(TableSpec::new("item", 4)).expect("declared");
    let endpoint = cluster.endpoint(0);
    cluster.kill(0);
    cluster.start(0, &endpoint.tcp.to_string());
    cluster.directory.set(0, endpoint.to_string());
    client.pull(&[(table, &[1])]).expect("pulled");
}

#[test]
fn server_that_does_not_come_back_is_named() {
    let mut cluster = Cluster::new(3, Mode::Immediate);
    let options = Options { patience: Duration::from_secs(3), ..Options::default() };
    let (directory, keys) = (cluster.directory.clone(), cluster.keys.clone());
    let mut client = Client::connect(directory, keys, options).expect("connected");
    cluster.kill(1);
    match client.ping() {
        Err(Error::Unreachable { server: 1, .. }) => {}
        other => panic!("{other:?}"),
    }
    // The others go on.
    cluster.start(1, "127.0.0.1:0");
    assert_eq!(client.ping().expect("all are there").len(), 3);
}

#[test]
fn cancelling_ends_a_wait() {
    let mut cluster = Cluster::new(1, Mode::Immediate);
    let cancel = Cancel::new();
    let mut client = cluster.client(Options { cancel: cancel.clone(), ..Options::default() });
    cluster.kill(0);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(move || client.ping());
        cancel.cancel();
        let outcome = waiting.join().expect("no panic");
        assert!(matches!(outcome, Err(Error::Cancelled)), "{outcome:?}");
    });
}

#[test]
fn wrong_token_is_refused_at_once() {
    let cluster = Cluster::new(1, Mode::Immediate);
    let stranger = Token::random().expect("randomness");
    let outcome = Client::connect(cluster.directory.clone(), stranger, Options::default());
    match outcome {
        Err(Error::Stranger { server: 0, reason, .. }) => {
            assert!(reason.contains("token"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn worker_of_another_lineage_or_map_disturbs_nobody() {
    let cluster = Cluster::new(2, Mode::Immediate);
    let mut late = cluster.client(Options::default());
    let table = late.declare(TableSpec::new("item", 4)).expect("declared");
    let values = [1.0; 8];
    let rows = [Rows { table, ids: &[1, 2], values: &values }];
    late.push(&push(0, &rows), None).expect("pushed");
    let mut master = cluster.client(Options::default());
    master.reset(Scope::All, 1, 0, &[]).expect("reset");
    let refused = |outcome: Result<(), Error>, code, detail| match outcome {
        Err(Error::Refused { failure, .. }) => {
            assert_eq!((failure.code, failure.detail), (code, detail));
        }
        other => panic!("{other:?}"),
    };
    refused(late.push(&push(1, &rows), None).map(drop), Code::Lineage, 1);
    refused(late.pull(&[(table, &[1])]).map(drop), Code::Lineage, 1);
    for server in 0..2 {
        assert!(cluster.engine(server).applied().expect("applied")[0].applied.is_empty());
    }
    late.set_lineage(1);
    late.push(&push(1, &rows), None).expect("pushed");
    master.fence(1, 1).expect("fenced");
    refused(late.push(&push(2, &rows), None).map(drop), Code::Map, 1);
    let mut current = cluster.client(Options { lineage: 1, map: 1, ..Options::default() });
    let table = current.declare(TableSpec::new("item", 4)).expect("declared");
    let rows = [Rows { table, ids: &[1, 2], values: &values }];
    current.push(&push(2, &rows), None).expect("pushed");
}
