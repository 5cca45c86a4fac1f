//! What a master does to servers: histories, files, and partitions that move.

use std::path::PathBuf;

use salamander_ps::client::{Error, Options, Scope};
use salamander_ps::wire::{Advance, Code};
use salamander_ps::{EngineOptions, Mode, Rows, TableSpec};

use crate::cluster::Cluster;

fn step(version: u64) -> Advance {
    Advance { to: version, factor: 1.0, scale: 1.0 }
}

#[test]
fn history_goes_on_from_files_on_a_server_that_was_started_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let files: Vec<PathBuf> = (0..2).map(|n| folder.path().join(format!("ps-{n}"))).collect();
    let mut cluster = Cluster::new(2, Mode::Staged);
    let mut master = cluster.client(Options { lineage: 0, ..Options::default() });
    let table = master.declare(TableSpec::new("item", 4)).expect("declared");
    let ids: Vec<u64> = (0..200).collect();
    let values = vec![0.5; 800];
    let rows = [Rows { table, ids: &ids, values: &values }];
    master.reset(Scope::All, 1, 0, &[]).expect("reset");
    master.stage(0, 0, &rows).expect("staged");
    master.advance(&step(1)).expect("advanced");
    let written = master.save(&files).expect("saved");
    assert_eq!(written.iter().map(|written| written.rows).sum::<u64>(), 200);
    let saved = master.pull(&[(table, &ids)]).expect("pulled");
    master.stage(1, 0, &rows).expect("staged");
    master.advance(&step(2)).expect("advanced");
    assert_ne!(master.pull(&[(table, &ids)]).expect("pulled"), saved);

    cluster.kill(1);
    cluster.start(1, "127.0.0.1:0");
    // A server without its rows refuses those who take it for the old one.
    match master.pull(&[(table, &ids)]) {
        Err(Error::Refused { server: 1, failure }) => assert_eq!(failure.code, Code::Lineage),
        other => panic!("{other:?}"),
    }
    master.reset(Scope::All, 2, 0, &files).expect("reset");
    assert_eq!(master.pull(&[(table, &ids)]).expect("pulled"), saved);
    let versions: Vec<u64> = master.info().expect("info").iter().map(|info| info.version).collect();
    assert_eq!(versions, [1, 1]);
    // The same reset, sent again because its answer got lost, undoes nothing.
    master.stage(1, 0, &rows).expect("staged");
    master.advance(&step(2)).expect("advanced");
    let later = master.pull(&[(table, &ids)]).expect("pulled");
    master.reset(Scope::All, 2, 0, &files).expect("reset");
    assert_eq!(master.pull(&[(table, &ids)]).expect("pulled"), later);
    let outcome = master.reset(Scope::One(0), 1, 0, &[]);
    assert!(matches!(outcome, Err(Error::Refused { server: 0, .. })), "{outcome:?}");
}

#[test]
fn failed_restore_closes_the_server_until_one_works() {
    let folder = tempfile::tempdir().expect("a folder");
    let missing = folder.path().join("missing");
    let cluster = Cluster::new(1, Mode::Staged);
    let mut master = cluster.client(Options::default());
    let table = master.declare(TableSpec::new("item", 4)).expect("declared");
    match master.reset(Scope::All, 1, 0, std::slice::from_ref(&missing)) {
        Err(Error::Refused { failure, .. }) => {
            assert_eq!(failure.code, Code::Broken);
            assert!(failure.text.contains("missing"), "{failure}");
        }
        other => panic!("{other:?}"),
    }
    let outcome = master.pull(&[(table, &[1])]);
    assert!(matches!(outcome, Err(Error::Refused { .. })), "{outcome:?}");
    master.reset(Scope::All, 1, 0, &[]).expect("reset");
    master.pull(&[(table, &[1])]).expect("pulled");
}

#[test]
fn partitions_move_and_their_rows_with_them() {
    let mut cluster = Cluster::new(2, Mode::Staged);
    let all = |partitions| EngineOptions {
        mode: Mode::Staged,
        seed: 11,
        threads: 1,
        partitions,
        slices: 4,
    };
    // The first has everything, the second nothing.
    cluster.kill(0);
    cluster.start_with(0, "127.0.0.1:0", all(EngineOptions::default().partitions));
    cluster.kill(1);
    cluster.start_with(1, "127.0.0.1:0", all(Vec::new()));
    let first: salamander_ps::client::Directory = [cluster.directory.get(0)].into_iter().collect();
    let (token, options) = (cluster.token.clone(), Options::default());
    let mut one = salamander_ps::client::Client::connect(first, token, options).expect("connected");
    let table = one.declare(TableSpec::new("item", 4)).expect("declared");
    let ids: Vec<u64> = (0..100).collect();
    let values: Vec<f32> = (0..400u16).map(f32::from).collect();
    one.set(&[Rows { table, ids: &ids, values: &values }]).expect("set");

    let mut both = cluster.client(Options::default());
    let table = both.declare(TableSpec::new("item", 4)).expect("declared");
    let moving: Vec<u16> = cluster.map.partitions(1).collect();
    for piece in moving.chunks(100) {
        let parcel = both.take(0, piece).expect("taken");
        // Every request of the move may come twice.
        assert_eq!(both.take(0, piece).expect("taken again"), parcel);
        both.put(1, &parcel).expect("put");
        both.put(1, &parcel).expect("put again");
        both.release(0, piece).expect("released");
        both.release(0, piece).expect("released again");
    }
    let info = both.info().expect("info");
    assert_eq!(info[0].partitions, [cluster.map.partitions(0)]);
    assert_eq!(info[1].partitions, [cluster.map.partitions(1)]);
    assert_eq!(both.pull(&[(table, &ids)]).expect("pulled")[0], values);
    // Who still goes by the old map is told so.
    match one.pull(&[(table, &ids)]) {
        Err(Error::Refused { failure, .. }) => assert_eq!(failure.code, Code::NotHere),
        other => panic!("{other:?}"),
    }
}
