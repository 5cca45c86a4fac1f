//! Rows go to where they live and come back as a single engine would give them.

use salamander_core::plan::MicroBatch;
use salamander_core::progress::StepCount;
use salamander_ps::client::{ClientOptions, Seen, WantedRows};
use salamander_ps::wire::{Advance, Code};
use salamander_ps::{
    Engine, EngineOptions, LedgerPage, Mode, PARTITIONS, Push, Read, TableRows, TableSpec, client,
    server,
};

use crate::cluster::{Cluster, Over, Waiting};

/// An engine that has everything, to compare with.
fn alone(mode: Mode) -> Engine {
    Engine::new(EngineOptions { mode, seed: 11, slices: 4, ..EngineOptions::default() })
        .expect("an engine")
}

fn gradients(ids: &[u64], dim: usize, salt: u64) -> Vec<f32> {
    let value = |at: usize| ((ids[at / dim] * 31 + at as u64 * 7 + salt) % 97) as f32 / 32.0 - 1.0;
    (0..ids.len() * dim).map(value).collect()
}

fn name(step: u64, k: u32) -> MicroBatch {
    MicroBatch { epoch: 0, step, k }
}

const TALLY: LedgerPage = LedgerPage { applied: 3, skipped: 1, digest: 5 };

#[test]
fn pulls_of_any_placement_are_those_of_one_engine() {
    let engine = alone(Mode::Staged);
    let ids: Vec<u64> = (0..5000).map(|id| id * 977 % 3001).collect();
    let ways = [(1, Over::Unix), (1, Over::Tcp), (3, Over::Unix), (3, Over::Tcp), (3, Over::Tls)];
    for (servers, over) in ways {
        let cluster = Cluster::with(servers, Mode::Staged, over, server::ServerOptions::default());
        let mut client = cluster.client(ClientOptions::default());
        // Wide enough for many chunks, and a table that comes between.
        for (name, dim) in [("narrow", 3), ("wide", 70)] {
            let spec = TableSpec::new(name, dim);
            let table = client.declare(spec.clone()).expect("declared");
            let there = engine.declare(spec).expect("declared");
            let mut expected = vec![0.0; ids.len() * dim];
            engine.pull(there, &ids, Read::Train, &mut expected).expect("pulled");
            let pulled = client.pull(&[(table, &ids), (table, &[]), (table, &ids[..7])]);
            let pulled = pulled.expect("pulled");
            assert!(pulled[0] == expected, "{servers} {name}");
            assert!(pulled[1].is_empty());
            assert_eq!(pulled[2], expected[..7 * dim]);
        }
    }
}

#[test]
fn staged_steps_are_those_of_one_engine() {
    let engine = alone(Mode::Staged);
    let (dim, ids) = (8, (0..400).map(|id| id * id).collect::<Vec<u64>>());
    let spec = TableSpec::new("item", dim);
    let there = engine.declare(spec.clone()).expect("declared");
    let cluster = Cluster::new(2, Mode::Staged);
    let mut client = cluster.client(ClientOptions::default());
    let table = client.declare(spec).expect("declared");
    let mut pulled = vec![0.0; ids.len() * dim];
    let mut expected = pulled.clone();
    for step in 0..4 {
        let version = StepCount(step);
        for k in [1, 0, 1] {
            let part = &ids[..200 + 100 * k as usize];
            let values = gradients(part, dim, step);
            engine
                .stage(version, k, &[TableRows { table: there, ids: part, values: &values }])
                .expect("staged");
            let acks = client
                .stage(version, k, &[TableRows { table, ids: part, values: &values }])
                .expect("staged");
            assert_eq!(acks.len(), 2);
            assert_eq!(acks[1].incarnation, cluster.incarnation(1));
        }
        engine.advance(version.next(), 0.5, 0.25).expect("advanced");
        let advance = Advance { to: version.next(), factor: 0.5, scale: 0.25 };
        if step % 2 == 0 {
            client.advance(&advance).expect("advanced");
        }
        // Advancing ahead of a pull, for the first or second time.
        let mut lookups = [WantedRows { table, ids: &ids, out: &mut pulled }];
        client.pull_into(Read::Train, Some(advance), &mut lookups).expect("pulled");
        engine.pull(there, &ids, Read::Train, &mut expected).expect("pulled");
        assert_eq!(pulled, expected);
    }
    assert_eq!([0, 1].map(|server| cluster.engine(server).version()), [StepCount(4); 2]);
    let outcome = client.advance(&Advance { to: StepCount(9), factor: 1.0, scale: 1.0 });
    match outcome {
        Err(client::Error::Refused { server: 0, failure }) => {
            assert_eq!((failure.code, failure.detail), (Code::OutOfStep, 4));
        }
        other => panic!("{other:?}"),
    }
    // The other server's answer does not turn up as one to the next request.
    assert_eq!(client.pull(&[(table, &ids)]).expect("pulled")[0], expected);
}

#[test]
fn rows_of_another_step_are_refused() {
    let cluster = Cluster::new(2, Mode::Staged);
    let mut clients =
        [cluster.client(ClientOptions::default()), cluster.client(ClientOptions::default())];
    let spec = TableSpec::new("item", 4);
    let table = clients.each_mut().map(|client| client.declare(spec.clone()).expect("declared"))[0];
    let step = |to| Advance { to: StepCount(to), factor: 1.0, scale: 1.0 };
    let [slow, quick] = &mut clients;
    slow.advance(&step(1)).expect("advanced");
    slow.pull(&[(table, &[1, 2, 3])]).expect("it is of step 1");
    quick.advance(&step(2)).expect("advanced");
    match slow.pull(&[(table, &[1, 2, 3])]) {
        Err(client::Error::Refused { failure, .. }) => {
            assert_eq!((failure.code, failure.detail), (Code::OutOfStep, 2));
        }
        other => panic!("{other:?}"),
    }
    quick.pull(&[(table, &[1, 2, 3])]).expect("it is of step 2");
}

#[test]
fn push_with_the_same_name_is_applied_once() {
    let engine = alone(Mode::Immediate);
    let (dim, ids) = (4, (0..300).collect::<Vec<u64>>());
    let spec = TableSpec::new("item", dim);
    let there = engine.declare(spec.clone()).expect("declared");
    let cluster = Cluster::new(3, Mode::Immediate);
    let mut clients =
        [cluster.client(ClientOptions::default()), cluster.client(ClientOptions::default())];
    let values = gradients(&ids, dim, 1);
    let mut expected = vec![0.0; values.len()];
    for (step, k) in [(0, 0), (0, 3), (1, 2)] {
        let rows = [TableRows { table: there, ids: &ids, values: &values }];
        let push = Push {
            name: name(step, k),
            tally: TALLY,
            factor: 1.0,
            scale: 0.5,
            seen: None,
            rows: &rows,
        };
        engine.push(push).expect("pushed");
        for client in &mut clients {
            let table = client.declare(spec.clone()).expect("declared");
            let rows = [TableRows { table, ..rows[0] }];
            let acks = client.push(&Push { rows: &rows, ..push }).expect("pushed");
            let lives: Vec<u64> = acks.iter().map(|ack| ack.incarnation).collect();
            let expected: Vec<u64> = (0..3).map(|server| cluster.incarnation(server)).collect();
            assert_eq!(lives, expected);
        }
    }
    engine.pull(there, &ids, Read::Train, &mut expected).expect("pulled");
    let table = clients[0].declare(spec).expect("declared");
    assert_eq!(clients[0].pull(&[(table, &ids)]).expect("pulled")[0], expected);
    let held = clients[1].applied().expect("applied");
    assert_eq!(held.iter().map(|held| held.partitions.len()).sum::<usize>(), PARTITIONS);
    for held in &held {
        assert_eq!(held.applied.len(), 3);
        assert_eq!((held.pages[&0].applied, held.pages[&0].skipped), (9, 3));
    }
    clients[0].prune(1).expect("pruned");
    let held = clients[1].applied().expect("applied");
    assert!(held.iter().all(|held| held.applied.contains(name(7, 0))));
}

#[test]
fn rounded_values_are_close_and_their_sums_exact_where_they_have_few_digits() {
    let cluster = Cluster::new(2, Mode::Staged);
    let mut exact = cluster.client(ClientOptions::default());
    let mut rounded = cluster.client(ClientOptions { bf16: true, ..ClientOptions::default() });
    let spec = TableSpec::new("item", 33);
    let ids: Vec<u64> = (0..3000).collect();
    let there = exact.declare(spec.clone()).expect("declared");
    let table = rounded.declare(spec).expect("declared");
    let full = exact.pull(&[(there, &ids)]).expect("pulled");
    let half = rounded.pull(&[(table, &ids)]).expect("pulled");
    assert_ne!(full, half);
    let is_close = |(full, half): (&f32, &f32)| (full - half).abs() <= full.abs() / 256.0;
    assert!(full[0].iter().zip(&half[0]).all(is_close));
    // Gradients of few digits arrive as they are.
    let values: Vec<f32> = gradients(&ids, 33, 2).iter().map(|v| (v * 8.0).round()).collect();
    rounded
        .stage(StepCount(0), 0, &[TableRows { table, ids: &ids, values: &values }])
        .expect("staged");
    let engine = alone(Mode::Staged);
    let reference = engine.declare(TableSpec::new("item", 33)).expect("declared");
    engine
        .stage(StepCount(0), 0, &[TableRows { table: reference, ids: &ids, values: &values }])
        .expect("staged");
    engine.advance(StepCount(1), 1.0, 1.0).expect("advanced");
    exact.advance(&Advance { to: StepCount(1), factor: 1.0, scale: 1.0 }).expect("advanced");
    let mut expected = vec![0.0; values.len()];
    engine.pull(reference, &ids, Read::Train, &mut expected).expect("pulled");
    assert_eq!(exact.pull(&[(there, &ids)]).expect("pulled")[0], expected);
}

#[test]
fn only_what_changed_comes_again() {
    let cluster = Cluster::new(2, Mode::Immediate);
    let mut client = cluster.client(ClientOptions::default());
    let table = client.declare(TableSpec::new("dense", 4)).expect("declared");
    let push = |client: &mut client::Client, step, ids: &[u64]| {
        let values = gradients(ids, 4, step);
        let rows = [TableRows { table, ids, values: &values }];
        let name = name(step, 0);
        let push = Push { name, tally: TALLY, factor: 1.0, scale: 1.0, seen: None, rows: &rows };
        client.push(&push).expect("pushed");
    };
    let ids: Vec<u64> = (0..50).collect();
    push(&mut client, 0, &ids);
    let mut all = client.changed(table, &Seen::default()).expect("changed");
    all.ids.sort_unstable();
    assert_eq!(all.ids, ids);
    let none = client.changed(table, &all.seen).expect("changed");
    assert!(none.ids.is_empty() && none.values.is_empty());
    push(&mut client, 1, &[7]);
    let news = client.changed(table, &none.seen).expect("changed");
    assert_eq!(news.ids, [7]);
    assert_eq!(news.values, client.pull(&[(table, &[7])]).expect("pulled")[0]);
}

#[test]
fn clients_do_not_disturb_each_other() {
    let cluster = Cluster::new(2, Mode::Immediate);
    let (dim, steps) = (2, 40);
    // Sums of whole numbers under plain gradient descent are exact in any order.
    let mut spec = TableSpec::new("sum", dim);
    spec.init = salamander_ps::Initializer::Zeros;
    spec.optimizer = salamander_core::optimizer::Optimizer::sgd(1.0).into();
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let mut client = cluster.client(ClientOptions::default());
            let spec = spec.clone();
            scope.spawn(move || {
                // Two tables in orders that differ between workers.
                let other = TableSpec::new("other", 3);
                if worker % 2 == 0 {
                    client.declare(other.clone()).expect("declared");
                }
                let table = client.declare(spec).expect("declared");
                client.declare(other).expect("declared");
                let ids: Vec<u64> = (0..100).collect();
                for step in 0..steps {
                    let values = vec![-1.0; ids.len() * dim];
                    let rows = [TableRows { table, ids: &ids, values: &values }];
                    let name = name(step, worker);
                    let push = Push {
                        name,
                        tally: TALLY,
                        factor: 1.0,
                        scale: 1.0,
                        seen: None,
                        rows: &rows,
                    };
                    client.push(&push).expect("pushed");
                    let rows = client.pull(&[(table, &ids)]).expect("pulled");
                    assert!(rows[0].iter().all(|value| *value >= (step + 1) as f32));
                }
            });
        }
    });
    let mut client = cluster.client(ClientOptions::default());
    let table = client.declare(spec).expect("declared");
    let rows = client.pull(&[(table, &[0, 50, 99])]).expect("pulled");
    assert_eq!(rows[0], [4.0 * steps as f32; 6]);
    let stats = [0, 1].map(|server| cluster.engine(server).stats().expect("stats"));
    let count = |stats: &Vec<salamander_ps::TableStats>| {
        stats.iter().find(|table| table.name == "sum").map_or(0, |table| table.rows)
    };
    assert_eq!(stats.iter().map(count).sum::<u64>(), 100);
}

#[test]
fn mistakes_are_named() {
    let cluster = Cluster::new(2, Mode::Staged);
    let mut client = cluster.client(ClientOptions::default());
    let table = client.declare(TableSpec::new("item", 4)).expect("declared");
    let conflict = client.declare(TableSpec::new("item", 5)).expect_err("another dim");
    assert!(conflict.to_string().contains("dim"), "{conflict}");
    let unknown = client.pull(&[(salamander_ps::TableId(9), &[1])]).expect_err("no such table");
    assert!(unknown.to_string().contains('9'), "{unknown}");
    let rows = TableRows { table, ids: &[1, 2], values: &[0.0; 7] };
    let uneven = client.stage(StepCount(0), 0, &[rows]).expect_err("uneven");
    assert!(uneven.to_string().contains("item"), "{uneven}");
    let push =
        Push { name: name(0, 0), tally: TALLY, factor: 1.0, scale: 1.0, seen: None, rows: &[] };
    match client.push(&push) {
        Err(client::Error::Refused { failure, .. }) => assert_eq!(failure.code, Code::Wrong),
        other => panic!("{other:?}"),
    }
}
