//! Servers that go away and come back, and clients that wait for them, or not.

use std::time::Duration;

use salamander_core::asynchronous::Lineage;
use salamander_core::elastic::Term;
use salamander_core::plan::MicroBatch;
use salamander_core::progress::StepCount;
use salamander_net::{Cancel, Token};
use salamander_ps::client::{Client, ClientOptions, Error, Seen};
use salamander_ps::wire::Code;
use salamander_ps::{LedgerPage, Mode, Push, TableRows, TableSpec};

use crate::cluster::{Cluster, Over, Waiting};

fn push<'a>(step: u64, rows: &'a [TableRows<'a>]) -> Push<'a> {
    let name = MicroBatch { epoch: 0, step, k: 0 };
    Push { name, tally: LedgerPage::default(), factor: 1.0, scale: 1.0, seen: None, rows }
}

#[test]
fn server_that_comes_back_is_found_and_has_another_life() {
    for over in [Over::Unix, Over::Tcp, Over::Tls] {
        let allowed = salamander_ps::server::ServerOptions::default();
        let mut cluster = Cluster::with(2, Mode::Immediate, over, allowed);
        let mut client = cluster.client(ClientOptions::default());
        let table = client.declare(TableSpec::new("item", 4)).expect("declared");
        let ids: Vec<u64> = (0..100).collect();
        let values = vec![1.0; 400];
        let rows = [TableRows { table, ids: &ids, values: &values }];
        let before = client.push(&push(0, &rows)).expect("pushed");
        let seen = client.changed(table, &Seen::default()).expect("changed").seen;
        let first = client.pull(&[(table, &ids)]).expect("pulled");

        cluster.restart(1);
        // It has forgotten everything, also the table, which the client declares again.
        let second = client.pull(&[(table, &ids)]).expect("pulled");
        assert_ne!(first, second);
        let after = client.push(&push(0, &rows)).expect("pushed");
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
fn client_waits_for_a_server_that_comes_back() {
    let mut cluster = Cluster::new(2, Mode::Immediate);
    let mut client = cluster.client(ClientOptions::default());
    let table = client.declare(TableSpec::new("item", 4)).expect("declared");
    let address = cluster.endpoint(0).tcp.to_string();
    cluster.kill(0);
    std::thread::scope(|scope| {
        let (asked, waiting) = std::sync::mpsc::channel();
        let puller = scope.spawn(move || {
            asked.send(()).expect("somebody listens");
            client.pull(&[(table, &[1, 2, 3, 4, 5, 6, 7, 8])])
        });
        waiting.recv().expect("the client is about to ask");
        cluster.start(0, &address);
        assert_eq!(puller.join().expect("no panic").expect("pulled")[0].len(), 32);
    });
}

#[test]
fn server_that_does_not_come_back_is_named() {
    let mut cluster = Cluster::new(3, Mode::Immediate);
    let options = ClientOptions { patience: Duration::from_secs(3), ..ClientOptions::default() };
    let (endpoints, keys) = (cluster.endpoints.clone(), cluster.keys.clone());
    let mut client = Client::connect(endpoints, keys, options).expect("connected");
    let address = cluster.endpoint(1).tcp.to_string();
    cluster.kill(1);
    match client.ping() {
        Err(Error::Unreachable { server: 1, .. }) => {}
        other => panic!("{other:?}"),
    }
    // The others go on.
    cluster.start(1, &address);
    assert_eq!(client.ping().expect("all are there").len(), 3);
}

#[test]
fn cancelling_ends_a_wait() {
    let mut cluster = Cluster::new(1, Mode::Immediate);
    let cancel = Cancel::new();
    let mut client =
        cluster.client(ClientOptions { cancel: cancel.clone(), ..ClientOptions::default() });
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
    let outcome = Client::connect(cluster.endpoints.clone(), stranger, ClientOptions::default());
    match outcome {
        Err(Error::Stranger { server: 0, reason, .. }) => {
            assert!(reason.contains("token"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn worker_of_another_lineage_disturbs_nobody() {
    let cluster = Cluster::new(2, Mode::Immediate);
    let mut late = cluster.client(ClientOptions::default());
    let table = late.declare(TableSpec::new("item", 4)).expect("declared");
    let values = [1.0; 8];
    let rows = [TableRows { table, ids: &[1, 2], values: &values }];
    late.push(&push(0, &rows)).expect("pushed");
    cluster.client(ClientOptions::default()).begin(Lineage(1), StepCount(0), &[]).expect("begun");
    refused(late.push(&push(1, &rows)), Code::Lineage, 1);
    refused(late.pull(&[(table, &[1])]), Code::Lineage, 1);
    for server in 0..2 {
        assert!(cluster.engine(server).applied().expect("applied")[0].applied.is_empty());
    }
    late.set_lineage(Lineage(1));
    late.push(&push(1, &rows)).expect("pushed");
}

#[test]
fn orders_of_a_replaced_master_and_for_another_process_are_refused() {
    let mut cluster = Cluster::new(1, Mode::Immediate);
    let lineage = Lineage(1);
    let master = |cluster: &Cluster, term| {
        let term = Term(term);
        cluster.client(ClientOptions { lineage, term, ..ClientOptions::default() })
    };
    let (mut old, mut new) = (master(&cluster, 1), master(&cluster, 2));
    old.begin(lineage, StepCount(0), &[]).expect("begun");
    // A master that takes over goes on in the same lineage.
    new.prune(1).expect("pruned");
    refused(old.prune(2), Code::Term, 2);
    refused(old.release(), Code::Term, 2);
    refused(old.copy(&["never".into()]), Code::Term, 2);
    refused(old.begin(Lineage(2), StepCount(0), &[]), Code::Term, 2);
    assert_eq!(cluster.engine(0).applied().expect("names")[0].applied.pruned(), 1);
    // Whoever takes the place of a server is not the one that the master knew.
    cluster.restart(0);
    refused(new.begin(Lineage(2), StepCount(0), &[]), Code::Process, cluster.incarnation(0));
    let mut again = master(&cluster, 2);
    again.begin(Lineage(2), StepCount(0), &[]).expect("begun");
}

#[track_caller]
fn refused<T: std::fmt::Debug>(outcome: Result<T, Error>, code: Code, detail: u64) {
    match outcome {
        Err(Error::Refused { failure, .. }) => {
            assert_eq!((failure.code, failure.detail), (code, detail));
        }
        other => panic!("{other:?}"),
    }
}
