//! Pushes whose acknowledgements are collected later.

use salamander_core::plan::MicroBatch;
use salamander_core::progress::StepCount;
use salamander_ps::client::{Client, ClientOptions, Error};
use salamander_ps::wire::Code;
use salamander_ps::{
    Engine, EngineOptions, LedgerPage, Mode, Push, Read, TableId, TableRows, TableSpec, server,
};

use crate::cluster::{Cluster, Over, Waiting};

const DIM: usize = 32;
/// So many that a server has another thread receive the next request while it works on one.
const IDS: u64 = 8_000;

fn push<'a>(step: u64, rows: &'a [TableRows<'a>]) -> Push<'a> {
    let name = MicroBatch { epoch: 0, step, k: 0 };
    Push { name, tally: LedgerPage::default(), factor: 1.0, scale: 1.0, seen: None, rows }
}

fn gradients(step: u64) -> Vec<f32> {
    (0..IDS * DIM as u64).map(|at| ((at * 7 + step * 13) % 19) as f32 - 9.0).collect()
}

/// A client with a table, beside an engine of its own that has the same rows.
struct Pair {
    client: Client,
    table: TableId,
    engine: Engine,
    ids: Vec<u64>,
}

impl Pair {
    fn new(cluster: &Cluster) -> Self {
        let options = EngineOptions { mode: cluster.mode, seed: 11, ..EngineOptions::default() };
        let engine = Engine::new(EngineOptions { slices: 4, ..options }).expect("an engine");
        engine.declare(TableSpec::new("item", DIM)).expect("declared");
        let mut client = cluster.client(ClientOptions::default());
        let table = client.declare(TableSpec::new("item", DIM)).expect("declared");
        Self { client, table, engine, ids: (0..IDS).collect() }
    }

    fn assert_same(&mut self) {
        let mut expected = vec![0.0; self.ids.len() * DIM];
        self.engine.pull(TableId(0), &self.ids, Read::Train, &mut expected).expect("pulled");
        let pulled = self.client.pull(&[(self.table, &self.ids)]).expect("pulled");
        assert_eq!(pulled[0], expected);
    }
}

#[test]
fn pushes_that_were_sent_ahead_are_applied_before_what_is_asked_next() {
    for (over, servers) in [(Over::Unix, 1), (Over::Tcp, 2), (Over::Tls, 1)] {
        let cluster =
            Cluster::with(servers, Mode::Immediate, over, server::ServerOptions::default());
        let mut pair = Pair::new(&cluster);
        let ids = pair.ids.clone();
        let mut under_way = Vec::new();
        for step in 0..9 {
            let values = gradients(step);
            let rows = [TableRows { table: pair.table, ids: &ids, values: &values }];
            let sent = pair.client.begin_push(&push(step, &rows), None).expect("sent");
            under_way.push(sent.into_owned());
            let rows = [TableRows { table: TableId(0), ..rows[0] }];
            pair.engine.push(push(step, &rows)).expect("pushed");
            if step % 3 == 2 {
                // With three of them under way.
                pair.assert_same();
                for sent in under_way.drain(..) {
                    let acks = pair.client.finish(sent).expect("acknowledged");
                    let lives = acks.iter().map(|ack| ack.incarnation);
                    assert!(lives.eq((0..servers).map(|server| cluster.incarnation(server))));
                }
            }
        }
        // None was applied twice, also not by those who send it once more.
        let values = gradients(0);
        let rows = [TableRows { table: pair.table, ids: &ids, values: &values }];
        pair.client.push(&push(0, &rows)).expect("pushed");
        pair.assert_same();
    }
}

#[test]
fn push_that_a_server_did_not_get_is_sent_again() {
    let mut cluster = Cluster::new(2, Mode::Immediate);
    let mut pair = Pair::new(&cluster);
    let ids = pair.ids.clone();
    let address = cluster.endpoint(1).tcp.to_string();
    cluster.kill(1);
    let values = gradients(0);
    let rows = [TableRows { table: pair.table, ids: &ids, values: &values }];
    let sent = pair.client.begin_push(&push(0, &rows), None).expect("sent where it can be");
    cluster.start(1, &address);
    let acks = pair.client.finish(sent).expect("acknowledged");
    assert_eq!(acks[1].incarnation, cluster.incarnation(1));
    let rows = [TableRows { table: TableId(0), ..rows[0] }];
    pair.engine.push(push(0, &rows)).expect("pushed");
    pair.assert_same();
}

#[test]
fn one_that_is_refused_or_forgotten_disturbs_no_other() {
    let cluster = Cluster::new(1, Mode::Staged);
    let mut pair = Pair::new(&cluster);
    let ids = pair.ids.clone();
    let values = gradients(0);
    let rows = [TableRows { table: pair.table, ids: &ids, values: &values }];
    let refused = pair.client.begin_push(&push(0, &rows), None).expect("sent");
    // Nobody asks what became of it.
    drop(pair.client.begin_push(&push(1, &rows), None).expect("sent"));
    let staged = pair.client.begin_stage(StepCount(0), 0, &rows).expect("sent");
    pair.assert_same();
    match pair.client.finish(refused) {
        Err(Error::Refused { failure, .. }) => assert_eq!(failure.code, Code::Wrong),
        other => panic!("{other:?}"),
    }
    assert_eq!(pair.client.finish(staged).expect("kept").len(), 1);
    pair.assert_same();
}
