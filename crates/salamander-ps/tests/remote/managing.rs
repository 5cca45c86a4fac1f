//! What a master does to servers: histories, files, and partitions that move.

use std::path::PathBuf;

use salamander_core::asynchronous::Lineage;
use salamander_core::plan::MicroBatch;
use salamander_core::progress::StepCount;
use salamander_ps::client::{Client, ClientOptions, Error};
use salamander_ps::wire::{Advance, Before, Code, HistoryStart, Reset, ResetOutcome};
use salamander_ps::{LedgerPage, Mode, Push, TableRows, TableSpec, partitions_of};

use crate::cluster::{Cluster, LONG, Waiting};

fn step(version: StepCount) -> Advance {
    Advance { to: version, factor: 1.0, scale: 1.0 }
}

#[test]
fn history_goes_on_from_files_on_a_server_that_was_started_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let files: Vec<PathBuf> = (0..2).map(|n| folder.path().join(format!("ps-{n}"))).collect();
    let mut cluster = Cluster::new(2, Mode::Staged);
    let mut master = cluster.client(ClientOptions::default());
    let table = master.declare(TableSpec::new("item", 4)).expect("declared");
    let ids: Vec<u64> = (0..200).collect();
    let values = vec![0.5; 800];
    let rows = [TableRows { table, ids: &ids, values: &values }];
    master.begin(Lineage(1), StepCount(0), &[]).expect("reset");
    master.stage(StepCount(0), 0, &rows).expect("staged");
    master.advance(&step(StepCount(1))).expect("advanced");
    let written = master.save(&files).expect("saved");
    assert_eq!(written.iter().map(|written| written.rows).sum::<u64>(), 200);
    let saved = master.pull(&[(table, &ids)]).expect("pulled");
    master.stage(StepCount(1), 0, &rows).expect("staged");
    master.advance(&step(StepCount(2))).expect("advanced");
    assert_ne!(master.pull(&[(table, &ids)]).expect("pulled"), saved);

    cluster.restart(1);
    // A server without its rows refuses those who take it for the old one.
    match master.pull(&[(table, &ids)]) {
        Err(Error::Refused { server: 1, failure }) => assert_eq!(failure.code, Code::Lineage),
        other => panic!("{other:?}"),
    }
    let mut master = cluster.client(ClientOptions::default());
    let table = master.declare(TableSpec::new("item", 4)).expect("declared");
    let rows = [TableRows { table, ids: &ids, values: &values }];
    master.begin(Lineage(2), StepCount(0), &files).expect("reset");
    assert_eq!(master.pull(&[(table, &ids)]).expect("pulled"), saved);
    assert_eq!([0, 1].map(|server| cluster.engine(server).version()), [StepCount(1); 2]);
    // The same reset, sent again because its answer got lost, undoes nothing.
    master.stage(StepCount(1), 0, &rows).expect("staged");
    master.advance(&step(StepCount(2))).expect("advanced");
    let later = master.pull(&[(table, &ids)]).expect("pulled");
    master.begin(Lineage(2), StepCount(0), &files).expect("reset");
    assert_eq!(master.pull(&[(table, &ids)]).expect("pulled"), later);
    let outcome = master.begin(Lineage(1), StepCount(0), &[]);
    assert!(matches!(outcome, Err(Error::Refused { server: 0, .. })), "{outcome:?}");
}

#[test]
fn a_damaged_checkpoint_is_replaced_by_the_one_before() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let cluster = Cluster::new(1, Mode::Immediate);
    let mut master = cluster.client(ClientOptions::default());
    let table = master.declare(TableSpec::new("item", 1)).expect("declared");
    for (name, step) in [("old", 0), ("new", 1)] {
        let (name, step) = (path(name), MicroBatch { epoch: 0, step, k: 0 });
        let rows = [TableRows { table, ids: &[1, 2], values: &[1.0, 2.0] }];
        let tally = LedgerPage::default();
        let push = Push { name: step, tally, factor: 1.0, scale: 1.0, seen: None, rows: &rows };
        master.push(&push).expect("pushed");
        master.save(&[name]).expect("saved");
    }
    let mut bytes = std::fs::read(path("new")).expect("a file");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(path("new"), bytes).expect("damaged");
    let start = |older| HistoryStart {
        servers: 1,
        files: vec![path("new")],
        older,
        ..HistoryStart::default()
    };
    let reset = |older| [start(older).reset(0)];
    let failed = master.reset_each(Lineage(1), &reset(Vec::new()));
    assert!(matches!(failed, Err(Error::Refused { .. })), "{failed:?}");
    let older = vec![vec![path("missing")], vec![path("old")]];
    let outcome = master.reset_each(Lineage(1), &reset(older)).expect("the older one is sound");
    let told = outcome[0].fallback.as_ref().expect("it is told");
    assert!(told.contains("older checkpoint") && told.contains("new"), "{told}");
    assert_eq!(master.applied().expect("names")[0].applied.len(), 1);
}

#[test]
fn failed_restore_closes_the_server_until_one_works() {
    let folder = tempfile::tempdir().expect("a folder");
    let missing = folder.path().join("missing");
    let cluster = Cluster::new(1, Mode::Staged);
    let mut master = cluster.client(ClientOptions::default());
    let table = master.declare(TableSpec::new("item", 4)).expect("declared");
    match master.begin(Lineage(1), StepCount(0), std::slice::from_ref(&missing)) {
        Err(Error::Refused { failure, .. }) => {
            assert_eq!(failure.code, Code::Broken);
            assert!(failure.text.contains("missing"), "{failure}");
        }
        other => panic!("{other:?}"),
    }
    let outcome = master.pull(&[(table, &[1])]);
    assert!(matches!(outcome, Err(Error::Refused { .. })), "{outcome:?}");
    master.begin(Lineage(1), StepCount(0), &[]).expect("reset");
    master.pull(&[(table, &[1])]).expect("pulled");
}

/// Servers of which the first so many hold all partitions.
struct Moves {
    cluster: Cluster,
    lineage: u64,
}

impl Moves {
    fn client(&self, servers: usize) -> Client {
        let endpoints = self.cluster.endpoints[..servers].to_vec();
        let lineage = Lineage(self.lineage);
        let options = ClientOptions { patience: LONG, lineage, ..ClientOptions::default() };
        Client::connect(endpoints, self.cluster.keys.clone(), options).expect("connected")
    }

    /// What each server is told when their number changes.
    fn resets(&self, from: usize, to: usize, version: StepCount, files: &[PathBuf]) -> Vec<Reset> {
        let known = self.cluster.endpoints.iter().cloned().enumerate();
        let before = Before::new(Lineage(self.lineage), from, known);
        let files = files.to_vec();
        let start = HistoryStart {
            servers: to,
            version,
            files,
            from: Some(before),
            ..HistoryStart::default()
        };
        (0..from.max(to)).map(|server| start.reset(server)).collect()
    }

    fn scale(
        &mut self,
        from: usize,
        to: usize,
        version: StepCount,
        files: &[PathBuf],
    ) -> Vec<ResetOutcome> {
        let resets = self.resets(from, to, version, files);
        let mut all = self.client(from.max(to));
        self.lineage += 1;
        let outcomes = all.reset_each(Lineage(self.lineage), &resets).expect("moved");
        // The same again, because an answer got lost, changes nothing.
        all.reset_each(Lineage(self.lineage), &resets).expect("moved");
        self.client(to).release().expect("released");
        outcomes
    }
}

#[test]
fn partitions_move_from_two_servers_to_three_to_one() {
    let mut moves = Moves { cluster: Cluster::new(3, Mode::Staged), lineage: 0 };
    let ids: Vec<u64> = (0..3000).collect();
    let (mut version, mut before, mut expected) = (StepCount(0), 2, Vec::new());
    let mut master = moves.client(2);
    moves.lineage = 1;
    master.begin(Lineage(1), StepCount(0), &[]).expect("begun");
    for servers in [3, 1, 2] {
        let mut client = moves.client(before);
        let table = client.declare(TableSpec::new("item", 4)).expect("declared");
        let values: Vec<f32> = (0..12_000u32).map(|at| (at + before as u32) as f32).collect();
        client
            .stage(version, 0, &[TableRows { table, ids: &ids, values: &values }])
            .expect("staged");
        version = version.next();
        client.advance(&step(version)).expect("advanced");
        // Nothing comes of what was staged for a step that nobody committed.
        client
            .stage(version, 1, &[TableRows { table, ids: &ids, values: &values }])
            .expect("staged");
        let rows = client.pull(&[(table, &ids)]).expect("pulled");
        assert_ne!(rows, expected);
        expected = rows;
        let outcomes = moves.scale(before, servers, version, &[]);
        assert!(outcomes.iter().all(|outcome| outcome.fallback.is_none()), "{outcomes:?}");
        match client.pull(&[(table, &ids)]) {
            Err(Error::Refused { failure, .. }) => assert_eq!(failure.code, Code::Lineage),
            other => panic!("{other:?}"),
        }
        let mut client = moves.client(servers);
        let table = client.declare(TableSpec::new("item", 4)).expect("declared");
        assert_eq!(client.pull(&[(table, &ids)]).expect("pulled"), expected);
        for (server, info) in client.info().expect("info").into_iter().enumerate() {
            assert_eq!((moves.cluster.engine(server).version(), info.is_placed), (version, true));
            assert_eq!(info.partitions, partitions_of(server, servers));
        }
        before = servers;
    }
}

#[test]
fn what_a_lost_server_had_comes_from_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let files: Vec<PathBuf> = (0..2).map(|n| folder.path().join(format!("ps-{n}"))).collect();
    let mut moves = Moves { cluster: Cluster::new(3, Mode::Immediate), lineage: 0 };
    let ids: Vec<u64> = (0..500).collect();
    let mut client = moves.client(2);
    client.begin(Lineage(1), StepCount(0), &[]).expect("begun");
    moves.lineage = 1;
    let table = client.declare(TableSpec::new("item", 1)).expect("declared");
    let push = |client: &mut Client, table, step| {
        let name = MicroBatch { epoch: 0, step, k: 0 };
        let (values, tally) = (vec![1.0; 500], LedgerPage::default());
        let rows = [TableRows { table, ids: &ids, values: &values }];
        client
            .push(&Push { name, tally, factor: 1.0, scale: 1.0, seen: None, rows: &rows })
            .expect("pushed");
    };
    push(&mut client, table, 0);
    client.save(&files).expect("saved");
    push(&mut client, table, 1);
    let expected = client.pull(&[(table, &ids)]).expect("pulled");
    moves.cluster.kill(0);
    moves.cluster.start(0, "127.0.0.1:0");
    let outcomes = moves.scale(2, 3, StepCount(0), &files);
    // Whoever asked hears that pushes are lost, and why.
    let fallbacks: Vec<String> = outcomes.into_iter().filter_map(|it| it.fallback).collect();
    let tells = |text: &String| text.contains("as in a checkpoint") && text.contains("gave none");
    assert!(!fallbacks.is_empty() && fallbacks.iter().all(tells), "{fallbacks:?}");
    let mut client = moves.client(3);
    // Names tell which partitions lack a push, and a push that is made again completes just those.
    let held = client.applied().expect("names");
    let counts: Vec<u64> = held.iter().map(|held| held.applied.len()).collect();
    assert!(counts.contains(&1) && counts.contains(&2), "{counts:?}");
    let table = client.declare(TableSpec::new("item", 1)).expect("declared");
    push(&mut client, table, 1);
    assert_eq!(client.pull(&[(table, &ids)]).expect("pulled"), expected);
    assert!(client.applied().expect("names").iter().all(|held| held.applied.len() == 2));
}

#[test]
fn without_files_a_move_from_a_lost_server_fails_and_the_next_history_begins() {
    let mut moves = Moves { cluster: Cluster::new(2, Mode::Staged), lineage: 0 };
    let mut client = moves.client(1);
    client.begin(Lineage(1), StepCount(0), &[]).expect("begun");
    moves.lineage = 1;
    let resets = moves.resets(1, 2, StepCount(0), &[]);
    moves.cluster.kill(0);
    moves.cluster.start(0, "127.0.0.1:0");
    let mut both = moves.client(2);
    let outcome = both.reset_each(Lineage(2), &resets);
    assert!(matches!(outcome, Err(Error::Refused { .. })), "{outcome:?}");
    moves.lineage = 2;
    let outcome = moves.client(2).applied();
    assert!(matches!(outcome, Err(Error::Refused { .. })), "{outcome:?}");
    both.begin(Lineage(3), StepCount(0), &[]).expect("begun");
    let table = both.declare(TableSpec::new("item", 4)).expect("declared");
    both.pull(&[(table, &[1, 2, 3])]).expect("pulled");
}
